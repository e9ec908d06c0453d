"""Progress that stalls is an event (ojs-progress §11.1)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.events.operations import log
from django_ojs.operations import ack
from django_ojs.operations.maintenance import stalled
from django_ojs.operations.progress import report
from django_ojs.spec.progress import Report
from tests.factories import WORKER, active, jobs, read

pytestmark = pytest.mark.django_db(transaction=True)


def long_ago(key: UUID) -> None:
    """Let the last report of a job be older."""
    job = read(key)
    jobs().filter(pk=key).update(
        progress={**job.progress, "updated_at": "2020-01-01T00:00:00.000Z"}
    )


def test_reports_of_earlier_runs_do_not_hide_a_run_that_stalls(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["progress.stalled"]}
    monkeypatch.setattr(stalled, "BATCH", 2)
    stored = [active() for _ in range(4)]
    for each in stored:
        report(each.id, Report(progress=0.5))
        long_ago(each.id)
    for each in stored[:3]:
        jobs().filter(pk=each.id).update(progress={**read(each.id).progress, "run": -1})
    assert sum(stalled.tell_stalled() for _ in range(3)) == 1
    (event,) = log.read().events
    assert event["subject"] == str(stored[3].id)


@pytest.mark.requirement("PRG-R006")
def test_a_run_whose_reports_stop_is_told_once_until_it_reports_again(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["progress.stalled"]}
    job, ended, quick, silent = active(), active(), active(), active()
    for each in (job, ended, quick):
        report(each.id, Report(progress=0.5, data={"rows": 1}))
    for each in (job, ended):
        long_ago(each.id)
    ack.ack(ended.id)
    assert stalled.tell_stalled() == 1
    assert stalled.tell_stalled() == 0
    (event,) = log.read().events
    assert (event["type"], event["subject"]) == ("progress.stalled", str(job.id))
    assert (
        event["data"].items()
        >= {
            "job_id": str(job.id),
            "worker_id": WORKER,
            "last_progress": 0.5,
            "last_update": "2020-01-01T00:00:00.000Z",
        }.items()
    )
    assert read(job.id).progress["data"] == {"rows": 1}
    report(job.id, Report(progress=0.6))
    assert stalled.tell_stalled() == 0
    long_ago(job.id)
    assert stalled.tell_stalled() == 1
    assert len(log.read().events) == 2
    assert read(silent.id).progress is None


def test_without_the_setting_nothing_is_queried() -> None:
    with CaptureQueriesContext(connection) as queries:
        assert stalled.tell_stalled() == 0
    assert not queries.captured_queries


def test_a_run_that_reports_before_its_row_is_locked_has_not_stalled(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["progress.stalled"]}
    job = active()
    report(job.id, Report(progress=0.5))
    long_ago(job.id)
    tell = stalled._tell

    def tell_later(silent: Any) -> int:
        found = list(silent)
        report(job.id, Report(progress=0.6))
        return tell(found)

    monkeypatch.setattr(stalled, "_tell", tell_later)
    assert stalled.tell_stalled() == 0
    monkeypatch.undo()
    long_ago(job.id)
    assert stalled.tell_stalled() == 1
