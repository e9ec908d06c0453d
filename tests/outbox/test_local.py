"""Jobs of the outbox that belong here: stored when there is room, each once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.db import connections, transaction
from django.db.models import F
from django.test import override_settings

import django_ojs as ojs
from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.spec.errors import QueueFull, WrongDatabase
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.unique_policy import UniquePolicy
from tests.factories import EnvelopeFactory
from tests.factories import put as put_one
from tests.held_key import held_key
from tests.other_session import open_transaction
from tests.outbox import middleware as _middleware

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture(autouse=True)
def _long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what does not fit wait until a test lets time pass; a second may be over before."""
    pauses = RetryPolicy(initial_interval=timedelta(hours=1), max_interval=timedelta(hours=1))
    monkeypatch.setattr(local, "BACKOFF", pauses)


def bound(queue: str, depth: int) -> None:
    queues.configure(queue, {"backpressure": {"max_depth": depth}})


def put(queue: str, number: int, **values: Any) -> list[str]:
    made = [EnvelopeFactory(queue=queue, args=[index], **values) for index in range(number)]
    for each in made:
        put_one(each)
    return [str(each.id) for each in made]


def stored(queue: str) -> list[int]:
    jobs = Job.objects.filter(queue=queue).order_by("created_at", "id")
    return [job.args[0] for job in jobs]


def waiting() -> int:
    return OutboxEntry.objects.filter(state="pending").count()


def let_time_pass() -> None:
    OutboxEntry.objects.update(next_try_at=None)


def test_jobs_are_stored_in_order_and_leave_the_outbox() -> None:
    put("a", 150)
    assert local.deliver_all() == 150
    assert stored("a") == list(range(150))
    assert waiting() == 0


def test_a_full_queue_keeps_its_own_jobs_waiting_and_no_others() -> None:
    bound("full", 3)
    put("full", 5)
    put("roomy", 2)
    assert local.deliver_all() == 5
    assert (stored("full"), stored("roomy"), waiting()) == ([0, 1, 2], [0, 1], 2)
    assert OutboxEntry.objects.filter(error_code="QUEUE_FULL").count() == 1
    with pytest.raises(QueueFull):
        ojs.enqueue("test.job", queue="full")
    for job in Job.objects.filter(queue="full"):
        ojs.cancel(job.pk)
    assert local.deliver_all() == 0, "it waits first"
    let_time_pass()
    assert local.deliver_all() == 2
    assert (stored("full"), waiting()) == ([0, 1, 2, 3, 4], 0)


def test_a_tenant_at_its_bound_keeps_its_own_jobs_waiting_and_no_others() -> None:
    queues.configure("shared", {"tenant_limits": {"max_queue_depth": 3}})
    # More of it than one transaction stores are before those of the others.
    put("shared", 150, meta={"tenant_id": "full"})
    put("shared", 2, meta={"tenant_id": "small"})
    put("shared", 2)
    assert local.deliver_all() == 7
    waits = OutboxEntry.objects.filter(state="pending")
    assert set(waits.values_list("tenant_id", flat=True)) == {"full"}
    assert waits.exclude(holds_back="").get().error_code == "QUEUE_FULL"
    put("shared", 1, meta={"tenant_id": "small"})
    assert local.deliver_all() == 1
    queues.configure("shared", {"tenant_limits": {"max_queue_depth": 0}})
    assert local.deliver_all() == 0, "it waits first"
    let_time_pass()
    assert local.deliver_all() == 147
    full = Job.objects.filter(meta__tenant_id="full").order_by("created_at", "id")
    assert [job.args[0] for job in full] == list(range(150))
    assert not waits.exists()


def test_a_draining_queue_keeps_its_jobs_waiting_until_it_is_resumed() -> None:
    queues.drain("a")
    put("a", 2)
    put("b", 1)
    assert local.deliver_all() == 1
    assert (stored("a"), stored("b"), waiting()) == ([], [0], 2)
    assert OutboxEntry.objects.filter(error_code="queue_paused").count() == 1
    queues.resume("a")
    let_time_pass()
    assert local.deliver_all() == 2
    assert stored("a") == [0, 1]


def test_a_job_that_is_there_already_counts_as_stored() -> None:
    keys = put("a", 3)
    assert local.deliver_all() == 3
    OutboxEntry.objects.filter(job_id=keys[1]).update(state="pending")
    put("a", 1)
    assert local.deliver_all() == 2
    assert stored("a") == [0, 1, 2, 0]


