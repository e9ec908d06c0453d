"""Metrics as Prometheus reads them (ojs-observability §8, ojs-backpressure §10.2)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from django_ojs.extensions.backpressure.operations import rejection_counts
from django_ojs.extensions.statistics import all_time, rollup_compaction, rollups
from django_ojs.extensions.statistics import metrics as of_statistics
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.http import metrics
from django_ojs.operations import fetch, queues
from django_ojs.operations.ack import ack
from django_ojs.reports import incidents
from django_ojs.spec.errors import QueueFull
from django_ojs.storage import database
from tests.factories import WorkerFactory, active, in_state, jobs, push, read
from tests.figures import note
from tests.http.api import TEXT_TYPE, Api, make_key

pytestmark = pytest.mark.django_db(transaction=True)

api = Api()
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def nothing_was_counted() -> Iterator[None]:
    rollups.flush()
    Rollup.objects.all().delete()
    all_time.sums.reset()
    yield
    all_time.sums.reset()


def scrape(client: Api = api) -> Samples:
    """Ask as Prometheus does, after all processes have written."""
    rollups.flush()
    response = client.get("/ojs/metrics")
    assert response.status == 200
    assert response.headers["Content-Type"] == TEXT_TYPE
    families = text_string_to_metric_families(response.raw.content.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


@pytest.mark.both
@pytest.mark.requirement("EV-14")
def test_what_happened_is_counted_by_queue_and_type() -> None:
    ack(in_state("active", queue="email", type="email.read").pk)
    push(queue="email", type="email.send")
    push(queue="email", type="email.send")
    in_state("discarded", queue="other", type="a")
    found = scrape()
    send = {"queue": "email", "type": "email.send"}
    read = {"queue": "email", "type": "email.read"}
    assert value(found, "ojs_job_enqueued_total", **send) == 2
    assert value(found, "ojs_job_completed_total", **send) == 0
    assert value(found, "ojs_job_completed_total", **read) == 1
    assert value(found, "ojs_job_failed_total", queue="other", type="a") == 1
    assert value(found, "ojs_job_errors_total", queue="other", type="a") == 1
    assert value(found, "ojs_job_duration_seconds_count", **read, state="completed") == 1
    last = value(found, "ojs_job_duration_seconds_bucket", **read, state="completed", le="+Inf")
    assert last == 1
    assert value(found, "ojs_job_queue_time_seconds_count", **read) == 1


@pytest.mark.requirement("OBS-006")
def test_jobs_are_counted_by_queue_and_state() -> None:
    in_state("active", queue="email")
    push(queue="email")
    WorkerFactory(id="w")
    found = scrape()
    assert value(found, "ojs_queue_depth", queue="email", state="available") == 1
    assert value(found, "ojs_queue_depth", queue="email", state="active") == 1
    assert value(found, "ojs_queue_depth", queue="email", state="discarded") == 0
    assert value(found, "ojs_workers_busy", queue="email") == 1
    assert value(found, "ojs_workers_active") == 1


@pytest.mark.both
@pytest.mark.requirement("BP-R005")
def test_the_pressure_of_bounded_queues_and_what_they_rejected_and_dropped() -> None:
    queues.configure("full", {"backpressure": {"max_depth": 4}})
    queues.configure("lossy", {"backpressure": {"max_depth": 1, "strategy": "drop_oldest"}})
    for _ in range(4):
        push(queue="full")
    with pytest.raises(QueueFull):
        push(queue="full")
    for _ in range(3):
        push(queue="lossy")
    rejection_counts.recorder.reset()
    found = scrape()
    assert value(found, "ojs_backpressure_pressure", queue="full") == 1
    assert value(found, "ojs_backpressure_rejected_total", queue="full") == 1
    assert value(found, "ojs_backpressure_dropped_total", queue="lossy") == 2
    queues.configure("full", {"backpressure": {"max_depth": 5}})
    assert value(scrape(), "ojs_backpressure_pressure", queue="full") == 0.8
    # A bound that was lowered below what is there.
    queues.configure("full", {"backpressure": {"max_depth": 2}})
    assert value(scrape(), "ojs_backpressure_pressure", queue="full") == 1
    queues.configure("full", {"backpressure": None})
    assert value(scrape(), "ojs_backpressure_pressure", queue="full") is None


@pytest.mark.both
@pytest.mark.requirement("EV-15")
def test_counters_never_become_less_whatever_is_folded_and_however_old_it_grows() -> None:
    labels = {"queue": "email", "type": "email.send"}
    for age in (timedelta(days=40), timedelta(hours=3), timedelta(minutes=4), timedelta()):
        note(rollups.ENQUEUED, "email", "email.send", number=2, waited=0.01)
        rollups.flush()
        Rollup.objects.filter(minute__gt=datetime.now(UTC) - timedelta(minutes=2)).update(
            minute=(datetime.now(UTC) - age).replace(second=0, microsecond=0)
        )
    assert value(scrape(), "ojs_job_enqueued_total", **labels) == 8
    assert rollup_compaction.prune(timedelta(days=30)) == 1
    assert rollup_compaction.prune(timedelta(days=30)) == 0
    rollup_compaction.prune(timedelta(hours=2))
    rollup_compaction.fold()
    assert value(scrape(), "ojs_job_enqueued_total", **labels) == 8
    all_time.sums.reset()
    found = scrape()
    assert value(found, "ojs_job_enqueued_total", **labels) == 8
    assert value(found, "ojs_job_queue_time_seconds_count", **labels) == 4
    assert Rollup.objects.filter(minute=rollup_compaction.EVER).count() == 1


def test_types_without_number_become_one_series(monkeypatch: Any) -> None:
    monkeypatch.setattr(of_statistics, "MAX_SERIES", 3)
    for number in range(6):
        push(queue="q", type=f"made.up{number}")
    found = scrape()
    assert value(found, "ojs_job_enqueued_total", queue="q", type="made.up0") == 1
    assert value(found, "ojs_job_enqueued_total", queue="_other", type="_other") == 3
    assert len([key for key in found if key[0] == "ojs_job_enqueued_total"]) == 4


def test_who_is_kept_to_some_queues_sees_no_others(settings: Any) -> None:
    keys = "django_ojs.http.authentication.ApiKeyAuthentication"
    settings.OJS = {"HTTP_AUTHENTICATION": [keys]}
    push(queue="mine")
    push(queue="other", type="secret")
    queues.configure("other", {"backpressure": {"max_depth": 4}})
    WorkerFactory(id="w")
    found = scrape(Api(make_key("read", queues=("mine",))))
    assert value(found, "ojs_queue_depth", queue="mine", state="available") == 1
    labels = [labels for _, labels in found]
    assert all(("queue", "other") not in each for each in labels)
    assert value(found, "ojs_workers_active") == 0


def test_where_no_job_reports_its_progress_nobody_reads_the_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The incidents read bounded ranges of them.
    monkeypatch.setattr(incidents, "look", lambda *_, **__: ())
    push(queue="email")
    queues.configure("email", {"backpressure": {"max_depth": 4}})
    rollups.flush()
    with CaptureQueriesContext(connections[database.alias()]) as asked:
        api.get("/ojs/metrics")
    assert asked.captured_queries
    assert not [query for query in asked.captured_queries if '"ojs_job"' in query["sql"]]
    assert not [query for query in asked.captured_queries if "FROM ojs_job " in query["sql"]]


@pytest.mark.both
@pytest.mark.requirement("PRG-R007")
@pytest.mark.requirement("PRG-R008")
def test_reports_of_progress_and_the_jobs_that_stopped_to_report_are_counted() -> None:
    def reported(queue: str, **earlier: object) -> UUID:
        key = active(queue=queue, type="report.build").id
        for share in (0.1, 0.2):
            sent = api.put(f"/ojs/v1/jobs/{key}/progress", {"progress": share})
            assert sent.status == 200
        if earlier:
            jobs().filter(pk=key).update(progress={**read(key).progress, **earlier})
        return key

    old = {"updated_at": "2020-01-01T00:00:00.000Z"}
    reported("reports")
    silent = [reported("reports", **old) for _ in range(2)]
    reported("reports", **old, run=-1)
    ack(reported("reports", **old))
    reported("other", **old, stalled=True)
    active(queue="email")
    found = scrape()
    labels = {"queue": "reports", "job_type": "report.build"}
    assert value(found, "ojs_progress_updates_total", **labels) == 10
    assert value(found, "ojs_progress_stalled_jobs", queue="reports") == 2
    assert value(found, "ojs_progress_stalled_jobs", queue="other") == 1
    assert value(found, "ojs_progress_stalled_jobs", queue="email") == 0
    limited = metrics.render({"other"}).decode()
    assert "reports" not in limited
    assert 'ojs_progress_stalled_jobs{queue="other"} 1.0' in limited
    ack(silent[0])
    api.put(f"/ojs/v1/jobs/{silent[1]}/progress", {"progress": 0.3})
    assert value(scrape(), "ojs_progress_stalled_jobs", queue="reports") == 0


def test_without_the_package_it_says_what_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setattr("django_ojs.http.views.metrics.find_spec", lambda name: None)
    error = api.get("/ojs/metrics").error(404, "not_found")
    assert "metrics" in error["hint"]


@pytest.mark.both
@pytest.mark.requirement("RL-R006")
def test_keys_at_their_limit_are_counted_by_the_limit_and_not_by_key() -> None:
    for n in range(30):
        for _ in range(2):
            push(queue="carrier", rate_limit={"key": f"customer:{n}", "concurrency": 1})
    for _ in range(2):
        push(queue="carrier", rate_limit={"key": "api", "rate": {"limit": 1, "period": "PT1H"}})
    fetch.fetch(["carrier"], count=100)
    found = scrape()
    assert value(found, "ojs_rate_limit_keys", strategy="concurrency") == 30
    assert value(found, "ojs_rate_limit_keys", strategy="rate") == 1
    assert value(found, "ojs_rate_limit_keys", strategy="pause") == 0
    assert "customer" not in Api().get("/ojs/metrics").raw.content.decode()
    assert b"ojs_rate_limit_keys" not in metrics.render({"carrier"})


@pytest.mark.requirement("FS-R009")
def test_with_pools_the_part_of_each_queue_is_a_metric(settings: Any) -> None:
    settings.OJS = {**settings.OJS, "POOLS": {"gpu": {"queues": ["images", "videos"]}}}
    text = Api().get("/ojs/metrics").raw.content.decode()
    assert 'ojs_scheduling_dispatch_ratio{queue="images"} 0.0' in text
    settings.OJS = {**settings.OJS, "POOLS": {}}
    assert "ojs_scheduling" not in Api().get("/ojs/metrics").raw.content.decode()
