"""Where the tables of a simulated warehouse lie: on a disk, in an S3 store, or where a REST catalog says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeward_lake_paimon.options import PaimonOptions
from lakeward_paimon_kit.gateway import DiskStore, Way, catalog_server
from lakeward_paimon_kit.rest import TOKEN, RestCatalogServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakeward_paimon_kit.troubles import Fortune

KINDS = ("disk", "disk", "s3", "rest")


class Warehouse:
    """One warehouse. `way` is that of requests, if there are any; `store` is what takes the place of S3."""

    def __init__(self, kind: str, root: Path) -> None:
        """Make an empty one."""
        self.kind = kind
        self.store: DiskStore | None = None
        self.way: Way | None = None
        self._catalog: RestCatalogServer | None = None
        self._root = root
        if kind == "s3":
            self.store = DiskStore(root)
            self.way = Way(self.store.put)
        elif kind == "rest":
            self._catalog = RestCatalogServer(str(root))
            self.way = Way(catalog_server(self._catalog))

    def close(self) -> None:
        """Give back what is held."""
        if self.way is not None:
            self.way.close()

    def meet(self, fortune: Fortune) -> None:
        """Let requests have their fortune."""
        if self.way is not None:
            self.way.before, self.way.fate = fortune.meet, fortune.fate

    def deliver(self, count: int | None = None) -> bool:
        """Let requests arrive that were late; return whether there were any."""
        if self.way is None or not self.way.late:
            return False
        self.way.deliver(count)
        return True

    def options(self, keep_snapshots: int) -> PaimonOptions:
        """Return the options of a lake."""
        if self.kind == "disk":
            return PaimonOptions(warehouse=str(self._root), keep_snapshots=keep_snapshots)
        assert self.way is not None
        uri = f"http://{self.way.host}"
        if self.kind == "rest":
            told = {"token": TOKEN}
            return PaimonOptions(
                metastore="rest", uri=uri, warehouse="lake", properties=told, keep_snapshots=keep_snapshots
            )
        told = {"s3.endpoint": uri, "s3.access-key": "someone", "s3.secret-key": "password"}
        return PaimonOptions(warehouse="s3://lake/paimon", properties=told, keep_snapshots=keep_snapshots)

    @property
    def renames(self) -> bool:
        """Whether a table can be set aside."""
        return self.kind != "s3"

    @property
    def folders(self) -> list[Path]:
        """Where the tables lie."""
        if self._catalog is not None:
            return [self._catalog.folder("shop", name) for name in self._catalog.tables("shop")]
        place = (self._root / "lake" / "paimon" if self.kind == "s3" else self._root) / "shop.db"
        return sorted(place.iterdir()) if place.is_dir() else []

    @property
    def live(self) -> Path | None:
        """Where the table lies that has its own name."""
        if self._catalog is not None:
            there = "orders" in self._catalog.tables("shop")
            return self._catalog.folder("shop", "orders") if there else None
        return next((one for one in self.folders if one.name == "orders"), None)

    @property
    def publish(self) -> Callable[[dict[str, Any]], None] | None:
        """What commits for somebody else; None where a file in the table's folder does."""
        catalog = self._catalog
        return None if catalog is None else lambda said: catalog.commit_as_another("shop", "orders", said)
