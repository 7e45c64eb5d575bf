"""Rounds with an exchange on real processes, without a JVM: killed, rescaled, and compared row by row."""
