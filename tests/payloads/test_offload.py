"""OFFLOAD: large arguments go to S3 with the enqueue, come back in the worker, and do not stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import InterfaceError, transaction

import django_ojs as ojs
from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox import operations as ojs_outbox
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.payloads import offload, s3_client, sweep
from django_ojs.extensions.payloads.reference import KEY
from django_ojs.extensions.payloads.resolver import Resolved
from django_ojs.models import Job
from django_ojs.operations import cancel, delete, queues, run_again
from django_ojs.operations.maintenance import job_pruning
from django_ojs.spec.envelope import Envelope
from django_ojs.spec.errors import (
    Conflict,
    ConnectionError,
    DuplicateJob,
    InvalidRequest,
    PayloadRejected,
    PayloadTooLarge,
)
from django_ojs.storage import database
from tests import factories
from tests.factories import jobs
from tests.payloads.conftest import Bucket
from tests.payloads.resolving import checksum, kinds
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db

LARGE = {"text": "ä" * 600}
BODY = json.dumps(LARGE, ensure_ascii=False, separators=(",", ":")).encode()


def enqueue(*args: Any, **options: Any) -> Job:
    return ojs.enqueue("test.job", args, **options).model()


def value_of(job: Job) -> Any:
    with Resolved(job.pk, job.args, kinds(Any)) as found:
        return found.args


def test_a_job_with_offloaded_arguments_cannot_be_run_again(offloading: Bucket) -> None:
    for argument, is_offloaded in ((LARGE, True), ("small", False)):
        job = enqueue(argument)
        cancel.cancel(job.pk)
        if is_offloaded:
            with pytest.raises(Conflict, match="OFFLOAD"):
                run_again.run_again(job.pk)
        else:
            assert run_again.run_again(job.pk).job().args == ["small"]
    assert len(offloading.keys) == 1


def test_large_arguments_are_put_into_s3_and_small_ones_are_not(offloading: Bucket) -> None:
    job = enqueue("small", LARGE, 3)
    small, reference, number = factories.read(job.pk).args
    assert (small, number) == ("small", 3)
    assert reference["size"] == len(BODY)
    assert reference["checksum"] == checksum(BODY)
    day = f"{job.created_at:%Y-%m-%d}"
    assert reference[KEY].startswith(f"s3://{offloading.name}/jobs/{day}/{job.pk}/")
    assert offloading.get(reference[KEY]) == BODY
    assert len(offloading.keys) == 1
    assert "offloaded" not in factories.read(job.pk).envelope()
    assert value_of(job) == ["small", LARGE, 3]


def test_the_size_is_that_of_compact_json(offloading: Bucket) -> None:
    assert isinstance(enqueue("x" * 998).args[0], str)
    assert isinstance(enqueue("ä" * 499).args[0], str)
    assert KEY in enqueue("x" * 999).args[0]
    assert KEY in enqueue(["ä" * 499]).args[0]


def test_a_reference_is_never_put_elsewhere(offloading: Bucket) -> None:
    given = {KEY: "s3://bucket/key", "note": "x" * 5_000}
    assert enqueue(given).args == [given]


def test_what_is_elsewhere_does_not_count_for_the_envelope(
    offloading: Bucket, settings: Any
) -> None:
    settings.OJS = settings.OJS | {"MAX_ENVELOPE_BYTES": 2**20}
    text = "x" * 2**21
    assert value_of(enqueue(text)) == [text]
    with pytest.raises(PayloadTooLarge):
        enqueue(*["x" * 900] * 1_300)
    settings.OJS = {name: v for name, v in settings.OJS.items() if name != "OFFLOAD"}
    with pytest.raises(PayloadTooLarge):
        enqueue(text)


def test_what_no_worker_would_take_is_rejected_at_once(offloading: Bucket, settings: Any) -> None:
    settings.OJS = settings.OJS | {"PAYLOAD_MAX_BYTES": 5_000}
    assert value_of(enqueue("x" * 4_998)) == ["x" * 4_998]
    with pytest.raises(PayloadTooLarge) as caught:
        enqueue("small", "x" * 4_999)
    assert caught.value.details["field"] == "args[1]"
    assert len(offloading.keys) == 1


def test_a_batch_is_offloaded_too(offloading: Bucket) -> None:
    found = ojs.enqueue_batch([ojs.request("test.job", [LARGE, i]) for i in range(3)])
    assert [value_of(job.model()) for job in found] == [[LARGE, i] for i in range(3)]
    assert len(offloading.keys) == 3


def test_what_comes_over_http_is_stored_as_it_is(offloading: Bucket) -> None:
    from tests.http.api import Api

    assert Api().push(args=[LARGE])["args"] == [LARGE]
    assert offloading.keys == []


def bad_option() -> None:
    enqueue(LARGE, priority=1_000)


def bad_neighbour() -> None:
    ojs.enqueue_batch([ojs.request("test.job", [LARGE]), ojs.request("test.job", [object()])])  # type: ignore[list-item]  # what is tested


def unstorable() -> None:
    enqueue(["x" * 2_000, float("nan")])


@pytest.mark.parametrize("way", [bad_option, bad_neighbour, unstorable])
def test_what_is_rejected_leaves_nothing_behind(
    offloading: Bucket, way: Callable[[], None]
) -> None:
    with pytest.raises(InvalidRequest):
        way()
    assert offloading.keys == []
    assert jobs().count() == 0


def test_nothing_is_left_behind_where_the_outbox_refuses_a_job_of_the_batch(
    offloading: Bucket, settings: Any
) -> None:
    other = {"url": "http://127.0.0.1:9", "types": ["other.*"]}
    settings.OJS = settings.OJS | {"OUTBOX": {"other": other}}
    sent = ojs.enqueue("other.job", id=ojs.new_id())
    assert sent.outcome == "outbox"
    with pytest.raises(DuplicateJob) as caught:
        ojs.enqueue_batch([ojs.request("test.job", [LARGE]), ojs.request("other.job", id=sent.id)])
    assert caught.value.details["existing_job_id"] == str(sent.id)
    assert (offloading.keys, jobs().count()) == ([], 0)


def test_the_objects_stay_while_it_is_unknown_whether_their_job_was_stored(
    offloading: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type(database.dialect())
    insert = kind.insert_jobs

    def cut_off(*args: Any, **options: Any) -> Any:
        insert(*args, **options)
        raise InterfaceError("the connection broke before the reply")

    monkeypatch.setattr(kind, "insert_jobs", cut_off)
    requests = [ojs.request("test.job", [LARGE]), ojs.request("test.job", [1])]
    with pytest.raises(InterfaceError):
        ojs.enqueue_batch(requests)
    large, _ = jobs().order_by("id")
    assert value_of(large) == [LARGE]


def test_a_repeated_id_leaves_the_first_jobs_arguments_alone(offloading: Bucket) -> None:
    first = enqueue(LARGE, id=ojs.new_id())
    with pytest.raises(DuplicateJob):
        enqueue({"text": "y" * 2_000}, id=first.pk)
    assert value_of(first) == [LARGE]
    assert len(offloading.keys) == 1


def test_a_unique_key_is_made_of_the_arguments_and_not_of_where_they_are(
    offloading: Bucket,
) -> None:
    policy = ojs.UniquePolicy(keys=["type", "args"], on_conflict="ignore")
    first, second = enqueue(LARGE, unique=policy), enqueue(LARGE, unique=policy)
    assert first.pk == second.pk
    assert len(offloading.keys) == 1
    assert value_of(first) == [LARGE]


def drop(envelope: Envelope, proceed: Callable[[Envelope], Any]) -> Any:
    """Drop every job."""
    return None


def reverse(envelope: Envelope, proceed: Callable[[Envelope], Any]) -> Any:
    """Change the arguments."""
    envelope.args = envelope.args[::-1]
    return proceed(envelope)


def test_a_middleware_sees_the_arguments_and_what_it_makes_of_them_is_offloaded(
    offloading: Bucket, settings: Any
) -> None:
    settings.OJS = settings.OJS | {"ENQUEUE_MIDDLEWARE": [f"{__name__}.reverse"]}
    assert value_of(enqueue(LARGE, 1)) == [1, LARGE]
    settings.OJS = settings.OJS | {"ENQUEUE_MIDDLEWARE": [f"{__name__}.drop"]}
    assert ojs.enqueue("test.job", [LARGE]).outcome == "dropped"
    assert len(offloading.keys) == 1


def test_when_s3_is_away_nothing_is_stored(offloading: Bucket, settings: Any) -> None:
    away = {**dict(settings.OJS["PAYLOAD_S3"]), "endpoint_url": "http://127.0.0.1:9"}
    settings.OJS = settings.OJS | {"PAYLOAD_S3": away}
    with pytest.raises(ConnectionError):
        enqueue(LARGE)
    assert jobs().count() == 0
    assert enqueue("small").state == "available"


def test_the_arguments_of_one_job_are_not_to_be_had_by_another(offloading: Bucket) -> None:
    reference = enqueue(LARGE).args[0]
    with pytest.raises(PayloadRejected, match="PAYLOAD_S3_BUCKETS"):
        value_of(factories.push(args=[reference]))


@pytest.mark.django_db(transaction=True)
class TestRemoval:
    def test_with_the_job_its_objects_go(self, offloading: Bucket) -> None:
        kept, gone = enqueue(LARGE), enqueue(LARGE, LARGE)
        assert len(offloading.keys) == 3
        ojs.cancel(gone.pk)
        with transaction.atomic():
            delete.delete(gone.pk)
            assert len(offloading.keys) == 3
        assert len(offloading.keys) == 1
        assert value_of(kept) == [LARGE]

    def test_a_deletion_that_is_rolled_back_removes_nothing(self, offloading: Bucket) -> None:
        job = enqueue(LARGE)
        ojs.cancel(job.pk)
        with transaction.atomic():
            delete.delete(job.pk)
            transaction.set_rollback(True)
        assert value_of(job) == [LARGE]

    def test_pruning_removes_them(self, offloading: Bucket) -> None:
        job = enqueue(LARGE)
        ojs.cancel(job.pk)
        factories.age(job.pk, timedelta(days=400))
        assert job_pruning.prune() == 1
        assert offloading.keys == []

    def test_when_s3_is_away_the_job_goes_all_the_same(
        self, offloading: Bucket, settings: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = enqueue(LARGE)
        ojs.cancel(job.pk)
        here = settings.OJS["PAYLOAD_S3"]
        away = here | {"endpoint_url": "http://127.0.0.1:9"}
        settings.OJS = settings.OJS | {"PAYLOAD_S3": away}
        delete.delete(job.pk)
        assert "the sweep will" in caplog.text
        settings.OJS = settings.OJS | {"PAYLOAD_S3": here}
        assert len(offloading.keys) == 1


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a day pass for the objects of S3."""
    real = s3_client.age
    monkeypatch.setattr(
        s3_client, "age", lambda *given: real(*given) + timedelta(days=1, minutes=1)
    )


