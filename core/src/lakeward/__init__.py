"""Lakeward: tier streaming tables into lakehouse tables on Spark."""
