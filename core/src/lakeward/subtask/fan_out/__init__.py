"""One writer in front of many: divides records among lake partitions, with a bounded number of open files."""
