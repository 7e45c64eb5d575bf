"""The status page of a running service, its metrics, and its answers to health checks."""
