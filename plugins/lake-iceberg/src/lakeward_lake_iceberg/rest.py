"""The REST catalog with a time limit on each call, and with the pauses that the server asks for; pyiceberg has neither.

Source: iceberg.md, "Fencing a commit".
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import RestCatalog

if TYPE_CHECKING:
    from requests import Response, Session

TIMEOUT = "lakeward.call-timeout-s"
_THROTTLED, _UNAVAILABLE = 429, 503
_PAUSE_S = 1.0
"""Where the server does not say for how many seconds, or says 0."""
_PAUSES_SHARE = 0.25
"""Part of the time limit that a call may spend in pauses: a commit is sent several times, and has four limits' time."""


class TimedRestCatalog(RestCatalog):
    """Waits `lakeward.call-timeout-s` seconds at most for the server's first byte, and between any two.

    A request that the server has put off (429, or 503 with `Retry-After`) is sent again after a pause. Should the
    first copy have landed all the same, the second one is a conflict, after which the lake looks what has landed.
    """

    def _create_session(self) -> Session:
        # Its own first call, for the configuration, is made inside the constructor: later would be too late.
        session = super()._create_session()
        timeout_s = float(self.properties[TIMEOUT])
        send = session.send
        left_alone: dict[str, float] = {}
        """Until when the server does not want to be asked for an address, where a call has no time left for that."""

        def limited(request: Any, **options: Any) -> Any:  # noqa: ANN401 - the signature of requests
            if options.get("timeout") is None:
                options["timeout"] = timeout_s
            remaining_s = timeout_s * _PAUSES_SHARE
            pause_s: float | None = left_alone.pop(request.url, 0.0) - time.monotonic()
            response = None
            while pause_s is not None:
                waited_s = max(0.0, min(pause_s, remaining_s))
                time.sleep(waited_s)
                remaining_s -= waited_s
                if response is not None and remaining_s <= 0:
                    left_alone[request.url] = time.monotonic() + pause_s - waited_s
                    return response
                response = send(request, **options)
                pause_s = _pause_s(response)
            return response

        session.send = limited  # type: ignore[method-assign]  # the one place that every call passes
        return session


def _pause_s(response: Response) -> float | None:
    """Return for how long the server wants to be left alone, None if it has answered."""
    named = response.headers.get("Retry-After")
    if response.status_code != _THROTTLED and (response.status_code != _UNAVAILABLE or named is None):
        return None
    return max(_PAUSE_S, float(named)) if named is not None and named.isdecimal() else _PAUSE_S
