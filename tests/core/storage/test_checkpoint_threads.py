"""Parts of a checkpoint are read by several threads, also when they are the first of their process to do so."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import os, sys, threading
sys.setswitchinterval(1e-6)
from lakeward.model.checkpoints import CheckpointRef, SubtaskSnapshot
from lakeward.model.exchange import ExchangeState
from lakeward.storage.checkpoint_format import decode_part, encode_part
ref = CheckpointRef("svc", "svc-1-2", 7, 3, 1)
data, part = encode_part(ref, SubtaskSnapshot(0, 1, (), (), ExchangeState(subtask=0, subtasks=2)), "part-0-1")

def read_all():
    ready = threading.Barrier(8)
    def read():
        ready.wait()
        decode_part(data, "part-0-1", ref, part)
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

ends = []
for _ in range(60):
    if not (child := os.fork()):
        read_all()
        os._exit(0)
    ends.append(os.waitpid(child, 0)[1])
print([end for end in ends if end])
"""


def test_the_first_parts_that_a_process_reads_may_be_read_by_many_threads_at_once() -> None:
    """What msgspec learns of a type at the first use must not be learned by several threads: that is a crash."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, encoding="utf-8", check=True, timeout=120
    )
    assert done.stdout == "[]\n", done.stderr[-2000:]
