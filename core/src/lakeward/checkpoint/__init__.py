"""What is kept on disk: versioned records, a durable store of small files, the service's state, round journals."""
