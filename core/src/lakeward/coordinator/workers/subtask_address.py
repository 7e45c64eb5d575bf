"""Where subtasks connect, and the secret that they prove to have."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field


@dataclass(slots=True)
class SubtaskAddress:
    """Where subtasks connect: to `host`, while the server listens on `bind`.

    `port` is the configured one until the server listens, 0 for any free one. `trusted` are the certificates (PEM text)
    that subtasks trust; if empty, they connect without TLS. `secret` is new for each start of the service.
    """

    host: str
    bind: str
    trusted: str = ""
    port: int = 0
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
