"""A store, a warehouse, a state directory, and services on them."""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward_e2e.process import ServiceProcess
from lakeward_e2e.warehouse import Warehouse, files_below
from lakeward_faulty.points import FAULTS
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakeward.model.tables import TablePath
    from lakeward_e2e.tables import AnyTable

_LOOK_S = 0.3
_KIT = Path(__file__).resolve().parents[1]
_CONFIG = """
[service]
name = "{service}"
{service_keys}
[source]
{source_keys}
[lake]
type = "{lake_type}"
warehouse = "{root}/warehouse"
commit_timeout_s = {commit_timeout_s}
{lake_keys}
[lease]
{lease_keys}
[checkpoint]
root = "{root}/state"
{checkpoint_keys}
[spark]
master = "{master}"
ui = false
{spark_keys}
[observe]
level = "info"
{observe_keys}
{tables}
"""
_FREE = ("lake_keys", "checkpoint_keys", "spark_keys", "observe_keys")
_SERVICE = {"poll_s": 0.2, "renew_s": 0.5, "fence_s": 4, "backoff_first_s": 0.2, "stop_timeout_s": 20}
_LEASE = {"backend": '"fluss"', "wrappers": '["faulty"]', "call_timeout_s": 5}
_FAULTY_METADATA = "Metadata-Version: 2.1\nName: lakeward-faulty\nVersion: 0.1\n"
_FAULTY_ENTRY_POINTS = """
[lakeward.source]
embedded-faulty = lakeward_faulty.source:FaultySourcePlugin
fluss-faulty = lakeward_faulty.fluss:FaultyFlussPlugin
[lakeward.lake]
iceberg-faulty = lakeward_faulty.lake:FaultyLakePlugin
iceberg-upkept = lakeward_faulty.lake:UpkeptLakePlugin
paimon-faulty = lakeward_faulty.paimon:FaultyPaimonPlugin
paimon-upkept = lakeward_faulty.paimon:UpkeptPaimonPlugin
[lakeward.lease]
faulty = lakeward_faulty.lease:FaultyLeases
[lakeward.lease_wrapper]
faulty = lakeward_faulty.lease:FaultyLeaseWrapper
"""


