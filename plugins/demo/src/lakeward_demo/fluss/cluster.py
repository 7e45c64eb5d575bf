"""A private cluster: ZooKeeper, one coordinator and tablet servers, on free ports, under one directory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lakeward_demo.fluss.jars import LAKE_JARS, SERVER_JARS, find_jars
from lakeward_demo.fluss.java import find_java
from lakeward_demo.fluss.probe import knows_tablet_server
from lakeward_demo.fluss.process import ClusterError, ServerProcess, free_port

HOST = "127.0.0.1"
_ZOOKEEPER = "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain"
_COORDINATOR = "org.apache.fluss.server.coordinator.CoordinatorServer"
_TABLET = "org.apache.fluss.server.tablet.TabletServer"
# A cluster of a demo or a test lives for minutes on a machine that does other things as well: what the second compiler
# and a concurrent collector compute would come to good only later.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_OPENS = ("java.base/java.nio", "java.base/java.lang", "java.base/sun.nio.ch")
_READY_S = 60.0
_STEP_S = 0.1
_LOG4J = """status=warn
rootLogger.level=info
rootLogger.appenderRef.c.ref=c
appender.c.type=Console
appender.c.name=c
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d{HH:mm:ss.SSS} %-5p %c{1} - %m%n
"""
FAST: Mapping[str, str] = {
    "zookeeper.client.session-timeout": "10s",
    "internal.listener.name": "FLUSS",
    "default.replication.factor": "1",
    "default.bucket.number": "1",
    "kv.snapshot.interval": "2s",
    "kv.snapshot.num-retained": "1",
    "kv.snapshot.lease.expiration-check-interval": "1s",
    "remote.log.task-interval-duration": "2s",
    "auto-partition.check.interval": "1s",
}
"""Settings for tests: what takes minutes on a real cluster takes seconds (fluss.md, "Clusters for tests")."""


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What a cluster is to be like.

    `lake` holds the coordinator's `datalake.*` settings, such as `datalake.format`; empty: no lake. `settings` go
    over `FAST`. `heap` is Java's notation. `secured` skips the probe, which cannot log in.
    """

    lake: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    tablets: int = 1
    heap: str = "512m"
    secured: bool = False


