"""Fluss as a source of tables: the ports of the core, on the client of `rpc` and the readers of `formats`."""
