"""The built-in source: a streaming store in one directory (SQLite and Arrow IPC files)."""
