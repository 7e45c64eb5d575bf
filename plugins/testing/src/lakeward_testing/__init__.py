"""For those who write plugins: conformance suites, and fakes that their tests may use too."""

from __future__ import annotations

import sys

if "pytest" in sys.modules:  # fakes are also used without it
    import pytest

    # A failed assertion of a suite then shows both values, as one in a test module does.
    pytest.register_assert_rewrite(
        *(
            f"{__name__}.{module}"
            for module in (
                "interruptions",
                "lake_conformance",
                "lake_fencing",
                "lake_partitions",
                "lake_resume",
                "lake_tables",
                "lake_upkeep",
                "lease_conformance",
                "source_conformance",
                "source_reading",
                "source_steps",
                "wrapper_conformance",
            )
        )
    )
