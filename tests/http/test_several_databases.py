"""Over HTTP, jobs in several databases are one system: an id is enough to find a job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, transaction
from django.test import Client, override_settings

import django_ojs as ojs
from django_ojs.models import Job, Queue, Worker
from django_ojs.operations import ack, queues
from django_ojs.operations import fetch as fetching
from django_ojs.operations.jobs import bulk
from django_ojs.spec.errors import WrongDatabase
from django_ojs.storage import database
from django_ojs.storage.claims import Claimed
from django_ojs.storage.figures import rollups
from tests.factories import held
from tests.http.api import Api

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

ALIASES = ["default", "other"]
OJS = {
    "DATABASES": ALIASES,
    "HTTP_AUTHENTICATION": ["django_ojs.http.authentication.AllowAny"],
}
WORKER = {"worker_id": "worker_1"}
api = Api()


@pytest.fixture(autouse=True)
def several() -> Iterator[None]:
    with override_settings(OJS=OJS):
        yield


def push(alias: str, **options: Any) -> str:
    with transaction.atomic(using=alias):
        return str(ojs.enqueue("test.job", **options).id)


def fetch(**values: Any) -> list[dict[str, Any]]:
    body = {"queues": ["default"], **WORKER, **values}
    return api.post("workers/fetch", body).ok()["jobs"]  # type: ignore[no-any-return]


def fetch_here(queue: str) -> Claimed:
    (found,) = fetching.fetch([queue], worker_id="worker_1")
    return found


def states(alias: str) -> dict[str, str]:
    rows = Job.objects.using(alias).values_list("id", "state")
    return {str(key): state for key, state in rows}


def test_a_worker_gets_the_jobs_of_all_databases_and_ends_them_by_their_ids() -> None:
    keys = {alias: [push(alias) for _ in range(4)] for alias in ALIASES}
    # Each FETCH begins with another database, so that none has to wait for the others.
    first, second = fetch(count=2), fetch(count=2)
    taken = {job["id"] for job in (*first, *second)}
    assert [len(taken.intersection(keys[alias])) for alias in ALIASES] == [2, 2]
    for jobs in (first, second):
        api.post("workers/ack", {"job_id": jobs[0]["id"], **WORKER}).ok()
        error = {"type": "Boom", "message": "it broke", "retryable": False}
        api.post("workers/nack", {"job_id": jobs[1]["id"], "error": error, **WORKER}).ok()
    for alias in ALIASES:
        assert sorted(states(alias).values()) == ["available"] * 2 + ["completed", "discarded"]
    # The others too, when one database is empty.
    rest = [job["id"] for _ in range(4) for job in fetch(count=1)]
    assert len(rest) == 4
    assert fetch(count=10) == []

    # One BEAT holds jobs of both; one that was cancelled is lost, wherever it is.
    own = [
        *(key for key in rest if key in keys["default"]),
        *set(rest).intersection(keys["other"]),
    ]
    api.delete(f"jobs/{own[-1]}").ok()
    beat = api.post("workers/heartbeat", {**WORKER, "active_jobs": own}).ok()
    assert (sorted(beat["jobs_extended"]), beat["jobs_lost"]) == (sorted(own[:-1]), [own[-1]])
    assert all(Worker.objects.using(alias).filter(pk="worker_1").exists() for alias in ALIASES)
    api.post("admin/workers/worker_1/quiet").ok()
    assert api.post("workers/heartbeat", {**WORKER, "active_jobs": []}).ok()["state"] == "quiet"


def test_a_job_is_found_by_its_id_in_whichever_database_it_is() -> None:
    key = push("other")
    assert api.get(f"jobs/{key}").ok()["job"]["id"] == key
    assert api.get(f"admin/jobs/{key}").ok()["id"] == key
    for path in ("history", "lineage", "progress"):
        api.get(f"jobs/{key}/{path}").ok()
    assert api.delete(f"jobs/{key}").ok()["job"]["state"] == "cancelled"
    assert states("other") == {key: "cancelled"}
    with transaction.atomic(using="other"):
        workflow = ojs.chain(ojs.request("test.job")).enqueue()
    assert api.get(f"workflows/{workflow.id}").ok()["workflow"]["id"] == str(workflow.id)
    for unknown in (str(ojs.new_id()), "no-id", "%00"):
        api.get(f"jobs/{unknown}").error(404, "not_found")
        api.get(f"admin/workers/{unknown}").error(404, "not_found")
        api.post(f"admin/workers/{unknown}/quiet").error(404, "not_found")


def test_jobs_that_are_named_by_id_are_changed_where_they_are() -> None:
    keys = [push(alias) for alias in ALIASES]
    unknown = str(ojs.new_id())
    body = {"job_ids": [*keys, unknown], "confirm": True}
    done = api.post("admin/jobs/bulk/cancel", body).ok()
    none = api.post("admin/jobs/bulk/cancel", {"job_ids": [], "confirm": True}).ok()
    assert (none["matched"], none["errors"]) == (0, [])
    assert (done["cancelled"], done["failed"]) == (2, 1)
    assert [each["job_id"] for each in done["errors"]] == [unknown]
    for alias, key in zip(ALIASES, keys, strict=True):
        assert states(alias) == {key: "cancelled"}
    here = api.post("admin/jobs/bulk/delete?database=other", body).ok()
    assert (here["deleted"], here["failed"]) == (1, 2)
    assert len(states("default")) == 1


@pytest.mark.parametrize("away", ALIASES)
def test_a_database_that_goes_away_has_changed_what_it_had_changed(
    away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 2)
    keys = [push(alias) for alias in ALIASES for _ in range(3)]
    run, steps = bulk.BulkStep.run, Counter[str]()

    def interrupted(step: Any, keys: Any) -> Any:
        steps[alias := database.alias()] += 1
        if (alias, steps[alias]) == (away, 2):
            raise OperationalError("server closed the connection unexpectedly")
        return run(step, keys)

    monkeypatch.setattr(bulk.BulkStep, "run", interrupted)
    done = api.post("admin/jobs/bulk/cancel", {"job_ids": keys, "confirm": True}).ok()
    changed = Job.objects.using(away).filter(state="cancelled").count()
    assert (changed, done["matched"], done["cancelled"], done["failed"]) == (2, 6, 5, 1), done
    (left,) = done["errors"]
    assert states(away)[left["job_id"]] == "available"
    assert "does not respond" in left["error"]


def test_a_batch_is_stored_in_the_database_that_one_job_would_be_stored_in() -> None:
    job = {"type": "test.job", "args": []}
    with transaction.atomic(using="other"):
        api.post("jobs/batch", {"jobs": [job, job]}).ok(201)
    assert len(states("other")) == 2
    # A site may wrap each request in transactions: they are not those of who sent it, who cannot
    # say with which one a job commits.
    steps = {"type": "chain", "steps": [job, job]}
    for databases, parameter, stored_in in (
        (ALIASES, "", "default"),
        (ALIASES, "?database=other", "other"),
        ([], "", "default"),
    ):
        before = len(states(stored_in))
        with (
            override_settings(OJS={**OJS, "DATABASES": databases}),
            transaction.atomic(using="default" if databases else "other"),
            transaction.atomic(using="other"),
        ):
            api.post(f"jobs{parameter}", job).ok(201)
            api.post(f"jobs/batch{parameter}", {"jobs": [job, job]}).ok(201)
            api.post(f"workflows{parameter}", steps).ok(201)
        assert len(states(stored_in)) == before + 4
    with (
        override_settings(OJS={**OJS, "DATABASES": []}),
        transaction.atomic(using="other"),
        pytest.raises(WrongDatabase),
    ):
        ojs.enqueue("test.job")


def test_a_parameter_names_the_database_of_a_request() -> None:
    at_home, there = push("default"), push("other")
    listed = api.get("admin/jobs").ok()
    assert [job["id"] for job in listed["items"]] == [at_home]
    assert listed["pagination"]["total"] == 1
    listed = api.get("admin/jobs?database=other").ok()["items"]
    assert [job["id"] for job in listed] == [there]
    pushed = api.post("jobs?database=other", {"type": "test.job", "args": []}).ok(201)["job"]["id"]
    assert set(states("other")) == {there, pushed}
    api.get(f"jobs/{at_home}?database=other").error(404, "not_found")
    problem = api.get("admin/jobs?database=nowhere").error(400, "invalid_request")
    assert "database must be one of default, other" in problem["message"]
    # Who needs no credentials learns no alias.
    api.get("health?database=nowhere").ok()
    api.get("nowhere?database=nowhere").error(404, "not_found")
    with override_settings(OJS={**OJS, "DATABASES": []}):
        api.get("admin/jobs?database=nowhere").ok()


def test_a_stream_has_the_events_of_its_database() -> None:
    with override_settings(OJS={**OJS, "KEEP_EVENTS": ["*"]}):
        push("default")
        first = push("other")
        for path in ("events/stream?database=other&after=0", f"jobs/{first}/events?after=0"):
            # As a server with threads does.
            response: Any = Client().get(f"/ojs/v1/{path}", **{"wsgi.multithread": True})
            stream = iter(response.streaming_content)
            assert b"retry" in next(stream)
            assert first.encode() in next(stream)
            if "database" in path:
                # What comes later wakes it.
                second = push("other")
                assert second.encode() in next(stream)
            response.close()
        for kind, status in (("job", 200), ("queue", 200)):
            name = first if kind == "job" else "default"
            path = f"events/stream?channel={kind}:{name}"
            response = Client().get(f"/ojs/v1/{path}", **{"wsgi.multithread": True})
            assert response.status_code == status
            response.close()


def test_the_queues_of_a_fetch_have_their_turns_in_each_database() -> None:
    for alias in ALIASES:
        for queue in ("a", "b"):
            for _ in range(2):
                push(alias, queue=queue)
    # Databases and queues both change with each request.
    order = {"queues": ["a", "b"], "weights": {"a": 1, "b": 1}, "strategy": "weighted"}
    taken = {job["id"] for _ in range(4) for job in fetch(**order, count=1)}
    for alias in ALIASES:
        queues_of = Job.objects.using(alias).filter(pk__in=taken).values_list("queue", flat=True)
        assert sorted(queues_of) == ["a", "b"]


def test_queues_are_controlled_and_configured_in_each_database() -> None:
    bound = {"backpressure": {"max_depth": 2, "on_full": "reject"}}
    api.put("queues/default/config", bound).ok()
    api.post("queues/default/pause").ok()
    for alias in ALIASES:
        queue = Queue.objects.using(alias).get(pk="default")
        assert queue.paused_at is not None
        assert queue.config["backpressure"]["max_depth"] == 2
        push(alias)
    assert fetch(count=5) == []
    api.post("queues/default/resume?database=other").ok()
    (job,) = [*fetch(count=5), *fetch(count=5)]
    assert job["id"] in states("other")


@pytest.mark.parametrize("missed", ALIASES)
def test_what_one_database_missed_is_done_by_a_repetition(missed: str) -> None:
    (other,) = set(ALIASES) - {missed}
    api.post(f"queues?database={other}", {"name": "new"}).ok(201)
    api.post("queues", {"name": "new"}).ok(201)
    assert all(Queue.objects.using(alias).filter(pk="new").exists() for alias in ALIASES)
    api.post("queues", {"name": "new"}).error(409, "conflict")
    api.delete(f"queues/new?database={other}").ok(202)
    api.delete("queues/new").ok(202)
    assert not any(Queue.objects.using(alias).filter(pk="new").exists() for alias in ALIASES)
    api.delete("queues/new").error(404, "not_found")


def test_a_queue_is_purged_and_deleted_in_each_database() -> None:
    for alias, number in (("default", 1), ("other", 2)):
        for _ in range(number):
            key = push(alias, queue="full")
            push(alias, queue="only" if alias == "other" else "default")
            api.delete(f"jobs/{key}").ok()
        push(alias, queue="full")
    purge = {"states": ["cancelled"], "confirm": True}
    assert api.delete("admin/queues/full/jobs", purge).ok()["purged_count"] == 3
    assert api.delete("admin/queues/full/jobs", purge).ok()["purged_count"] == 0
    # A job in any of them keeps the queue in all.
    with ojs.using("default"):
        queues.create("only")
    rejected = api.delete("queues/only").error(409, "conflict")
    assert rejected["details"]["jobs"] == 2
    assert Queue.objects.using("default").get(pk="only").config == {}
    done = api.delete("queues/full", {"strategy": "discard"}).ok(202)
    assert (done["jobs_affected"], done["jobs_waiting"], done["state"]) == (2, 0, "deleted")
    moved = api.delete("queues/only", {"strategy": "move", "target_queue": "kept"}).ok(202)
    assert moved["jobs_affected"] == 2
    for name in ("full", "only"):
        api.get(f"queues/{name}").error(404, "not_found")


def test_pages_of_the_queues_of_all_databases_know_how_many_there_are() -> None:
    for alias, names in (("default", "ab"), ("other", "bcd")):
        for name in names:
            push(alias, queue=name)
    path, seen, totals = "queues?limit=1", [], set()
    while path:
        page = api.get(path).ok()
        seen += [queue["name"] for queue in page["queues"]]
        totals.add(page["pagination"]["total"])
        following = page["pagination"].get("next_cursor")
        path = f"queues?limit=1&cursor={following}" if following else ""
    assert (seen, totals) == (list("abcd"), {4})


def test_figures_are_those_of_all_databases_or_of_the_one_that_is_named() -> None:
    for alias, number in (("default", 2), ("other", 3)):
        for _ in range(number):
            push(alias, queue="shared")
        push(alias, queue=f"only-{alias}")
        with ojs.using(alias):
            fetched = fetch_here("shared")
            ack.ack(fetched.id, claim=held(fetched))
    rollups.flush()

    def figures(parameter: str) -> dict[str, Any]:
        separator = "&" if parameter else ""
        queue = api.get(f"queues/shared/stats?{parameter}").ok()["stats"]
        points = api.get(f"admin/stats/history?period=1d{separator}{parameter}").ok()["data"]
        listed = api.get(f"admin/queues?{parameter}").ok()
        metrics = api.get(f"/ojs/metrics?{parameter}").raw.content.decode()
        counted = re.search(r'^ojs_job_enqueued_total{queue="shared".*} (\S+)$', metrics, re.M)
        depth = re.search(
            r'^ojs_queue_depth{queue="shared",state="available"} (\S+)$', metrics, re.M
        )
        assert counted
        assert depth
        return {
            "jobs": api.get(f"admin/stats?{parameter}").ok()["jobs"]["available"],
            "depth": queue["depth"],
            "completed": queue["completed_last_hour"],
            "history": points[-1]["enqueued"],
            "queues": [each["name"] for each in listed["items"]],
            "counter": float(counted[1]),
            "gauge": float(depth[1]),
        }

    assert figures("") == {
        "jobs": 5,
        "depth": 3,
        "completed": 2,
        "history": 7,
        "queues": ["only-default", "only-other", "shared"],
        "counter": 5.0,
        "gauge": 3.0,
    }
    assert figures("database=other") == {
        "jobs": 3,
        "depth": 2,
        "completed": 1,
        "history": 4,
        "queues": ["only-other", "shared"],
        "counter": 3.0,
        "gauge": 2.0,
    }
