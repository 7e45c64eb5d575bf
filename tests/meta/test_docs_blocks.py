"""Each block of code in the docs is run, or checked as far as it can be without what it needs.

A shell block is run line by line in a folder with an embedded source and a local lake, but for the lines that
`NOT_RUN` names with a reason; those of `lakeward` are parsed by its command line nevertheless. A block of TOML goes
through the loader of configurations, and through `lakeward config check` unless it names servers. A new block needs
an entry here only where it cannot be run.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from lakeward.cli.main import lakeward
from lakeward.cli.main import run as lakeward_command
from lakeward.config.loader import ALL_SECTIONS, load_config

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
SHELLS = {"console", "sh", "bash", "shell"}
SHOWN = {"text", "mermaid", "sql"}
"""Output, layouts of files and diagrams: nothing to run. `sql` is for DuckDB, at a path of the reader's."""

FOLLOWED = {
    "docs/how-to/write-a-lease-backend.md": "tests/meta/test_lease_backend_how_to.py",
    "docs/tutorial/first-lease-backend.md": "tests/meta/test_lease_backend_tutorial.py",
    "docs/tutorial/first-source.md": "tests/meta/test_source_tutorial.py",
    "docs/tutorial/first-table.md": "tests/meta/test_tutorial.py",
    "docs/how-to/write-a-lake.md": "tests/meta/test_docs_blocks.py",
    "docs/how-to/write-a-source.md": "tests/meta/test_docs_blocks.py",
}
"""Pages whose blocks build on each other: the test that does what the page says, from its first block to its last."""

NOT_RUN = {
    r"python3 -m venv |(\S+/bin/)?(uv )?pip install |\. \S+/bin/activate": "makes an environment; paths are checked",
    r"(\S+/)?tox run( |$)": "takes minutes to hours; the environment is checked to exist",
    r"pytest( |$)": "runs tests that are run anyway; their path is checked to exist",
    r"ruff |lint-imports$|sh tests/tox/types$": "checks the whole checkout: as lint, contracts and types do",
    r"docker |helm |kubectl ": "needs Docker or Kubernetes; tests/meta/test_deploy.py checks what ships",
    r"spark-class ": "starts a cluster; tests/spark_cluster does",
    r"flink ": "needs a Flink cluster",
    r"sudo ": "changes the machine; tests/meta/test_systemd_unit.py checks the unit",
    r"lakeward run( --(final|status-port \d+|set \S+))?$": "runs until stopped: tests/e2e/test_stopping_processes.py",
    r"lakeward demo": "runs until it is stopped; tests/e2e/test_demo.py and tests/e2e/test_demo_fluss.py do",
    r"lakeward (checkpoints (show|delete)|rounds show) ": "names a checkpoint or round that there was once",
    r"lakeward deadletters (replay|delete) ": "needs dead letters; tests/e2e/test_dead_letters.py has some",
    r"python -m lakeward\.cli\.reference docs/reference$": "writes docs/; tests/meta/test_cli_reference.py compares",
    r"python -m lakeward_simulator |cd tests/simulator$": "takes minutes; tests/simulator runs the same seeds",
}
"""Lines that are not run: how they begin, and why."""

TRANSCRIPTS = {
    "README.md": "tests/meta/test_sessions.py types it again",
    "docs/how-to/operate.md": "tests/meta/test_sessions.py types it again",
    "docs/explanation/a-recovery.md": "shows a recovery that happened; tests/e2e/test_exchange_recovers.py repeats it",
}
"""Pages with commands that are shown with their output, and why these are not run."""

SPARK = re.compile(r"lakeward (doctor(?!.*--no-spark)|run --once|verify|query)")
"""Lines for which Spark is started, or a table that was tiered before."""

SERVERS = re.compile(r"s3://|\.example\b|\.internal\b|_cert = ")
"""What a configuration names that is not on this machine."""

WRITTEN_BY_THE_PAGE = ("lakeward_lease_polite", "lakeward_lease_desk")
"""Packages that a page has its reader write; the tests of these pages import them."""
ELSEWHERE = ("pypaimon",)
"""Needs an environment of its own; the test of the tutorial runs the block there."""

