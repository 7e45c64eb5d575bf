"""`lakeward demo`: real flights through the real service, on this machine."""

from __future__ import annotations

from lakeward_demo.command import demo

__all__ = ["demo"]
