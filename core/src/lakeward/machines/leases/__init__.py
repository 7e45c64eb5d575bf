"""The machine of the service's lease: what is held, renewed, released."""

from __future__ import annotations

from lakeward.machines.leases.messages import *  # noqa: F403 - its words: the events and commands
from lakeward.machines.leases.rules import BUCKET_RULES as BUCKET_RULES
from lakeward.machines.leases.rules import RULES as RULES
from lakeward.machines.leases.rules import Leases as Leases
from lakeward.machines.leases.state import CallKind as CallKind
from lakeward.machines.leases.state import CallState as CallState
from lakeward.machines.leases.state import HeldLeases as HeldLeases
from lakeward.machines.leases.state import LeasesPolicy as LeasesPolicy
