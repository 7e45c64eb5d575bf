"""The machine of all tables: which table comes next, and the phases of each round."""

from __future__ import annotations

from lakeward.machines.rounds.messages import *  # noqa: F403 - its words: the events and commands
from lakeward.machines.rounds.rules import HEARTBEAT_RULES as HEARTBEAT_RULES
from lakeward.machines.rounds.rules import RULES as RULES
from lakeward.machines.rounds.rules import Rounds as Rounds
from lakeward.machines.rounds.state import HeartbeatPhase as HeartbeatPhase
from lakeward.machines.rounds.state import Phase as Phase
from lakeward.machines.rounds.state import ServicePhase as ServicePhase
from lakeward.machines.rounds.state import TableStatus as TableStatus
from lakeward.machines.rounds.table_rules import TABLE_RULES as TABLE_RULES