TABLES = {
    "shop.orders": "id bigint not null, customer_id bigint, customer string, ordered_at timestamp(3)",
    "shop.clicks": "id bigint not null, page string",
}
LOCAL = {
    "source": '[source]\ntype = "embedded"\npath = "store"\n',
    "lake": '[lake]\ntype = "iceberg"\nwarehouse = "warehouse"\n',
}


@dataclass(frozen=True)
class Block:
    """A fenced block of code in a page."""

    page: str
    line: int
    language: str
    code: str

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    """Return the blocks of code of these languages, or of all, in the pages that people read."""
    pages = sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("core/*.md"), *ROOT.glob("plugins/*/*.md")]
    )
    found = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            language = match["info"].partition(" ")[0]
            code = re.sub(rf"^{match['indent']}", "", match["code"], flags=re.MULTILINE)
            line = text.count("\n", 0, match.start()) + 1
            if not languages or language in languages:
                found.append(Block(str(page.relative_to(ROOT)), line, language, code))
    return found


def lines_of(block: Block) -> list[str]:
    """Return the commands of a shell block, without prompts, comments and output."""
    joined = re.sub(r"\\\n\s*", " ", block.code).splitlines()
    if block.language == "console":
        joined = [line.removeprefix("$ ") for line in joined if line.startswith("$ ")]
    commands = [part for line in joined for part in line.split(" && ")]
    return [re.sub(r"\s+(&|#( .*)?)$", "", line).strip() for line in commands if line.strip()]


def shows_output(block: Block) -> bool:
    """Return whether a shell block has more than commands."""
    joined = re.sub(r"\\\n\s*", " ", block.code).splitlines()
    return block.language == "console" and any(line and not line.startswith("$ ") for line in joined)


def is_run(line: str) -> bool:
    """Return whether a line is run by the tests of this module."""
    return not any(re.match(start, line) for start in NOT_RUN)


def script_of(block: Block) -> str:
    """Return the lines of a block that are run here; "" where another test follows its page, or none is run."""
    if block.page in FOLLOWED or shows_output(block):
        return ""
    return "\n".join(line for line in lines_of(block) if is_run(line))


def calls_of(block: Block) -> list[list[str]]:
    """Return the arguments of each call of `lakeward` in a shell block, as the shell gives them."""
    calls = []
    for line in lines_of(block):
        words = shlex.split(re.split(r" [|>] ?|;", line)[0])
        while words and (words[0] == "!" or re.match(r"[A-Z_]+=", words[0])):
            words = words[1:]
        if words[:1] == ["lakeward"]:
            calls.append(words[1:])
        elif "--" in words and words[words.index("--") + 1 :][:1] == ["lakeward"]:  # kubectl exec
            calls.append(words[words.index("--") + 2 :])
    return calls


def parse(words: list[str]) -> None:
    """Let click parse a command line to its end: command, options, arguments, their types and their number."""
    command: click.Command = lakeward
    context = click.Context(command, info_name="lakeward")
    while True:
        context = command.make_context(command.name, list(words), parent=context)
        if not isinstance(command, click.Group):
            return
        left = [*context._protected_args, *context.args]
        name, found, words = command.resolve_command(context, left)
        assert found is not None, f"no command {name!r} below {command.name}"
        command = found


def completed(block: Block) -> str:
    """Return a configuration of which the block is a part."""
    given = tomllib.loads(block.code)
    return block.code + "".join(f"\n{text}" for section, text in LOCAL.items() if section not in given)


def is_config(block: Block) -> bool:
    """Return whether a block of TOML is a configuration of Lakeward, and no project's `pyproject.toml`."""
    return set(tomllib.loads(block.code)) <= set(ALL_SECTIONS)


CONFIGS = [block for block in blocks("toml") if is_config(block) and block.page not in FOLLOWED]
RUN = [
    pytest.param(
        block,
        id=block.place,
        marks=[pytest.mark.spark] if SPARK.search(script_of(block)) else [],
    )
    for block in blocks(*SHELLS)
    if script_of(block)
]


