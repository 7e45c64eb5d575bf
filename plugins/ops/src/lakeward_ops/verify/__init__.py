"""Compares a lake table with its source, row by row: what `lakeward verify` does."""
