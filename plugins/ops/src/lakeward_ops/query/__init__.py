"""`lakeward query`: a lake table by DuckDB, without a catalog."""
