"""A test-only plugin: the embedded source, the Iceberg lake and a lease backend that fail where a test arms them."""
