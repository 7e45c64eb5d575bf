"""Configuration: from TOML, environment and flags to checked values, each with the place it came from."""
