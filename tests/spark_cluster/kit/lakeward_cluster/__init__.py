"""A standalone Spark cluster of real processes, for tests."""
