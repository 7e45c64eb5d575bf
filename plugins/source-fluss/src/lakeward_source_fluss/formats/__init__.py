"""Fluss's record formats as Arrow: log batches, rows, KV snapshots, remote segments. Parsing, and IO of files."""
