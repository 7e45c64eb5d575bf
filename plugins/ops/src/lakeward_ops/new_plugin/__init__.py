"""`lakeward plugins new`: writes a plugin to start from."""