class FlussCluster:
    """A running cluster. Servers can be killed, paused and started again; `close` ends them all."""

    def __init__(self, directory: Path, plan: ClusterPlan, java: Path, jars: tuple[Path, ...]) -> None:
        """Lay the directory (for data, logs and configuration) out, made if it is not there; nothing is started.

        `java` is a Java binary, `jars` the servers' class path.
        """
        self.directory = directory.absolute()
        self.plan = plan
        self._java = java
        self._class_path = ":".join(map(str, jars))
        for name in ("zk", "remote", "conf", "log", "plugins"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.zookeeper = self._zookeeper()
        self.coordinator = self._server("coordinator", _COORDINATOR, {})
        self.tablets = [self._tablet(number) for number in range(plan.tablets)]
        self._write_settings()

    @classmethod
    @contextmanager
    def running(cls, directory: Path, plan: ClusterPlan | None = None) -> Iterator[FlussCluster]:
        """Start a cluster for the length of a `with` block, its data, logs and configuration in a directory.

        The default plan: no lake, one tablet server.

        Raises:
            JarsMissingError: the jars cannot be had here.
            JavaError: there is no Java.
            ClusterError: a server did not start.
        """
        plan = plan or ClusterPlan()
        java = find_java()
        cluster = cls(directory, plan, java, find_jars(SERVER_JARS, java))
        if lake := plan.lake.get("datalake.format"):
            cluster.add_plugin(lake, find_jars(LAKE_JARS[lake], java))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()

    @property
    def bootstrap(self) -> str:
        """Where clients begin: the coordinator and the tablet servers, as `host:port,host:port`."""
        return ",".join(f"{HOST}:{server.port}" for server in (self.coordinator, *self.tablets))

    def add_plugin(self, name: str, jars: tuple[Path, ...]) -> None:
        """Give the coordinator a lake's jars, before it is started."""
        place = self.directory / "plugins" / name
        place.mkdir(exist_ok=True)
        for jar in jars:
            if not (place / jar.name).exists():
                (place / jar.name).symlink_to(jar)

    def start(self) -> None:
        """Start all servers and wait until tables can be created. Raises as `running`."""
        (self.directory / "tmp").mkdir(exist_ok=True)
        for server in (self.zookeeper, self.coordinator, *self.tablets):
            server.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the coordinator knows a tablet server.

        Raises:
            ClusterError: it does not within a minute.
        """
        if self.plan.secured:
            return
        for _ in range(int(_READY_S / _STEP_S)):
            if knows_tablet_server(self.coordinator.port):
                return
            time.sleep(_STEP_S)
        message = f"the coordinator does not list a tablet server after {_READY_S:g} s; logs: {self.directory / 'log'}"
        raise ClusterError(message)

    def add_tablet(self) -> ServerProcess:
        """Start one more tablet server; tables that are made from now on may have a replica on it."""
        server = self._tablet(len(self.tablets))
        self.tablets.append(server)
        server.start()
        return server

    def restart_coordinator(self) -> None:
        """Kill the coordinator and start it again on its port."""
        self.coordinator.kill()
        self.coordinator.start()
        self.wait_ready()

    def close(self) -> None:
        """End all servers; calling it twice is harmless."""
        for server in (*self.tablets, self.coordinator, self.zookeeper):
            server.kill()
        # Each start of a server unpacks RocksDB's library there, and one that is killed leaves it.
        shutil.rmtree(self.directory / "tmp", ignore_errors=True)

    def destroy(self) -> None:
        """End all servers and delete everything that they wrote."""
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _zookeeper(self) -> ServerProcess:
        port = free_port()
        lines = [
            f"dataDir={self.directory / 'zk'}",
            f"clientPort={port}",
            f"clientPortAddress={HOST}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "tickTime=1000",
        ]
        settings = self.directory / "conf" / "zoo.cfg"
        settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return self._process("zookeeper", port, [_ZOOKEEPER, str(settings)])

    def _tablet(self, number: int) -> ServerProcess:
        settings = {"tablet-server.id": str(number), "data.dir": str(self.directory / f"data-{number}")}
        return self._server(f"tablet-{number}", _TABLET, settings)

    def _server(self, name: str, main: str, settings: Mapping[str, str]) -> ServerProcess:
        port = free_port()
        chosen = {"bind.listeners": f"FLUSS://{HOST}:{port}", **settings}
        arguments = [f"-D{key}={value}" for key, value in chosen.items()]
        return self._process(name, port, [main, "--configDir", str(self.directory / "conf"), *arguments])

    def _process(self, name: str, port: int, arguments: list[str]) -> ServerProcess:
        options = [
            *_SHORT_LIVED,
            f"-Xmx{self.plan.heap}",
            f"-Djava.io.tmpdir={self.directory / 'tmp'}",
            f"-Dlog4j2.configurationFile={self.directory / 'conf' / 'log4j2.properties'}",
        ]
        opens = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENS]
        command = [str(self._java), *options, *opens, "-cp", self._class_path, *arguments]
        environ = {"FLUSS_PLUGINS_DIR": str(self.directory / "plugins")}
        return ServerProcess(name, command, port, self.directory / "log" / f"{name}.log", environ)

    def _write_settings(self) -> None:
        settings = {
            "zookeeper.address": f"{HOST}:{self.zookeeper.port}",
            "remote.data.dir": f"file://{self.directory / 'remote'}",
            **FAST,
            **self.plan.lake,
            **self.plan.settings,
        }
        conf = self.directory / "conf"
        lines = [f"{key}: {value}" for key, value in settings.items()]
        (conf / "server.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (conf / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
