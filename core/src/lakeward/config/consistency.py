"""Checks of the service's name, and of what needs more than one key."""

from __future__ import annotations

import ipaddress
import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from lakeward.config.entries import place
from lakeward.config.keys import nearest
from lakeward.config.sections import DEFAULT
from lakeward.config.tables import table_rules, table_section
from lakeward.errors import ConfigError
from lakeward.local_files import is_local
from lakeward.model.identity import SERVICE_NAME
from lakeward.model.lake_names import LakeNames
from lakeward.model.object_store import OPTIONS, SCHEME, SCHEMES
from lakeward.model.patterns import has_wildcards, is_pattern
from lakeward.model.secrets import mask_uri
from lakeward.model.settings import DISCARD_ROW, DYNAMIC_ALLOCATION
from lakeward.model.tables import TablePath

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lakeward.config.loaded import Loaded
    from lakeward.model.settings import Settings, TableSettings

_COUNT = r"\s*[1-9]\d*\s*"
_MASTER = re.compile(
    rf"local(?:\[(?:\s*\*\s*|{_COUNT})(?:,{_COUNT})?\])?|local-cluster\[{_COUNT},{_COUNT},{_COUNT}\]|yarn|\w+://\S+"
)
_COLLECTORS = ("http://", "https://")
_MEMORY_KEYS = (".memory", ".memoryOverhead")
_UNFIT_NAME = re.compile(r"[./]|^\s|\s$")
_MEMORY = re.compile(r"\d+(?:[kmgtp]b?|b)?", re.IGNORECASE)


def check_consistency(settings: Settings, file: Path, provenance: Mapping[str, str]) -> None:
    """Check the service's name and the relations between keys; each key has been checked by itself.

    `file` is the configuration file, for errors; `provenance` says where the value of each key came from.

    Raises:
        ConfigError: a relation does not hold; names the key to change.
    """
    _check_name(settings, file)
    _check_spark(settings, file)
    _check_bound_tables(settings, file)
    _check_fence(settings, file)
    _check_renewal(settings, file)
    _check_backoff(settings, file)
    _check_commits(settings, file)
    _check_state_root(settings, file)
    _check_storage(settings, file)
    _check_recovery(settings, file, provenance)
    _check_spill(settings, file)
    _check_exchange_host(settings, file)
    _check_telemetry(settings, file)


def check_partitioned_tables(loaded: Loaded, *, can_partition: bool) -> None:
    """Check what a `lake_partition` needs: its mode, and a lake whose plugin can partition its tables.

    Raises:
        ConfigError: names the key to change.
    """
    for pattern in loaded.settings.tables:
        # A pattern matches its own text, and so do all wider ones.
        rules = table_rules(loaded, TablePath.parse(pattern)).settings
        if not rules.lake_partition:
            continue
        section = table_section(pattern)
        if not can_partition:
            found = f"lake.type = {loaded.settings.lake.type!r}, which cannot"
            key = place(loaded.file, f"{section}.lake_partition")
            raise ConfigError(key, "a lake that partitions tables by the configuration", found)
        if rules.mode == "tier":
            hint = "Readers of the source could not read such a lake table together with it: leave `mode` out."
            key = place(loaded.file, f"{section}.mode")
            raise ConfigError(key, "`mirror`, because the table has a `lake_partition`", "tier", hint)
        _check_allocation(loaded, rules, section)


def check_bad_rows(loaded: Loaded, *, can_check: bool) -> None:
    """Check what `on_bad_row` needs: a lake whose plugin can check rows, and a limit that is a share or whole rows.

    Raises:
        ConfigError: names the key to change.
    """
    for pattern, rules in loaded.settings.tables.items():
        section, most = table_section(pattern), rules.bad_rows_most
        if most >= 1 and most != int(most):
            key = place(loaded.file, f"{section}.bad_rows_most")
            raise ConfigError(key, "a whole number of rows, or a share below 1", most)
        if rules.on_bad_row != "suspend" and not can_check:
            found = f"{rules.on_bad_row!r} with lake.type = {loaded.settings.lake.type!r}, which cannot check rows"
            raise ConfigError(place(loaded.file, f"{section}.on_bad_row"), "'suspend'", found)


