"""Bounds of the tenants of a queue (ojs-backpressure §9.2)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext

from django_ojs.extensions.backpressure.operations import rejection_counts
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.tenants import storage as tenants
from django_ojs.extensions.tenants.spec import MARK, tenant_of
from django_ojs.extensions.tenants.tenant_statements import statements
from django_ojs.models import Job, Queue
from django_ojs.operations import push as pushing
from django_ojs.operations import queues
from django_ojs.operations.ack import ack
from django_ojs.operations.activate import activate
from django_ojs.operations.fetch import fetch
from django_ojs.operations.jobs import bulk
from django_ojs.operations.push import PushOptions
from django_ojs.operations.queues import deletion
from django_ojs.operations.retry import retry
from django_ojs.spec.errors import InvalidRequest, QueueFull
from django_ojs.spec.full_policy import FullPolicy, WaitPolicy
from django_ojs.storage import queue_configs
from tests.factories import EnvelopeFactory, in_state
from tests.http.api import Api
from tests.threads import at_once, beside, elsewhere
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "shared"


def bound(depth: int, **more: Any) -> None:
    queues.configure(NAME, {"tenant_limits": {"max_queue_depth": depth, **more}})


def of(tenant: str | None, **values: Any) -> Any:
    meta = {} if tenant is None else {"tenant_id": tenant}
    return EnvelopeFactory(**{"queue": NAME, "meta": meta, **values})


def add(tenant: str | None = "acme", number: int = 1, **values: Any) -> list[Any]:
    return pushing.push_batch([of(tenant, **values) for _ in range(number)])


def depths() -> dict[str | None, int]:
    waiting = Job.objects.filter(queue=NAME, state__in=["available", "scheduled", "retryable"])
    return Counter(
        tenant_of(meta) if marks & MARK else None
        for meta, marks in waiting.values_list("meta", "marks")
    )


def unmark(**jobs: Any) -> None:
    Job.objects.filter(**jobs).update(marks=0)


@pytest.mark.requirement("BP-R006")
def test_a_tenant_at_its_bound_is_rejected_and_the_others_go_on() -> None:
    api = Api()
    limits = {"max_queue_depth": 3, "tenants": {"large": {"max_queue_depth": 5}}}
    api.put(f"queues/{NAME}/config", {"tenant_limits": limits}).ok()
    body = {"type": "t", "args": [], "options": {"queue": NAME}}
    for _ in range(3):
        api.post("jobs", {**body, "meta": {"tenant_id": "acme"}}).ok(201)
    rejected = api.post("jobs", {**body, "meta": {"tenant_id": "acme"}})
    error = rejected.error(429, "QUEUE_FULL")
    assert error["details"] | {"retry_after": 1} == {
        "queue": NAME,
        "depth": 3,
        "bound": 3,
        "strategy": "reject",
        "tenant_id": "acme",
        "limit": "max_queue_depth",
        "retry_after": 1,
    }
    assert int(rejected.headers["Retry-After"]) >= 1
    assert rejected.headers["X-OJS-Queue-Depth"] == rejected.headers["X-OJS-Queue-Bound"] == "3"
    assert "for tenant acme" in error["message"]
    add("large", 5)
    with pytest.raises(QueueFull):
        add("large")
    # Jobs without a tenant are a tenant of their own.
    add(None, 3)
    with pytest.raises(QueueFull):
        add(None)
    assert depths() == {"acme": 3, "large": 5, "_default": 3}
    # The tenant's rejections are recorded, and are not taken for those of a full queue.
    rejection_counts.recorder.reset()
    events = Event.objects.filter(type="backpressure.rejected")
    assert {event.data["tenant_id"] for event in events} == {"acme", "large", "_default"}
    assert Queue.objects.get(pk=NAME).full_at is None


def test_a_batch_fits_with_all_its_tenants_or_not_at_all() -> None:
    bound(2)
    with pytest.raises(QueueFull) as caught:
        pushing.push_batch([of("b"), of("a"), of("b"), of("a"), of("b")])
    assert caught.value.can_never_fit
    assert caught.value.part == ("tenant", "b")
    add("a")
    with transaction.atomic():
        with pytest.raises(QueueFull, match="queue shared for tenant a is full: 1 of 2"):
            pushing.push_batch([of("b"), of("a"), of("a")])
        # The caller's transaction is usable.
        add("b")
    assert depths() == {"a": 1, "b": 1}


def test_the_bound_of_the_queue_holds_as_well() -> None:
    bound(3)
    queues.configure(NAME, {"backpressure": {"max_depth": 4}})
    add("a", 3)
    add("b")
    with pytest.raises(QueueFull) as caught:
        add("b")
    assert (caught.value.part, caught.value.bound) == (None, 4)


def test_whatever_adds_a_job_is_checked_and_whatever_ends_one_makes_room() -> None:
    old = in_state("discarded", queue=NAME, meta={"tenant_id": "acme"})
    bound(2)
    (pending,) = add("acme", pending=True)
    add("acme")
    add("acme", scheduled_at=None)
    with pytest.raises(QueueFull):
        activate(pending.id)
    (running, *_) = fetch([NAME])
    activate(pending.id)
    ack(running.id)
    with pytest.raises(QueueFull):
        add("acme")
    with pytest.raises(QueueFull):
        retry(old.pk)
    other = in_state("available", queue="other", meta={"tenant_id": "acme"})
    with pytest.raises(QueueFull):
        queues.delete("other", strategy="move", target=NAME)
    fetch([NAME])
    queues.delete("other", strategy="move", target=NAME)
    assert Job.objects.get(pk=other.pk).marks == MARK
    fetch([NAME])
    retry(old.pk)
    assert depths() == {"acme": 2}


def test_a_queue_is_emptied_into_another_past_a_tenant_at_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion, "BATCH", 3)
    bound(4)
    add("full", 2)
    tenants_of_jobs = [*["full"] * 8, *["small", None] * 3]
    for tenant in reversed(tenants_of_jobs):
        add(tenant, queue="left")
    add("full", queue="left", pending=True)
    scheduled = in_state("scheduled", queue="left", meta={"tenant_id": "small"})
    with pytest.raises(QueueFull) as caught:
        queues.delete("left", strategy="move", target=NAME)
    assert caught.value.message == (
        "queue shared has no room for more jobs of tenant full; jobs moved: 10, the "
        "others still wait in queue left"
    )
    assert caught.value.hint == (
        "Raise the bound of the target, or delete the queue again when the target has room."
    )
    assert caught.value.retryable
    # Also the two for which the tenant had room.
    assert caught.value.details["jobs_affected"] == 2 + 6 + 1 + 1
    assert depths() == {"full": 4, "small": 4, "_default": 3}
    assert Job.objects.get(pk=scheduled.pk).queue == NAME
    assert set(Job.objects.filter(queue="left").values_list("meta__tenant_id", flat=True)) == {
        "full"
    }
    bound(0)
    assert queues.delete("left", strategy="move", target=NAME).jobs_affected == 6
    assert not Job.objects.filter(queue="left").exists()


@pytest.mark.parametrize("first", ["full", None])
def test_a_call_takes_the_jobs_behind_those_of_a_full_tenant_last_claimed_first(
    monkeypatch: pytest.MonkeyPatch, first: str | None
) -> None:
    monkeypatch.setattr(deletion, "BATCH", 3)
    bound(2)
    small = [of("small", queue="left", priority=1) for _ in range(2)]
    full = [of(first, queue="left", priority=number % 4 - 5) for number in range(12)]
    pushing.push_batch([*small, *full])
    with pytest.raises(QueueFull) as caught:
        queues.delete("left", strategy="move", target=NAME, most=5)
    assert caught.value.details["jobs_affected"] == 4
    assert depths() == {first or "_default": 2, "small": 2}
    moved = Job.objects.filter(queue=NAME, priority__lt=0).values_list("pk", flat=True)
    # Of the lowest priority, the newest.
    assert set(moved) == {full[8].id, full[4].id}


def test_jobs_that_waited_before_the_bound_count() -> None:
    before = [of("acme"), of("acme"), of(None), of("not a tenant!")]
    pushing.push_batch(before)
    assert depths() == {None: 4}
    bound(2)
    assert depths() == {"acme": 2, "_default": 2}
    with pytest.raises(QueueFull):
        add("acme")
    # What another process has added that did not know of the bound is found by the maintenance.
    unmark(meta__tenant_id="acme")
    now = 0.0
    marker = tenants.JobMarker(lambda: now)
    assert marker.mark_all() == 2
    assert marker.mark_all() == 0
    assert depths() == {"acme": 2, "_default": 2}
    # Later there are none, and the maintenance does not read all jobs of the queue each minute.
    now = tenants.EXPECTED
    marker.mark_all()
    with CaptureQueriesContext(connection) as captured:
        marker.mark_all()
    assert not [query for query in captured if '"ojs_job"' in query["sql"]]
    unmark(meta__tenant_id="acme")
    now += tenants.INTERVAL
    assert (marker.mark_all(), marker.mark_all()) == (2, 0)
    # One that ran when the queue was configured waits again after a failure.
    (running,) = fetch([NAME])
    unmark(pk=running.id)
    assert marker.mark_all() == 1
    with pytest.raises(InvalidRequest, match=r"meta\.tenant_id must be a string") as caught:
        add("not a tenant!")
    assert caught.value.details["index"] == 0
    bound(0)
    add("acme", 3)


def test_an_enqueue_waits_for_room_of_its_tenant() -> None:
    bound(1)
    queues.configure(NAME, {"backpressure": {"strategy": "block"}})
    add("acme")
    (running,) = fetch([NAME])
    add("acme")
    waits = PushOptions(notes=(FullPolicy(wait=WaitPolicy(seconds=BOUND)),), checks_bound=True)
    with beside(lambda: pushing.push(of("acme"), waits)) as (blocked,):
        fetch([NAME])
        assert blocked.result(BOUND).state == "available"
    ack(running.id)
    assert depths() == {"acme": 1}


@pytest.mark.slow
@pytest.mark.requirement("BP-R006")
@pytest.mark.parametrize("limit", [7, 200])
def test_producers_at_once_end_at_the_bound_of_each_tenant(limit: int) -> None:
    bound(limit)
    names, producers = ("a", "b", "c"), 12

    def produce(number: int) -> int:
        stored = 0
        rejected = dict.fromkeys(names, 0)
        while min(rejected.values()) < 2 and stored <= 3 * limit:
            for name in names:
                size = 1 + (number + stored) % 3
                try:
                    if number % 2:
                        add(name, size)
                    else:
                        with transaction.atomic():
                            add(name)
                            add(name, size)
                            size += 1
                except QueueFull:
                    rejected[name] += 1
                else:
                    stored += size
        return stored

    stored = sum(at_once([partial(produce, number) for number in range(producers)]))
    found = depths()
    assert sum(found.values()) == stored
    for name in names:
        # The last producers had batches: one job fits where the others did not.
        assert found[name] <= limit
        for _ in range(limit - found[name]):
            add(name)
        with pytest.raises(QueueFull):
            add(name)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer")
def test_an_open_transaction_of_a_tenant_far_from_its_bound_stops_no_other() -> None:
    bound(640)
    with transaction.atomic():
        add("acme")
        elsewhere(lambda: [add("acme"), add("other")])
    assert depths() == {"acme": 2, "other": 1}


@pytest.mark.postgresql
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_old_snapshots_find_room_for_a_tenant_and_not_too_much(level: str) -> None:
    bound(64)

    def produce() -> int:
        stored = 0
        while True:
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
                    assert Queue.objects.exists()
                    add()
            except QueueFull:
                return stored
            except OperationalError:
                continue  # SERIALIZABLE may reject at the commit.
            stored += 1

    stored = sum(at_once([produce] * 3))
    assert depths() == {"acme": stored}
    assert 32 < stored <= 64


def test_a_queue_without_the_option_has_the_same_statements_and_marks_no_job() -> None:
    bound(5)
    queue_configs.current()
    with CaptureQueriesContext(connection) as queries:
        pushing.push(of("acme", queue="plain"), PushOptions(generated_ids=True))
    first, *others = [each["sql"] for each in queries]
    assert "ojs_push" in first or first.startswith("INSERT INTO ojs_job")
    assert all("pg_notify" in statement for statement in others)
    assert Job.objects.get(queue="plain").marks == 0


def test_a_bulk_retry_reads_no_metadata_job_by_job() -> None:
    def queries(number: int) -> int:
        ended = [in_state("discarded", queue=f"plain-{number}").pk for _ in range(number)]
        with CaptureQueriesContext(connection) as found:
            bulk.retry_all(ended)
        waiting = Job.objects.filter(pk__in=ended, state="available")
        assert waiting.count() == number
        return len(found)

    # Another queue has a configuration.
    bound(3)
    queries(1)
    assert queries(20) < queries(2) + 10


@pytest.mark.parametrize(
    "value",
    [
        *("a", "0", "A.b_c:d-e", "x" * 255, "x" * 256, "", "_default", "-a", "a b", "ä", "aä"),
        *(5, 5.5, True, None, ["a"], {"a": "b"}),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_the_database_and_the_process_find_the_same_tenant_in_old_metadata(value: Any) -> None:
    in_state("available", queue=NAME, meta={"tenant_id": value})
    bound(5)
    assert statements().busiest(NAME, 10) == [(tenant_of({"tenant_id": value}), 1)]
