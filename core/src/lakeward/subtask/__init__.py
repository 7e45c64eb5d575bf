"""The executor side: one Spark task that reads splits and writes lake files. Imports no pyspark."""
