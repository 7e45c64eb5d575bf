"""Open an object store, and say in plain words why one does not answer.

What the state needs of a store: a PUT is atomic, and whatever was written is read and listed at once. S3 and MinIO
promise both. Nothing needs a conditional PUT, which `pyarrow.fs` does not have: each file has one writer (formats.md).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow.fs as pafs

from lakeward.local_files import refusal
from lakeward.model.object_store import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_S = 5.0
ANSWER_S = 5.0
"""Seconds for a connection, and for the first byte of an answer; a request is tried three times."""
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", *_ENDPOINT_VARIABLES, *_REGION_VARIABLES)
_ACCEPTED = {*OPTIONS, "allow_delayed_open"}
_REASONS = {
    "NO_SUCH_BUCKET": "there is no such bucket",
    "INVALID_ACCESS_KEY_ID": "the store does not know the access key",
    "SIGNATURE_DOES_NOT_MATCH": "the secret key does not fit the access key",
    "EXPIRED_TOKEN": "the session token has expired",
    "ACCESS_DENIED": "the store refuses these credentials",
    "NETWORK_CONNECTION": "the store cannot be reached",
}


def open_s3(uri: str) -> tuple[pafs.FileSystem, str]:
    """Open an S3 store; nothing is asked of it, unless its region has to be found out.

    `uri` is `s3://[KEY:SECRET@]BUCKET/PATH[?OPTION=VALUE...]`. Returned are the file system, and the path in it.

    Raises:
        ValueError: no bucket, or an option that is not known.
        OSError: the region of the bucket cannot be found out.
    """
    parts = urlsplit(uri)
    bucket = parts.netloc.rpartition("@")[2]
    if not bucket:
        message = "expected a bucket after s3://"
        raise ValueError(message)
    options = _options(parts.query)
    if parts.username:
        options |= {"access_key": unquote(parts.username), "secret_key": unquote(parts.password or "")}
    return _filesystem(bucket, options), f"{bucket}{parts.path}"


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _ACCEPTED:
            message = f"unknown option {name!r}; known: {', '.join(OPTIONS)}"
            raise ValueError(message)
    options.pop("allow_delayed_open", None)
    return options


def _filesystem(bucket: str, options: Mapping[str, Any]) -> pafs.FileSystem:
    environment = {
        "endpoint_override": _variable(_ENDPOINT_VARIABLES),
        "region": _variable(_REGION_VARIABLES),
    }
    known = {name: value for name, value in environment.items() if value} | dict(options)
    if "region" not in known and "endpoint_override" not in known:
        known["region"] = pafs.resolve_s3_region(bucket)
    known |= {"connect_timeout": CONNECT_S, "request_timeout": ANSWER_S}
    try:
        # A small file is then one PUT, not an upload of three requests that leaves parts behind.
        return pafs.S3FileSystem(**known, allow_delayed_open=True)
    except TypeError:  # an older pyarrow, without this option
        return pafs.S3FileSystem(**known)


def _variable(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def reason(error: OSError, place: str) -> str:
    """Say in a few words why a store refused to write or read a place, then what it said itself."""
    said = str(error)
    empty = [name for name in _CREDENTIALS if not os.environ.get(name, "unset")] if "AWS" in said else []
    why = next((f"{words} ({said})" for code, words in _REASONS.items() if code in said), refusal(error, place))
    return f"{why}; {' and '.join(empty)} is set, but empty" if empty else why
