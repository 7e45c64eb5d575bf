"""The driver side: IO around the machines. One event loop owns all state; blocking calls come back as events."""
