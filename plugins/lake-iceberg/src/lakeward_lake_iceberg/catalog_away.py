"""Tells a catalog that does not answer from one that refuses, and says why in a few words."""

from __future__ import annotations

import os
import socket
import sqlite3

import requests
from pyiceberg.exceptions import ServerError, ServiceUnavailableError
from sqlalchemy.exc import DBAPIError, OperationalError

_AWAY = (
    ServerError,
    ServiceUnavailableError,
    requests.ConnectionError,
    requests.Timeout,
    ConnectionError,
    TimeoutError,
)
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LOW_BYTE = 0xFF
"""Of an error code of SQLite: the error itself; the rest says more of it."""


def away(failed: BaseException) -> str | None:
    """Return why a catalog does not answer, None if it has, whatever it said; `failed` is what pyiceberg raised."""
    if isinstance(failed, OperationalError):
        return _words(failed) if is_locked(failed) or not isinstance(failed.orig, sqlite3.Error) else None
    return _words(failed) if isinstance(failed, _AWAY) else None


def is_locked(failed: BaseException) -> bool:
    """Return whether another process has locked a SQLite catalog for longer than a call waits."""
    orig = failed.orig if isinstance(failed, DBAPIError) else failed
    return isinstance(orig, sqlite3.Error) and orig.sqlite_errorcode & _LOW_BYTE in _LOCKED


def short(failed: BaseException) -> str:
    """Return what a catalog said, without the statement and the links that SQLAlchemy adds."""
    return str(failed.orig) if isinstance(failed, DBAPIError) else str(failed)


def _words(failed: BaseException) -> str:
    """Return the cause below what libraries made of it: `connection refused`, `database is locked`."""
    cause: BaseException | None = failed
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "the host name does not resolve"
        if isinstance(cause, OSError) and not isinstance(cause, requests.RequestException) and cause.errno:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    return short(failed)
