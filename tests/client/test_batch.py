"""`enqueue_batch`: many jobs, all or none, in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs.models import Job
from django_ojs.spec import ids
from django_ojs.spec.errors import DuplicateJob
from django_ojs.storage import database
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
def test_a_taken_id_refuses_all_and_leaves_the_transaction_usable(index: int) -> None:
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


def test_the_same_id_twice_in_a_batch_refuses_the_second() -> None:
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
