"""One round of a table, from the assignment to the report. Of all tables: `machines/rounds`."""
