"""`enqueue_batch`: many jobs, all or none, in order."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs import signals
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.tenants.spec import MARK
from django_ojs.middleware import enqueue_chain
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.spec import ids
from django_ojs.spec.errors import DuplicateJob, OJSError, QueueFull, QueuePaused
from django_ojs.storage import database
from django_ojs.storage.dialects.job_row import NewRow
from tests.cases import together
from tests.databases import KIND
from tests.receivers import receiving
from tests.testapp.jobs import add, echo, labelled
from tests.testapp.models import Thing

pytestmark = pytest.mark.django_db


def kept(jobs: list[ojs.EnqueuedJob]) -> list[Job]:
    assert all(job.outcome == "stored" for job in jobs)
    return [job.model() for job in jobs]


def test_jobs_of_several_kinds_are_stored_in_order() -> None:
    jobs = kept(
        ojs.enqueue_batch(
            [
                add.request(1, c=3),
                ojs.request("elsewhere.done", ["x"], queue="far", priority=5),
                labelled.options(priority=1).request("y"),
                echo.request(),
            ]
        )
    )
    assert [(job.type, job.args, job.queue, job.priority) for job in jobs] == [
        ("testapp.add", [1, 10, 3], "default", 0),
        ("elsewhere.done", ["x"], "far", 5),
        ("testapp.labelled", ["y"], "labels", 1),
        ("testapp.echo", [], "default", 0),
    ]
    assert [ojs.get_job(job.pk) for job in jobs] == jobs


def test_a_thousand_jobs_are_one_statement() -> None:
    with CaptureQueriesContext(database.connection()) as queries:
        jobs = kept(ojs.enqueue_batch(echo.request(n) for n in range(1000)))
    assert len(queries) == 1
    assert [job.args for job in jobs] == [[n] for n in range(1000)]
    assert list(Job.objects.order_by("enqueued_at", "id").values_list("pk", flat=True)) == [
        job.pk for job in jobs
    ]


def test_requests_may_come_from_a_generator_and_be_used_again() -> None:
    request = echo.request("again")

    def twice() -> Iterator[ojs.Request]:
        yield request
        yield request

    first, second = kept(ojs.enqueue_batch(twice()))
    assert first.pk != second.pk
    assert first.args == second.args == ["again"]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_taken_id_rejects_all_and_leaves_the_transaction_usable(index: int) -> None:
    taken = ids.uuid7()
    ojs.enqueue("test.first", id=taken)
    requests = [ojs.request("test.more", [n]) for n in range(3)]
    requests[index] = ojs.request("test.more", id=taken)
    with transaction.atomic():
        with pytest.raises(DuplicateJob) as caught:
            ojs.enqueue_batch(requests)
        Thing.objects.create(name="after")
    assert caught.value.details == {"existing_job_id": str(taken), "index": index}
    assert Thing.objects.count() == 1
    assert list(Job.objects.values_list("type", flat=True)) == ["test.first"]


def test_a_batch_of_one_reports_its_index_too() -> None:
    taken = ids.uuid7()
    ojs.enqueue("test.first", id=taken)
    with pytest.raises(DuplicateJob) as caught:
        ojs.enqueue_batch([ojs.request("test.more", id=taken)])
    assert caught.value.details["index"] == 0


def test_the_same_id_twice_in_a_batch_rejects_the_second() -> None:
    twin = ids.uuid7()
    with pytest.raises(DuplicateJob) as caught:
        ojs.enqueue_batch(
            [
                ojs.request("test.first", id=twin),
                ojs.request("test.between"),
                ojs.request("test.second", id=twin),
            ]
        )
    assert caught.value.details == {"existing_job_id": str(twin), "index": 2}
    assert Job.objects.count() == 0


#: Arguments of jobs that have the rest in common.
ALIKE: list[list[Any]] = [
    [],
    [1, -1.5, None, True, "text"],
    ["],["],
    ["[", "{", "\\u0000", "'; --", '"\\'],
    ["größer", "\U0001f600"],
    [[[1], []], {"a": {"b": [2]}}],
    [2**53 - 1, 1e300, 0.1234567890123456789],
    [("a", "tuple")],
]


@together(
    "options",
    [
        {},
        {
            "queue": "far",
            "priority": -3,
            "tags": ["ä"],
            "timeout": 5,
            "schema": "urn:a",
            "meta": {"size": [1, "é"]},
            "visibility_timeout": 9,
            "retry": {"max_attempts": 7},
        },
    ],
    ids=["plain", "with options"],
    undo=True,
)
@together("some", [ALIKE, ALIKE[:2], ALIKE[4:5], [[n] for n in range(20)]], undo=True)
def test_jobs_that_differ_in_their_arguments_only_are_stored_as_each_alone(
    options: dict[str, Any], some: list[list[Any]]
) -> None:
    with CaptureQueriesContext(database.connection()) as queries:
        jobs = ojs.enqueue_batch([ojs.request("test.alike", args, **options) for args in some])
    assert len(queries) == 1
    assert ("ojs_push_many" in queries[0]["sql"]) == (KIND == "postgresql")
    assert all(first.id < second.id for first, second in pairwise(jobs))
    for args, job in zip(some, jobs, strict=True):
        stored, alone = ojs.get_job(job.id), ojs.enqueue("test.alike", args, **options).model()
        assert stored.args == alone.args
        assert (job.type, job.queue, job.state, job.outcome, job.destination) == (
            *("test.alike", alone.queue, "available", "stored", None),
        )
        for field in Job._meta.concrete_fields:
            value = getattr(stored, field.attname)
            assert value == getattr(job.model(), field.attname)
            if field.attname not in ("id", "created_at", "enqueued_at"):
                assert value == getattr(alone, field.attname), field.attname
    times = list(Job.objects.filter(pk__in=[job.id for job in jobs]).order_by("enqueued_at"))
    assert [job.pk for job in times] == [job.id for job in jobs]
    assert len({job.enqueued_at for job in times}) == len(jobs)


def test_arguments_and_options_that_no_job_may_have_are_rejected_among_others_as_alone() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(64):
        deep = [deep]
    wrong: list[Any] = [
        *([float("nan")], [{1, 2}], [2**53], ["\0"], ["\ud800"], [{1: 2}], [b"x"], deep, cycle),
        *(["x" * 11 * 2**20], [{"\0": 1}], ["a", {"b": object()}], "text", None, {"a": 1}),
    ]
    for args in wrong:
        with pytest.raises(OJSError) as alone:
            ojs.enqueue("test.alike", args)
        for index in (0, 2):
            requests = [ojs.request("test.alike", [n]) for n in range(3)]
            requests[index] = ojs.request("test.alike", args)
            with pytest.raises(OJSError) as caught:
                ojs.enqueue_batch(requests)
            assert type(caught.value) is type(alone.value)
            assert str(caught.value) == str(alone.value)
            assert caught.value.details == {**alone.value.details, "index": index}
    options: list[dict[str, Any]] = [
        *({"queue": "No Queue"}, {"priority": 101}, {"meta": {"a": {1}}}, {"tags": [1]}),
        *({"timeout": -1}, {"retry": {"max_attempts": -1}}, {"meta": {"a": "x" * 70_000}}),
        *({"schema": "no uri"}, {"on_full": "explode"}, {"queue": 5}),
    ]
    for given in options:
        with pytest.raises(OJSError) as alone:
            ojs.enqueue("test.alike", [1], **given)
        with pytest.raises(OJSError) as caught:
            ojs.enqueue_batch([ojs.request("test.alike", [n], **given) for n in range(3)])
        assert str(caught.value) == str(alone.value)
    assert Job.objects.count() == 0


def test_a_result_is_compared_copied_and_pickled() -> None:
    for make in (lambda: alike()[1], lambda: ojs.enqueue("test.alike", [1])):
        copied, pickled = copy.copy(make()), pickle.loads(pickle.dumps(make()))
        assert copied.job() == copied.model()
        assert pickled.job() == pickled.model()
        job = make()
        assert job == copy.deepcopy(job) == dataclasses.replace(job)
        assert job != make()
        assert hash(job) == hash(copy.copy(job))
        assert repr(make()).startswith("EnqueuedJob(id=UUID('")
        assert dataclasses.asdict(job)["id"] == job.id


def test_a_change_of_the_metadata_of_one_result_is_none_of_the_others() -> None:
    first, second, _ = alike(meta={"a": {"b": 1}})
    assert isinstance(first.row, NewRow)
    nested: Any = first.row.envelope.meta["a"]
    nested["b"] = 2
    assert second.model().meta == second.job().meta == {"a": {"b": 1}}


def alike(number: int = 3, **options: Any) -> list[ojs.EnqueuedJob]:
    return ojs.enqueue_batch([ojs.request("test.alike", [n], **options) for n in range(number)])


@contextmanager
def nothing_stored(error: type[OJSError]) -> Iterator[None]:
    before = Job.objects.count()
    with pytest.raises(error):
        yield
    assert Job.objects.count() == before


@pytest.mark.django_db(transaction=True)
def test_what_handles_jobs_on_their_way_handles_those_that_are_alike() -> None:
    sent: list[Any] = []

    def receive(job: Job, **more: Any) -> None:
        sent.append(job.pk)

    with receiving(receive, signals.job_enqueued):
        jobs = alike()
    assert sent == [job.id for job in jobs]

    with override_settings(OJS={"KEEP_EVENTS": ["*"]}):
        jobs = alike()
    assert Event.objects.count() == len(jobs)

    with override_settings(OJS={}):
        enqueue_chain().add(
            lambda envelope, proceed: proceed(envelope) if envelope.args[0] else None
        )
        assert [job.outcome for job in alike()] == ["dropped", "stored", "stored"]

    destination = {"url": "https://example.com/ojs/v1", "queues": ["far"]}
    with override_settings(OJS={"OUTBOX": {"there": destination}}):
        assert {job.outcome for job in alike(queue="far")} == {"outbox"}
    assert OutboxEntry.objects.count() == 3

    unique = alike(unique={"keys": ["type"], "on_conflict": "ignore"})
    assert [job.outcome for job in unique] == ["stored", "duplicate", "duplicate"]
    limited = alike(rate_limit={"key": "k", "concurrency": 1})
    assert {ojs.get_job(job.id).options["limit_key"] for job in limited} == {"k"}
    assert {job.state for job in alike(scheduled_at="+PT5M")} == {"scheduled"}
    assert {job.state for job in alike(pending=True)} == {"pending"}
    assert [job.model().priority for job in alike(priority=1)] == [1, 1, 1]
    requests = [ojs.request("test.alike", meta={"n": n}) for n in (1, 1.0, True)]
    assert [str(ojs.get_job(job.id).meta) for job in ojs.enqueue_batch(requests)] == [
        *("{'n': 1}", "{'n': 1.0}", "{'n': True}"),
    ]

    queues.configure("small", {"backpressure": {"max_depth": 5}})
    alike(queue="small")
    with nothing_stored(QueueFull):
        alike(queue="small")
    queues.configure("shared", {"tenant_limits": {"max_queue_depth": 5}})
    shared = alike(queue="shared", meta={"tenant_id": "acme"})
    assert {ojs.get_job(job.id).marks for job in shared} == {MARK}
    queues.configure("slow", {"default_timeout": 90, "allowed_job_types": ["test.alike"]})
    assert {ojs.get_job(job.id).timeout_ms for job in alike(queue="slow")} == {90_000}
    queues.configure("slow", {"allowed_job_types": ["test.other"]})
    with nothing_stored(OJSError):
        alike(queue="slow")
    queues.configure("slow", {"max_envelope_bytes": 10})
    with nothing_stored(OJSError):
        alike(queue="slow")
    ojs.drain_queue("far")
    with nothing_stored(QueuePaused):
        alike(queue="far")
