"""An S3 server (moto's), and buckets in it."""

from __future__ import annotations

import itertools
import logging
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUCKETS = itertools.count(1)
KEYS = {"s3.access-key": "someone", "s3.secret-key": "password"}
"""Paimon's properties of who asks."""


@contextmanager
def running_store() -> Iterator[str]:
    """Serve for the length of a `with` block; gives the address."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


def new_bucket(endpoint: str) -> str:
    """Make an empty bucket; return its name."""
    bucket = f"lake{next(_BUCKETS)}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).close()  # noqa: S310 - our server
    return bucket
