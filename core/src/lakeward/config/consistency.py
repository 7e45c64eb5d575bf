"""Checks of the service's name, and of what needs more than one key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.config.entries import place
from lakeward.config.keys import nearest
from lakeward.config.tables import table_section
from lakeward.errors import ConfigError
from lakeward.local_files import is_local
from lakeward.model.identity import SERVICE_NAME
from lakeward.model.object_store import OPTIONS, SCHEME
from lakeward.model.secrets import mask_uri

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward.model.settings import Settings


def check_consistency(settings: Settings, file: Path) -> None:
    """Check the service's name and the relations between keys.

    Args:
        settings: all sections; each key has been checked by itself.
        file: the configuration file, for errors.

    Raises:
        ConfigError: a relation does not hold; names the key to change.
    """
    _check_name(settings, file)
    _check_fence(settings, file)
    _check_renewal(settings, file)
    _check_backoff(settings, file)
    _check_commits(settings, file)
    _check_state_root(settings, file)
    _check_storage(settings, file)


def _check_name(settings: Settings, file: Path) -> None:
    if not SERVICE_NAME.fullmatch(settings.service.name):
        expected = "letters, digits, `.` and `_`, 64 at the most, a letter or digit first"
        raise ConfigError(place(file, "service.name"), expected, settings.service.name)


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


def _check_storage(settings: Settings, file: Path) -> None:
    root, storage = settings.checkpoint.root, settings.checkpoint.storage
    for name in storage:
        if name not in OPTIONS:
            raise ConfigError(
                place(file, f"checkpoint.storage.{name}"), "an option of S3", name, nearest(name, OPTIONS)
            )
    if storage and not root.startswith(SCHEME):
        expected = f"an address {SCHEME}BUCKET/PATH, as [checkpoint.storage] says how a store is reached"
        raise ConfigError(place(file, "checkpoint.root"), expected, mask_uri(root))
    if storage and ("@" in root or "?" in root):
        expected = f"{SCHEME}BUCKET/PATH alone, as [checkpoint.storage] says how the store is reached"
        raise ConfigError(place(file, "checkpoint.root"), expected, mask_uri(root))
