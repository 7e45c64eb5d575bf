"""A gateway before a catalog, and a driver that runs the Iceberg lake behind it under seeded faults."""

from __future__ import annotations
