"""What the service keeps of each table."""
