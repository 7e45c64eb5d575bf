"""A whole service in one process, without Spark: what the tests of the coordinator and benchmarks run."""

from __future__ import annotations

import sys

if "pytest" in sys.modules:  # benchmarks do without it
    import pytest

    # A failed assertion then shows both values, as one in a test module does.
    pytest.register_assert_rewrite(*(f"{__name__}.checkpoint_{part}" for part in ("conformance", "rows", "values")))
