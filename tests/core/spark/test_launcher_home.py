"""The program that Spark is started with lies where no other user can put one."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from lakeward.errors import JavaError
from lakeward.spark.java import find_java, launcher_home
from lakeward_testing.waiting import LIMIT_S

ENVIRON = {"PATH": "/nowhere"}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's directory for temporary files, which everybody may write to."""
    place = tmp_path / "everybody's"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A Java with an awkward path, that prints its version and what else it is told."""
    home = tmp_path / 'jdk "$(exit 9)" 21'
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\necho \'version "21.0.1"\'\necho "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return home


def test_looking_for_java_writes_nothing(temporary: Path, java: Path) -> None:
    found = find_java(ENVIRON | {"JAVA_HOME": str(java)})
    assert found.path == java
    assert list(temporary.iterdir()) == []


def test_the_launcher_lies_in_no_directory_that_somebody_made_before(temporary: Path, java: Path) -> None:
    found = find_java(ENVIRON | {"JAVA_HOME": str(java)})
    with launcher_home(found) as first, launcher_home(found) as second:
        assert first != second
        for home in (Path(first), Path(second)):
            for path in (home, home / "bin", home / "bin" / "java"):
                status = path.lstat()
                assert status.st_uid == os.getuid()
                assert not stat.S_ISLNK(status.st_mode)
                assert stat.S_IMODE(status.st_mode) == 0o700
    assert list(temporary.iterdir()) == []


def test_a_directory_that_another_user_made_is_left_alone(temporary: Path, java: Path) -> None:
    """The name that earlier versions used: whoever owns that directory chooses what runs as the service's user."""
    trap = temporary / f"lakeward-java-{os.getuid()}"
    trap.mkdir()
    trap.chmod(0o777)
    with launcher_home(find_java(ENVIRON | {"JAVA_HOME": str(java)})) as home:
        assert trap not in Path(home).parents
    assert list(trap.iterdir()) == []


def test_the_launcher_starts_that_java_without_the_incubator_module(temporary: Path, java: Path) -> None:
    with launcher_home(find_java(ENVIRON | {"JAVA_HOME": str(java)})) as home:
        command = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-cp", "a b"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=LIMIT_S, check=True)
    assert done.stdout.splitlines() == ['version "21.0.1"', "-cp a b"]


def test_the_launcher_has_the_libraries_of_that_java(temporary: Path, java: Path) -> None:
    """Others of this process look for them while Spark starts; they outlive the launcher."""
    library = java / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.touch()
    with launcher_home(find_java(ENVIRON | {"JAVA_HOME": str(java)})) as home:
        assert Path(home, "lib", "server", "libjvm.so").samefile(library)
    assert library.exists()


def test_no_directory_for_temporary_files_is_an_error_that_says_so(
    tmp_path: Path, java: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    found = find_java(ENVIRON | {"JAVA_HOME": str(java)})
    with pytest.raises(JavaError, match="directory for temporary files"):
        launcher_home(found)


@pytest.mark.parametrize(("home", "why"), [("/nowhere/jdk", "not runnable"), ("old", "version 11")])
def test_a_java_home_that_is_passed_over_is_named_with_the_reason(
    java: Path, tmp_path: Path, home: str, why: str
) -> None:
    program = tmp_path / "old" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'version \"11.0.2\"'\n", encoding="utf-8")
    program.chmod(0o755)
    place = tmp_path / home if home == "old" else Path(home)
    found = find_java({"JAVA_HOME": str(place), "PATH": str(java / "bin")})
    assert found.passed_over == (f"JAVA_HOME ({place}): {why}",)
    assert str(found) == f"version 21, java on PATH ({java}); passed over: JAVA_HOME ({place}): {why}"


def test_a_java_home_that_is_used_is_all_that_is_said(java: Path) -> None:
    assert str(find_java(ENVIRON | {"JAVA_HOME": str(java)})) == f"version 21, JAVA_HOME ({java})"


def test_java_is_asked_for_its_version_outside_of_our_process_group(tmp_path: Path) -> None:
    """A signal to the group would end it, and a Java that was ended looks like one that cannot be run."""
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(f'#!/bin/sh\nps -o pgid= $$ >"{tmp_path}/group"\necho \'version "21.0.1"\'\n', encoding="utf-8")
    program.chmod(0o755)
    find_java(ENVIRON | {"JAVA_HOME": str(home)})
    assert int((tmp_path / "group").read_text(encoding="utf-8")) != os.getpgrp()


def test_a_java_home_that_is_set_but_empty_is_named(java: Path) -> None:
    found = find_java({"JAVA_HOME": "", "PATH": str(java / "bin")})
    assert found.passed_over == ("JAVA_HOME (is set, but empty)",)
