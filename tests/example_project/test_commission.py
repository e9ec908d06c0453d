"""The order of many steps: the partner, the moments of the kills, and its part of the ledger."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import override_settings

from django_ojs.extensions import steps
from django_ojs.testing import Drained, TestContext
from example_project.demo.commission import KILLS, Commissioned, section
from example_project.shop import moments, partner
from example_project.shop.jobs import commission
from example_project.shop.models import Commission
from tests import fork_server

ASKED = tuple(
    partner.Request(what=what, key=what, number=f"{what}-1")
    for what in ("charge", "charge", "parcel", "parcel")
)
GOOD = Commissioned(
    state="completed", killed=("somewhere",) * KILLS, runs=14, requests=ASKED, rows=1
)


@pytest.mark.django_db
def test_the_order_is_charged_made_and_sent_once(ojs: TestContext, tmp_path: Path) -> None:
    with override_settings(VAR_DIR=tmp_path):
        job = commission.enqueue("T-1")
        assert ojs.drain() == Drained(suspended=1)
        ojs.advance(timedelta(seconds=2))
        assert ojs.drain() == Drained(suspended=1)
        steps.signal("packed", "T-1")
        assert ojs.drain() == Drained(completed=1)
        found = partner.requests()
    assert [(each.what, each.key) for each in found] == [
        ("charge", f"{job.id}:charge"),
        ("parcel", f"{job.id}:parcel"),
    ]
    assert Commission.objects.get().charge == found[0].number


def test_the_partner_does_once_what_has_the_same_key(tmp_path: Path) -> None:
    with override_settings(VAR_DIR=tmp_path):
        assert [partner.ask("charge", key) for key in "aab"] == ["charge-1", "charge-1", "charge-2"]
        assert len(partner.requests()) == 3


def test_a_process_is_killed_once_at_a_moment(tmp_path: Path) -> None:
    command = "from example_project.shop.moments import pass_by; pass_by('here'); print('there')"
    run = [sys.executable, "-c", command]
    env = {moments.FOLDER: str(tmp_path)}
    assert fork_server.run(run, env=env).returncode == -signal.SIGKILL
    assert fork_server.run(run, env=env).returncode == 0
    assert fork_server.run(run, env={}).returncode == 0


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GOOD, state="discarded"),
        replace(GOOD, killed=("somewhere",)),
        replace(GOOD, requests=ASKED[1:]),
        replace(GOOD, requests=(*ASKED, replace(ASKED[0], number="charge-2"))),
        replace(GOOD, rows=2),
    ],
)
def test_the_ledger_says_what_is_wrong(wrong: Commissioned) -> None:
    def problems(found: Commissioned) -> list[str]:
        return [entry.problem for entry in section(found)[1] if entry.problem]

    assert problems(GOOD) == []
    (problem,) = problems(wrong)
    assert problem.startswith("The order of many steps: ")
