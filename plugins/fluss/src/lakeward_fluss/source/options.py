"""The keys of the `[source]` section for `type = "fluss"`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class FlussOptions:
    """Where the cluster is, who we are there, and how much is read at once."""

    bootstrap: str = field(metadata={"description": "Servers to begin with: host:port, joined by commas."})
    username: str = field(default="", metadata={"description": "Name for SASL/PLAIN; empty: no authentication."})
    password: str = field(default="", repr=False, metadata={"description": "Password for SASL/PLAIN.", "secret": True})
    tls: bool = field(default=False, metadata={"description": "Speak TLS (to a proxy: the servers have none)."})
    tls_ca: str = field(
        default="", metadata={"description": "File of trusted certificates; empty: the system's.", "path": True}
    )
    call_timeout_s: float = field(
        default=30.0, metadata={"description": "Seconds after which a call is of unknown outcome, > 0."}
    )
    fetch_bytes: int = field(
        default=8 * 1024 * 1024, metadata={"description": "Bytes of log that one fetch asks for, > 0."}
    )
    first_round: Literal["files", "scan"] | None = field(
        default=None,
        metadata={
            "description": "How rows that were never tiered are read from a primary-key table: from the files of KV "
            "snapshots, under a lease and resumable, or by a live scan of the servers (SCAN_KV). "
            "Unset: `files` where the server has leases."
        },
    )
    spool: str = field(
        default="",
        metadata={
            "description": "Directory of subtasks for downloaded KV snapshots; empty: the system's temporary one."
        },
    )
    storage: Mapping[str, str] = field(
        default_factory=dict,
        repr=False,
        metadata={
            "description": "Options of pyarrow's S3 file system for the server's remote data directory.",
            "secret": True,
        },
    )
