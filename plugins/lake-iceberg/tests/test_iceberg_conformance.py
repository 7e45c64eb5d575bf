"""The Iceberg lake keeps the contract of lakes; DuckDB reads back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from pyiceberg.exceptions import CommitFailedException

from lakeward.testing.lake_conformance import LakeConformance
from lakeward_lake_iceberg.lake import IcebergLake

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakeward.ports import Lake


class TestIcebergLake(LakeConformance):
    __test__ = True

    @pytest.fixture
    def repeat_commits(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Lake], None]:
        def repeat(lake: Lake) -> None:
            assert isinstance(lake, IcebergLake)
            send: Callable[..., object] = lake._client.catalog.commit_table

            def twice(*arguments: object) -> object:
                with suppress(CommitFailedException):
                    send(*arguments)
                return send(*arguments)

            monkeypatch.setattr(lake._client.catalog, "commit_table", twice)

        return repeat
