"""A subtask's half of an exchange: rows go out by their key group, come in, and are written and kept in checkpoints."""
