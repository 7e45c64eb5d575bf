"""The exchange's real transport: Arrow Flight, a server for each subtask, two streams for each channel."""