def run(script: str, where: Path, environment: dict[str, str]) -> None:
    """Run lines of a shell block; each has to succeed."""
    done = subprocess.run(
        ["bash", "-euc", f"set -o pipefail\n{script}"],
        cwd=where,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The variables of a user who has activated the environment that the tests run in."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith(("LAKEWARD_", "PYTEST_"))}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Path:
    """A folder with a configuration and two tables that have rows."""
    place = tmp_path_factory.mktemp("shop")
    lines = ["lakeward config init"]
    for number, (table, columns) in enumerate(TABLES.items(), 1):
        lines.append(f"lakeward embedded create {table} --columns '{columns}' --primary-key id")
        lines.append(f"printf 'id\\n{number}\\n' > rows.csv && lakeward embedded load {table} rows.csv")
    run("\n".join(lines), place, environment)
    return place


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory, shop: Path, environment: dict[str, str]) -> Path:
    """The same after one round of each table."""
    place = tmp_path_factory.mktemp("tiered") / "shop"
    shutil.copytree(shop, place)
    run("lakeward run --once", place, environment)
    return place


@pytest.fixture(scope="module")
def object_store() -> Iterator[dict[str, str]]:
    """An S3 server on this machine with the bucket of the pages, as variables of Lakeward."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/my-bucket", method="PUT")):
        pass
    where = {"ENDPOINT_OVERRIDE": f"{host}:{port}", "SCHEME": "http", "REGION": "us-east-1"}
    storage = {f"LAKEWARD_CHECKPOINT__STORAGE__{key}": text for key, text in where.items()}
    yield {"LAKEWARD_CHECKPOINT__ROOT": "s3://my-bucket/lakeward", **storage}
    server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("block", RUN)
def test_the_commands_of_a_block_succeed(
    block: Block, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    script, place = script_of(block), tmp_path / "shop"
    if "LAKEWARD_CHECKPOINT__STORAGE" in script:
        environment = environment | request.getfixturevalue("object_store")
    if "lakeward config init" in script or "lakeward embedded create" in script:
        place.mkdir()
        script = script if "lakeward config init" in script else f"lakeward config init\n{script}"
    elif SPARK.search(script):
        place = request.getfixturevalue("tiered")  # an Iceberg table cannot be copied: its files name each other
    else:
        shutil.copytree(request.getfixturevalue("shop"), place)
    run(script, place, environment)


@pytest.mark.parametrize("block", blocks(*SHELLS), ids=lambda block: block.place)
def test_each_call_of_lakeward_in_a_block_is_parsed(block: Block) -> None:
    for words in calls_of(block):
        try:
            parse(words)
        except click.ClickException as error:
            pytest.fail(f"{block.place}: lakeward {shlex.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("block", blocks(*SHELLS), ids=lambda block: block.place)
def test_paths_extras_and_environments_in_a_block_exist(block: Block) -> None:
    code = "\n".join(lines_of(block))
    paths = re.findall(r"(?<![\w/.-])(?:\./)?((?:core|plugins|docs|tests)(?:/[\w.-]+)+|core)(?![\w:/])", code)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    core = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {extra for found in re.findall(r"(?:\./core|lakeward)\[([\w,]+)\]", code) for extra in found.split(",")}
    assert extras <= set(core["optional-dependencies"])
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    assert {f"testenv:{name}" for name in re.findall(r"tox run (?:-q )?-e ([\w-]+)", code)} <= set(tox.sections())


@pytest.mark.parametrize("block", blocks(*SHELLS), ids=lambda block: block.place)
def test_a_shell_block_has_commands_and_shows_output_only_where_that_is_said(block: Block) -> None:
    assert lines_of(block)
    assert block.page in TRANSCRIPTS or not shows_output(block)
    assert block.language != "console" or block.code.startswith("$ ")


@pytest.mark.parametrize("page", TRANSCRIPTS)
def test_a_page_that_is_said_to_show_output_does(page: str) -> None:
    assert any(shows_output(block) for block in blocks("console") if block.page == page)


@pytest.mark.parametrize("start", NOT_RUN)
def test_a_line_that_is_not_run_is_in_a_page(start: str) -> None:
    lines = [line for block in blocks(*SHELLS) for line in lines_of(block)]
    assert any(re.match(start, line) for line in lines)


def test_each_test_that_is_named_as_a_reason_is_there() -> None:
    reasons = " ".join([*NOT_RUN.values(), *TRANSCRIPTS.values(), *FOLLOWED.values()])
    named = re.findall(r"tests/[\w/.]+\w", reasons)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("page", "test"), FOLLOWED.items())
def test_a_page_that_is_followed_is_named_by_its_test(page: str, test: str) -> None:
    assert (ROOT / page).is_file()
    assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_each_block_has_a_language_that_this_module_knows() -> None:
    known = SHELLS | SHOWN | {"python", "toml", "yaml", "json"}
    assert [block.place for block in blocks() if block.language not in known] == []


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.place)
def test_python_in_the_docs_compiles_and_imports_what_there_is(block: Block) -> None:
    compile(block.code, block.place, "exec")
    for node in ast.walk(ast.parse(block.code)):
        if isinstance(node, ast.Import):
            for name in node.names:
                importlib.import_module(name.name)
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] not in WRITTEN_BY_THE_PAGE + ELSEWHERE:
            module = importlib.import_module(str(node.module))
            missing = [one.name for one in node.names if not hasattr(module, one.name)]
            assert (node.module, missing) == (node.module, [])


@pytest.mark.parametrize("block", CONFIGS, ids=lambda block: block.place)
def test_a_configuration_in_the_docs_is_loaded(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text(completed(block), encoding="utf-8")
    load_config(file, {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "block",
    [block for block in CONFIGS if not SERVERS.search(block.code)],
    ids=lambda block: block.place,
)
def test_config_check_passes_on_a_configuration_in_the_docs(
    block: Block, tmp_path: Path, shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "shop"
    shutil.copytree(shop, place)
    (place / "lakeward.toml").write_text(completed(block).replace("/data/warehouse", "warehouse"), encoding="utf-8")
    monkeypatch.chdir(place)
    code = lakeward_command(["config", "check"])
    assert code == 0, capsys.readouterr()


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.place)
def test_toml_in_the_docs_is_a_configuration_or_a_project(block: Block) -> None:
    assert is_config(block) or set(tomllib.loads(block.code)) == {"build-system", "project", "tool"}


@pytest.mark.parametrize("block", blocks("json"), ids=lambda block: block.place)
def test_json_in_the_docs_is_parsed(block: Block) -> None:
    json.loads(block.code)


@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: block.place)
def test_yaml_in_the_docs_is_parsed(block: Block) -> None:
    document = pytest.importorskip("yaml").safe_load(block.code)
    assert isinstance(document, dict)


@pytest.mark.network
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("page", ["write-a-lake.md", "write-a-source.md"])
def test_the_how_to_of_a_plugin_can_be_followed(
    page: str, tmp_path: Path, linked_environment: Callable[[Callable[[str], bool]], dict[str, str]]
) -> None:
    """Commands are run as they stand, and what is shown of the configuration is put into the reader's."""
    place = f"docs/how-to/{page}"
    environment = linked_environment(lambda _: True)
    columns = TABLES["shop.orders"]
    table = f"lakeward embedded create shop.orders --columns '{columns}' --primary-key id"
    run(f"lakeward config init\n{table}\nprintf 'id\\n1\\n' > rows.csv", tmp_path, environment)
    run("lakeward embedded load shop.orders rows.csv", tmp_path, environment)
    config = tmp_path / "lakeward.toml"
    for block in [block for block in blocks("toml", *SHELLS) if block.page == place]:
        if block.language == "toml":
            (section,) = tomllib.loads(block.code)
            text = re.sub(
                rf"^\[{section}\]\n(?:(?!\[).*\n)*", "", config.read_text(encoding="utf-8"), flags=re.MULTILINE
            )
            config.write_text(f"{text}\n{block.code}", encoding="utf-8")
        else:
            run(block.code.replace("$ ", ""), tmp_path, environment)
