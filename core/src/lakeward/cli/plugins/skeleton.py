"""The files of a lease backend to start from."""

from __future__ import annotations

from string import Template

_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "lakeward-lease-$name"
version = "0.1.0"
description = "Lakeward lease backend: $name."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["lakeward>=0.1,<0.2"]

[project.entry-points."lakeward.lease"]
$name = "$package.backend:$class_name"

[tool.hatch.build.targets.wheel]
packages = ["src/$package"]
"""
_README = """\
# lakeward-lease-$name

A lease backend for Lakeward.

```toml
[lease]
backend = "$name"
required = true  # a key of this backend's own
```
"""
_INIT = '''\
"""A lease backend for Lakeward: $name."""
'''
_BACKEND = '''\
"""The backend. `lakeward.hooks.spec.LeaseSpec` says when each hook is called, and what it may raise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.errors import LeaseApiMissingError
from lakeward.hooks.markers import hookimpl
from lakeward.model.leases import Failover, FailoverAction, FailoverAnswer, Lease, Protection
from lakeward.model.tables import TableBucket


@dataclass(frozen=True)
class $options_name:
    """Keys of `[lease]` where `backend = "$name"`; `"secret": True` in the metadata hides a value."""

    required: bool = field(
        default=True,
        metadata={"description": "Fail rounds with snapshots where the source has no leases."},
    )


class $class_name:
    """Passes everything on to the source's own lease API, and remembers nothing over a restart."""

    default_duration_s = 600.0
    options = $options_name

    def __init__(self, options: $options_name) -> None:
        """Keep the options; nothing is opened."""
        self._options = options

    def open(self) -> None:
        """Called once, before the first hook: connect here to what this backend needs, and raise if it is not there."""

    def close(self) -> None:
        """Called once, after the last hook."""

    @hookimpl
    def acquire(self, lease: Lease, snapshots: Mapping[TableBucket, int]) -> Protection:
        """Protect snapshots, or renew."""
        try:
            return lease.server.acquire(lease.lease_id, lease.duration_s, snapshots)
        except LeaseApiMissingError:
            if self._options.required:
                raise
            return Protection(None, protects=False)

    @hookimpl
    def release(self, lease: Lease, buckets: frozenset[TableBucket]) -> None:
        """Give buckets back."""
        lease.server.release(lease.lease_id, buckets)

    @hookimpl
    def drop(self, lease: Lease) -> None:
        """Remove the whole lease."""
        lease.server.drop(lease.lease_id)

    @hookimpl
    def on_failover(self, lease: Lease, failover: Failover) -> FailoverAnswer:
        """Decide what happens after a failure: keep what is held; a new start begins with nothing."""
        return FailoverAnswer(FailoverAction.KEEP)

    @hookimpl
    def serialize_state(self, lease: Lease) -> bytes | None:
        """Give the bytes to persist for the next start; None: this backend is stateless."""
        return None
'''
_TEST = """\
from __future__ import annotations

import pytest
from lakeward.testing.lease_conformance import LeaseBackendConformance

from $package.backend import $class_name, $options_name


class Test$class_name(LeaseBackendConformance):
    __test__ = True

    # What this backend does not do; take a line away and the suite asks for it.
    stateful = False
    survives_old_server = False

    @pytest.fixture
    def backend(self) -> object:
        return $class_name($options_name())
"""


def skeleton(name: str) -> dict[str, str]:
    """Write the files of a lease backend.

    Args:
        name: what `lease.backend` will name; lower-case letters, digits and `-`.

    Returns:
        Path below the package's directory to text.
    """
    package = f"lakeward_lease_{name.replace('-', '_')}"
    class_name = "".join(part.capitalize() for part in name.split("-")) + "Leases"
    files = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        f"src/{package}/__init__.py": _INIT,
        f"src/{package}/backend.py": _BACKEND,
        f"src/{package}/py.typed": "",
        f"tests/test_lease_{name.replace('-', '_')}.py": _TEST,
    }
    names = {
        "name": name,
        "package": package,
        "class_name": class_name,
        "options_name": class_name.removesuffix("s") + "Options",
    }
    return {path: Template(text).substitute(names) for path, text in files.items()}
