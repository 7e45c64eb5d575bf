"""The service itself: start, scheduling, state, reports and shutdown."""
