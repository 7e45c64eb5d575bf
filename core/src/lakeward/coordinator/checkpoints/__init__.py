"""Checkpoints of a running round: what they contain, and how a round goes on from one."""
