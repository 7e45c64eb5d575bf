"""Drives the lease machine with the calls of a lease backend."""
