"""What ships to be deployed: the image is not root's, manifests fit their schema, the chart makes the same ones."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lakeward.clock import SystemClock
from lakeward.config.loader import load_config
from lakeward.observe.live_status import REPORT_LATE_S, SILENT_AFTER_S, LiveStatus
from lakeward.observe.metrics import ServiceMetrics
from lakeward_page.recent_problems import RecentProblems

yaml = pytest.importorskip("yaml")
OTHERS = pytest.mark.filterwarnings("ignore::EncodingWarning:kubernetes_validate")
"""The validator reads its schemas so."""
DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
CHART = DEPLOY / "helm" / "lakeward"
RELEASE = "lakeward"
KUBERNETES = "1.31"
SUBSTITUTION = re.compile(r"^(?P<before>.*?)\{\{(?P<trim>-?) (?P<what>[^}]+) \}\}(?P<after>[\w-]*)$")
SERVICE, PAGE, STATEFUL_SET = "Service/lakeward", "Service/lakeward-page", "StatefulSet/lakeward"


def rendered(template: str, values: dict[str, Any]) -> str:
    """Render a template of the chart: the small part of helm's language that our templates keep to.

    Any other expression fails: `{{ .Release.Name }}`, `{{ .Values.a.b }}`, `quote`, and both forms of `nindent`.
    """
    lines: list[str] = []
    for line in template.splitlines():
        found = SUBSTITUTION.match(line)
        if not found:
            assert "{{" not in line, f"not rendered by this test: {line}"
            lines.append(line)
            continue
        expression = re.fullmatch(r"(toYaml )?(\.[\w.]+)(?: \| (?:nindent (\d+)|(quote)))?", found["what"])
        assert expression, f"not rendered by this test: {line}"
        yamled, where, indent, quoted = expression.groups()
        value: Any = {"Release": {"Name": RELEASE}, "Values": values}
        for part in where.strip(".").split("."):
            value = value[part]
        text = yaml.safe_dump(value, sort_keys=False).rstrip() if yamled else str(value)
        if indent is None:
            lines.append(found["before"] + (json.dumps(text) if quoted else text) + found["after"])
        else:
            assert not found["after"], f"not rendered by this test: {line}"
            assert found["trim"], f"nindent without {{{{-: {line}"
            lines += [" " * int(indent) + one if one else "" for one in text.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.fixture
def values() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return loaded


def by_name(documents: Iterable[Any]) -> dict[str, Any]:
    """Return objects by kind and name, no two of which are the same."""
    objects = list(documents)
    named = {f"{one['kind']}/{one['metadata']['name']}": one for one in objects}
    assert len(named) == len(objects)
    return named


def made_by_the_chart(values: dict[str, Any]) -> dict[str, Any]:
    texts = [rendered(path.read_text(encoding="utf-8"), values) for path in sorted((CHART / "templates").iterdir())]
    return by_name(yaml.safe_load(text) for text in texts)


def shipped() -> dict[str, Any]:
    return by_name(yaml.safe_load_all((DEPLOY / "kubernetes" / "lakeward.yaml").read_text(encoding="utf-8")))


def container_of(objects: dict[str, Any]) -> dict[str, Any]:
    """Return the container that runs the service."""
    (container,) = objects[STATEFUL_SET]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def variables_of(objects: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container_of(objects)["env"]}


@pytest.fixture
def objects(values: dict[str, Any]) -> dict[str, Any]:
    """The objects that the chart makes, by kind and name."""
    return made_by_the_chart(values)


def test_the_chart_makes_the_manifests_that_ship(objects: dict[str, Any]) -> None:
    assert shipped() == objects


@OTHERS
def test_each_object_fits_the_schema_of_kubernetes(objects: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    for one in objects.values():
        validate.validate(one, KUBERNETES, strict=True)


@OTHERS
def test_a_mistake_in_an_object_is_found(objects: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    objects[STATEFUL_SET]["spec"]["replica"] = 1
    with pytest.raises(validate.ValidationError):
        validate.validate(objects[STATEFUL_SET], KUBERNETES, strict=True)


def test_the_values_fit_their_schema(values: dict[str, Any]) -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(values, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"imge": "x"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"page": {"host": "0.0.0.0", "port": "8080"}}, schema)  # noqa: S104 - in a pod


def test_the_configuration_of_the_chart_is_one_of_lakeward(objects: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text(objects["ConfigMap/lakeward"]["data"]["lakeward.toml"], encoding="utf-8")
    settings = load_config(file, variables_of(objects)).settings
    assert settings.checkpoint.root == "/var/lib/lakeward/state"
    assert (settings.observe.status_host, settings.observe.status_port) == ("0.0.0.0", 8080)  # noqa: S104 - in a pod


def test_the_page_is_there_whatever_the_configuration_says_of_it(objects: dict[str, Any], tmp_path: Path) -> None:
    """A `config` without `[observe]`, or with another port, would have a healthy pod killed by its probes."""
    file = tmp_path / "lakeward.toml"
    text = objects["ConfigMap/lakeward"]["data"]["lakeward.toml"]
    file.write_text(f'{text}\n[observe]\nstatus_port = 1\nstatus_host = "127.0.0.1"\n', encoding="utf-8")
    observe = load_config(file, variables_of(objects)).settings.observe
    assert (observe.status_host, observe.status_port) == ("0.0.0.0", 8080)  # noqa: S104 - in a pod


@pytest.mark.parametrize("port", [8080, 9191])
def test_page_container_and_service_have_one_port(values: dict[str, Any], port: int) -> None:
    values["page"]["port"] = port
    objects = made_by_the_chart(values)
    assert variables_of(objects)["LAKEWARD_OBSERVE__STATUS_PORT"] == str(port)
    assert container_of(objects)["ports"] == [{"name": "page", "containerPort": port}]
    page = objects[PAGE]["spec"]
    assert page["ports"] == [{"name": "page", "port": port, "targetPort": "page"}]
    assert page["type"] == "ClusterIP"
    labels = objects[STATEFUL_SET]["spec"]["template"]["metadata"]["labels"]
    assert page["selector"].items() <= labels.items()


@pytest.mark.parametrize(("probe", "path"), [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")])
def test_both_probes_ask_the_page(objects: dict[str, Any], probe: str, path: str) -> None:
    for made in (objects, shipped()):
        assert container_of(made)[probe]["httpGet"] == {"path": path, "port": "page"}


@pytest.mark.parametrize(("path", "code"), [("/healthz", 200), ("/readyz", 503)])
def test_a_service_that_starts_is_alive_and_not_ready(path: str, code: int) -> None:
    """So a long start of Spark costs no probe of liveness."""
    testclient = pytest.importorskip("starlette.testclient")
    app = pytest.importorskip("lakeward_page.app")
    content = app.PageContent("shop", LiveStatus(SystemClock()), ServiceMetrics().registry, RecentProblems([]))
    assert testclient.TestClient(app.PageApp(content).asgi()).get(path).status_code == code


def test_what_is_only_slow_is_not_killed(objects: dict[str, Any]) -> None:
    probe = container_of(objects)["livenessProbe"]
    assert probe["initialDelaySeconds"] >= 120  # Spark takes up to a minute to start
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 10 * max(SILENT_AFTER_S, REPORT_LATE_S)
    assert probe["timeoutSeconds"] >= 10


@pytest.mark.parametrize("service", [SERVICE, PAGE])
def test_a_pod_that_is_not_ready_has_an_address(objects: dict[str, Any], service: str) -> None:
    """Executors register, and people look at the page, before the service serves."""
    assert objects[service]["spec"]["publishNotReadyAddresses"]


def test_containers_are_not_root_and_write_to_their_volumes_alone(objects: dict[str, Any]) -> None:
    pod = objects[STATEFUL_SET]["spec"]["template"]["spec"]
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
    (extras,) = re.findall(r"\./core\[([\w,]+)\]", text)
    assert set(extras.split(",")) == {"java", "page", "telemetry"}
    core = tomllib.loads((root / "core" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras.split(",")) <= set(core["optional-dependencies"])
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
