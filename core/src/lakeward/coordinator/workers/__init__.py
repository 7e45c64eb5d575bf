"""Blocking calls on worker threads, and the locks that keep a table to one worker at a time."""
