"""Jobs that run before they are due, and again after they ended."""

from __future__ import annotations

import pytest

from django_ojs.operations import fetch, queues, run_again, run_now
from django_ojs.operations.jobs import bulk
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec import ids
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.states import TERMINAL, State
from tests.cases import together
from tests.factories import HOUR, WORKER, in_state, jobs, push, read, until_later

pytestmark = pytest.mark.django_db

_WAITS = ("scheduled", "retryable")
# An available job would be claimed instead of the next one that is to be active.
_OTHERS = sorted(set(State) - set(_WAITS), key=lambda state: (state == State.AVAILABLE, state))


class TestRunNow:
    @pytest.mark.parametrize("state", _WAITS)
    def test_a_job_that_waits_for_its_time_is_fetched_at_once(self, state: str) -> None:
        job = in_state(state, queue="a")
        assert fetch.fetch(["a"]) == []
        promoted = run_now.run_now(job.pk)
        assert (promoted.state, promoted.attempt) == ("available", job.attempt)
        (claimed,) = fetch.fetch(["a"], worker_id=WORKER)
        assert (claimed.id, claimed.attempt) == (job.pk, job.attempt + 1)

    def test_it_queues_up_at_the_end(self) -> None:
        later, first = in_state("scheduled", queue="a"), push(queue="a")
        until_later()
        run_now.run_now(later.pk)
        assert [job.id for job in fetch.fetch(["a"], count=2)] == [first.pk, later.pk]

    @together("state", _OTHERS, undo=True)
    def test_any_other_state_is_a_conflict_that_says_what_it_needs(self, state: str) -> None:
        job = in_state(state, queue="a")
        with pytest.raises(Conflict, match="scheduled or retryable"):
            run_now.run_now(job.pk)
        assert read(job.pk).state == state

    def test_an_unknown_job_is_not_found(self) -> None:
        with pytest.raises(JobNotFound):
            run_now.run_now(ids.uuid7())

    def test_a_full_queue_has_room_for_jobs_that_count_already(self) -> None:
        job = push(queue="a", scheduled_at=HOUR)
        queues.configure("a", {"backpressure": {"max_depth": 1}})
        assert run_now.run_now(job.pk).state == "available"

    def test_all_of_a_filter_run_now_and_the_others_stay(self) -> None:
        waiting = [in_state(state, queue="a") for state in _WAITS]
        rest = [in_state(state, queue="a") for state in _OTHERS]
        elsewhere = in_state("scheduled", queue="b")
        summary = bulk.run_all_now(JobFilter(queue="a"))
        assert (summary.succeeded, summary.failed) == (2, 0)
        assert {read(job.pk).state for job in waiting} == {"available"}
        assert [read(job.pk).state for job in rest] == _OTHERS
        assert read(elsewhere.pk).state == "scheduled"

    def test_ids_that_cannot_run_now_are_reported(self) -> None:
        scheduled, completed = in_state("scheduled"), in_state("completed")
        summary = bulk.run_all_now([scheduled.pk, completed.pk])
        assert (summary.succeeded, summary.failed) == (1, 1)
        assert summary.errors[0].job_id == completed.pk
        assert "The job is completed" in summary.errors[0].error


class TestRunAgain:
    @pytest.mark.parametrize("state", sorted(TERMINAL))
    def test_a_copy_is_enqueued_and_the_job_stays(self, state: str) -> None:
        values = {
            "type": "order.charge",
            "args": [{"order": 7}],
            "meta": {"tenant_id": "acme"},
            "priority": 5,
            "timeout_ms": 1500,
            "tags": ["tag"],
        }
        job = in_state(state, queue="a", **values)
        copy = run_again.run_again(job.pk).job()
        assert copy.pk != job.pk
        assert (copy.state, copy.attempt, copy.queue) == ("available", 0, "a")
        shown = copy.envelope()
        assert {name: shown[name] for name in values} == values
        lineage = {"parent_id": str(job.pk), "root_id": str(job.pk)}
        assert (copy.max_attempts, copy.options) == (job.max_attempts, job.options | lineage)
        assert read(job.pk).state == state

    def test_its_time_and_its_deadline_belonged_to_the_first_run(self) -> None:
        job = push(queue="a", scheduled_at=HOUR, expires_at=2 * HOUR)
        jobs().filter(pk=job.pk).update(state="completed", finished_at=job.created_at)
        copy = run_again.run_again(job.pk).job()
        assert (copy.state, copy.due_at, copy.expires_at) == ("available", None, None)

    @pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
    def test_a_job_that_has_not_ended_is_a_conflict(self, state: str) -> None:
        job = in_state(state, queue="a")
        with pytest.raises(Conflict, match="only a job that has ended"):
            run_again.run_again(job.pk)
        assert jobs().count() == 1
