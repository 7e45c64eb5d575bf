"""What the core asks of the outside; nothing here does anything. Each port has a module, and its name is here too."""

from __future__ import annotations

from lakeward.model.batches import SourceBatch as SourceBatch
from lakeward.ports.checkpoints import CheckpointStore as CheckpointStore
from lakeward.ports.clock import Clock as Clock
from lakeward.ports.diagnostics import CheckResult as CheckResult
from lakeward.ports.diagnostics import DescribedSource as DescribedSource
from lakeward.ports.executor import Executor as Executor
from lakeward.ports.executor import Running as Running
from lakeward.ports.executor import Worker as Worker
from lakeward.ports.jobs import Jobs as Jobs
from lakeward.ports.lake import Lake as Lake
from lakeward.ports.lake import LakeWriter as LakeWriter
from lakeward.ports.leases import SnapshotLeases as SnapshotLeases
from lakeward.ports.source import Source as Source
from lakeward.ports.source import SourceReader as SourceReader
from lakeward.ports.transport import Address as Address
from lakeward.ports.transport import Connection as Connection
from lakeward.ports.transport import Listener as Listener
from lakeward.ports.transport import Receiver as Receiver
from lakeward.ports.transport import Transport as Transport
