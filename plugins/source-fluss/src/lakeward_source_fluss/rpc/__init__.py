"""Calls to Fluss servers: connections, the cluster as one knows it, and a synchronous client."""