def test_a_job_is_stored_and_leaves_the_outbox_in_one_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put("a", 2)
    with monkeypatch.context() as broken:
        broken.setattr(local.outbox, "sent", lambda keys, using: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            local.deliver()
    assert (stored("a"), waiting()) == ([], 2)
    assert local.deliver_all() == 2
    assert stored("a") == [0, 1]


def test_a_job_that_its_unique_policy_rejects_is_kept_and_the_next_one_is_stored() -> None:
    policy = ojs.UniquePolicy(keys=["queue"])
    put("a", 1, unique=policy)
    put("a", 1, unique=policy)
    put("a", 1)
    local.deliver_all()
    assert stored("a") == [0, 0]
    (rejected,) = OutboxEntry.objects.filter(state="rejected")
    assert rejected.error_code == "duplicate"


@pytest.mark.postgresql  # On SQLite no transaction stays open beside one that writes.
def test_a_unique_key_in_an_open_transaction_delays_the_jobs_of_its_queue_only() -> None:
    unique = UniquePolicy(keys=["args"], on_conflict="ignore")
    put_one(EnvelopeFactory(type="report.make", queue="locked", args=["same"], unique=unique))
    put("locked", 1)
    put("free", 1)
    with held_key("report.make", "same") as commit:
        assert local.deliver_all() == 1
        assert (stored("free"), stored("locked")) == ([0], [])
        entry = OutboxEntry.objects.exclude(error_code="").get()
        assert (entry.error_code, entry.error_message) == (
            "backend_error",
            "Another transaction holds the unique key of the job.",
        )
        commit()
    let_time_pass()
    assert local.deliver_all() == 2
    assert (stored("locked"), waiting()) == ([0], 0)


@pytest.mark.postgresql  # On SQLite no transaction stays open beside one that writes.
def test_a_row_in_an_open_transaction_delays_the_jobs_behind_it_only() -> None:
    put("locked", 3)
    OutboxEntry.objects.update(position=F("id"))
    second = OutboxEntry.objects.order_by("pk")[1]
    with open_transaction(
        lambda: OutboxEntry.objects.select_for_update().get(pk=second.pk)
    ) as commit:
        assert local.deliver_all() == 1
        assert stored("locked") == [0]
        commit()
    assert local.deliver_all() == 2
    assert stored("locked") == [0, 1, 2]


def test_the_middleware_sees_a_job_once_and_uniqueness_is_of_what_was_asked() -> None:
    path = f"{_middleware.__name__}.seal"
    with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [path]}):
        put("a", 1, unique=ojs.UniquePolicy(keys=["args"]))
        put("a", 1, unique=ojs.UniquePolicy(keys=["args"]))
        local.deliver_all()
    (job,) = Job.objects.all()
    assert [arg.rpartition("-")[2] for arg in job.args] == ["0"]
    assert job.args[0].count("sealed") == 1
    assert OutboxEntry.objects.filter(state="rejected").count() == 1


def test_a_job_of_another_databases_transaction_is_stored_after_its_commit() -> None:
    with override_settings(OJS={"WRONG_DATABASE": "outbox"}):
        with transaction.atomic(using="other"):
            job = ojs.enqueue("test.job", [1], queue="a")
        assert local.deliver_all() == 1
        # As after a death between storing and noting it.
        OutboxEntry.objects.using("other").update(state="pending")
        assert local.deliver_all() == 1
        assert not OutboxEntry.objects.using("other").exclude(state="sent").exists()
    assert list(Job.objects.values_list("pk", flat=True)) == [job.id]


def test_an_alias_without_the_table_says_what_to_run() -> None:
    def rename(table: str, other: str) -> None:
        with connections["other"].cursor() as cursor:
            cursor.execute(f"ALTER TABLE {table} RENAME TO {other}")

    rename("ojs_outbox", "ojs_outbox_elsewhere")
    try:
        with override_settings(OJS={"WRONG_DATABASE": "outbox"}), transaction.atomic(using="other"):
            with pytest.raises(WrongDatabase, match=r"migrate django_ojs --database other"):
                ojs.enqueue("test.job")
            transaction.set_rollback(True, using="other")
    finally:
        rename("ojs_outbox_elsewhere", "ojs_outbox")
    assert waiting() == 0


def test_an_outbox_that_is_dropped_is_emptied_first() -> None:
    put("a", 2)
    with transaction.atomic():  # That of the migration.
        local.empty("default")
    assert stored("a") == [0, 1]
    put_one(EnvelopeFactory(queue="b"), "billing")
    with pytest.raises(CommandError, match="would be lost: 1"):
        local.empty("default")
