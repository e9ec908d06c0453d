"""Names that producers make up: very many queues cost a page, and hide no other queue."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from django_ojs.admin import query_timeout
from django_ojs.admin.formatting import number
from django_ojs.extensions.statistics import all_time, rollups
from django_ojs.extensions.statistics import metrics as of_statistics
from django_ojs.http import metrics
from django_ojs.models import Queue
from django_ojs.operations import queues
from django_ojs.storage.figures import counts, known_queues
from tests import figures
from tests.factories import in_state, push, push_many
from tests.http.api import Api
from tests.sizes import FULL

MANY = 100_000 if FULL else 2_000
BUCKETS = str([0] * 24)

api = Api()


def make_up(many: int) -> None:
    """Make so many queues with a job and a type each, and their figures."""
    template = push(queue="template", type="a")
    kept = ", ".join(
        field.column
        for field in template._meta.concrete_fields
        if field.column not in ("id", "queue", "type")
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO ojs_job (id, queue, type, {kept}) "
            f"SELECT gen_random_uuid(), 'made-up-' || n, 'made.up.' || n, {kept} "
            "FROM ojs_job, generate_series(1, %s) AS n WHERE queue = 'template'",
            [many],
        )
        cursor.execute(
            "INSERT INTO ojs_rollup (minute, queue, type, enqueued, completed, failed, discarded,"
            " rejected, dropped, lost, progress_updates, waited, ran)"
            " SELECT date_trunc('minute', now()), 'made-up-' || n, 'made.up.' || n,"
            " 1, 0, 0, 0, 0, 0, 0, 0, %s::jsonb, %s::jsonb"
            " FROM generate_series(1, %s) AS n",
            [BUCKETS, BUCKETS, many],
        )
    template.delete()
    counts.fold()
    all_time.sums.reset()


def samples(name: str, text: str) -> dict[tuple[str, ...], float]:
    # There are tens of thousands of lines, most about other names: the parser takes seconds.
    lines = "\n".join(line for line in text.split("\n") if name in line)
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(lines)
        for sample in family.samples
        if sample.name == name
    }


#: The queries and the bytes that a response may take.
READS = [
    ("queues", 10, 10_000),
    ("queues?limit=200", 10, 40_000),
    ("admin/queues?per_page=100", 11, 50_000),
    ("admin/stats", 8, 1_000),
    ("admin/jobs", 8, 10_000),
    ("/ojs/metrics", 20, 8_000_000),
]


@pytest.mark.postgresql
@pytest.mark.sized
@pytest.mark.django_db
def test_a_read_costs_a_page_however_many_queues_there_are(admin_client: Client) -> None:
    make_up(MANY)
    push_many(30, queue="loaded")
    queues.configure("configured", {"backpressure": {"max_depth": 10}})
    push_many(5, queue="configured")
    bodies: dict[str, Any] = {}
    for path, most_queries, most_bytes in READS:
        with CaptureQueriesContext(connection) as captured:
            response = api.get(path)
        assert response.status == 200, path
        assert len(captured) <= most_queries, (path, [each["sql"] for each in captured])
        assert len(response.raw.content) <= most_bytes, path
        bodies[path] = response.body or response.raw.content.decode()
    assert bodies["queues"]["pagination"]["total"] == MANY + 2
    assert bodies["admin/stats"]["queues"] == MANY + 2
    assert bodies["admin/stats"]["jobs"]["available"] == MANY + 35
    assert Queue.primary.count() <= 500, "only listed queues get a row"

    depth = samples("ojs_queue_depth", bodies["/ojs/metrics"])
    assert depth["configured", "available"] == 5
    assert depth["loaded", "available"] == 30
    available = [value for (_, state), value in depth.items() if state == "available"]
    assert sum(available) == MANY + 35
    assert len(available) <= metrics.MAX_SERIES + 5
    enqueued = samples("ojs_job_enqueued_total", bodies["/ojs/metrics"])
    assert sum(enqueued.values()) >= MANY
    assert enqueued["_other", "_other"] >= MANY - metrics.MAX_SERIES

    for page in ("overview", "queue"):
        with CaptureQueriesContext(connection) as captured:
            shown = admin_client.get(f"/admin/django_ojs/{page}/")
        assert shown.status_code == 200, page
        # The overview asks about API keys, limit keys and releases too.
        assert len(captured) <= 70, page
        assert len(shown.content) <= 300_000, page
        text = shown.content.decode()
        assert ">configured<" in text, page
        assert ">loaded<" in text, page
        more = f"and {number(MANY - 10)} more queues"
        some = f"{number(1001)} of {number(MANY + 2)} queues"
        assert (more in text) is (page == "overview")
        assert (some in text) is (page == "queue")
    found = admin_client.get("/admin/django_ojs/queue/?q=made-up-1777").content.decode()
    assert ">made-up-1777<" in found


@pytest.mark.postgresql
@pytest.mark.django_db
def test_queues_that_workers_serve_keep_their_series_after_names_that_producers_make_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_statistics, "MAX_SERIES", 100)
    make_up(300)
    # Each ran a job, and is empty now. Types are made up as well as queues.
    served = [(f"served-{number}", "real.job") for number in range(5)]
    for queue, type in served:
        job = in_state("completed", queue=queue, type=type)
        figures.note(rollups.COMPLETED, queue, type)
        job.delete()
    figures.note(rollups.FAILED, "served-0", "bad.job")
    rollups.flush()
    text = api.get("/ojs/metrics").raw.content.decode()
    depth = samples("ojs_queue_depth", text)
    for queue, type in served:
        assert depth[queue, "available"] == 0
        assert samples("ojs_job_completed_total", text)[queue, type] == 1
    assert samples("ojs_job_errors_total", text)["served-0", "bad.job"] == 1


@pytest.mark.django_db
def test_the_overview_is_shown_although_each_query_times_out(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_timeout, "PAGE_SECONDS", -1.0)
    for page in ("overview", "queue"):
        shown = admin_client.get(f"/admin/django_ojs/{page}/")
        assert shown.status_code == 200, page
    assert "took too long" in shown.content.decode()


@pytest.mark.both
@pytest.mark.django_db
def test_pages_by_name_and_by_load() -> None:
    for name, depth in (("b", 1), ("c.d", 3), ("a-b", 2), ("a1", 1)):
        push_many(depth, queue=name)
    in_state("completed", queue="done")
    queues.configure("idle", {"backpressure": {"max_depth": 10}})
    queues.create("plain")
    names = sorted(["b", "c.d", "a-b", "a1", "done", "idle", "plain"])
    found = known_queues.by_name()
    assert (found.names, found.total) == (names, 7)
    found = known_queues.by_name(after=names[1], offset=1, limit=2)
    assert (found.names, found.total) == (names[3:5], 7)
    assert known_queues.by_name(limit=0) == known_queues.KnownQueues(names=[], counts={}, total=7)
    found = known_queues.by_name(within={"b", "idle", "absent"})
    assert (found.names, found.total) == (["b", "idle"], 2)
    assert known_queues.by_name(within=()).total == 0
    busiest = known_queues.by_load(limit=2)
    assert (busiest.names, busiest.total) == (["idle", "c.d", "a-b"], 7)
    assert known_queues.by_load(limit=9, text="a").names == ["a-b", "a1", "plain"]
    assert known_queues.by_load(limit=9, text="a_").names == []


@pytest.mark.django_db
def test_a_queue_in_the_settings_is_configured(settings: Any) -> None:
    settings.OJS = {"QUEUES": {"email": {"backpressure": {"max_depth": 10}}}}
    push_many(3, queue="loaded")
    push(queue="email")
    assert known_queues.by_load(limit=0).names == ["email"]


@pytest.mark.django_db
def test_a_deleted_queue_is_known_while_a_job_of_it_runs() -> None:
    job = in_state("active", queue="gone")
    queues.delete("gone", strategy="discard")
    assert known_queues.by_name().names == ["gone"]
    job.delete()
    counts.fold()
    assert known_queues.by_name().names == []


@pytest.mark.both
@pytest.mark.django_db
def test_the_smallest_pairs_are_one_and_no_configured_queue_is_among_them() -> None:
    queues.configure("mail", {"backpressure": {"max_depth": 10}})

    def total(jobs: int, progress_updates: int = 0) -> all_time.Total:
        return all_time.Total([jobs, 0, 0, 0, 0, 0, 0, progress_updates, 0])

    totals = {
        ("big", "a"): total(9),
        ("mail", "a"): total(2),
        ("mail", "b"): total(1),
        ("small", "a"): total(3),
        ("tiny", "a"): total(1, progress_updates=100),
    }
    found = {key: each.counts[0] for key, each in all_time.largest(totals, 2).items()}
    assert found == {
        ("big", "a"): 9,
        ("small", "a"): 3,
        ("mail", "_other"): 3,
        ("_other", "_other"): 1,
    }
    assert all_time.largest(totals, 5) == totals
