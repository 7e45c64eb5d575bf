"""The two markers that a lease backend needs."""

from __future__ import annotations

import pluggy

PROJECT = "lakeward_lease"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
