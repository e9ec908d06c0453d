"""Bulk actions beside a transaction that has locked some of the jobs."""

from __future__ import annotations

import pytest

from django_ojs.models import Job
from django_ojs.operations import queues
from django_ojs.operations.jobs import bulk
from django_ojs.operations.jobs.bulk_step import LOCKED
from django_ojs.spec.states import State
from tests.factories import in_state, jobs, push_many
from tests.other_session import Other, open_transaction
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql,  # On SQLite no transaction stays open beside one that writes.
]


def lock(job: Job) -> None:
    assert jobs().select_for_update().get(pk=job.pk)


def test_it_changes_the_others_and_names_the_job_that_is_locked() -> None:
    held, *free = push_many(5)
    with open_transaction(lambda: lock(held)) as commit, Other() as other:
        keys = [job.pk for job in (*free, held)]
        result = other.do(lambda: bulk.cancel_all(keys)).result(BOUND)
        assert (result.succeeded, result.failed) == (4, 1)
        assert [(each.job_id, each.error) for each in result.errors] == [(held.pk, LOCKED)]
        commit()
    assert bulk.cancel_all([held.pk]).succeeded == 1
    assert set(jobs().values_list("state", flat=True)) == {State.CANCELLED}


def test_one_by_one_after_an_error_as_well() -> None:
    # Two dead letters of a queue with room for one: the other is rejected.
    dead = [in_state("discarded", queue="full") for _ in range(3)]
    queues.configure("full", {"backpressure": {"max_depth": 1}})
    with open_transaction(lambda: lock(dead[0])) as commit, Other() as other:
        keys = [job.pk for job in dead]
        result = other.do(lambda: bulk.retry_all(keys)).result(BOUND)
        assert result.succeeded == 1
        assert (dead[0].pk, LOCKED) in [(each.job_id, each.error) for each in result.errors]
        commit()
