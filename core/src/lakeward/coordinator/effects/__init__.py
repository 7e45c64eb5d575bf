"""Executes what rounds want done: each module one kind of work, with the ports that it needs."""
