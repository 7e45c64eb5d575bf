"""A lease backend for Lakeward: one persisted lease on the source."""
