"""The examples for operators fit the package: commands, routes, probes and times."""

from __future__ import annotations

import shlex
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands
from django.test import Client
from django.urls import resolve

from django_ojs.conf import Settings
from django_ojs.examples.__main__ import FOLDER, main
from django_ojs.extensions.outbox.destinations import Destination
from django_ojs.worker import health
from tests.docs.runner import parse
from tests.worker.processes import ROOT

#: Seconds after the grace period, in which a worker stores outcomes and ends.
TO_END = 10

OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))


def pods() -> dict[str, dict[str, Any]]:
    """Return the specification of the pods of each object that has some."""
    found = {}
    for each in OBJECTS:
        spec = each["spec"]
        if each["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            found[each["metadata"]["name"]] = spec["template"]["spec"]
    return found


PODS = pods()
COMMANDS = {name: pod["containers"][0]["command"] for name, pod in PODS.items()}
UNITS = sorted(FOLDER.glob("*.service"))


def unit(path: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # the documented way
    parser.read(path)
    return parser


def test_the_example_has_what_a_project_runs() -> None:
    kinds = {(each["kind"], each["metadata"]["name"]) for each in OBJECTS}
    assert kinds >= {
        ("Job", "shop-migrate"),
        ("Deployment", "shop-web"),
        ("Deployment", "shop-worker"),
        ("Deployment", "shop-relay"),
        ("PodDisruptionBudget", "shop-worker"),
        ("CronJob", "shop-doctor"),
    }
    for each in OBJECTS:
        if each["kind"] == "Deployment":
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert each["spec"]["selector"]["matchLabels"] == labels
    apps = {name for name in PODS if name in ("shop-web", "shop-worker")}
    for each in OBJECTS:
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["selector"]["matchLabels"]["app"] in apps


@pytest.mark.parametrize("name", COMMANDS)
def test_the_commands_exist_with_their_arguments(name: str) -> None:
    program, script, *arguments = COMMANDS[name]
    if program != "gunicorn":
        assert (program, script) == ("python", "manage.py")
        assert arguments[0] in get_commands()
        parse(arguments[0], arguments[1:])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_the_units_start_a_command_and_leave_it_time_to_end(path: Path) -> None:
    found = unit(path)
    _, script, name, *arguments = shlex.split(found["Service"]["ExecStart"])
    assert script == "manage.py"
    parse(name, arguments)
    wanted = Settings().grace_period.total_seconds()
    assert int(found["Service"]["TimeoutStopSec"]) >= wanted + TO_END
    assert found["Install"]["WantedBy"] == "multi-user.target"


def test_a_pod_has_longer_to_end_than_its_jobs() -> None:
    grace = Settings().grace_period.total_seconds()
    assert PODS["shop-worker"]["terminationGracePeriodSeconds"] >= grace + TO_END
    # A relay ends after the request that it has sent.
    timeout = Destination.__dataclass_fields__["timeout"].default.total_seconds()
    assert PODS["shop-relay"]["terminationGracePeriodSeconds"] >= timeout + TO_END


def test_the_probes_of_the_site_are_public_routes() -> None:
    container = PODS["shop-web"]["containers"][0]
    for probe in ("readinessProbe", "livenessProbe"):
        view = resolve(container[probe]["httpGet"]["path"]).func
        assert "PublicView" in {each.__name__ for each in view.cls.__mro__}  # type: ignore[attr-defined]  # of DRF


def test_the_liveness_probe_of_the_site_uses_no_database(client: Client) -> None:
    # Without the mark `django_db` any connection is an error.
    path = PODS["shop-web"]["containers"][0]["livenessProbe"]["httpGet"]["path"]
    assert client.get(path).status_code == 200


def test_the_probes_of_the_worker_read_its_health_file() -> None:
    container = PODS["shop-worker"]["containers"][0]
    parsed = parse("ojs_worker", container["command"][3:])
    for probe in ("readinessProbe", "livenessProbe"):
        python, flag, module, *arguments = container[probe]["exec"]["command"]
        assert (python, flag, module) == ("python", "-m", "django_ojs.worker.health")
        assert parsed.health_file in arguments
        assert health.main(arguments) == 1  # Wrong arguments exit; there is no such file here.


@pytest.mark.once
def test_the_examples_of_an_installed_package_are_written_by_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [sys.executable, "-m", "django_ojs.examples"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert listed.split() == sorted(path.name for path in FOLDER.iterdir())
    for name in listed.split():
        assert main([name]) == 0
        assert capsys.readouterr().out == (FOLDER / name).read_text()
    assert main(["nothing"]) == 2
    assert "kubernetes.yaml" in capsys.readouterr().err
