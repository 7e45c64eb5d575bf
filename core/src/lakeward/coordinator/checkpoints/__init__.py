"""Checkpoints of a running round: what they contain, and how a round resumes from one."""
