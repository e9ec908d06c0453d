"""The benchmarks run, once and with a handful of jobs. Nothing here is about speed."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks import growth, guesses
from tests.benchmarks.__main__ import MEASURES, run
from tests.benchmarks.contenders.base import VARIABLE
from tests.benchmarks.measures import (
    admin,
    bounds,
    events,
    failures,
    figures,
    maintenance,
    names,
    poison,
    steps,
    tables,
)
from tests.benchmarks.scale import SMOKE
from tests.benchmarks.server import NAME_VARIABLE, ROOT, URL_VARIABLE
from tests.benchmarks.targets import OURS, SECTIONS

pytestmark = [pytest.mark.postgresql, pytest.mark.slow]

#: Two runs on one server must not take each other's databases.
PREFIX = f"ojs_smoke_{os.getpid()}_"


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_measure_yields_a_figure_of_ours_and_its_sections_a_block(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    text, _ = run(SMOKE, only=["maintenance"], peers=False, path=path, prefix=PREFIX)

    samples = [line for line in _lines(path) if line["kind"] == "sample"]
    measured = {line["measure"] for line in samples}
    assert {maintenance.PROMOTION, maintenance.LAPSE, maintenance.PRUNING} <= measured
    assert all(float(str(line["value"])) > 0 for line in samples)
    titles = [section.title for section in SECTIONS if section.measure in measured]
    assert titles
    assert all(title in text for title in titles)


@pytest.mark.storm
def test_every_measure_yields_a_figure_of_ours_and_every_section_a_block(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"

    text, _ = run(SMOKE, only=list(MEASURES), peers=False, path=path, prefix=PREFIX)

    samples = [line for line in _lines(path) if line["kind"] == "sample"]
    ours = (OURS, tables.label(waiting=100), bounds.name_of(bounds.BOUNDED), maintenance.PRUNING)
    ours += (figures.NOTED, names.FEW, poison.POISONED, failures.RETRIED, steps.label(0))
    ours += (admin.OVERVIEW, admin.ANY, events.RECORDED)
    measured = {line["measure"] for line in samples if line["contender"] in ours}
    # The server's CPU can be seen only where its files can be read.
    unseen = {"server CPU", "idle worker, server", failures.SERVER_CPU}
    assert {section.measure for section in SECTIONS} - measured <= unseen
    assert all(section.title in text for section in SECTIONS if section.measure not in unseen)
    wanted = {
        (line["measure"], line["wanted"]) for line in _lines(path) if line["kind"] == "target"
    }
    assert wanted >= {(admin.PAGE, "≤ 120"), (admin.SLOWEST, "≤ 300")}


def test_the_plans_of_all_operations_are_written(tmp_path: Path) -> None:
    path = tmp_path / "plans.txt"
    rows = ("--rows", "200", "--waiting", "100", "--held", "100")

    subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.plans", *rows, "--out", str(path)],
        check=True,
        cwd=ROOT,
        capture_output=True,
    )

    text = path.read_text()
    titles = ("FETCH: the claim of a hundred", "Promotion", "Pruning", "Folding of the counts")
    for title in (*titles, "Opening the held jobs of a key"):
        plan = text.split(f"## {title}\n")[1].split("\n## ")[0]
        assert "Execution Time" in plan


def test_an_estimate_is_on_the_line_through_the_logarithms_of_the_sizes() -> None:
    grows = {10**3: 4.0, 10**4: 5.0, 10**5: 6.0}
    assert growth.estimate(grows, 10**8) == pytest.approx((9.0, 0.0))
    # What does not grow is not estimated to get faster.
    assert growth.estimate({10**3: 4.0, 10**5: 2.0}, 10**8)[0] == pytest.approx(3.0)
    found = {size: {"claim": took, "table, GiB": size / 1e5} for size, took in grows.items()}
    head, claim, table = growth.render(found, 10**8, found[10**3], 50).splitlines()
    assert head.split()[-5:] == ["~", "100,000,000", "fit", "50", "waiting"]
    # In milliseconds, then as multiples of that.
    assert claim.split() == ["claim", "4.00", "1.25", "1.50", "2.25", "0%", "1.00"]
    assert table.split()[-3:] == ["100000.00", "0%", "1.00"]


@pytest.mark.storm
def test_the_growth_of_each_figure_is_measured() -> None:
    small = ("--rows", "2500", "5000", "--rounds", "1", "--turns", "1", "--waiting", "2500")
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.growth", *small],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    for name in ("enqueue", "prune 1,000", "admin: overview", "pages: PUSH", "table and indexes"):
        assert name in done.stdout


@pytest.mark.storm
def test_what_a_guess_brings_is_measured() -> None:
    text = guesses.run([guesses.ALL, "claim sizer"], 1, PREFIX, 0.002)

    whole, without = text.splitlines()[2:]
    assert whole.startswith(f"| {guesses.ALL} |")
    assert without.startswith("| claim sizer |")
    assert all(float(cell) > 0 for cell in without.split("|")[2:6])


def test_each_guess_is_still_where_it_is_switched_off() -> None:
    code = "from tests.benchmarks import guesses_off as g; [off() for off in g.WITHOUT.values()]"
    ours = {VARIABLE: OURS, URL_VARIABLE: "postgresql://127.0.0.1/none", NAME_VARIABLE: "none"}
    setup = "import django; django.setup(); "
    settings = {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings"}
    subprocess.run(
        [sys.executable, "-c", setup + code],
        check=True,
        cwd=ROOT,
        env={**os.environ, **ours, **settings},
    )


@pytest.mark.storm
def test_a_day_ends_with_a_ledger_in_order() -> None:
    small = ("--jobs", "400", "--seconds", "6", "--hours", "3")
    machines = ("--machines", "2", "--processes", "2")
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.day", *small, *machines],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    for text in ("enqueued 400 = completed", "others 0", "lost 0", "admin: overview, ms:"):
        assert text in done.stdout


def test_no_other_contender_loads_the_app_that_it_is_measured_beside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(URL_VARIABLE, "postgresql:///nowhere")
    monkeypatch.setenv(NAME_VARIABLE, "nowhere")
    monkeypatch.setenv(VARIABLE, "procrastinate")
    found = runpy.run_path(str(Path(__file__).parent / "settings.py"))
    assert "procrastinate.contrib.django" in found["INSTALLED_APPS"]
    # A worker that checks the routes would import django_ojs, which is not installed there.
    assert "ROOT_URLCONF" not in found
