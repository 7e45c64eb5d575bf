"""Hide secrets in messages, logs and output."""

from __future__ import annotations

import re

MASK = "********"
_USER_IN_URI = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY_OF_URI = re.compile(r"(?<=\?)[^#\s]+")
_NAMES = r"(?:password|passwd|secret|token|credential|access[-_.]?key|account[-_.]?key)"
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_SECRET_IN_TEXT = re.compile(
    rf"""({_NAMES}[\w.-]*["']?\s*(?:=|:)\s*(?:bearer\s+)?)("[^"]*"|'[^']*'|[^\s,;)&]+)""", re.IGNORECASE
)
_SECRET_IN_QUERY = re.compile(rf"([?&][^=&#\s]*{_NAMES}[^=&#\s]*=)[^&#\s]+", re.IGNORECASE)


def mask_uri(text: str, *, query: bool = False) -> str:
    """Hide user and password of each URI in a text, and the values of its parameters that are named like secrets.

    Args:
        text: a URI, or any text.
        query: hide all that follows the first `?`.

    Returns:
        The text; one without secrets is unchanged.
    """
    if ":" not in text and "?" not in text and "&" not in text:
        return text  # as most texts: a page of hundreds of tables has thousands of them
    masked = _USER_IN_URI.sub(f"{MASK}@", text)
    return _QUERY_OF_URI.sub(MASK, masked, count=1) if query else _SECRET_IN_QUERY.sub(rf"\g<1>{MASK}", masked)


def mask_text(text: str) -> str:
    """Hide what `mask_uri` hides, and each value after a name that is taken for a secret: `token=...`, `password: ...`.

    Args:
        text: any text, such as an error's message of a library.

    Returns:
        The text; one without secrets is unchanged.
    """
    return _SECRET_IN_TEXT.sub(rf"\g<1>{MASK}", mask_uri(text))


def is_secret_name(name: str) -> bool:
    """Return whether a property of this name (of a catalog, of Spark) is taken for a secret."""
    return _SECRET_NAME.search(name) is not None
