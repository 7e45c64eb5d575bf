"""Names are the terms of Flink, Spark, Iceberg and Fluss: names that were replaced by these do not come back."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.cli.reference import commands

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "src"

REPLACED_CLASSES = {
    *("RoundDesk", "Lander", "RoundRun", "RoundBooks", "Contents", "Opening", "Parts", "LeaseKeeper", "StateKeeper"),
    *("RunOwner", "JobOwner", "LeaseOwner", "SplitBooks", "Attendant", "Hand", "TableInHand", "Beat", "BeatAnswer"),
    *("Pulse", "Offer", "Claim", "Checkpoints", "Course", "CheckpointDone", "Member", "GiveBack", "Left"),
    *("LeaseMemory", "Standing", "TableStanding", "Renumber", "OldId", "Lost", "CallUnknown", "Surroundings"),
    *("Turns", "Finding", "LeaseLostError", "CheckpointAsked", "SubtaskWord"),
}
"""Also wrong as a term in a page."""

REPLACED_NAMES = {
    *(
        "attend",
        "hear",
        "distrust",
        "irregular",
        "doomed",
        "patiently",
        "side_by_side",
        "survey",
        "surroundings",
        "know_leases",
        "speaker",
        "attendant",
        "desk",
        "keeper",
    ),
    *("sentence", "lease_sentence", "plain_sentence", "standings", "course", "pulse", "listing", "lander", "hand"),
    *("say", "state_word", "knowing", "SHUT", "TOLD", "OUTSIDE", "OVER", "heard", "checkpoint_word", "cut_short"),
    *("hand_back", "hand_on", "hand_out", "handed_out", "in_hand", "beat_source", "tell_nobody", "say_end"),
    *("lag_words", "run_words", "round_over", "lease_slots"),
    *("news", "look_again", "doubt_checkpoint", "owed", "may_be_known", "show_life", "tell_end", "own_place"),
    *("OwnPlace", "misfit", "named_apart", "strangers"),
}
"""Functions, methods, attributes, variables and parameters, in any module of the product."""

REPLACED_WORDS = {
    *("tell", "word", "standing", "standing_at", "books"),
    *("beat", "offer", "claim", "claims", "opening", "contents", "turns", "over", "whole", "cut", "slot"),
}
"""English words that had a meaning of their own in the core."""

REPLACED_MODULES = {
    *("knowing", "showing", "deleting", "dropping", "pausing", "listing", "opening", "standing", "survey"),
    *("books", "desk", "keeper", "attendant", "course", "turns", "members"),
}


def modules() -> list[Path]:
    """Return all modules of the product."""
    return sorted([*CORE.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py")])


def defined(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each name that a module defines, without leading underscores, and where."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        yield name.lstrip("_"), f"{path.relative_to(ROOT)}:{node.lineno}: {name}"


def test_no_public_class_name_occurs_twice_in_the_core() -> None:
    places = defaultdict[str, list[str]](list)
    for path in CORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(CORE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_replaced_name_is_defined_anywhere() -> None:
    replaced = REPLACED_CLASSES | REPLACED_NAMES
    assert [place for path in modules() for name, place in defined(path) if name in replaced] == []


def test_no_replaced_word_is_defined_in_a_plugin() -> None:
    words = REPLACED_WORDS - {"tell", "slot"}  # a file has a method tell(), a row of fixed width has slots
    plugins = (path for path in modules() if not path.is_relative_to(CORE))
    assert [place for path in plugins for name, place in defined(path) if name in words] == []


def test_no_replaced_word_is_defined_in_the_core() -> None:
    core = sorted(CORE.rglob("*.py"))
    assert [place for path in core for name, place in defined(path) if name in REPLACED_WORDS] == []


def test_no_module_has_a_replaced_name() -> None:
    assert [str(path) for path in modules() if path.stem in REPLACED_MODULES] == []


def test_no_page_uses_a_replaced_class_as_a_term() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("core/*.md"), *ROOT.glob("plugins/*/*.md")]
    replaced = re.compile(r"`(?:" + "|".join(sorted(REPLACED_CLASSES)) + r")\b[^`]*`")
    assert pages
    assert [
        f"{page.relative_to(ROOT)}: {match}"
        for page in pages
        for match in replaced.findall(page.read_text(encoding="utf-8"))
    ] == []


def test_no_command_is_described_with_a_replaced_name() -> None:
    private = re.compile(r"\b(?:standings?|survey|sentence|in hand|hand(?:ed)? out|books|desk|keeper)\b", re.IGNORECASE)
    texts = {
        name: " ".join([command.help or "", *(getattr(one, "help", None) or "" for one in command.params)])
        for name, command in commands()
    }
    assert {name: text for name, text in texts.items() if private.search(text)} == {}


def test_no_field_of_a_report_has_a_replaced_name() -> None:
    """Fields of these dataclasses are the keys of the JSON output and of the status file."""
    files = [*(CORE / "lakeward" / "observe").glob("*_status.py"), CORE / "lakeward" / "model" / "status.py"]
    fields = {
        node.target.id: str(path.relative_to(CORE))
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert {"status", "message", "lease_message"} <= set(fields)
    assert set(fields) & {"word", "sentence", "standing", "lease_sentence"} == set()
