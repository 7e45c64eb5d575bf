"""The defaults of the configuration stand in its sections, and nowhere else."""

from __future__ import annotations

from lakeward.machines.checkpoints.schedule import CheckpointPolicy
from lakeward.machines.rounds import RoundsPolicy
from lakeward.model.settings import CheckpointSettings, LakeSettings, ServiceSettings
from lakeward_lake_iceberg.options import IcebergOptions


def test_the_machines_policies_have_the_sections_defaults() -> None:
    service, checkpoint = ServiceSettings(), CheckpointSettings()
    rounds, checkpoints = RoundsPolicy(), CheckpointPolicy()
    assert (rounds.renew_every_s, rounds.fence_s, rounds.poll_every_s) == (
        service.renew_s,
        service.fence_s,
        service.poll_s,
    )
    assert (rounds.max_concurrent_rounds, rounds.max_round_s) == (service.rounds, service.max_round_s)
    assert (rounds.backoff_first_s, rounds.backoff_most_s) == (service.backoff_first_s, service.backoff_most_s)
    assert (checkpoints.interval_s, checkpoints.timeout_s, checkpoints.pause_s, checkpoints.tolerated) == (
        checkpoint.interval_s,
        checkpoint.timeout_s,
        checkpoint.pause_s,
        checkpoint.tolerated,
    )


def test_a_lake_that_declares_a_key_of_the_core_has_its_default() -> None:
    assert IcebergOptions(warehouse="w").commit_timeout_s == LakeSettings().commit_timeout_s
