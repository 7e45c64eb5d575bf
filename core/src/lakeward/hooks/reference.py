"""Render the reference page of the lease hooks from their specification."""

from __future__ import annotations

import dataclasses
import inspect
import re
from enum import Enum
from typing import TYPE_CHECKING, Any

from lakeward.hooks.plugins import LEASE_GROUP, WRAPPER_GROUP
from lakeward.hooks.spec import LeaseSpec
from lakeward.model.leases import (
    Failover,
    FailoverAction,
    FailoverAnswer,
    FailoverKind,
    Lease,
    Protection,
    RestoredLease,
)
from lakeward.ports import SnapshotLeases

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD = f"""\
# Lease hooks

A lease backend decides how the KV snapshots that a round or a checkpoint still needs are protected from
the source's clean-up. It is a class with these hooks, published under the entry-point group `{LEASE_GROUP}`; its name
there is `lease.backend` in the configuration. The configured backend alone is loaded. `acquire`, `release` and `drop`
must be there. Its attribute `default_duration_s` (seconds) is used where `lease.duration_s` is not set.

Its attribute `options`, if there is one, is a subclass of `lakeward.model.options.Options` whose fields are further
keys of `[lease]`: [how keys are declared](../how-to/add-a-configuration-key.md). They are checked like the core's keys,
and the class is made with an instance of it, else without arguments. Methods `open()` and `close()`, if there are any,
are called once before the first hook and once after the last.

Wrappers (`hookimpl(wrapper=True)`, group `{WRAPPER_GROUP}`) wrap the backend in the order of
`lease.wrappers`, the first one outermost. `metrics` and `audit` are built in; `metrics` is on unless configured
otherwise. A wrapper with a method `register_metrics(registry)` is given the service's `prometheus_client` registry,
once, before the first hook.

Hooks run on the driver, on threads of their own, one at a time per lease id, with a time limit. After a time-out the
outcome is unknown and everything is acquired again under a new id. A backend never retries: the core does, with growing
pauses. `LAKEWARD_TRACE_HOOKS=1` logs every call with its arguments, its result and its duration.

This page is generated from the code; `tests/meta/test_hooks_reference.py` keeps it so.
See also: [write a lease backend](../how-to/write-a-lease-backend.md).

## The life of a lease

```mermaid
flowchart TD
    start([service starts]) --> failover["on_failover(COORDINATOR, state)"]
    failover -->|"restored: take over"| persist
    failover -->|"nothing to restore"| ask
    ask(["a round asks for its snapshots"]) --> persist
    persist["serialize_state: id and buckets are on disk"] --> acquire
    acquire["acquire"] --> verify["do the snapshots still exist?"]
    verify -->|yes| held(["protected: splits are assigned"])
    verify -->|gone| again(["enumerate again"])
    acquire -->|refused| failed(["that round fails"])
    held -->|"every third of the duration, or five minutes"| renew["acquire, the whole list"]
    renew --> verify
    held -->|"durable, finished, failed, dropped"| release["release"]
    release -->|"failed: with a growing pause"| release
    held -->|"reader or job failed"| reader["on_failover(READER or JOB)"]
    reader -->|KEEP| held
    reader -->|RELEASE| release
    reader -->|"RELEASE: the whole round"| again
    reader -->|ACQUIRE| generation
    acquire -->|"outcome unknown"| generation
    renew -->|"failed or unknown"| generation
    release -->|"outcome unknown"| generation
    generation["new generation: another id"] --> persist
    verify -->|"all verified under the new id"| drop["drop the old id"]
    held -->|"run --final"| final["drop"]
```
"""


_VALUES = """
## Values

All but `SnapshotLeases` are in `lakeward.model.leases`; that is in `lakeward.ports`.
"""
_TYPES: tuple[type[Any], ...] = (
    Lease,
    Protection,
    Failover,
    FailoverKind,
    FailoverAction,
    FailoverAnswer,
    RestoredLease,
    SnapshotLeases,
)


def render() -> str:
    """Render `docs/reference/hooks.md` from `LeaseSpec`.

    It has the life cycle, a section for each hook, then the values that they take and give.
    """
    hooks = [function for name, function in vars(LeaseSpec).items() if not name.startswith("_")]
    return _HEAD + "".join(_section(function) for function in hooks) + _VALUES + "".join(map(_value, _TYPES))


def _value(declared: type[Any]) -> str:
    """Render a value: its fields with their types and defaults, an enum's members, or a protocol's methods."""
    lines = [f"\n### `{declared.__name__}`\n", inspect.getdoc(declared) or "", ""]
    if issubclass(declared, Enum):
        lines += [f"- `{member.name}`" for member in declared]
    elif dataclasses.is_dataclass(declared):
        lines += [f"- `{field.name}: {field.type}`{_default(field)}" for field in dataclasses.fields(declared)]
    else:
        methods = [
            function for name, function in vars(declared).items() if inspect.isfunction(function) and name[0] != "_"
        ]
        lines += [f"- `{one.__name__}`: {(inspect.getdoc(one) or '').splitlines()[0]}" for one in methods]
    return "\n".join(lines) + "\n"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f", `{field.default!r}` unless given"
    return ", empty unless given" if field.default_factory is not dataclasses.MISSING else ""


def _section(function: Callable[..., object]) -> str:
    signature = inspect.signature(function)
    arguments = [p for name, p in signature.parameters.items() if name != "self"]
    shown = ", ".join(f"{p.name}: {p.annotation}" for p in arguments)
    code = f"def {function.__name__}(self, {shown}) -> {signature.return_annotation}: ..."
    return f"\n## `{function.__name__}`\n\n```python\n{code}\n```\n\n{_body(inspect.getdoc(function) or '')}\n"


def _body(text: str) -> str:
    """Turn a docstring's sections into bold words, and their entries into a list."""
    lines = []
    inside = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Raises):", line)
        if heading:
            inside = heading.group(1)
            lines += [f"**{inside}**", ""]
        elif inside and line.startswith("    "):
            lines.append(_entry(line[4:], listed=inside != "Returns"))
        else:
            inside = inside if not line else ""
            lines.append(line)
    return "\n".join(lines).rstrip()


def _entry(line: str, *, listed: bool) -> str:
    if not listed:
        return line
    name, colon, rest = line.partition(": ")
    return f"- `{name}`: {rest}" if colon and not line.startswith(" ") else f"  {line.strip()}"
