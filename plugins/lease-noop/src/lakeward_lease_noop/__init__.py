"""A lease backend for Lakeward: no protection."""
