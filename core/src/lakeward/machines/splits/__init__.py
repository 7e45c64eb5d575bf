"""The machine of splits: which subtask reads which split, and which results count."""

from __future__ import annotations

from lakeward.machines.splits.enumeration import Enumeration as Enumeration
from lakeward.machines.splits.enumeration import enumerate_splits as enumerate_splits
from lakeward.machines.splits.messages import *  # noqa: F403 - its words: the events and commands
from lakeward.machines.splits.rules import ATTEMPTS as ATTEMPTS
from lakeward.machines.splits.rules import CONNECTIONS as CONNECTIONS
from lakeward.machines.splits.rules import ROUND as ROUND
from lakeward.machines.splits.rules import SPLITS as SPLITS
from lakeward.machines.splits.rules import Splits as Splits
from lakeward.machines.splits.state import AttemptPhase as AttemptPhase
from lakeward.machines.splits.state import ConnectionPhase as ConnectionPhase
from lakeward.machines.splits.state import ReadingPhase as ReadingPhase
from lakeward.machines.splits.state import SplitPhase as SplitPhase
