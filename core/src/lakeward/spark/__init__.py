"""The only importer of pyspark: Java, the session, one job for each round."""
