"""What is on disk: service state, journals of rounds, checkpoints."""
