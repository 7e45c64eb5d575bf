"""What ships to be deployed: the image is not root's, manifests fit their schema, the chart makes the same ones."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lakeward.config.loader import load_config

yaml = pytest.importorskip("yaml")
OTHERS = pytest.mark.filterwarnings("ignore::EncodingWarning:kubernetes_validate")
"""The validator reads its schemas so."""
DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
CHART = DEPLOY / "helm" / "lakeward"
RELEASE = "lakeward"
KUBERNETES = "1.31"
SUBSTITUTION = re.compile(r"^(?P<before>.*?)\{\{(?P<trim>-?) (?P<what>[^}]+) \}\}$")


def rendered(template: str, values: dict[str, Any]) -> str:
    """Render a template of the chart: the small part of helm's language that our templates keep to.

    Any other expression fails: `{{ .Release.Name }}`, `{{ .Values.a.b }}`, and both forms of `nindent`.
    """
    lines: list[str] = []
    for line in template.splitlines():
        found = SUBSTITUTION.match(line)
        if not found:
            assert "{{" not in line, f"not rendered by this test: {line}"
            lines.append(line)
            continue
        expression = re.fullmatch(r"(toYaml )?(\.[\w.]+)(?: \| nindent (\d+))?", found["what"])
        assert expression, f"not rendered by this test: {line}"
        yamled, where, indent = expression.groups()
        value: Any = {"Release": {"Name": RELEASE}, "Values": values}
        for part in where.strip(".").split("."):
            value = value[part]
        text = yaml.safe_dump(value, sort_keys=False).rstrip() if yamled else str(value)
        if indent is None:
            lines.append(found["before"] + text)
        else:
            assert found["trim"], f"nindent without {{{{-: {line}"
            lines += [" " * int(indent) + one if one else "" for one in text.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.fixture
def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return loaded


@pytest.fixture
def objects(values: dict[str, Any]) -> dict[str, Any]:
    """The objects that the chart makes, by kind."""
    texts = [rendered(path.read_text(encoding="utf-8"), values) for path in sorted((CHART / "templates").iterdir())]
    made = [yaml.safe_load(text) for text in texts]
    return {one["kind"]: one for one in made}


def test_the_chart_makes_the_manifests_that_ship(objects: dict[str, Any]) -> None:
    shipped = yaml.safe_load_all((DEPLOY / "kubernetes" / "lakeward.yaml").read_text(encoding="utf-8"))
    assert {one["kind"]: one for one in shipped} == objects


@OTHERS
def test_each_object_fits_the_schema_of_kubernetes(objects: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for one in objects.values():
        validate.validate(one, KUBERNETES, strict=True)


@OTHERS
def test_a_mistake_in_an_object_is_found(objects: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    objects["StatefulSet"]["spec"]["replica"] = 1
    with pytest.raises(validate.ValidationError):
        validate.validate(objects["StatefulSet"], KUBERNETES, strict=True)


def test_the_values_fit_their_schema(values: dict[str, Any]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(values, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"imge": "x"}, schema)


def test_the_configuration_of_the_chart_is_one_of_lakeward(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text(values["config"], encoding="utf-8")
    assert load_config(file, {}).settings.checkpoint.root == "/var/lib/lakeward/state"


def test_containers_are_not_root_and_write_to_their_volumes_alone(objects: dict[str, Any]) -> None:
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    for container in (*pod["initContainers"], *pod["containers"]):
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert {one["mountPath"] for one in container["volumeMounts"]} == {"/etc/lakeward", "/var/lib/lakeward", "/tmp"}  # noqa: S108 - a mount


def test_a_stop_in_a_pod_gets_the_time_of_the_unit_of_systemd(values: dict[str, Any]) -> None:
    unit = (DEPLOY.parent / "how-to" / "lakeward.service").read_text(encoding="utf-8")
    assert f"TimeoutStopSec={values['terminationGracePeriodSeconds']}\n" in unit


def test_the_version_of_the_chart_is_that_of_the_core(values: dict[str, Any]) -> None:
    core = tomllib.loads((DEPLOY.parents[1] / "core" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == core["version"]
    assert values["image"] == f"lakeward:{core['version']}"


def test_the_image_is_not_roots_and_is_built_of_what_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert [line[1] for line in lines if line[0] == "USER"] == ["10001:10001"]
    root = DEPLOY.parents[1]
    built = re.findall(r"\./((?:core|plugins/[\w-]+))\b", text)
    assert {"core", "plugins/lake-iceberg", "plugins/source-fluss"} <= set(built)
    assert [one for one in built if not (root / one / "pyproject.toml").is_file()] == []
    images = [line[1] for line in lines if line[0] == "FROM"]
    assert all(re.fullmatch(r"[a-z]+:[\w.-]+", image) and not image.endswith(":latest") for image in images)


@pytest.mark.parametrize("setting", ["MALLOC_ARENA_MAX=1", "ARROW_DEFAULT_MEMORY_POOL=system"])
def test_image_and_unit_of_systemd_give_memory_back(setting: str) -> None:
    """`tox run -e soak` measures with the same."""
    unit = (DEPLOY.parent / "how-to" / "lakeward.service").read_text(encoding="utf-8")
    (line,) = (line for line in unit.splitlines() if line.startswith("Environment="))
    assert setting in line.removeprefix("Environment=").split()
    assert f" {setting} " in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def test_hadolint_finds_nothing_in_the_image() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint is not installed; the environment `docs` has it")
    done = subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout
