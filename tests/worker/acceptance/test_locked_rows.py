"""A transaction of the site that keeps the row of one running job locked, beside real workers."""

from __future__ import annotations

import signal

import pytest
from django.db import connection

from django_ojs.models import Job, Worker
from tests.other_session import open_transaction
from tests.testapp import worker_jobs as handlers
from tests.worker.acceptance.conftest import Start
from tests.worker.acceptance.ledger import ALIASES, becomes, history, release, runs, started, stored
from tests.worker.waiting import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=ALIASES),
    pytest.mark.postgresql,
    pytest.mark.mariadb,
    pytest.mark.slow,
]


def lock(job: Job) -> None:
    Job.objects.select_for_update().get(pk=job.pk)


def test_one_locked_row_holds_up_the_outcome_of_no_other_job(start: Start) -> None:
    waiting = [stored(handlers.wait.enqueue()) for _ in range(5)]
    locked, *others = waiting
    tree = start("--threads", "5").ready()
    for job in waiting:
        started(job)
    with open_transaction(lambda: lock(locked)) as end:
        for job in waiting:
            release(job)
        for job in others:
            becomes(job, "completed")
        tree.says(f"{locked.pk} cannot be stored")
        if connection.vendor == "postgresql":
            tree.says("is locked by session ")
        # It goes on claiming, and beats.
        becomes(stored(handlers.note.enqueue()), "completed")
        seen_at = Worker.objects.get().seen_at
        eventually(lambda: Worker.objects.get().seen_at > seen_at, "it goes on beating")
        assert history(locked) == []
        end()
    assert becomes(locked, "completed").attempt == 1
    assert [len(runs(job)) for job in waiting] == [1] * 5


def test_a_lease_that_ends_while_the_row_is_locked_is_extended_afterwards(start: Start) -> None:
    locked, other = (
        stored(handlers.wait.options(visibility_timeout=4).enqueue()) for _ in range(2)
    )
    start("--threads", "2").ready()
    for job in (locked, other):
        started(job)

    def is_over() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT lease_until < now() FROM ojs_job WHERE id = %s", [locked.pk])
            return bool(cursor.fetchone()[0])

    with open_transaction(lambda: lock(locked)) as end:
        eventually(is_over, "the lease of the locked job is over")
        end()
    until = Job.objects.get(pk=locked.pk).lease_until
    eventually(lambda: Job.objects.get(pk=locked.pk).lease_until > until, "it is extended")
    for job in (locked, other):
        release(job)
        assert becomes(job, "completed").attempt == 1
        assert history(job) == []


def test_a_worker_that_stops_stores_the_others_and_waits_for_the_locked_one(start: Start) -> None:
    waiting = [stored(handlers.wait.enqueue()) for _ in range(3)]
    locked, *others = waiting
    tree = start("--threads", "3", "--grace", "60").ready()
    for job in waiting:
        started(job)
    with open_transaction(lambda: lock(locked)) as end:
        for job in waiting:
            release(job)
        tree.says(f"{locked.pk} cannot be stored")
        tree.signal(signal.SIGTERM)
        for job in others:
            becomes(job, "completed")
        tree.says("waiting for the outcomes of 1 job")
        end()
    assert tree.ends() == 0
    assert becomes(locked, "completed").attempt == 1
    tree.says("3 completed")


def test_an_outcome_that_could_not_be_stored_until_the_end_is_on_record(start: Start) -> None:
    waiting = [stored(handlers.wait.enqueue()) for _ in range(3)]
    locked, *others = waiting
    tree = start("--threads", "3", "--grace", "0.5").ready()
    for job in waiting:
        started(job)
    with open_transaction(lambda: lock(locked)) as end:
        for job in waiting:
            release(job)
        tree.says(f"{locked.pk} cannot be stored")
        tree.signal(signal.SIGTERM)
        assert tree.ends() == 0
        for job in others:
            becomes(job, "completed")
        tree.says("It is lost, because this process ends")
        tree.says("2 completed")
        end()
    start("--threads", "1").ready()
    eventually(lambda: history(locked) != [], "its run is on record")
    assert [outcome for _, outcome, _ in history(locked)] == ["lost"]
