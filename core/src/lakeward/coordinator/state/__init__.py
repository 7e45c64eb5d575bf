"""The service's own state on disk: when it is written, and what is in it."""
