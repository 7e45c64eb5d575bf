"""Hide secrets in messages, logs and output."""

from __future__ import annotations

import re

MASK = "********"
_USER_IN_URI = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY_OF_URI = re.compile(r"(?<=\?)[^#\s]+")
_NAMES = r"(?:password|passwd|secret|token|credential|access[-_.]?key|account[-_.]?key)"
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_SECRET_IN_QUERY = re.compile(rf"([?&][^=&#\s]*{_NAMES}[^=&#\s]*=)[^&#\s]+", re.IGNORECASE)


def mask_uri(text: str, *, query: bool = False) -> str:
    """Hide user and password of each URI in a text, and the values of its parameters that are named like secrets.

    Args:
        text: a URI, or any text.
        query: hide all that follows the first `?`.

    Returns:
        The text; one without secrets is unchanged.
    """
    masked = _USER_IN_URI.sub(f"{MASK}@", text)
    return _QUERY_OF_URI.sub(MASK, masked, count=1) if query else _SECRET_IN_QUERY.sub(rf"\g<1>{MASK}", masked)


def is_secret_name(name: str) -> bool:
    """Return whether a property of this name (of a catalog, of Spark) is taken for a secret."""
    return _SECRET_NAME.search(name) is not None
