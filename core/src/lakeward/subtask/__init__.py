"""The executor-side half: one Spark task that reads splits and writes lake files. Imports no pyspark."""
