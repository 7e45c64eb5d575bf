"""The command line in this process."""

from __future__ import annotations

from lakeward_service_kit.command_line import configured, flights, lakeward

__all__ = ["configured", "flights", "lakeward"]
