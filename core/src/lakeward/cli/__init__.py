"""The command line: a file per command; the only place that turns errors into text and exit codes."""
