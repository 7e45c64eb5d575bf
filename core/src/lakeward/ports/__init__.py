"""What the core asks of the outside; nothing here does anything. Each port has a module, and its name is here too."""

from __future__ import annotations

from lakeward.model.batches import SourceBatch as SourceBatch
from lakeward.ports.checkpoints import CheckpointStore as CheckpointStore
from lakeward.ports.clock import Clock as Clock
from lakeward.ports.diagnostics import CheckedLake as CheckedLake
from lakeward.ports.diagnostics import CheckResult as CheckResult
from lakeward.ports.diagnostics import ComparedLake as ComparedLake
from lakeward.ports.diagnostics import DescribedSource as DescribedSource
from lakeward.ports.diagnostics import LakeNamingSource as LakeNamingSource
from lakeward.ports.diagnostics import SchemaCheckedLake as SchemaCheckedLake
from lakeward.ports.diagnostics import ServerLake as ServerLake
from lakeward.ports.diagnostics import compare_clocks as compare_clocks
from lakeward.ports.exchange import ChannelReceiver as ChannelReceiver
from lakeward.ports.exchange import ChannelSender as ChannelSender
from lakeward.ports.exchange import ExchangeKey as ExchangeKey
from lakeward.ports.exchange import ExchangeTransport as ExchangeTransport
from lakeward.ports.exchange import SubtaskExchange as SubtaskExchange
from lakeward.ports.executor import Executor as Executor
from lakeward.ports.executor import Running as Running
from lakeward.ports.executor import Worker as Worker
from lakeward.ports.jobs import Jobs as Jobs
from lakeward.ports.lake import DescribedLake as DescribedLake
from lakeward.ports.lake import FileCheckedLake as FileCheckedLake
from lakeward.ports.lake import FileDifference as FileDifference
from lakeward.ports.lake import Lake as Lake
from lakeward.ports.lake import LakeWriter as LakeWriter
from lakeward.ports.lake import PartitionedRows as PartitionedRows
from lakeward.ports.lake import Partitioner as Partitioner
from lakeward.ports.lake import ReadableLake as ReadableLake
from lakeward.ports.leases import SnapshotLeases as SnapshotLeases
from lakeward.ports.source import SizedSource as SizedSource
from lakeward.ports.source import Source as Source
from lakeward.ports.source import SourceReader as SourceReader
from lakeward.ports.source import SplitSize as SplitSize
from lakeward.ports.source import TableQueue as TableQueue
from lakeward.ports.source import UntimedSource as UntimedSource
from lakeward.ports.source import has_write_times as has_write_times
from lakeward.ports.spill import SpillDisk as SpillDisk
from lakeward.ports.spill import SpillFolder as SpillFolder
from lakeward.ports.transport import Address as Address
from lakeward.ports.transport import Connection as Connection
from lakeward.ports.transport import Listener as Listener
from lakeward.ports.transport import Receiver as Receiver
from lakeward.ports.transport import Transport as Transport
from lakeward.ports.upkeep import UpkeepLake as UpkeepLake
