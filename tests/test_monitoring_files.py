"""The alert rules and the dashboard: their metrics, labels and expressions exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from django_ojs.examples.__main__ import FOLDER
from django_ojs.extensions.statistics import all_time
from django_ojs.http import metrics
from django_ojs.operations import queues
from tests.cases import together
from tests.docs.pages import table
from tests.factories import WorkerFactory, push
from tests.model_factories import RollupFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]

RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "prometheus-alerts.yaml").read_text())[
    "groups"
][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
]


@pytest.fixture
def series(settings: Any) -> Iterator[dict[str, set[str]]]:
    """Return the labels of each series of `/ojs/metrics`, where there is something of each."""
    settings.OJS = {**settings.OJS, "POOLS": {"mail": {"queues": ["email"]}}}
    WorkerFactory(id="w-1", queues=("email",), pool="mail", concurrency=2)
    queues.configure("email", {"backpressure": {"max_depth": 10}})
    push(queue="email", type="email.send")
    push(queue="sms")  # No worker has it.
    histogram = [1, *[0] * 23]
    RollupFactory(
        minute="2026-01-01T00:00Z",
        queue="email",
        type="email.send",
        waited=histogram,
        ran=histogram,
        **dict.fromkeys(("enqueued", "completed", "failed", "discarded"), 1),
    )
    all_time.sums.reset()
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(metrics.render(None).decode()):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    yield found
    all_time.sums.reset()


def test_the_page_lists_the_metrics_that_there_are(series: dict[str, set[str]]) -> None:
    listed = {row[0]: row for row in table("how-to/monitor.md", "Metrics")}
    names = {name.removesuffix("_bucket"): labels for name, labels in series.items()}
    names = {
        name: labels for name, labels in names.items() if not name.endswith(("_sum", "_count"))
    }
    assert listed.keys() == names.keys()
    for name, labels in names.items():
        assert set(re.findall(r"\w+", listed[name][2])) == labels - {"le"}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_metrics_of_an_expression_and_their_labels_exist(
    expression: str, series: dict[str, set[str]]
) -> None:
    names = set(re.findall(r"ojs_\w+", expression))
    assert names
    assert names <= series.keys()
    for name, selector in re.findall(r"(ojs_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*=", selector)) <= series[name]
    grouped = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression))))
    assert grouped <= set().union(*(series[name] for name in names))


@together("rule", RULES, ids=lambda rule: rule["alert"], undo=True)
def test_an_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    rows = {row[0]: row[1] for row in table("how-to/monitor.md", "Alerts")}
    assert rows.keys() == {each["alert"] for each in RULES}
    assert rows[rule["alert"]] == rule["labels"]["severity"]
    assert rule["annotations"].keys() == {"summary", "description"}
    # A label that the expression aggregates away would be empty in the text.
    for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
        outermost = re.search(r"by \(([^)]*)\)", rule["expr"])
        assert outermost is not None
        assert label in outermost[1]


def test_the_dashboard_can_be_imported() -> None:
    ids = [panel["id"] for panel in PANELS]
    assert len(set(ids)) == len(ids)
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == names
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not taken & cells, panel["title"]
        taken |= cells


@together("expression", EXPRESSIONS, undo=True)
def test_the_brackets_of_an_expression_are_closed(expression: str) -> None:
    opened: list[str] = []
    for sign in re.sub(r'"[^"]*"', "", expression):
        if sign in "([{":
            opened.append(sign)
        elif sign in ")]}":
            assert opened.pop() + sign in ("()", "[]", "{}")
    assert not opened


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"expression{number}", "expr": _filled_in(expression)}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    made = tmp_path / "rules.yaml"
    made.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    files = [str(made), str(FOLDER / "prometheus-alerts.yaml")]
    found = subprocess.run(["promtool", "check", "rules", *files], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def _filled_in(expression: str) -> str:
    return expression.replace("$__rate_interval", "5m").replace("$queue", ".*")
