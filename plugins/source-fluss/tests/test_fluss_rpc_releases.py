"""A server's release is told from what it announces; what fake servers announce is what recorded ones did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakeward_source_fluss.rpc.releases import Release, in_words, release_of
from lakeward_source_fluss_kit.releases import OFFERS, Versions

FRAMES = Path(__file__).with_name("data") / "fluss-frames.jsonl"
NAMES = {Release.V0_9: None, Release.V1_0: "main"}


def recorded(release: Release) -> dict[int, Versions]:
    """Return what recorded servers announced, by server type."""
    frames = map(json.loads, FRAMES.read_text(encoding="utf-8").splitlines())
    answers = [one["response"] for one in frames if one["key"] == 1000 and one.get("server") == NAMES[release]]
    return {
        one["server_type"]: {
            version["api_key"]: (version["min_version"], version["max_version"]) for version in one["api_versions"]
        }
        for one in answers
    }


def test_release_of_each_recorded_server_is_told(release: Release) -> None:
    assert {kind: release_of(versions) for kind, versions in recorded(release).items()} == {1: release, 2: release}


def test_fake_servers_announce_no_api_that_recorded_ones_did_not(release: Release) -> None:
    both = {key for versions in recorded(release).values() for key in versions}

    assert set(OFFERS[release]) - both == set()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ((), Release.V0_8),
        ((1000, 1051), Release.V0_8),
        ((1000, 1056), Release.V0_9),
        ((1000, 1059), Release.V0_9),
        ((1000, 1056, 1062), Release.V1_0),
        ((1000, 1065), Release.LATER),
        ((1000, 32767), Release.LATER),
    ],
)
def test_release_is_that_of_the_newest_api(keys: tuple[int, ...], expected: Release) -> None:
    assert release_of(keys) is expected


def test_releases_of_several_servers_are_each_named_once() -> None:
    assert in_words([Release.V1_0, Release.V0_9, Release.V1_0]) == (
        "Fluss 0.9 and Fluss 1.0 by the APIs that it offers"
    )
    assert in_words([]) == ""
