"""The examples in deploy/ are well-formed, and what they execute exists with those options."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from holdfast.cli import cli
from tests.cli.commands import Commands
from tests.cli.waiting import prepare, wait_status, worker
from tests.forkserver import ForkServer

DEPLOY = Path(__file__).parents[1] / "deploy"
_GRACE_S = 5  # more than it takes to hand over, after --drain-timeout


# enough of YAML to read what is written there: blocks by indentation, flow lists of JSON, plain scalars


def yaml(text: str) -> list[Any]:
    """The documents of a file; AssertionError for anything that this does not understand."""
    documents = []
    for part in re.split(r"^---$", text, flags=re.M):
        lines = [
            (len(line) - len(line.lstrip()), re.sub(r"\s+#.*$", "", line).strip())
            for line in part.splitlines()
            if line.strip() and not line.strip().startswith("#")
        ]
        assert not any("\t" in line for _, line in lines)
        found, rest = _block(lines)
        assert rest == []
        documents.append(found)
    return documents


def _block(lines: list[tuple[int, str]]) -> tuple[Any, list[tuple[int, str]]]:
    indent, first = lines[0]
    if first.startswith("- "):
        items: list[Any] = []
        while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
            lines = [(indent + 2, lines[0][1][2:]), *lines[1:]]
            if re.match(r"[\w.-]+:( |$)", lines[0][1]):
                item, lines = _block(lines)
            else:
                item, lines = _scalar(lines[0][1]), lines[1:]
            items.append(item)
        return items, lines
    found: dict[str, Any] = {}
    while lines and lines[0][0] == indent:
        matched = re.fullmatch(r"([\w.-]+):(?: (.*))?", lines[0][1])
        assert matched is not None, lines[0]
        key, value = matched[1], matched[2]
        assert key not in found, key
        lines = lines[1:]
        if value is not None:
            found[key] = _scalar(value)
        elif lines and (lines[0][0] > indent or (lines[0][0] == indent and lines[0][1].startswith("- "))):
            found[key], lines = _block(lines)
        else:
            found[key] = None
    assert not lines or lines[0][0] < indent, lines[0]
    return found, lines


def _scalar(text: str) -> Any:
    if text.startswith(("[", "{", '"')):
        return json.loads(text)
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdecimal() else text


def seconds(text: str) -> float:
    matched = re.fullmatch(r"(\d+)(s|m)", text)
    assert matched is not None, text
    return int(matched[1]) * {"s": 1, "m": 60}[matched[2]]


def check_command(words: list[str]) -> dict[str, Any]:
    """The command exists and takes these options; their values, by name."""
    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    assert command is not None, words
    made = command.make_context(words[0], list(words[1:]), parent=context)
    return made.params


def drain_s(words: list[str]) -> float:
    assert words[0] == "worker"
    assert "--drain-timeout" in words, "the time to stop is written next to the time to drain"
    found = check_command(words)
    assert found["hide_url"] is True, "what agents start does not get the url"
    assert isinstance(found["drain_s"], float)
    return found["drain_s"]


def test_yaml_is_read_as_it_is_written() -> None:
    text = '# c\na: 1\nb:\n  - x: y # z\n    w: ["p", "q"]\n  - plain\nc:\n  d: true\n---\ne: f: \n'
    with pytest.raises(AssertionError):
        yaml(text.replace("e: f: ", "  e"))
    assert yaml(text)[0] == {"a": 1, "b": [{"x": "y", "w": ["p", "q"]}, "plain"], "c": {"d": True}}


def test_compose_starts_postgres_a_migration_and_two_workers() -> None:
    (file,) = yaml((DEPLOY / "compose.yaml").read_text())
    services = file["services"]
    assert services.keys() == {"postgres", "migrate", "worker"}
    worker_ = services["worker"]
    assert worker_["deploy"]["replicas"] == 2
    assert worker_["stop_signal"] == "SIGTERM"
    assert worker_["init"] is True, "somebody reaps and passes signals on"
    assert seconds(worker_["stop_grace_period"]) >= drain_s(worker_["command"]) + _GRACE_S
    check_command(services["migrate"]["command"])
    for service in (services["migrate"], worker_):
        assert service["environment"]["HOLDFAST_URL"].startswith("postgresql://holdfast:${POSTGRES_PASSWORD}@postgres/")
    test = worker_["healthcheck"]["test"]
    assert test[:2] == ["CMD", "holdfast"]
    assert_watches(test[2:], worker_["command"])
    assert services["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert worker_["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert set(file["volumes"]) == {"postgres"}


def test_compose_gives_a_service_no_right_that_it_does_not_need() -> None:
    (file,) = yaml((DEPLOY / "compose.yaml").read_text())
    for name, service in file["services"].items():
        assert service["read_only"] is True, name
        assert "/tmp" in service["tmpfs"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["cap_drop"] == ["ALL"], name
        if "build" in service:
            assert service["user"] == f"{image_user()}:{image_user()}", name
            assert "cap_add" not in service, name
        else:
            assert_pinned(service["image"])
    assert file["networks"]["store"] == {"internal": True}, "the database talks to nobody outside"
    assert file["services"]["postgres"]["networks"] == ["store"]


def image_user() -> str:
    (found,) = re.findall(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), flags=re.M)
    return str(found)


def assert_pinned(image: str) -> None:
    name, _, tag = image.rpartition(":")
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?-[\w-]+", tag), f"{name} is whatever is newest when it is built"


def assert_watches(probe: list[str], command: list[str]) -> None:
    """The probe looks at the file that the worker writes, and is patient enough for a server that is away."""
    assert probe[0] == "health"
    looked = check_command(probe)
    assert str(looked["file"]) == check_command(command)["heartbeat"]
    assert looked["max_age_s"] >= 60


def test_kubernetes_drains_before_it_kills_and_keeps_the_url_secret() -> None:
    documents = {each["kind"]: each for each in yaml((DEPLOY / "kubernetes.yaml").read_text())}
    assert documents.keys() == {"Secret", "ConfigMap", "Job", "Deployment", "PodDisruptionBudget"}
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["terminationGracePeriodSeconds"] >= drain_s(container["args"]) + _GRACE_S
    probe = container["readinessProbe"]["exec"]["command"]
    assert probe[0] == "holdfast"
    check_command(probe[1:])
    (job,) = documents["Job"]["spec"]["template"]["spec"]["containers"]
    check_command(job["args"])
    for each, key in ((container, "url"), (job, "owner-url")):
        (url,) = [variable for variable in each["env"] if variable["name"] == "HOLDFAST_URL"]
        assert url["valueFrom"]["secretKeyRef"] == {"name": documents["Secret"]["metadata"]["name"], "key": key}
        assert "value" not in url
        given = urlsplit(documents["Secret"]["stringData"][key])
        assert given.scheme == "postgresql"
        assert parse_qs(given.query)["sslmode"] == ["verify-full"]
        certificate = Path(parse_qs(given.query)["sslrootcert"][0])
        assert str(certificate.parent) in {mount["mountPath"] for mount in each["volumeMounts"]}
        assert certificate.name in documents["ConfigMap"]["data"]
    labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert documents[kind]["spec"]["selector"]["matchLabels"] == labels
    assert documents["PodDisruptionBudget"]["spec"]["minAvailable"] < documents["Deployment"]["spec"]["replicas"]


def pods() -> dict[str, dict[str, Any]]:
    documents = yaml((DEPLOY / "kubernetes.yaml").read_text())
    return {each["kind"]: each["spec"]["template"]["spec"] for each in documents if "template" in each.get("spec", {})}


def test_kubernetes_replaces_a_worker_that_gives_no_sign_of_life() -> None:
    (container,) = pods()["Deployment"]["containers"]
    for name in ("startupProbe", "livenessProbe"):
        probe = container[name]["exec"]["command"]
        assert probe[0] == "holdfast"
        assert_watches(probe[1:], container["args"])
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= 120


def test_the_job_can_be_applied_again_and_with_another_version() -> None:
    """What a Job executes cannot be changed: its name has the version, so another version is another Job."""
    documents = {each["kind"]: each for each in yaml((DEPLOY / "kubernetes.yaml").read_text())}
    every = [each for pod in pods().values() for each in [*pod["containers"], *pod.get("initContainers", [])]]
    (image,) = {each["image"] for each in every}
    tag = image.rpartition(":")[2]
    assert tag not in ("", "latest")
    job = documents["Job"]
    assert job["metadata"]["name"].endswith(f"-{tag}")
    assert re.fullmatch(r"[a-z0-9-]{1,63}", job["metadata"]["name"]), "it becomes the name of a host"
    assert job["spec"]["ttlSecondsAfterFinished"] > 0, "those of older versions go by themselves"
    (waits,) = pods()["Deployment"]["initContainers"]
    assert check_command(waits["args"])["check"] is True, "a worker begins when the Job has migrated"


def test_no_container_can_write_but_to_its_own_tmp() -> None:
    for kind, pod in pods().items():
        assert pod["automountServiceAccountToken"] is False, kind
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert str(pod["securityContext"]["runAsUser"]) == image_user()
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            writable = [mount for mount in container["volumeMounts"] if not mount.get("readOnly")]
            assert [mount["mountPath"] for mount in writable] == ["/tmp"]
            assert "sizeLimit" in volumes[writable[0]["name"]]["emptyDir"]


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=True)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string((DEPLOY / "holdfast-worker.service").read_text())
    return found


def test_the_unit_stops_with_sigterm_and_waits_for_the_drain() -> None:
    service = unit()["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/holdfast")
    assert service["KillSignal"] == "SIGTERM"
    assert service["KillMode"] == "mixed", "the parent tells its children; what is left in the end is killed"
    assert int(service["TimeoutStopSec"]) >= drain_s(words) + 5 + _GRACE_S, "the parent waits 5 seconds more"
    assert service["Restart"] == "always"
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"


def test_systemd_watches_the_worker_and_the_worker_cannot_change_its_code() -> None:
    service = unit()["Service"]
    assert (service["Type"], service["NotifyAccess"]) == ("notify", "main")
    assert int(service["WatchdogSec"]) >= 60, "a server that is away takes up to half a minute to say so"
    assert service["LimitCORE"] == "0"
    (code,) = [Path(word) for word in shlex.split(service["ExecStart"])[1:] if word.endswith(".py")]
    state = Path("/var/lib", service["StateDirectory"])
    assert code.is_absolute()
    assert not code.is_relative_to(state)
    assert service["WorkingDirectory"] == str(state)
    assert {"ReadWritePaths", "BindPaths"} & service.keys() == set()


def test_what_is_installed_is_pinned() -> None:
    """The versions of everything that Holdfast needs with a PostgreSQL store, and of itself."""
    pins = dict(
        line.split("==") for line in (DEPLOY / "requirements.txt").read_text().splitlines() if not line.startswith("#")
    )
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert pins.pop("holdfast[postgres]") == project["version"]
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    wanted = [*map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["postgres"]])]
    needed: set[str] = set()
    while wanted:
        each = wanted.pop()
        name = canonicalize_name(each.name)
        assert each.specifier.contains(versions[name]), each
        if name not in needed:
            needed.add(name)
            wanted += [r for r in map(Requirement, requires(name) or []) if r.marker is None or r.marker.evaluate()]
    assert needed == versions.keys()
    for text in ((DEPLOY / name).read_text() for name in ("Dockerfile", "holdfast-worker.service")):
        assert re.search(r"pip install .*--requirement \S*requirements\.txt", text)
        assert re.findall(r"pip install (?!.*--requirement)", text) == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "holdfast"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (DEPLOY / "holdfast-worker.service").read_text()
    installed = shlex.split(unit()["Service"]["ExecStart"])[0]
    (tmp_path / "holdfast-worker.service").write_text(text.replace(installed, str(program)))
    ended = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "holdfast-worker.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in (ended.stdout + ended.stderr).splitlines() if "holdfast-worker" in line]
    assert said == []


def test_the_image_starts_holdfast_with_the_agents_that_are_there(tmp_path: Path, forkserver: ForkServer) -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (\S+)", text, flags=re.M)
    assert [name for name in copied if not (DEPLOY / name).exists()] == []
    assert json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, flags=re.M)[0]) == ["holdfast"]
    check_command(json.loads(re.findall(r"^CMD (.*)$", text, flags=re.M)[0]))
    assert re.search(r"^USER \d+$", text, flags=re.M), "not root, and Kubernetes can tell"
    assert "--chown" not in text, "and not the owner of its code"
    assert_pinned(re.findall(r"^FROM (\S+)$", text, flags=re.M)[0])
    ended = Commands(tmp_path, forkserver)("run", str(DEPLOY / "agents.py"), "Ada")
    assert (ended.code, ended.out) == (0, "Hello Ada.\n")


def test_the_readme_names_every_file() -> None:
    text = (DEPLOY / "README.md").read_text()
    files = {path.name for path in DEPLOY.iterdir() if path.is_file()} - {"README.md"}
    assert {name for name in files if f"`{name}`" not in text} == set()


def test_readiness_is_whether_a_worker_of_this_machine_is_alive(tmp_path: Path, forkserver: ForkServer) -> None:
    hf = prepare(Commands(tmp_path, forkserver))
    assert hf("workers", "--here").code == 3, "there is no store"
    hf("run", "agents.py:echo", "--id", "one")
    assert hf("workers", "--here").code == 1
    with worker(hf):
        wait_status(hf, "one", "done")
        assert hf("workers", "--here").code == 0
    assert hf("workers", "--here").code == 1
