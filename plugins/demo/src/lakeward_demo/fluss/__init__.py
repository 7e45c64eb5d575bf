"""A private throw-away Fluss cluster on this machine, for tests and for the demo: jars, configuration, processes."""
