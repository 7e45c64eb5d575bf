"""How tests end the processes that they have started."""

from __future__ import annotations

import subprocess
import sys

import psutil

from lakeward_e2e.process import kill_all
from lakeward_testing.waiting import LIMIT_S


def test_a_process_that_has_ended_before_it_is_killed_keeps_none_of_the_others_alive() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as first,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as second,
    ):
        seen = [psutil.Process(one.pid) for one in (first, second)]
        first.kill()
        first.wait()
        kill_all(seen)
        assert second.wait(LIMIT_S) < 0
