"""The line about the service that commands print: whether it runs, and when it last reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.observe.services import ServiceSeen, see_service_named

if TYPE_CHECKING:
    from lakeward.config.loaded import Loaded


def see_service(loaded: Loaded) -> ServiceSeen:
    """Read the status file.

    Raises:
        CorruptFileError: the status file is damaged.
    """
    return see_service_named(loaded.settings.checkpoint.address, loaded.settings.service.name)
