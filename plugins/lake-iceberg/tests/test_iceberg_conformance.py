"""The Iceberg lake keeps the contract of lakes; DuckDB reads back."""

from __future__ import annotations

from lakeward.testing.lake_conformance import LakeConformance


class TestIcebergLake(LakeConformance):
    __test__ = True
