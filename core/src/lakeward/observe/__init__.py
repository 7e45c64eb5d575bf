"""What people and machines see of a running service: logs, progress, the status file, and the control file."""