def check_mirrors(loaded: Loaded) -> None:
    """Refuse what says which columns a lake table has where Lakeward does not make it: one of `tier` is the server's.

    Raises:
        ConfigError: names the key.
    """
    for pattern in loaded.settings.tables:
        rules = table_rules(loaded, TablePath.parse(pattern)).settings
        if rules.schema.get("types") == "discard_value":
            key = place(loaded.file, f"{table_section(pattern)}.schema.types")
            raise ConfigError(key, "'evolve', 'freeze' or 'discard_row'", "discard_value")
        if DISCARD_ROW in rules.schema.values() and rules.on_bad_row == "suspend":
            key = place(loaded.file, f"{table_section(pattern)}.on_bad_row")
            hint = f"Rows that {table_section(pattern)}.schema = {DISCARD_ROW!r} keeps out of the table go somewhere."
            raise ConfigError(key, "'dead_letter' or 'drop'", "suspend", hint)
        if rules.mode != "tier":
            continue
        given: dict[str, object] = {}
        if rules.system_columns is not None:
            given["system_columns"] = str(rules.system_columns).lower()
        if rules.columns:
            given["columns"] = list(rules.columns)
        for what, contract in rules.schema.items():
            if contract in {"discard_value", DISCARD_ROW}:
                given[f"schema.{what}"] = contract
        given |= {name: found for name in ("lake_name", "lake_namespace") if (found := getattr(rules, name))}
        for name, found in given.items():
            key = place(loaded.file, f"{table_section(pattern)}.{name}")
            hint = (
                "The source's server names and makes the lake table of the mode `tier`; its clients read all columns."
            )
            raise ConfigError(key, 'no such key without `mode = "mirror"` or a `lake_partition`', found, hint)


def check_lake_names(loaded: Loaded) -> None:
    """Check the form of names of lake tables, and that no two tables of the configuration have one lake table.

    Whether a table that only a pattern matches has that of another one is known once the tables are.

    Raises:
        ConfigError: names the key to change.
    """
    names = LakeNames()
    for pattern, stated in loaded.settings.tables.items():
        section = table_section(pattern)
        for key in ("lake_name", "lake_namespace"):
            if found := _UNFIT_NAME.search(getattr(stated, key)):
                expected = "a name without `.`, `/` and spaces at its ends"
                raise ConfigError(place(loaded.file, f"{section}.{key}"), expected, found.string)
        if has_wildcards(pattern):
            if stated.lake_name:
                hint = "All tables that it matches would have one lake table; `lake_namespace` can be of a pattern."
                expected = "no such key in the section of a pattern"
                raise ConfigError(place(loaded.file, f"{section}.lake_name"), expected, stated.lake_name, hint)
            continue
        path = TablePath.parse(pattern)
        rules = table_rules(loaded, path).settings
        if rules.include:
            names.add(path, rules)


def _check_allocation(loaded: Loaded, rules: TableSettings, section: str) -> None:
    """Refuse a wanted exchange where Spark may add and remove executors: it runs no barrier stage there.

    Whether `auto` means one is known once the table is (`resolve_layout`).
    """
    if rules.exchange == "hash" and loaded.settings.spark.dynamic_allocation:
        expected = f"false, because the rows of {section} are exchanged"
        hint = f'Spark runs no barrier stage with dynamic allocation; or set exchange = "none" in {section}.'
        raise ConfigError(place(loaded.file, f"spark.conf.{DYNAMIC_ALLOCATION}"), expected, "true", hint)


def _check_name(settings: Settings, file: Path) -> None:
    if not SERVICE_NAME.fullmatch(settings.service.name):
        expected = "letters, digits, `.` and `_`, 64 at the most, a letter or digit first"
        raise ConfigError(place(file, "service.name"), expected, settings.service.name)


def _check_bound_tables(settings: Settings, file: Path) -> None:
    """Check the form of what the service binds, and that it has something to tier."""
    service = settings.service
    for pattern in service.tables:
        if not is_pattern(pattern):
            expected = "names or patterns of tables, `DATABASE.TABLE`, `*` stands for any name"
            raise ConfigError(place(file, "service.tables"), expected, pattern)
    if not service.tables and not service.shared:
        expected = "true where `service.tables` is empty: the service would tier nothing"
        raise ConfigError(place(file, "service.shared"), expected, "false")


def _check_fence(settings: Settings, file: Path) -> None:
    fence, commit = settings.service.fence_s, settings.lake.commit_timeout_s
    heartbeat = settings.source.heartbeat_timeout_s
    if fence + commit >= heartbeat:
        expected = f"service.fence_s + lake.commit_timeout_s below source.heartbeat_timeout_s ({heartbeat:g} s)"
        hint = "A commit that is under way must end before the source gives the table to another service."
        found = f"{fence:g} s + {commit:g} s = {fence + commit:g} s"
        raise ConfigError(place(file, "service.fence_s"), expected, found, hint)


def _check_renewal(settings: Settings, file: Path) -> None:
    renew, fence = settings.service.renew_s, settings.service.fence_s
    if renew >= fence:
        expected = f"less than service.fence_s ({fence:g} s), so that a renewal comes before the fence"
        raise ConfigError(place(file, "service.renew_s"), expected, renew)


