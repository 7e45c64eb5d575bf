"""The service's files: service state, journals of rounds, commit records, checkpoints."""
