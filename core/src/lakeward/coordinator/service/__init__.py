"""The service itself: start, the queue of tables, heartbeats, reports and stop."""
