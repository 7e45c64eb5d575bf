"""The configuration: reads TOML, environment and flags, checks each value and remembers where it came from."""
