"""The dead_letter_queue of a queue: what goes there, and how it returns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_ojs.extensions.events import event_messages
from django_ojs.extensions.events.models import Event
from django_ojs.models import Job, Queue
from django_ojs.operations import fail, fetch, queues, retry, run_again
from django_ojs.operations.jobs import bulk, dead_letters, listing
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.maintenance import job_pruning, job_retention
from django_ojs.operations.progress import report
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import InvalidRequest, QueueFull
from django_ojs.spec.progress import Report
from django_ojs.spec.states import State
from django_ojs.storage import queue_configs
from django_ojs.storage.figures import counts
from tests.factories import BOOM, WorkerFactory, active, age_all, hourly, push, read
from tests.http.api import Api, make_key
from tests.http.test_event_stream import stream
from tests.other_session import Other
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db

api = Api()


@pytest.fixture(autouse=True)
def configured() -> None:
    queues.configure("pay", {"dead_letter_queue": "pay-dead"})


def dead(**values: Any) -> Job:
    """Return a dead letter of the queue."""
    job = active(queue="pay", retry=hourly(1), **values)
    fail.fail(job.id, BOOM)
    return read(job.id)


@pytest.mark.requirement("QC-09")
def test_a_job_without_attempts_left_is_a_dead_letter_in_the_queue_that_is_named() -> None:
    job = dead(args=["kept"])
    # Its end is an event of the queue where it ran.
    assert [e.queue for e in Event.primary.filter(type="job.discarded")] == ["pay"]
    shown = api.get(f"dead-letter/{job.pk}").ok()["job"]
    assert (shown["state"], shown["queue"], shown["original_queue"]) == (
        "discarded",
        "pay-dead",
        "pay",
    )
    assert (shown["error"]["message"], shown["args"]) == ("it broke", ["kept"])
    assert counts.by_queue(["pay", "pay-dead"]) == {"pay": {}, "pay-dead": {State.DISCARDED: 1}}
    assert fetch.fetch(["pay-dead"]) == []
    for queue in ("pay", "pay-dead"):
        (listed,) = api.get(f"dead-letter?queue={queue}").ok()["jobs"]
        assert listed["id"] == str(job.pk)
    assert api.get("dead-letter?queue=other").ok()["jobs"] == []


def test_a_job_whose_worker_died_at_its_last_attempt_goes_there_too() -> None:
    job = active(queue="pay", retry=hourly(1), worker_id=WorkerFactory(id="gone").pk)
    rescue.rescue(["gone"])
    assert (read(job.id).state, read(job.id).queue) == ("discarded", "pay-dead")


def test_a_job_that_waits_for_its_next_attempt_or_is_only_discarded_stays() -> None:
    waits, discarded = (
        active(queue="pay"),
        active(queue="pay", retry=hourly(1, on_exhaustion="discard")),
    )
    fail.fail(waits.id, BOOM)
    fail.fail(discarded.id, BOOM)
    assert {read(job.id).queue for job in (waits, discarded)} == {"pay"}


def test_a_retry_returns_it_to_its_queue_one_by_one_and_in_bulk() -> None:
    one, two, three, changed = (dead() for _ in range(4))
    assert retry.retry(one.pk).queue == "pay"
    assert dead_letters.retry(two.pk).queue == "pay"
    elsewhere = dead_letters.retry(changed.pk, override={"queue": "other"})
    assert (elsewhere.queue, elsewhere.original_queue) == ("other", None)
    bulk.retry_all(JobFilter(queue="pay-dead", states=(State.DISCARDED,)), dead_letters=True)
    assert {job.id for job in fetch.fetch(["pay"], count=9)} == {one.pk, two.pk, three.pk}
    assert read(three.pk).original_queue is None
    assert counts.by_queue(["pay-dead"]) == {"pay-dead": {}}


@pytest.mark.django_db(transaction=True)
def test_a_full_queue_leaves_it_where_it_is() -> None:
    job = dead()
    queues.configure("pay", {"max_size": 1})
    push(queue="pay")
    with pytest.raises(QueueFull):
        retry.retry(job.pk)
    summary = bulk.retry_all([job.pk], dead_letters=True)
    assert (summary.succeeded, summary.failed) == (0, 1)
    assert (read(job.pk).state, read(job.pk).queue) == ("discarded", "pay-dead")


def test_a_copy_of_it_runs_in_the_queue_where_it_ran() -> None:
    assert run_again.run_again(dead().pk).queue == "pay"
    sent = {"type": "t", "args": [], "original_queue": "x"}
    assert "original_queue" not in api.post("jobs", sent).ok(201)["job"]


@override_settings(OJS={})
def test_who_retries_it_may_use_both_queues() -> None:
    job = dead()
    only = Api(make_key("operator", queues=("pay-dead",)))
    only.get(f"dead-letter/{job.pk}").ok()
    only.post(f"dead-letter/{job.pk}/retry").error(403, "PERMISSION_DENIED")
    only.post(f"admin/jobs/{job.pk}/retry").error(403, "PERMISSION_DENIED")
    body = {"confirm": True, "job_ids": [str(job.pk)]}
    assert only.post("admin/dead-letter/retry", body).ok()["succeeded"] == 0
    both = Api(make_key("operator", queues=("pay", "pay-dead")))
    assert both.post(f"dead-letter/{job.pk}/retry").ok()["job"]["queue"] == "pay"


def kept_after(days: int) -> set[str]:
    """Prune when this many days have passed, and return the queues of what is kept."""
    age_all(timedelta(days=days))
    job_pruning.QueuePruner().prune()
    job_pruning.prune()
    assert job_pruning.overdue() == {}
    return set(Job.primary.values_list("queue", flat=True))


def test_it_is_kept_as_long_as_the_queue_where_it_ran_keeps_dead_letters() -> None:
    queues.configure("pay", {"dead_letter_ttl": "P400D"})
    dead()
    for queue in ("other", "pay-dead"):
        fail.fail(active(queue=queue, retry=hourly(1)).id, BOOM)
    own = Job.primary.get(queue="pay-dead", original_queue=None)
    assert job_retention.of(own) == timedelta(days=180)
    # Nothing of that is the configuration of today: the job knows where it ran.
    queues.configure("pay", {"dead_letter_queue": None})
    assert kept_after(399) == {"pay-dead"}
    (moved,) = Job.primary.all()
    assert (moved.original_queue, job_retention.of(moved)) == ("pay", timedelta(days=400))
    queues.configure("pay-dead", {"dead_letter_ttl": "P500D"})
    assert kept_after(99) == {"pay-dead"}
    queues.configure("pay-dead", {"dead_letter_ttl": "P180D"})
    assert job_retention.of(moved) == timedelta(days=180)
    assert kept_after(0) == set()


def test_the_dead_letters_of_a_queue_are_kept_although_another_one_names_it() -> None:
    fail.fail(active(queue="orders", retry=hourly(1)).id, BOOM)
    queues.configure("short", {"dead_letter_queue": "orders", "dead_letter_ttl": "P1D"})
    queues.configure("pay", {"dead_letter_ttl": "P7D"})
    for queue in ("short", "pay"):
        fail.fail(active(queue=queue, retry=hourly(1)).id, BOOM)
    assert kept_after(2) == {"orders", "pay-dead"}
    assert kept_after(6) == {"orders"}


@override_settings(OJS={})
def test_who_names_it_may_use_both_queues() -> None:
    only = Api(make_key("admin", queues=("pay", "new")))
    config = {"dead_letter_queue": "orders"}
    for method, path, body in (
        ("PUT", "queues/pay/config", config),
        ("PUT", "admin/queues/pay/config", config),
        ("POST", "queues", {"name": "new", "config": config}),
    ):
        error = only.ask(method, path, body).error(403, "PERMISSION_DENIED")
        assert error["details"]["field"] == "dead_letter_queue"
    only.put("queues/pay/config", {"dead_letter_queue": "new"}).ok()
    only.put("admin/queues/pay/config", {"dead_letter_queue": None}).ok()


@override_settings(OJS={})
def test_who_may_use_either_queue_reads_it() -> None:
    job = dead()
    for queue in ("pay", "pay-dead"):
        only = Api(make_key("admin", queues=(queue,)))
        for path in ("jobs/{}", "jobs/{}/history", "jobs/{}/progress", "dead-letter/{}"):
            only.get(path.format(job.pk)).ok()
        assert event_messages.ended(job.pk, {queue}) is not None
        for path in (
            "dead-letter",
            "admin/dead-letter",
            "admin/jobs",
            "admin/jobs?state=discarded",
        ):
            found = only.get(path).ok()
            assert [each["id"] for each in found.get("jobs") or found["items"]] == [str(job.pk)]
            assert found["pagination"]["total"] == 1
        assert only.get(f"dead-letter?queue={queue}").ok()["pagination"]["total"] == 1
        for path in ("dead-letter/stats", "admin/dead-letter/stats"):
            assert only.get(path).ok()["total"] == 1
    only = Api(make_key("admin", queues=("pay",)))
    assert only.get("admin/jobs?state=completed").ok()["pagination"]["total"] == 0
    # To read it is not to change it.
    for method, path in (("POST", "admin/dead-letter/retry"), ("DELETE", "admin/dead-letter")):
        only.ask(method, path, {"confirm": True, "filter": {"type": job.type}}).ok()
    assert read(job.pk).state == "discarded"
    only.delete(f"dead-letter/{job.pk}").error(403, "PERMISSION_DENIED")
    only.delete(f"admin/dead-letter/{job.pk}").error(403, "PERMISSION_DENIED")
    other = Api(make_key("admin", queues=("other",)))
    other.get(f"jobs/{job.pk}").error(403, "PERMISSION_DENIED")
    other.get(f"dead-letter/{job.pk}").error(403, "PERMISSION_DENIED")
    assert event_messages.ended(job.pk, {"other"}) is None


@pytest.mark.django_db(transaction=True)
@override_settings(OJS={})
def test_a_stream_of_its_progress_ends_with_it_for_who_may_use_the_queue_where_it_ran() -> None:
    job, key = active(queue="pay", retry=hourly(1)), make_key("read", queues=("pay",))
    report(job.id, Report(progress=0.5))
    with stream(f"jobs/{job.id}/progress/stream", key=key) as found:
        assert next(found).event == "progress"
        fail.fail(job.id, BOOM)
        assert [message.event for message in found] == ["failed"]


def test_the_default_policy_names_one_for_all_queues() -> None:
    queues.configure_default({"dead_letter_queue": "all-dead"})
    for queue, there in (("pay", "pay-dead"), ("x", "all-dead"), ("all-dead", "all-dead")):
        job = active(queue=queue, retry=hourly(1))
        fail.fail(job.id, BOOM)
        assert read(job.id).queue == there
    queues.configure("pay", {"dead_letter_queue": None})
    assert dead().queue == "all-dead"


@pytest.mark.parametrize("target", ["pay-dead", "pay"])
def test_a_loop_is_rejected(target: str) -> None:
    with pytest.raises(InvalidRequest, match="lead back") as caught:
        queues.configure("pay-dead", {"dead_letter_queue": target})
    assert caught.value.details["field"] == "dead_letter_queue"
    with pytest.raises(InvalidRequest):
        queues.create("new", {"dead_letter_queue": "new"})


def test_a_loop_with_what_another_process_has_just_stored_is_rejected() -> None:
    queues.create("pay-dead")
    assert queue_configs.of("pay-dead").dead_letter_queue is None
    # Of this process, it is known for a second that there is none.
    Queue.objects.filter(pk="pay-dead").update(config={"dead_letter_queue": "far"})
    with pytest.raises(InvalidRequest, match="lead back"):
        queues.configure("far", {"dead_letter_queue": "pay"})


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("store", [queues.configure, queues.create])
def test_two_at_a_time_make_no_loop(store: Callable[..., object]) -> None:
    with Other() as other:
        with transaction.atomic():
            queues.configure("one", {"dead_letter_queue": "two"})
            second = other.do(lambda: store("two", {"dead_letter_queue": "one"}))
            # It waits for this commit, or would have stored its own before it.
            wait([second], timeout=0.5)
        with pytest.raises(InvalidRequest, match="lead back"):
            second.result(BOUND)
    assert not Queue.objects.filter(pk="two").exists()


def test_the_discarded_jobs_of_its_queue_have_it() -> None:
    job = dead()
    rejected = active(queue="pay", retry=hourly(1, on_exhaustion="discard"))
    fail.fail(rejected.id, BOOM)
    which = JobFilter(queue="pay", states=(State.DISCARDED,))
    assert {each.pk for each in which.jobs()} == {job.pk, rejected.id}
    assert (which.number(), listing.count(replace(which, type=job.type))) == (2, (2, False))
    assert JobFilter(states=(State.DISCARDED,)).number() == 2
    # All jobs of a queue are those that are there.
    assert JobFilter(queue="pay").number() == len(JobFilter(queue="pay").jobs()) == 1
    several = JobFilter(queues=("pay", "other"), states=(State.DISCARDED,))
    assert {each.pk for each in several.jobs()} == {job.pk, rejected.id}
    within = replace(which, within=frozenset({"pay"}))
    assert (within.number(), len(within.jobs())) == (2, 2)


def test_a_bulk_retry_of_the_discarded_jobs_of_its_queue_retries_it() -> None:
    job = dead()
    bulk.retry_all(JobFilter(queue="pay"))
    assert (read(job.pk).state, read(job.pk).queue) == ("available", "pay")


def test_a_purge_of_its_queue_keeps_it() -> None:
    job = dead()
    bulk.purge("pay", [State.DISCARDED])
    assert read(job.pk).queue == "pay-dead"
    bulk.purge("pay-dead", [State.DISCARDED])
    assert not Job.primary.filter(pk=job.pk).exists()
