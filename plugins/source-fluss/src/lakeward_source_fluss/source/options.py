"""The keys of the `[source]` section for `type = "fluss"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from lakeward.model.options import LocalPath, Meta, Options, Secret
from lakeward_source_fluss.rpc.options import REQUEST_TIMEOUT_S


class FlussOptions(Options, frozen=True, kw_only=True):
    """Where the cluster is, who we are there, and how much is read at once."""

    bootstrap: Annotated[str, Meta(description="Servers to begin with: host:port, joined by commas.")]
    username: Annotated[str, Meta(description="Name for SASL/PLAIN; empty: no authentication.")] = ""
    password: Annotated[Secret, Meta(description="Password for SASL/PLAIN.")] = ""
    tls: Annotated[bool, Meta(description="Speak TLS (to a proxy: the servers have none).")] = False
    tls_ca: Annotated[LocalPath, Meta(description="File of trusted certificates; empty: the system's.")] = ""
    call_timeout_s: Annotated[float, Meta(gt=0, description="Seconds after which a call is of unknown outcome.")] = (
        REQUEST_TIMEOUT_S
    )
    fetch_bytes: Annotated[int, Meta(gt=0, description="Bytes of log that one fetch asks for.")] = 8 * 1024 * 1024
    first_round: Annotated[
        Literal["files", "scan"] | None,
        Meta(
            description="How rows that were never tiered are read from a primary-key table: from the files of KV "
            "snapshots, under a lease and resumable, or by a live scan of the servers (SCAN_KV). "
            "Unset: `files` where the server has leases."
        ),
    ] = None
    spool: Annotated[
        str,
        Meta(description="Directory of subtasks for downloaded KV snapshots; empty: the system's temporary one."),
    ] = ""
    storage: Annotated[
        Mapping[str, str],
        Meta(
            description="Options of pyarrow's S3 file system for the server's remote data directory.",
            extra={"secret": True},
        ),
    ] = msgspec.field(default_factory=dict)


_TASKS = msgspec.msgpack.Decoder(FlussOptions)
"""Made while this is imported: threads that learn a type at the same time crash the process."""


def pack_task(options: FlussOptions) -> bytes:
    """Return what a subtask's reader is made of: the whole section. It holds the password, so it is never logged."""
    return msgspec.msgpack.encode(options)


def unpack_task(task: bytes) -> FlussOptions:
    """Read what `pack_task` gave."""
    return _TASKS.decode(task)
