"""A whole service in one process, without Spark: what the tests of the coordinator and benchmarks run."""
