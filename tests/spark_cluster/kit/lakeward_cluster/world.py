"""A store, a warehouse and services, whose rounds run on a standalone cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeward_cluster.cluster import HOST, JAVA_OPTIONS, SparkCluster
from lakeward_e2e.warehouse import Warehouse
from lakeward_e2e.world import World
from lakeward_source_embedded.store import EmbeddedStore
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.tables import AnyTable

_CONF = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.python.daemon.module": "lakeward.spark.worker_daemon",
}
_KIT = Path(__file__).resolve().parents[1]
_SPILLS = {"spark.python.daemon.module": "lakeward_cluster.daemon"}
_SPILLS_ENTRY_POINTS = """
[lakeward.source]
embedded-spills = lakeward_cluster.spills:SpillsPlugin
"""


class ClusterWorld(World):
    """See `World`; its services ask the cluster for slots."""

    def __init__(self, root: Path) -> None:
        """Make an empty store, and start a master without workers."""
        super().__init__(root)
        self.base = root
        (self.faults / "noted").mkdir()
        self.python_path.append(str(_KIT))
        self._install_spills()
        environment = self.environment(root / "cluster.txt")
        self.cluster = SparkCluster(root / "cluster", environment)

    def configure_cluster(self, service: str = "tier", slots: int = 2, **sections: Any) -> Path:  # noqa: ANN401
        """Write a configuration, see `World.configure`.

        Args:
            service: the service's name.
            slots: subtasks that it asks for.
            **sections: as there; `conf` is Spark configuration over the defaults of these tests.
        """
        conf = _CONF | sections.pop("conf", {})
        spark = {"slots": slots, "conf": _inline(conf)} | sections.pop("spark_keys", {})
        checkpoint = {"shared": "true"} | sections.pop("checkpoint_keys", {})
        return self.configure(
            service, master=self.cluster.url, spark_keys=spark, checkpoint_keys=checkpoint, **sections
        )

    def configure_spills(self, slots: int, **sections: Any) -> Path:  # noqa: ANN401
        """Write a configuration whose checkpoints tell what they hold of spills, see `lakeward_cluster.spills`.

        Args:
            slots: as of `configure_cluster`.
            **sections: as there.
        """
        source = {"type": '"embedded-spills"', "path": f'"{self.root}/store"', "heartbeat_timeout_s": 20}
        return self.configure_cluster(slots=slots, conf=_SPILLS, source_keys=source, **sections)

    def begin(self, root: Path) -> None:
        """Go on in an empty directory, with the same cluster: no service of before runs, and no table is there.

        Args:
            root: the directory; made.
        """
        for process in self.processes:
            process.destroy()
        self.processes.clear()
        self.store.close()
        (self.faults / "noted" / "spilled").unlink(missing_ok=True)
        root.mkdir()
        self.root = root
        self.store = EmbeddedStore.create(root / "store")
        self.warehouse = Warehouse(root / "warehouse")

    def executors_of(self, table: AnyTable) -> set[int]:
        """Return the process ids of the executors that have read a table since the folder `noted` is there."""
        file = self.faults / "noted" / f"executors.{table.path.table}"
        return {int(line) for line in file.read_text(encoding="utf-8").split()} if file.exists() else set()

    def end_services(self) -> None:
        """Stop what runs: a service keeps the executors that it has."""
        for process in self.processes:
            if process.alive:
                # One that has only just been started does not hear a signal in order yet.
                wait_until(lambda process=process: process.words() or not process.alive, "its first line")  # type: ignore[misc]
                assert process.end() == 0, process.words()

    def destroy(self) -> None:
        """End everything."""
        super().destroy()
        self.cluster.destroy()

    def _install_spills(self) -> None:
        metadata = self.root / "site" / "lakeward_cluster-0.1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lakeward-cluster\nVersion: 0.1\n", "utf-8")
        (metadata / "entry_points.txt").write_text(_SPILLS_ENTRY_POINTS, encoding="utf-8")


def _inline(table: dict[str, str]) -> str:
    return "{ " + ", ".join(f'"{key}" = "{text}"' for key, text in table.items()) + " }"
