"""`lakeward plan`: what the next rounds would do."""
