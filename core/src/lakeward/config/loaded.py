"""A configuration that was loaded and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakeward.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checked configuration.

    `source_options` and `lake_options` are instances of the plugins' own `Options`, and so is `lease_options`, None
    where the lease backend has no options. `provenance` maps a dotted key (`service.rounds`,
    `spark.conf.spark.ui.port`, `tables."db.*".include`) to the place that its value came from.
    """

    settings: Settings
    source_options: Any
    lake_options: Any
    provenance: Mapping[str, str]
    file: Path
    lease_options: Any = None
