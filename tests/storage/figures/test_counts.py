"""Counts are the jobs, whoever changes them and however."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from django_ojs.models import Job
from django_ojs.operations import ack, cancel, fetch, promotion, queues
from django_ojs.operations.workers import rescue
from django_ojs.spec.states import State
from django_ojs.storage.dialects.rows import Difference
from django_ojs.storage.figures import counts
from django_ojs.storage.figures.counts import CountKeeper
from tests.cases import together
from tests.factories import active, in_state, jobs, push, push_many
from tests.threads import at_once
from tests.worker.waiting import eventually

pytestmark = pytest.mark.django_db


def execute(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def counted(queue: str) -> dict[str, int]:
    return {state.value: n for state, n in counts.by_queue([queue]).get(queue, {}).items()}


def unfolded() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ojs_count_change")
        return int(cursor.fetchone()[0])


def folded(queue: str) -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT state, n FROM ojs_count WHERE queue = %s AND n <> 0", [queue])
        return dict(cursor.fetchall())


@together("state", list(State), undo=True)
def test_a_job_is_counted_in_its_state(state: State) -> None:
    job = in_state(state)
    assert counted(job.queue) == {state.value: 1}
    assert not counts.differences()


def test_depth_is_what_waits() -> None:
    waits = {State.AVAILABLE, State.SCHEDULED, State.RETRYABLE}
    for state in State:
        assert counts.depth(in_state(state).queue) == int(state in waits), state
    assert counts.depth("never-used") == 0


def test_the_operations_keep_the_counts() -> None:
    (queue,) = {job.queue for job in push_many(9)}
    taken = fetch.fetch([queue], count=6, worker_id="w")
    ack.ack_batch("w", [(job.id, job.run, None) for job in taken[:3]])
    cancel.cancel(taken[3].id)
    rescue.rescue(["w"])
    promotion.promote()
    assert counted(queue) == {"available": 5, "completed": 3, "cancelled": 1}
    assert not counts.differences()


def test_dead_letters_have_a_count_of_their_own() -> None:
    (queue,) = {job.queue for job in push_many(5)}
    discarded = {"state": "discarded", "finished_at": timezone.now()}
    keys = list(jobs().filter(queue=queue).values_list("pk", flat=True))
    jobs().filter(pk__in=keys[:4]).update(**discarded)
    assert (counts.dead_letters(), counted(queue)) == (0, {"available": 1, "discarded": 4})
    # Without a change of the state, and with one; by a move, and by the deletion of a job.
    jobs().filter(pk__in=keys[:3]).update(dead_letter=True)
    jobs().filter(pk=keys[4]).update(**discarded, dead_letter=True)
    assert (counts.dead_letters(), counted(queue)) == (4, {"discarded": 5})
    jobs().filter(pk=keys[0]).update(dead_letter=False)
    jobs().filter(pk=keys[1]).update(queue="elsewhere")
    jobs().filter(pk=keys[2]).delete()
    assert (counts.dead_letters(), counted(queue)) == (2, {"discarded": 3})
    assert counts.totals([queue], dead_letter=True) == {State.DISCARDED: 1}
    assert counts.totals([queue], dead_letter=False) == {State.DISCARDED: 2}
    assert not counts.differences()
    counts.fold()
    assert counts.dead_letters() == 2
    execute("UPDATE ojs_count SET n = 7 WHERE state = 'dead_letter' AND queue = 'elsewhere'")
    assert [astuple(wrong)[:4] for wrong in counts.repair()] == [("elsewhere", "dead_letter", 7, 1)]
    assert counts.dead_letters() == 2


def test_raw_sql_and_querysets_keep_the_counts() -> None:
    (queue,) = {job.queue for job in push_many(6)}
    keys = list(jobs().filter(queue=queue).order_by("pk").values_list("pk", flat=True))
    Job.objects.filter(pk=keys[0]).delete()
    Job.objects.filter(pk__in=keys[1:3])._raw_delete("default")
    execute("UPDATE ojs_job SET queue = 'elsewhere' WHERE queue = %s", queue)
    assert counted(queue) == {}
    assert counted("elsewhere") == {"available": 3}
    execute("DELETE FROM ojs_job WHERE queue = 'elsewhere'")
    assert counted("elsewhere") == {}
    assert not counts.differences()


def test_what_changes_no_state_changes_no_count() -> None:
    job = push()
    counts.fold()
    Job.objects.filter(pk=job.pk).update(priority=5)
    assert counts.fold() == 0
    assert counted(job.queue) == {"available": 1}


def test_a_rolled_back_job_was_never_counted() -> None:
    with transaction.atomic():
        queue = push().queue
        assert counted(queue) == {"available": 1}
        transaction.set_rollback(True)
    assert counted(queue) == {}


@pytest.mark.postgresql
def test_folding_changes_where_the_counts_are_and_not_what_they_are() -> None:
    (queue,) = {job.queue for job in push_many(4)}
    push(queue=queue)
    before = counted(queue)
    assert unfolded() == 2
    assert counts.fold() == 2
    assert unfolded() == 0
    assert counted(queue) == before == {"available": 5}
    assert folded(queue) == {"available": 5}


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
def test_truncating_the_jobs_empties_the_counts() -> None:
    push_many(3)
    counts.fold()
    push()
    execute("TRUNCATE ojs_job CASCADE")
    assert counts.by_queue() == {}
    assert not counts.differences()


@pytest.mark.django_db(transaction=True)
def test_a_flush_empties_the_counts() -> None:
    push_many(3)
    counts.fold()
    push()
    call_command("flush", interactive=False, verbosity=0)
    assert counts.by_queue() == {}


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgresql
def test_vacuuming_the_counts_releases_the_space_of_folded_changes() -> None:
    for _ in range(50):
        push()
    keeper = CountKeeper()
    assert keeper.fold() == 50

    def is_released() -> bool:
        # An old snapshot, such as that of an autoanalyze, keeps the dead rows until it ends.
        keeper.vacuum_counts()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_relation_size('ojs_count_change')")
            if cursor.fetchone()[0] == 0:
                return True
        push()
        keeper.fold()
        return False

    eventually(is_released, "the space is released")


@pytest.mark.django_db(transaction=True)
def test_counts_are_right_after_many_writers_and_two_folders() -> None:
    queue = push().queue

    def write() -> None:
        for _ in range(10):
            push_many(3, queue=queue)
            taken = fetch.fetch([queue], count=2, worker_id="w", due=False)
            ack.ack_batch("w", [(job.id, job.run, None) for job in taken])

    def fold() -> None:
        for _ in range(30):
            counts.fold()

    at_once([write, write, write, fold, fold])
    assert sum(counted(queue).values()) == 91
    assert not counts.differences()


def test_a_count_of_a_queue_without_jobs_is_repaired_too() -> None:
    job = active(queue="ghost")
    counts.fold()
    Job.objects.filter(pk=job.id).delete()
    counts.fold()
    execute("UPDATE ojs_count SET n = 2 WHERE queue = 'ghost' AND state = 'active'")
    assert counts.repair() == [Difference("ghost", "active", 2, 0, 0, 0)]
    assert counted("ghost") == {}


def test_a_paused_queue_has_no_count_until_it_has_a_job() -> None:
    queues.pause("quiet-one")
    assert "quiet-one" not in counts.by_queue()
