"""What a round's job tells Spark's pages, and its subtasks of certificates and addresses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import trustme

from lakeward.model.settings import ServiceSettings
from lakeward.sockets import SocketTransport
from lakeward.sockets.certificates import load_tls
from lakeward.subtask.run import run_subtask
from lakeward_service_kit.jobs import ThreadJobs

if TYPE_CHECKING:
    from pathlib import Path

    from lakeward_service_kit.service_world import World


def test_the_description_of_a_job_says_table_work_and_round(world: World) -> None:
    log, keyed = world.table("log"), world.table("keyed", key=True)
    world.load(log, 0, 1200)
    world.load(keyed, 0, 10)
    world.store.snapshot(keyed)
    jobs = ThreadJobs(run_subtask)
    world.once(jobs=jobs)
    titles = {re.sub(r"\d subtasks?; round \S+, epoch \d+", "N subtasks; WHO", job.title) for job in jobs.launched}
    assert titles == {
        "lakeward: tier t.keyed, 2 KV snapshots, N subtasks; WHO",
        "lakeward: tier t.log, 1,200 log records in 2 splits, N subtasks; WHO",
    }
    assert {job.call_site for job in jobs.launched} == {
        f"tier {job.pool}: round {job.round_name}, launch 1" for job in jobs.launched
    }


def test_subtasks_are_told_where_executors_reach_each_other(world: World) -> None:
    world.load(world.table("log"), 0, 10)
    jobs = ThreadJobs(run_subtask)
    world.once(jobs=jobs, exchange_host="10.0.0.7")
    assert {job.exchange_host for job in jobs.launched} == {"10.0.0.7"}


def test_tables_are_tiered_over_tls(world: World, tmp_path: Path) -> None:
    file = tmp_path / "driver.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    tls = load_tls(ServiceSettings(tls_cert=str(file)), "127.0.0.1")
    assert tls is not None
    log = world.table("log")
    world.load(log, 0, 10)
    world.once(transport=SocketTransport(world.clock, tls=tls), trusted=tls.trusted)
    assert len(world.lake.read(log)) == 10
