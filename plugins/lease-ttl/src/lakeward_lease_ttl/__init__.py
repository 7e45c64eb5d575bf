"""A lease backend for Lakeward: short leases that run out by themselves."""