def _check_spark(settings: Settings, file: Path) -> None:
    """Refuse what Spark would refuse after seconds, in a page of Java's words."""
    spark = settings.spark
    if _MASTER.fullmatch(spark.master.strip()) is None:
        expected = "`local[N]` with N of 1 or more (`*`: all cores), `spark://HOST:PORT`, `yarn` or `k8s://...`"
        raise ConfigError(place(file, "spark.master"), expected, spark.master)
    for key, value in spark.conf.items():
        if key.endswith(_MEMORY_KEYS) and _MEMORY.fullmatch(value.strip()) is None:
            expected = "a size as Spark has it, such as `512m` or `2g`"
            raise ConfigError(place(file, f'spark.conf."{key}"'), expected, value)


def _check_backoff(settings: Settings, file: Path) -> None:
    first, most = settings.service.backoff_first_s, settings.service.backoff_most_s
    if first > most:
        raise ConfigError(place(file, "service.backoff_first_s"), f"at most backoff_most_s ({most:g} s)", first)


def _check_commits(settings: Settings, file: Path) -> None:
    """Refuse to commit in steps where no checkpoints are taken: a step commits what a checkpoint holds."""
    for pattern, rules in settings.tables.items():
        if rules.commit_every and not settings.checkpoint.interval_s:
            expected = "0 where checkpoint.interval_s is 0: a step commits what a checkpoint holds"
            raise ConfigError(place(file, f"{table_section(pattern)}.commit_every"), expected, rules.commit_every)


def _check_state_root(settings: Settings, file: Path) -> None:
    """Refuse to keep the state of a cluster in a directory of the driver: executors write their checkpoints there."""
    root, spark = settings.checkpoint.root, settings.spark
    if is_local(root) and not spark.on_this_machine and not settings.checkpoint.shared:
        expected = f"a URI that every executor reaches (s3://...), because spark.master is {spark.master!r}"
        hint = "Where the directory is a mount that every machine has at this path, set checkpoint.shared = true."
        raise ConfigError(place(file, "checkpoint.root"), expected, mask_uri(root), hint)


def _check_recovery(settings: Settings, file: Path, provenance: Mapping[str, str]) -> None:
    """Refuse to promise checkpoints in a recovery where none can be taken; the default promises nothing."""
    checkpoint, key = settings.checkpoint, "checkpoint.during_recovery"
    if checkpoint.during_recovery and not checkpoint.unaligned and provenance.get(key, DEFAULT) != DEFAULT:
        expected = "checkpoint.unaligned = true too: an aligned checkpoint waits until the recovery is over"
        hint = "Set checkpoint.unaligned = true, or leave checkpoint.during_recovery out."
        raise ConfigError(place(file, key), expected, "true with checkpoint.unaligned = false", hint)


def _check_spill(settings: Settings, file: Path) -> None:
    """Refuse to spill to a place that depends on where an executor was started."""
    key = place(file, "checkpoint.spill_dirs")
    for directory in settings.checkpoint.spill_dirs:
        if not PurePath(directory).is_absolute():
            raise ConfigError(key, "absolute paths of directories on the executors' machines", directory)


def _check_exchange_host(settings: Settings, file: Path) -> None:
    """Refuse a network that is none; names and addresses have no `/`, and only executors can say if they are right."""
    host = settings.spark.exchange_host
    if "/" not in host:
        return
    try:
        ipaddress.ip_network(host)
    except ValueError as error:
        expected = "a name, an address, or a network such as 10.0.0.0/8 or fd00::/8"
        raise ConfigError(place(file, "spark.exchange_host"), expected, host, f"{error}.") from error


def _check_telemetry(settings: Settings, file: Path) -> None:
    observe = settings.observe
    if observe.telemetry and observe.telemetry_endpoint and not observe.telemetry_endpoint.startswith(_COLLECTORS):
        expected = "a URL such as http://localhost:4318"
        raise ConfigError(place(file, "observe.telemetry_endpoint"), expected, observe.telemetry_endpoint)


def _check_storage(settings: Settings, file: Path) -> None:
    root, storage = settings.checkpoint.root, settings.checkpoint.storage
    for name in storage:
        if name not in OPTIONS:
            raise ConfigError(
                place(file, f"checkpoint.storage.{name}"), "an option of S3", name, nearest(name, OPTIONS)
            )
    if (scheme := storage.get("scheme", SCHEMES[0])) not in SCHEMES:
        expected = f"one of {', '.join(SCHEMES)}"
        raise ConfigError(place(file, "checkpoint.storage.scheme"), expected, scheme, nearest(scheme, SCHEMES))
    if storage and not root.startswith(SCHEME):
        expected = f"an address {SCHEME}BUCKET/PATH, as [checkpoint.storage] says how a store is reached"
        raise ConfigError(place(file, "checkpoint.root"), expected, mask_uri(root))
    if storage and ("@" in root or "?" in root):
        expected = f"{SCHEME}BUCKET/PATH alone, as [checkpoint.storage] says how the store is reached"
        raise ConfigError(place(file, "checkpoint.root"), expected, mask_uri(root))
