"""For `lakeward doctor`: whether catalog and warehouse can be used, and are those of the source's server."""

from __future__ import annotations

import secrets
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from lakeward.model.secrets import mask_uri
from lakeward.ports import CheckResult, compare_clocks
from lakeward_lake_iceberg.storage import Storage, local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from lakeward.ports import Clock, ServerLake
    from lakeward_lake_iceberg.catalog import CatalogClient
    from lakeward_lake_iceberg.options import IcebergOptions

_ANSWER_S = 5.0
_NOT_TRIED = "`lakeward doctor --write` tries it, with a table of its own that is dropped again"
_FILE_BASED = "hadoop"


def check_lake(
    client: CatalogClient, options: IcebergOptions, storage: Callable[[str], Storage], clock: Clock, *, write: bool
) -> Iterator[CheckResult]:
    """Look at the catalog; see `lakeward.ports.CheckedLake`.

    `storage` opens the file system of a URI; with `write`, a table and a file may be made.
    """
    if client.is_missing and not write:
        yield CheckResult("catalog", ok=True, message="is not there yet; the first table makes it", action=_NOT_TRIED)
        return
    if options.catalog == "rest" and (found := _clock_of(options.uri, clock)) is not None:
        yield found
    try:
        namespaces = len(client.catalog.list_namespaces())
    except Exception as refused:  # noqa: BLE001 - each catalog has errors of its own
        yield CheckResult("catalog", ok=False, message=f"cannot be listed: {_brief(refused)}", action=_grant("list"))
        return
    if not write:
        found_there = "1 namespace" if namespaces == 1 else f"{namespaces} namespaces"
        message = f"answers, with {found_there}; whether it can be written was not tried"
        yield CheckResult("catalog", ok=True, message=message, action=_NOT_TRIED)
        return
    yield from _Trial(client, options, storage, clock).results()


def compare_catalogs(client: CatalogClient, options: IcebergOptions, server: ServerLake) -> CheckResult:
    """Compare the server's catalog with ours; see `lakeward.ports.ComparedLake`."""
    kind = server.settings.get("type", "").lower()
    if kind == _FILE_BASED:
        message = f"the server's catalog is {_FILE_BASED}, which finds tables by their files; ours is {options.catalog}"
        return CheckResult("", ok=False, message=message)
    if kind and kind != options.catalog:
        message = f"the server's catalog is {kind}, ours is {options.catalog}: they cannot be compared"
        return CheckResult("", ok=True, message=message, action="make sure that both lead to the same tables")
    ours = {"uri": client.properties.get("uri", ""), "warehouse": client.warehouse}
    for key, here in ours.items():
        there = server.settings.get(key, "")
        if there and here and _plain(there) != _plain(here):
            message = f"expected lake.{key} {mask_uri(there)} as at the server, found {mask_uri(here)}"
            return CheckResult("", ok=False, message=message)
    return CheckResult("", ok=True, message="the server's catalog and warehouse are ours")


class _Trial:
    """Makes a table, commits to it, writes a file beside it, and takes all of it away again."""

    def __init__(
        self, client: CatalogClient, options: IcebergOptions, storage: Callable[[str], Storage], clock: Clock
    ) -> None:
        self._catalog: Catalog = client.catalog
        self._name = f"lakeward_doctor_{secrets.token_hex(4)}"
        own = options.catalog == "rest"  # the server says where a table lies
        self._location = None if own else f"{client.warehouse}/{self._name}"
        self._storage = storage
        self._clock = clock
        self._table: Table | None = None
        self._written: CheckResult | None = None

    def results(self) -> Iterator[CheckResult]:
        identifier = (self._name, "t")
        catalog_steps: dict[str, Callable[[], object]] = {
            "create a namespace": lambda: self._catalog.create_namespace((self._name,)),
            "create a table": self._create,
            "commit to a table": self._commit,
        }
        refused = self._first_refusal("catalog", catalog_steps)
        if refused is None:
            yield self._first_refusal("warehouse", {"write and delete a file": self._write}) or CheckResult(
                "warehouse", ok=True, message=f"{mask_uri(self._place)}: a file was written and deleted"
            )
            if self._written is not None:
                yield self._written
        dropping: dict[str, Callable[[], object]] = {}
        if self._table is not None:
            dropping["drop a table"] = lambda: self._catalog.drop_table(identifier)
        dropping["delete a table's files"] = self._delete
        dropping["drop a namespace"] = lambda: self._catalog.drop_namespace((self._name,))
        if refused is not None:
            for step in dropping.values():
                with suppress(Exception):
                    step()
            yield refused
            return
        message = "a namespace and a table were created, committed to and dropped"
        kept = self._first_refusal("catalog", dropping)
        if kept is not None:
            yield replace(kept, action=f"{kept.action}, and drop {self._name}.t, which stays")
            return
        yield CheckResult("catalog", ok=True, message=message)

    @property
    def _place(self) -> str:
        return self._table.location() if self._table is not None else self._location or ""

    def _create(self) -> None:
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        self._table = self._catalog.create_table((self._name, "t"), schema=schema, location=self._location)

    def _commit(self) -> None:
        if self._table is not None:
            with self._table.transaction() as transaction:
                transaction.set_properties({"lakeward.doctor": "tried"})

    def _write(self) -> None:
        uri = f"{self._place.rstrip('/')}/data/{self._name}"
        storage = self._storage(uri)
        asked_ms = self._clock.wall_ms()
        with storage.create(uri) as file:
            file.write(b"written by `lakeward doctor --write`\n")
        answered_ms = self._clock.wall_ms()
        told_ms = storage.modified_ms(uri)
        storage.delete(uri)
        if told_ms is not None:
            self._written = compare_clocks("warehouse's clock", told_ms, asked_ms, answered_ms)

    def _delete(self) -> None:
        if self._place:
            self._storage(self._place).delete_directory(self._place)

    @staticmethod
    def _first_refusal(what: str, steps: dict[str, Callable[[], object]]) -> CheckResult | None:
        for step, take in steps.items():
            try:
                take()
            except Exception as refused:  # noqa: BLE001 - each catalog and each store has errors of its own
                message = f"this user cannot {step}: {_brief(refused)}"
                return CheckResult(what, ok=False, message=message, action=_grant(step))
        return None


def _grant(step: str) -> str:
    return f"give the user of [lake] the right to {step}"


def _clock_of(uri: str, clock: Clock) -> CheckResult | None:
    """Compare the clock of a REST catalog, if it tells the time; whatever it answers, its headers have it."""
    if not uri.startswith(("http://", "https://")):
        return None
    asked_ms = clock.wall_ms()
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/v1/config", timeout=_ANSWER_S) as answer:  # noqa: S310 - see above
            told = answer.headers.get("Date")
    except urllib.error.HTTPError as refused:
        told = refused.headers.get("Date")
        refused.close()
    except OSError:
        return None  # the listing says what is wrong
    if not told:
        return None
    try:
        theirs_ms = round(parsedate_to_datetime(told).timestamp() * 1000)
    except ValueError:
        return None
    return compare_clocks("catalog's clock", theirs_ms, asked_ms, clock.wall_ms())


def _plain(uri: str) -> str:
    return local_path(uri).split("?", maxsplit=1)[0].rstrip("/")


def _brief(error: Exception) -> str:
    lines = str(error).splitlines()
    return mask_uri(lines[0]) if lines else type(error).__name__
