"""An enqueue for elsewhere commits with its caller, and returns what one for here does."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import Job
from django_ojs.spec import ids, json, retry_policy
from django_ojs.spec.envelope import parse
from django_ojs.spec.envelope.wire import wire
from django_ojs.spec.errors import (
    DuplicateJob,
    InvalidArgs,
    JobNotFound,
    PayloadTooLarge,
    WrongDatabase,
)
from tests.testapp.models import Thing

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

REMOTE = {"remote": {"url": "http://127.0.0.1:9", "queues": ["remote-*"], "types": ["far.*"]}}


class Rollback(Exception):
    """What an application raises."""


@pytest.fixture(autouse=True)
def routed() -> Any:
    with override_settings(OJS={"OUTBOX": REMOTE}):
        yield


def entries(alias: str = "default") -> list[OutboxEntry]:
    return list(OutboxEntry.objects.using(alias).order_by("id"))


def enqueue(*args: Any, **options: Any) -> ojs.EnqueuedJob:
    return ojs.enqueue("test.job", args, **{"queue": "remote-a", **options})


def test_a_job_for_elsewhere_is_in_the_outbox_and_not_among_the_jobs() -> None:
    job = enqueue(1, {"a": "é"})
    (entry,) = entries()
    assert (entry.job_id, entry.destination, entry.state) == (job.id, "remote", "pending")
    assert (job.state, job.outcome, job.destination) == ("pending", "outbox", "remote")
    with pytest.raises(JobNotFound):
        job.job()
    assert json.loads(entry.envelope) == {
        "specversion": "1.0.0-rc.1",
        "id": str(job.id),
        "type": "test.job",
        "args": [1, {"a": "é"}],
        "options": {"queue": "remote-a"},
    }
    assert not Job.objects.exists()


def test_a_job_goes_by_its_type_as_well_and_all_others_stay() -> None:
    ojs.enqueue("far.away", [])
    here = ojs.enqueue("near.by", [])
    assert (here.outcome, here.destination) == ("stored", None)
    assert [entry.type for entry in entries()] == ["far.away"]
    assert list(Job.objects.values_list("type", flat=True)) == ["near.by"]


@pytest.mark.requirement("FA-001")
def test_a_job_enqueued_after_commit_is_there_for_others_with_the_commit_and_not_before() -> None:
    elsewhere = connection.copy()
    try:
        with transaction.atomic():
            ojs.enqueue_after_commit("test.job", [], queue="remote-a")
            with transaction.atomic():
                ojs.enqueue_after_commit("test.job", [], queue="remote-a")
            with elsewhere.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM ojs_outbox")
                assert cursor.fetchone() == (0,)
        with elsewhere.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM ojs_outbox")
            assert cursor.fetchone() == (2,)
    finally:
        elsewhere.close()


@pytest.mark.requirement("FA-002")
def test_a_job_vanishes_with_a_rollback_savepoints_included() -> None:
    with suppress(Rollback), transaction.atomic():
        Thing.objects.create(name="row")
        enqueue("lost")
        raise Rollback
    with transaction.atomic():
        enqueue("outer")
        with suppress(Rollback), transaction.atomic():
            enqueue("lost too")
            raise Rollback
    assert [json.loads(entry.envelope)["args"] for entry in entries()] == [["outer"]]  # type: ignore[index,call-overload]  # an object
    assert not Thing.objects.exists()


def test_a_repeated_id_is_rejected_and_the_transaction_stays_usable() -> None:
    key = ids.uuid7()
    with transaction.atomic():
        enqueue(id=key)
        with pytest.raises(DuplicateJob):
            enqueue(id=key)
        twin = ids.uuid7()
        with pytest.raises(DuplicateJob):
            ojs.enqueue_batch([ojs.request("far.job", [], id=each) for each in (twin, twin)])
        Thing.objects.create(name="row")
    assert len(entries()) == Thing.objects.count() == 1


def test_a_batch_is_stored_where_each_job_belongs_in_order() -> None:
    jobs = ojs.enqueue_batch(
        [ojs.request("far.job", [0]), ojs.request("near.job", [1]), ojs.request("far.job", [2])]
    )
    assert [job.model().args[0] for job in jobs] == [0, 1, 2]
    assert [job.destination for job in jobs] == ["remote", None, "remote"]
    assert [entry.job_id for entry in entries()] == [jobs[0].id, jobs[2].id]


def test_a_batch_with_one_bad_job_stores_none_and_says_which() -> None:
    wanted = [
        ojs.request("near.job", []),
        ojs.request("near.job", []),
        ojs.request("far.job", [object()]),
    ]  # type: ignore[list-item]  # what is rejected
    with pytest.raises(InvalidArgs) as caught:
        ojs.enqueue_batch(wanted)
    assert caught.value.details["index"] == 2
    assert not entries()
    assert not Job.objects.exists()


def test_what_is_sent_says_all_that_was_asked_for() -> None:
    before = datetime.now(UTC)
    job = enqueue(
        priority=7,
        scheduled_at=timedelta(hours=1),
        expires_at="2099-01-01T00:00:00+02:00",
        timeout=2.5,
        visibility_timeout=60,
        retry={"max_attempts": 9},
        unique=ojs.UniquePolicy(keys=["args"], on_conflict="ignore"),
        tags=["a"],
        meta={"m": 1},
        pending=True,
        schema="urn:ojs:schema:x:v1",
    )
    document: Any = json.loads(entries()[0].envelope)
    due = datetime.fromisoformat(document["options"]["scheduled_at"])
    assert timedelta(minutes=59) < due - before < timedelta(minutes=61)
    read = parse(document, default_retry=retry_policy.DEFAULT)
    assert read.id == job.id
    assert (read.queue, read.priority, read.timeout_ms) == ("remote-a", 7, 2500)
    assert (read.visibility_timeout_ms, read.tags, read.meta) == (60_000, ["a"], {"m": 1})
    assert read.retry is not None
    assert read.retry.max_attempts == 9
    assert read.unique is not None
    assert read.unique.on_conflict == "ignore"
    assert (read.pending, read.schema) == (True, "urn:ojs:schema:x:v1")
    assert read.expires_at_text == "2099-01-01T00:00:00+02:00"


def test_an_envelope_that_came_by_wire_goes_out_the_same() -> None:
    document = {
        "id": str(ids.uuid7()),
        "type": "x",
        "args": [1],
        "vendor": {"a": 1},
        "options": {"queue": "q", "region": "eu", "delay_until": "2099-01-01T00:00:00Z"},
    }
    sent = wire(parse(document), datetime.now(UTC))
    assert (sent["vendor"], sent["options"]["region"]) == ({"a": 1}, "eu")
    again = parse(sent)
    assert again == parse(document)


def test_a_job_over_the_limit_is_rejected_at_once() -> None:
    with pytest.raises(PayloadTooLarge):
        enqueue("x" * (10 * 1024 * 1024))
    assert not entries()


def test_in_the_transaction_of_another_alias_a_job_is_rejected_unless_the_outbox_takes_it() -> None:
    with transaction.atomic(using="other"), pytest.raises(WrongDatabase):
        enqueue()
    with override_settings(OJS={"OUTBOX": REMOTE, "WRONG_DATABASE": "outbox"}):
        with transaction.atomic(using="other"):
            enqueue("kept")
            near = ojs.enqueue("near.by", ["kept"])
        with suppress(Rollback), transaction.atomic(using="other"):
            enqueue("lost")
            ojs.enqueue("near.by", ["lost"])
            raise Rollback
    assert near.destination == "local"
    assert [entry.destination for entry in entries("other")] == ["remote", "local"]
    assert not entries("default")


@pytest.mark.requirement("FA-R001")
def test_the_request_is_in_the_meta_of_a_job_for_elsewhere(rf: Any) -> None:
    from django.http import HttpRequest, HttpResponse

    from django_ojs.contrib.request_context import RequestContextMiddleware

    def view(request: HttpRequest) -> HttpResponse:
        enqueue()
        return HttpResponse()

    path = "django_ojs.contrib.request_context.add_request_context"
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    with override_settings(OJS={"OUTBOX": REMOTE, "ENQUEUE_MIDDLEWARE": [path]}):
        RequestContextMiddleware(view)(rf.get("/", headers={"traceparent": trace}))
    document: Any = json.loads(entries()[0].envelope)
    assert document["meta"]["traceparent"] == trace
