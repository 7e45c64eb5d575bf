"""Hide secrets in messages, logs and output."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MASK = "********"
_USER_IN_URI = re.compile(r"(?i:(?<![a-z])(?P<azure>abfss?|wasbs?)(?P<container>://[^/@:\s]+@))|(?<=://)[^/@\s]+@")
"""Azure's addresses have the name of a container there, which is no secret."""
_QUERY_OF_URI = re.compile(r"(?<=\?)[^#\s]+")
_NAMES = (
    r"(?:password|passwd|passphrase|secret|token|credential|(?:access|account|api|private)[-_.]?key"
    r"|(?<![a-z])(?:pwd?|sig)(?![a-z]))"
)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_SECRET_IN_TEXT = re.compile(
    rf"""((?:{_NAMES}[\w.-]*|authorization)["']?\s*(?:=|:)\s*(?:(?:bearer|basic)\s+)?)("[^"]*"|'[^']*'|[^\s,;)&]+)""",
    re.IGNORECASE,
)
_SECRET_IN_QUERY = re.compile(rf"""([?&][^=&#\s]*{_NAMES}[^=&#\s]*=)[^&#\s"'\\<>)]+""", re.IGNORECASE)
_LEAST_SECRET = 4
"""A shorter text is not hidden: it would be found within other words."""


class SecretTexts:
    """Texts that are never shown: the values of a configuration's secret keys."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Keep them, the longest first: a shorter one may be a part of it."""
        found = {one for one in secrets if len(one) >= _LEAST_SECRET}
        self._secrets = sorted(found, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """Return a text in which they, and what `mask_uri` hides, are masked."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return mask_uri(text)

    def hide_in(self, value: object) -> object:
        """Return a value of lists, dicts and texts in which they are masked; what is neither stays as it is."""
        match value:
            case str():
                return self.hide(value)
            case dict():
                return {key: self.hide_in(item) for key, item in value.items()}
            case list() | tuple():
                return [self.hide_in(item) for item in value]
            case _:
                return value


def mask_uri(text: str, *, query: bool = False) -> str:
    """Hide user and password of each URI in a text, and the values of its parameters that are named like secrets.

    With `query`, all that follows the first `?` is hidden. A text without secrets is unchanged.
    """
    if ":" not in text and "?" not in text and "&" not in text:
        return text  # as most texts: a page of hundreds of tables has thousands of them
    masked = _USER_IN_URI.sub(lambda found: found[0] if found["azure"] else f"{MASK}@", text)
    return _QUERY_OF_URI.sub(MASK, masked, count=1) if query else _SECRET_IN_QUERY.sub(rf"\g<1>{MASK}", masked)


def mask_text(text: str) -> str:
    """Hide what `mask_uri` hides, and each value after a name that is taken for a secret: `token=...`, `password: ...`.

    The text may be any, such as an error's message of a library; one without secrets is unchanged.
    """
    return _SECRET_IN_TEXT.sub(rf"\g<1>{MASK}", mask_uri(text))


def is_secret_name(name: str) -> bool:
    """Return whether a property of this name (of a catalog, of Spark) is taken for a secret."""
    return _SECRET_NAME.search(name) is not None