@pytest.mark.django_db(transaction=True)
class TestSweep:
    def roll_back(self) -> None:
        with transaction.atomic():
            enqueue(LARGE)
            transaction.set_rollback(True)

    def test_what_a_rolled_back_transaction_has_left_stays_for_a_day(
        self, offloading: Bucket
    ) -> None:
        self.roll_back()
        assert sweep.sweep() == 0
        assert len(offloading.keys) == 1

    @pytest.mark.usefixtures("later")
    def test_after_a_day_it_goes_and_what_jobs_need_stays(self, offloading: Bucket) -> None:
        self.roll_back()
        job = enqueue(LARGE)
        offloading.put("jobs/README", b"not ours")
        offloading.put("elsewhere/2026-01-01/x/0.json", b"not ours")
        assert sweep.sweep() == 1
        assert len(offloading.keys) == 3
        assert value_of(job) == [LARGE]
        assert sweep.sweep() == 0

    @pytest.mark.usefixtures("later")
    @pytest.mark.parametrize("state", ["pending", "rejected"])
    def test_what_a_job_needs_that_waits_in_the_outbox_for_room_stays(
        self, offloading: Bucket, state: str
    ) -> None:
        queues.configure("narrow", {"backpressure": {"max_depth": 1}})
        first = enqueue("small", queue="narrow")
        waiting = ojs.enqueue("test.job", [LARGE], queue="narrow", on_full="outbox")
        assert waiting.destination == "local"
        OutboxEntry.objects.update(state=state)
        assert sweep.sweep() == 0
        ojs.cancel(first.pk)
        ojs_outbox.requeue(OutboxEntry.objects.values_list("pk", flat=True))
        assert local.deliver_all() == 1
        job = factories.read(waiting.id)
        assert value_of(job) == [LARGE]
        assert sweep.sweep() == 0
        # And it goes with the job, as if that had never been anywhere else.
        ojs.cancel(job.pk)
        delete.delete(job.pk)
        assert offloading.keys == []

    @pytest.mark.usefixtures("later")
    def test_it_goes_through_all_pages(
        self, offloading: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for _ in range(5):
            self.roll_back()
        monkeypatch.setattr(offload, "DELETE_BATCH", 2)
        assert sweep.sweep() == 5
        assert offloading.keys == []

    def test_without_offload_there_is_nothing_to_do(self) -> None:
        assert sweep.sweep() == 0
        sweeper = sweep.Sweeper()
        assert sweeper.start() == 0
        assert sweeper.thread is None

    @pytest.mark.usefixtures("later")
    def test_a_worker_sweeps_beside_its_other_work(self, offloading: Bucket) -> None:
        self.roll_back()
        sweeper = sweep.Sweeper()
        assert sweeper.start() == 0
        assert sweeper.thread is not None
        sweeper.thread.join(BOUND)
        assert offloading.keys == []

    def test_a_service_that_is_away_is_logged_without_what_it_says(
        self, offloading: Bucket, settings: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        away = settings.OJS["PAYLOAD_S3"] | {"endpoint_url": "http://127.0.0.1:9"}
        settings.OJS = settings.OJS | {"PAYLOAD_S3": away}
        sweeper = sweep.Sweeper()
        sweeper.start()
        assert sweeper.thread is not None
        sweeper.thread.join(BOUND)
        assert "ended early" in caplog.text
        assert "127.0.0.1" not in caplog.text
