"""Record what an operator sees of a partitioned table that is killed, rescaled and checkpointed while it recovers.

`python -m lakeward_e2e.recorded PAGE` runs a real service on a real Spark, types the commands and writes what they
print to a page. Nothing of that is edited but the directory's name. Reading and writing are slowed down, so that a
recovery of a few thousand changes lasts for seconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward_e2e.exchange import DAEMON, exchange_sections, slow_down
from lakeward_e2e.tables import KeyTable
from lakeward_e2e.world import World
from lakeward_testing.waiting import wait_until

if TYPE_CHECKING:
    from lakeward_e2e.process import ServiceProcess

ROWS = 4000
SLOTS_BEFORE = 5
SLOTS_AFTER = 2
FIRST_WRITE_S = 0.2
"""So slow that rows pile up between the subtasks, and are part of the checkpoint."""
SECOND_WRITE_S = 0.5
"""So slow that a checkpoint completes while what was restored is written."""
LAST_WRITE_S = 0.02
READ_S = 0.1
"""So slow that no round reaches its end before that."""
_NAME = "lakeward"
_WIDTH = "120"
_DIRECTORY = "/data"
_PATIENCE_S = 120.0
_PAGE = """# A recovery, recorded

A table with a primary key and four partitions is killed while rows are on their way between {before} subtasks. It goes
on with {after}, is killed again right after a checkpoint that holds restored rows which nobody has written yet, and
ends with each row once.

`{command}` (in `tests/e2e/kit`) recorded this page on a real Spark. The commands' output is as it was
printed, but for the name of the directory. Reading and writing were slowed down so that a few thousand changes take
long enough to look at: {read_s:g} s for a batch that is read, and {first_s:g} s, then {second_s:g} s, at last
{last_s:g} s for a batch that is written.

{transcript}
"""
_COMMAND = "python -m lakeward_e2e.recorded"


class Recorder:
    """A terminal in a world's directory, and the page that is made of it."""

    def __init__(self, world: World) -> None:
        """Record nothing yet."""
        self._world = world
        self._parts: list[str] = []

    @property
    def text(self) -> str:
        """Return all parts of the page so far."""
        return "\n\n".join(self._parts)

    def tell(self, text: str) -> None:
        """Add a paragraph or a heading."""
        self._parts.append(text)

    def show(self, language: str, text: str) -> None:
        """Add a block of code."""
        self._parts.append(f"```{language}\n{self._cleaned(text).rstrip()}\n```")

    def run(self, *words: str) -> str:
        """Run a command, and record it with what it prints.

        Returns:
            What it printed.
        """
        environment = os.environ | self._world.environment(self._world.root / "commands.txt") | {"COLUMNS": _WIDTH}
        done = subprocess.run(
            [str(Path(sys.executable).with_name("lakeward")), *words],
            cwd=self._world.root,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=_PATIENCE_S,
            check=False,
        )
        self.show("console", f"$ lakeward {' '.join(words)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def service(self, service: ServiceProcess, *prompt: str) -> None:
        """Record what a service has printed."""
        self.show("console", "\n".join([*prompt, service.words()]))

    def _cleaned(self, text: str) -> str:
        return text.replace(str(self._world.root), _DIRECTORY)


def recorded(world: World) -> str:
    """Play the recovery, and return what was recorded.

    Raises:
        AssertionError: it did not go as the page says.
    """
    terminal = Recorder(world)
    orders = KeyTable(world.store, "orders")
    orders.load(ROWS)
    world.arm("each-read.orders", f"sleep {READ_S}", always=True)
    slow_down(world, orders, write_s=FIRST_WRITE_S)
    spill = world.root / "spill"
    spill.mkdir()
    config = _configured(world, orders, spill)

    terminal.tell("## Killed")
    _killed(world, terminal, config, SLOTS_BEFORE, "completed-unaligned")
    terminal.run("tables")
    terminal.run("checkpoints", "list")
    terminal.run("checkpoints", "show", str(orders.path))

    terminal.tell("## Rescaled, and killed at the first checkpoint of the recovery")
    slow_down(world, orders, write_s=SECOND_WRITE_S)
    _killed(world, terminal, config, SLOTS_AFTER, "completed")
    terminal.run("tables")
    terminal.run("checkpoints", "list")
    terminal.run("checkpoints", "show", str(orders.path))

    terminal.tell("## Finished")
    slow_down(world, orders, write_s=LAST_WRITE_S)
    world.disarm("each-read.orders")
    last = world.start(config, "--set", f"spark.master=local[{SLOTS_AFTER}]")
    world.until_same(orders)
    terminal.run("rounds", "list")
    terminal.run("verify", str(orders.path))
    last.end()
    terminal.service(last, f"$ lakeward run --set spark.master=local[{SLOTS_AFTER}]")
    return terminal.text


def _killed(world: World, terminal: Recorder, config: Path, slots: int, point: str) -> ServiceProcess:
    """Start a service, and kill its driver right after a checkpoint."""
    world.arm(f"{point}.orders", "kill-driver")
    master = f"spark.master=local[{slots}]"
    service = world.start(config, "--set", master)
    try:
        wait_until(lambda: not service.alive, "a service to be killed", _PATIENCE_S)
    except AssertionError as error:
        message = f"{service.words()}; {world.status(_NAME)}"
        raise AssertionError(message) from error
    assert service.ended() == -signal.SIGKILL
    service.destroy()
    terminal.service(service, f"$ lakeward run --set {master}")
    return service


def _configured(world: World, table: KeyTable, spill: Path) -> Path:
    sections = exchange_sections(table, aligned_timeout_s=0)
    sections["checkpoint_keys"] |= {"during_recovery": "true", "spill_dirs": json.dumps([str(spill)])}
    conf = "{ " + ", ".join(f'"{key}" = "{text}"' for key, text in DAEMON.items()) + " }"
    return world.configure(_NAME, spark_keys={"conf": conf}, **sections)


def main() -> None:
    """Write the page that the first argument names."""
    page = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        try:
            transcript = recorded(world)
        finally:
            world.destroy()
    text = _PAGE.format(
        before=SLOTS_BEFORE,
        after=SLOTS_AFTER,
        command=_COMMAND,
        read_s=READ_S,
        first_s=FIRST_WRITE_S,
        second_s=SECOND_WRITE_S,
        last_s=LAST_WRITE_S,
        transcript=transcript,
    )
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
