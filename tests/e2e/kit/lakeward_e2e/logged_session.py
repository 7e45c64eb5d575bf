"""A session of its own that runs one job: its event log is complete once it has ended. `logged_session.py CONF`.

Prints what each task was given, `told` where that is the secret, and then the pages of Spark that show the secret.
"""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from pathlib import Path

from lakeward.model.settings import SparkSettings
from lakeward.spark.session import start_session
from lakeward.spark.tasks import run_as_rdd
from lakeward_testing.waiting import LIMIT_S

SECRET = b"hush-hush"


def main(conf: dict[str, str]) -> None:
    """Run the job, and look at the pages."""
    with tempfile.TemporaryDirectory() as folder:
        handle = start_session(SparkSettings(master="local[2]", conf=conf), "test", 1, Path(folder))
        context, secret = handle.session.sparkContext, SECRET
        told = run_as_rdd(context, 2, lambda _n, _attempt, given: "told" if given == secret else "not", secret)
        api = f"api/v1/applications/{context.applicationId}"
        names = ("jobs/", "stages/", "environment/", "jobs/job/?id=0", "stages/stage/?id=0&attempt=0")
        pages = (*names, f"{api}/jobs", f"{api}/stages", f"{api}/environment")
        sys.stdout.write(
            f"{' '.join(told)} {[page for page in pages if SECRET in _page(f'{context.uiWebUrl}/{page}')]}"
        )
        handle.stop()


def _page(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:  # noqa: S310 - http of this machine
        return bytes(answer.read())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
