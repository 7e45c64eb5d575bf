"""The REST catalog with a time limit on each call; pyiceberg's own session has none.

Source: iceberg.md, "Fencing a commit".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.catalog.rest import RestCatalog

if TYPE_CHECKING:
    from requests import Session

TIMEOUT = "lakeward.call-timeout-s"


class TimedRestCatalog(RestCatalog):
    """Waits `lakeward.call-timeout-s` seconds at most for the server's first byte, and between any two."""

    def _create_session(self) -> Session:
        # Its own first call, for the configuration, is made inside the constructor: later would be too late.
        session = super()._create_session()
        timeout_s = float(self.properties[TIMEOUT])
        send = session.send

        def limited(request: Any, **options: Any) -> Any:  # noqa: ANN401 - the signature of requests
            if options.get("timeout") is None:
                options["timeout"] = timeout_s
            return send(request, **options)

        session.send = limited  # type: ignore[method-assign]  # the one place that every call passes
        return session
