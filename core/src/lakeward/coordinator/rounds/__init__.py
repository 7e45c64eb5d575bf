"""One round of a table, from the assignment to the report."""
