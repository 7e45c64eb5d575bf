"""The Iceberg lake. Importing this package imports nothing else; `plugin` is the entry point.

Modules of the driver (they import pyiceberg): catalog, schema, tables, offsets, head, manifests, commit, pins, files,
expire, lake. Modules of the workers (pyarrow and numpy at most; never pyiceberg): task, detail, storage, rows, bounds,
datafile, writer, keys, base, positions, deletes, upserts.
"""