class World:
    """Everything under one directory. Each service process is destroyed with it."""

    def __init__(self, root: Path, lake: str = "iceberg") -> None:
        """Make an empty store and install the faulty plugins beside it; `lake` is `iceberg` or `paimon`."""
        self.root = root
        self.faults = root / "faults"
        for name in ("once", "always", "fired", "go"):
            (self.faults / name).mkdir(parents=True)
        self.store = EmbeddedStore.create(root / "store")
        self.lake = lake
        self.warehouse = _warehouse(lake, root / "warehouse")
        self.processes: list[ServiceProcess] = []
        self._configured: dict[int, str] = {}
        self.python_path = [self._install(), str(_KIT)]

    # --- services -------------------------------------------------------------------------------------------

    def configure(self, service: str = "tier", **sections: Any) -> Path:  # noqa: ANN401 - TOML of any type
        """Write a configuration.

        Args:
            service: the service's name.
            **sections: `service_keys`, `lake_keys`, `lease_keys`, `checkpoint_keys`, `spark_keys`, `observe_keys`: TOML
                keys over the defaults; `source_keys`: in place of the embedded source's; `heartbeat_timeout_s`,
                `commit_timeout_s`; `lake_type`; `master`: where Spark runs; `tables`: the TOML keys of a section, by
                its name in the database `shop`.
        """
        timeouts = {"heartbeat_timeout_s": 12, "commit_timeout_s": 4}
        timeouts |= {key: sections[key] for key in timeouts if key in sections}
        embedded = {
            "type": '"embedded-faulty"',
            "path": f'"{self.root}/store"',
            "heartbeat_timeout_s": timeouts["heartbeat_timeout_s"],
        }
        keys = {
            "source_keys": sections.get("source_keys", embedded),
            "service_keys": _SERVICE | sections.get("service_keys", {}),
            "lease_keys": _LEASE | sections.get("lease_keys", {}),
            **{name: sections.get(name, {}) for name in _FREE},
        }
        lines = {name: "\n".join(f"{key} = {value}" for key, value in some.items()) for name, some in keys.items()}
        file = self.root / f"{service}.toml"
        lines["tables"] = "\n".join(
            f'[tables."shop.{name}"]\n{text}' for name, text in sections.get("tables", {}).items()
        )
        lines["master"] = sections.get("master", "local[2]")
        commit_timeout_s = timeouts["commit_timeout_s"]
        lines["lake_type"] = sections.get("lake_type", f"{self.lake}-faulty")
        text = _CONFIG.format(service=service, root=self.root, commit_timeout_s=commit_timeout_s, **lines)
        file.write_text(text, encoding="utf-8")
        self.store.set_option("tiering-timeout-s", str(timeouts["heartbeat_timeout_s"]))
        return file

    def start(self, config: Path, *arguments: str, **environment: str) -> ServiceProcess:
        """Start a service and return at once."""
        log = self.root / f"log-{len(self.processes)}.txt"
        known = {key: text for key, text in os.environ.items() if not key.startswith(("LAKEWARD_", "PYTEST", "COV"))}
        words = ["--config", str(config), *arguments]
        process = ServiceProcess(words, known | self.environment(log) | environment, log)
        self.processes.append(process)
        self._configured[process.pid] = config.read_text(encoding="utf-8")
        return process

    def environment(self, log: Path) -> dict[str, str]:
        """Return what the processes of a service find in their environment; `log` names them."""
        return {
            FAULTS: str(self.faults),
            "LAKEWARD_TEST_LOG": str(log),
            "PYTHONPATH": os.pathsep.join(self.python_path),
        }

    def serve(self, config: Path) -> ServiceProcess:
        """Return the service that runs already with this configuration, else end it and start one."""
        living = [process for process in self.processes if process.alive]
        if living and self._configured[living[-1].pid] == config.read_text(encoding="utf-8"):
            return living[-1]
        for process in living:
            process.end()
        return self.start(config)

    def run_once(self, config: Path, expected: int = 0) -> ServiceProcess:
        """Run a service with `--once` to its end."""
        process = self.start(config, "--once")
        code = process.ended()
        assert code == expected, f"exit code {code}, expected {expected}: {process.words()}"
        return process

    def destroy(self) -> None:
        """End everything."""
        for process in self.processes:
            process.destroy()
        self.store.close()

    # --- faults ---------------------------------------------------------------------------------------------

    def arm(self, point: str, action: str, *, always: bool = False) -> None:
        """Let something happen at a point; see `lakeward_faulty.points`."""
        (self.faults / "fired" / point).unlink(missing_ok=True)
        draft = self.faults / f"{point}.draft"
        draft.write_text(action, encoding="utf-8")
        draft.rename(self.faults / ("always" if always else "once") / point)

    def hold(self, point: str) -> None:
        """Let every process that gets to a point wait there, until `let_go`."""
        (self.faults / "go" / point).unlink(missing_ok=True)
        self.arm(point, "wait", always=True)

    def disarm(self, point: str) -> None:
        """Take back what was armed with `always`."""
        (self.faults / "always" / point).unlink()

    def fired(self, point: str) -> bool:
        """Say whether something armed was taken."""
        return (self.faults / "fired" / point).exists()

    def wait_for(self, point: str) -> None:
        """Wait until something armed was taken."""
        wait_until(lambda: self.fired(point), f"{point} to be reached; {self._words()}")

    def let_go(self, point: str) -> None:
        """Let a process that waits at a point go on."""
        (self.faults / "go" / point).touch()

    # --- what came of it ------------------------------------------------------------------------------------

    def status(self, service: str = "tier") -> dict[str, Any]:
        """Read the status file; the tables by their names."""
        file = self.root / "state" / service / "status.json"
        if not file.exists():
            return {"tables": []}
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return document

    def table_status(self, table: AnyTable, service: str = "tier") -> dict[str, Any]:
        """Return one table's part of the status file, empty where it has none."""
        lines = [line for line in self._tables(service) if line["path"] == str(table.path)]
        return lines[0] if lines else {}

    def same(self, *tables: AnyTable) -> bool:
        """Say whether the lake holds exactly what the source holds."""
        return all(self.warehouse.rows(table) == table.rows() for table in tables)

    def slots(self, table: AnyTable, service: str = "tier") -> tuple[int, int]:
        """Return how many slots a table's running round has and asks for, as the status file shows them."""
        report = self.table_status(table, service).get("round") or {}
        return report.get("slots", 0), report.get("slots_asked", 0)

    def until_same(self, *tables: AnyTable) -> None:
        """Wait until the lake holds exactly what the source holds."""
        for table in tables:
            try:
                wait_until(partial(self.same, table), f"{table.path} to be right", turn_s=_LOOK_S)
            except AssertionError as error:
                message = f"{error}; {self._difference(table)}; {self._words()}"
                raise AssertionError(message) from error

    def until_clean(self, *tables: AnyTable) -> None:
        """Wait until no file is without an owner, no lease held and no journal left."""
        for table in tables:
            self._until_none(partial(self._orphans, table.path), f"orphans of {table.path}")
        self._until_none(self.leases_held, "leases held")
        self._until_none(self.journals, "journals")

    def leases_held(self) -> Sequence[object]:
        """Return the source's leases that hold a snapshot."""
        return [lease for lease in self.store.leases() if lease.held]

    def journals(self) -> list[str]:
        """Return all journals of rounds on disk.

        Those of jobs of upkeep that were ended early stay until no task of theirs can write, for a later start.
        """
        return self._state_files("*-[0-9]*-*/journal")

    def _orphans(self, path: TablePath) -> set[str]:
        """Return the files of a table that nobody needs, but for those of jobs of upkeep that have a journal."""
        kept = {Path(one).parent.name for one in self._state_files("*-upkeep-*/journal")}
        return {file for file in self.warehouse.orphans(path) if not any(name in file for name in kept)}

    def checkpoints(self) -> list[str]:
        """Return all files of checkpoints on disk."""
        return self._state_files("chk-*/*")

    def completed_checkpoints(self, table: AnyTable | None = None) -> list[str]:
        """Return the metadata files of the checkpoints that completed, of one table or of all.

        While it is written such a file has another name, and its checkpoint does not count.
        """
        epochs = "*" if table is None else f"{self.store.table(table.path).table_id}-*"
        return self._state_files(f"{epochs}/chk-*/_metadata")

    def segments(self) -> list[str]:
        """Return all files of rows beside checkpoints."""
        return self._state_files("segments/*")

    def _state_files(self, pattern: str) -> list[str]:
        return sorted(str(file) for file in files_below(self.root / "state") if file.match(pattern))

    def until_no_checkpoints(self) -> None:
        """Wait until nothing is left of any checkpoint."""
        self._until_none(lambda: [*self.checkpoints(), *self.segments()], "checkpoints")

    def assert_clean(self, *tables: AnyTable) -> None:
        """As `until_clean`, now: the service has ended."""
        for table in tables:
            assert self._orphans(table.path) == set()
        assert self.leases_held() == []
        assert self.journals() == []

    def _until_none(self, look: Any, what: str) -> None:  # noqa: ANN401 - a callable that gives a collection
        found: list[Any] = []

        def none() -> bool:
            found[:] = list(look())
            return not found

        try:
            wait_until(none, f"no {what}", turn_s=_LOOK_S)
        except AssertionError as error:
            message = f"{what}: {found}; {self._words()}"
            raise AssertionError(message) from error

    def _difference(self, table: AnyTable) -> str:
        found, wanted = Counter(self.warehouse.rows(table)), Counter(table.rows())
        lost, more = wanted - found, found - wanted
        return f"{lost.total()} rows lost: {list(lost)[:3]}, {more.total()} too many: {list(more)[:3]}"

    def _tables(self, service: str) -> list[dict[str, Any]]:
        document = self.status(service)
        report = document.get("report", document)
        return list(report["tables"])

    def _words(self) -> str:
        return "\n".join(f"--- {process.log.name}: {process.words()}" for process in self.processes[-2:])

    def _install(self) -> str:
        folder = self.root / "site"
        metadata = folder / "lakeward_faulty-0.1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(_FAULTY_METADATA, encoding="utf-8")
        (metadata / "entry_points.txt").write_text(_FAULTY_ENTRY_POINTS, encoding="utf-8")
        return str(folder)


def _warehouse(lake: str, directory: Path) -> Warehouse:
    if lake != "paimon":
        return Warehouse(directory)
    # Tests of other folders use a world without the kit of this lake.
    from lakeward_e2e.paimon_warehouse import PaimonWarehouse  # noqa: PLC0415

    return PaimonWarehouse(directory)
