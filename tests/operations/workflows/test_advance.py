"""Workflows advance however a job ends, once, and whatever happens to the next one's queue."""

from __future__ import annotations

import importlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs.context import enter
from django_ojs.extension import Known
from django_ojs.extensions.backpressure.operations import rejection_counts
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows import storage as stored
from django_ojs.extensions.workflows.api import cancel_workflow
from django_ojs.extensions.workflows.models import EndedWorkflowJob, Workflow, WorkflowStep
from django_ojs.extensions.workflows.operations import after_commit, pruning, starting
from django_ojs.extensions.workflows.operations.advance import last_query
from django_ojs.handler_registry import registry
from django_ojs.models import Job
from django_ojs.operations import ack, cancel, delete, expiry, fail, fetch, queues, retry
from django_ojs.operations.maintenance import job_pruning as maintenance
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import Conflict, InvalidRequest, QueueFull, QueuePaused
from django_ojs.storage import database
from django_ojs.worker.executor import run_handler
from tests.databases import KIND
from tests.factories import age, jobs, push
from tests.held_key import held_key
from tests.model_factories import EndedWorkflowJobFactory
from tests.operations.workflows.scenes import (
    FATAL,
    available,
    batch,
    chain,
    create,
    events,
    finish,
    group,
    job,
    job_of,
    read,
    states,
    step,
    step_of,
    take,
)
from tests.other_session import open_transaction
from tests.threads import beside
from tests.worker.parts import run_of
from tests.worker.waiting import BOUND

#: The package has a function of this name.
advancing = importlib.import_module("django_ojs.extensions.workflows.operations.advance")

pytestmark = pytest.mark.django_db


class TestParentResults:
    @pytest.mark.requirement("WF-21", "WF-S01")
    def test_the_results_of_all_steps_before_are_passed_on_in_order(self) -> None:
        create(chain(job("a"), job("b"), job("c")))
        assert finish("a", {"total": 9}).parent_results == []
        assert finish("b").parent_results == [{"total": 9}]
        assert finish("c").parent_results == [{"total": 9}, None]

    @pytest.mark.requirement("WF-23")
    def test_a_callback_gets_those_of_all_members_in_their_order(self) -> None:
        create(batch(job("a"), job("b"), job("c"), on_complete=job("done")))
        finish("c", 3)
        finish("b", fails=True)
        finish("a", [1, {"x": None}])
        assert finish("done").parent_results == [[1, {"x": None}], None, 3]

    @pytest.mark.requirement("WF-22")
    def test_the_result_of_a_group_is_an_array_and_that_of_a_chain_its_last(self) -> None:
        create(chain(group(job("a"), chain(job("b"), job("c"))), job("last")))
        finish("a", 1)
        finish("b", 2)
        finish("c", 3)
        assert finish("last").parent_results == [[1, 3]]

    @pytest.mark.requirement("WF-24", "WF-S02")
    def test_a_result_over_64_kib_is_passed_on_by_reference(self) -> None:
        limit = 64 * 1024
        workflow = create(group(chain(job("a"), job("b")), chain(job("c"), job("d"))))
        finish("a", "x" * (limit - 2))
        finish("c", "é" + "x" * (limit - 3))
        assert finish("b").parent_results == ["x" * (limit - 2)]
        (passed,) = finish("d").parent_results
        key = step_of(workflow, "c").pk
        assert passed == {
            "result_ref": f"/ojs/v1/jobs/{key}",
            # MariaDB keeps the escape that a client has written for the letter.
            "result_size_bytes": limit + (5 if KIND == "mariadb" else 1),
            "result_content_type": "application/json",
        }

    def test_a_result_outlives_its_job(self) -> None:
        workflow = create({"steps": [step("a"), step("b"), step("c", "a", "b")]})
        finish("a", "kept")
        delete.delete(job_of(workflow, "a").pk)
        finish("b")
        assert finish("c").parent_results == ["kept", None]

    def test_they_count_for_the_size_of_the_job(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        finish("a", "x" * 1000)
        assert (job_of(workflow, "b").size_bytes or 0) > 1000


class TestEnds:
    """Each way by which a job can end is noticed."""

    def test_a_job_that_expires(self) -> None:
        workflow = create(chain(job("a", expires_at="+PT1H"), job("b")))
        jobs().update(expires_at=F("expires_at") - timedelta(hours=2))
        assert expiry.expire() == 1
        assert workflows.advance_due() == 1
        assert read(workflow).state == "failed"

    def test_a_job_that_is_dropped_at_its_limit(self) -> None:
        limit = {"key": "acme", "concurrency": 0, "on_limit": "drop"}
        workflow = create(chain(job("a", rate_limit=limit), job("b")))
        assert fetch.fetch(["default"]) == []
        assert workflows.advance_due() == 1
        assert read(workflow).state == "failed"

    def test_a_job_that_is_deleted_before_it_has_ended(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        jobs().delete()
        assert workflows.advance_due() == 1
        assert states(workflow) == {"a": "failed", "b": "skipped"}

    def test_a_job_whose_worker_dies_with_its_last_attempt(self) -> None:
        workflow = create(chain(job("a", retry={"max_attempts": 1}), job("b")))
        take("a")
        jobs().update(lease_until=F("lease_until") - timedelta(hours=2))
        assert rescue.lapse() == 1
        assert workflows.advance_due() == 1
        assert read(workflow).state == "failed"

    def test_an_atomic_completion_and_many_at_once(self) -> None:
        workflow = create(group(job("a"), job("b"), job("c")))
        claimed = fetch.fetch(["default"], count=3, worker_id="w", due=False)
        ack.complete(claimed[0].id)
        ack.ack_batch("w", [(each.id, each.run, None) for each in claimed[1:]])
        assert workflows.advance_due() == 1
        assert read(workflow).state == "completed"

    def test_a_job_that_ends_in_a_transaction_that_rolls_back_has_not_ended(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        claimed = take("a")
        try:
            with database.atomic():
                ack.ack(claimed.id)
                raise RuntimeError
        except RuntimeError:
            pass
        assert workflows.advance_due() == 0
        assert read(workflow).steps_left == 2

    def test_a_job_that_ended_long_ago_and_is_pruned_does_not_end_twice(self) -> None:
        workflow = create(group(job("a"), job("b")))
        finish("a")
        delete.delete(job_of(workflow, "a").pk)
        assert workflows.advance_due() == 0
        assert read(workflow).steps_left == 1

    @pytest.mark.statements
    def test_a_plain_job_writes_no_row_and_no_statement_more(self) -> None:
        push(queue="plain")
        with CaptureQueriesContext(connection) as queries:
            (claimed,) = fetch.fetch(["plain"], worker_id="w", due=False)
            known = Known(jobs={claimed.id: claimed})
            ack.ack_batch("w", [(claimed.id, claimed.run, None)], known)
        assert len(queries) == 2
        assert not EndedWorkflowJob.primary.exists()


class TestRetryByHand:
    @pytest.mark.requirement("WF-25")
    def test_a_failed_workflow_stays_failed_and_the_job_runs_alone(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        claimed = finish("a", fails=True)
        retry.retry(claimed.id)
        finish("a")
        ended = read(workflow)
        assert (ended.state, ended.jobs_completed, ended.jobs_failed) == ("failed", 0, 1)
        assert available() == []
        assert not EndedWorkflowJob.primary.exists()

    def test_a_member_that_is_retried_before_it_was_counted_counts_as_failed(self) -> None:
        workflow = create(group(job("a"), job("b")))
        claimed = take("a")
        fail.fail(claimed.id, FATAL)
        retry.retry(claimed.id)
        finish("a")
        assert read(workflow).jobs_failed == 1
        finish("b")
        assert read(workflow).state == "failed"

    def test_the_result_of_a_later_run_is_not_that_of_the_failed_member(self) -> None:
        workflow = create(batch(job("a"), on_failure=job("badly")))
        claimed = take("a")
        fail.fail(claimed.id, FATAL)
        retry.retry(claimed.id)
        finish("a", "late")
        assert (step_of(workflow, "a").state, step_of(workflow, "a").result) == ("failed", None)
        assert finish("badly").parent_results == [None]


class TestStarting:
    @pytest.mark.django_db(transaction=True)
    def test_a_step_waits_for_room_in_its_queue_and_is_not_lost(self) -> None:
        queues.configure("small", {"backpressure": {"max_depth": 1}})
        workflow = create(chain(job("a"), job("b", queue="small"), job("c")))
        other = push(queue="small")
        finish("a")
        assert states(workflow)["b"] == "ready"
        assert workflows.advance_due() == 1
        assert states(workflow)["b"] == "ready"
        cancel.cancel(other.pk)
        workflows.advance_due()
        assert states(workflow)["b"] == "enqueued"

    @pytest.mark.django_db(transaction=True)
    def test_a_queue_that_drops_its_oldest_drops_no_job_of_the_same_workflow(self) -> None:
        workflow = create(chain(job("a"), group(*[job("b", n) for n in range(4)]), job("c")))
        bound = {"max_depth": 2, "strategy": "drop_oldest"}
        queues.configure("default", {"backpressure": bound})
        finish("a")
        for _ in range(4):
            workflows.advance_due()
            assert 0 < len(available()) <= 2
            finish("b")
        workflows.advance_due()
        assert not jobs().filter(state="discarded").exists()
        assert states(workflow)["c"] == "enqueued"

    def test_a_step_waits_while_its_queue_is_draining_and_a_new_workflow_is_rejected(self) -> None:
        workflow = create(chain(job("a"), job("b", queue="old"), job("c")))
        queues.drain("old")
        with pytest.raises(QueuePaused):
            create(chain(job("b", queue="old")))
        finish("a")
        for _ in range(30):
            workflows.advance_due()
        assert states(workflow)["b"] == "ready"
        queues.resume("old")
        workflows.advance_due()
        assert states(workflow)["b"] == "enqueued"

    @pytest.mark.django_db(transaction=True)
    def test_a_tenant_at_its_bound_keeps_no_step_of_another_tenant_from_its_queue(self) -> None:
        queues.configure("shared", {"tenant_limits": {"max_queue_depth": 1}})
        first, second = (
            create(chain(job("a"), {**job("b", queue="shared"), "meta": {"tenant_id": tenant}}))
            for tenant in ("acme", "bravo")
        )
        others = {
            tenant: push(queue="shared", meta={"tenant_id": tenant}) for tenant in ("acme", "bravo")
        }
        finish("a")
        finish("a")
        assert states(first)["b"] == states(second)["b"] == "ready"
        # The maintenance advances both together, that of the tenant at its bound first.
        cancel.cancel(others["bravo"].pk)
        workflows.advance_due()
        assert (states(first)["b"], states(second)["b"]) == ("ready", "enqueued")

    @pytest.mark.django_db(transaction=True)
    def test_many_steps_start_as_their_queue_has_room_with_few_tries(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queues.configure("small", {"backpressure": {"max_depth": 3}})
        workflow = create(chain(job("a"), group(*[job("b", queue="small")] * 64)))
        tries, rejected = [], []
        push_jobs = starting.push

        def count(envelopes: Any, *options: Any) -> Any:
            tries.append(len(envelopes))
            return push_jobs(envelopes, *options)

        def reject(full: QueueFull, jobs: Any) -> None:
            rejected.append((full.queue, len(jobs)))

        monkeypatch.setattr(starting, "push", count)
        monkeypatch.setattr(rejection_counts.recorder, "reject", reject)
        ack.ack(take("a").id)
        workflows.advance_due()
        assert tries[:6] == [64, 32, 16, 8, 4, 2]
        assert len(tries) <= 9
        tries.clear()
        workflows.advance_due()
        assert tries == [61, 30, 15, 7, 3, 1]
        assert rejected == [("small", 61)]
        assert Counter(each.state for each in workflows.steps_of(workflow)) == {
            "completed": 1,
            "enqueued": 3,
            "ready": 61,
            "waiting": 1,
        }

    @pytest.mark.parametrize(
        ("limit", "value", "sizes"),
        [("JOBS_AT_ONCE", 4, [4, 1]), ("BYTES_AT_ONCE", 3000, [2, 2, 1])],
    )
    def test_many_steps_start_in_statements_of_bounded_size(
        self, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, sizes: list[int]
    ) -> None:
        create(chain(job("a"), group(*[job("b")] * 5)))
        pushed = []
        push_jobs = starting.push

        def count(envelopes: Any, *options: Any) -> Any:
            pushed.append(len(envelopes))
            return push_jobs(envelopes, *options)

        monkeypatch.setattr(starting, limit, value)
        monkeypatch.setattr(starting, "push", count)
        finish("a", "x" * 1000)
        assert pushed == sizes
        assert available() == ["b"] * 5

    @pytest.mark.django_db(transaction=True)
    def test_a_job_that_its_queue_can_never_hold_fails_its_step(self) -> None:
        queues.configure("small", {"backpressure": {"max_size_bytes": 2000}})
        workflow = create(
            chain(job("a"), group(job("b", queue="small"), job("c", "x" * 3000, queue="small")))
        )
        finish("a")
        assert states(workflow) == {"a": "completed", "b": "enqueued", "c": "failed"}
        assert step_of(workflow, "c").error["code"] == "QUEUE_FULL"

    @pytest.mark.django_db(transaction=True)
    def test_a_workflow_whose_first_jobs_have_no_room_is_not_created(self) -> None:
        queues.configure("small", {"backpressure": {"max_depth": 1}})
        with pytest.raises(QueueFull):
            create(group(job("a", queue="small"), job("b", queue="small")))
        assert not Workflow.primary.exists()
        assert not WorkflowStep.primary.exists()

    def test_a_job_that_is_rejected_when_its_turn_comes_fails_its_step(self) -> None:
        workflow = create(chain(job("a"), job("b"), job("c")))
        drop = "tests.operations.workflows.test_advance.drop"
        with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [drop]}):
            finish("a")
        assert states(workflow) == {"a": "completed", "b": "failed", "c": "skipped"}
        ended = read(workflow)
        assert (ended.state, ended.jobs_failed) == ("failed", 1)
        assert "middleware" in step_of(workflow, "b").error["message"]

    def test_a_duplicate_of_another_job_fails_its_step(self) -> None:
        unique = {"unique": {"keys": ["type"], "on_conflict": "reject"}}
        workflow = create(chain(job("a"), job("b", **unique)))
        create(chain(job("b", **unique)))
        finish("a")
        assert states(workflow)["b"] == "failed"

    def test_a_duplicate_among_the_first_jobs_rejects_the_workflow(self) -> None:
        unique = {"unique": {"keys": ["type"], "on_conflict": "ignore"}}
        create(chain(job("b", **unique)))
        with pytest.raises(Conflict):
            create(chain(job("b", **unique)))
        assert Workflow.primary.count() == 1

    def test_an_error_that_may_pass_is_tried_again_later(self) -> None:
        workflow = create(chain(job("a"), group(job("b"), job("c")), job("d")))
        with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [FAILING]}):
            finish("a")
            assert states(workflow) == {
                "a": "completed",
                "b": "ready",
                "c": "enqueued",
                "d": "waiting",
            }
            assert step_of(workflow, "b").error["type"] == "OSError"
            # Not before its time.
            assert workflows.advance_due() == 0
            retry_now(workflow)
            assert workflows.advance_due() == 1
            assert step_of(workflow, "b").start_failures == 2
        retry_now(workflow)
        workflows.advance_due()
        assert step_of(workflow, "b").error is None
        for each in ("b", "c", "d"):
            finish(each)
        assert read(workflow).state == "completed"

    def test_an_error_that_does_not_pass_fails_the_step_in_the_end(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [FAILING]}):
            finish("a")
            for _ in range(starting.MAX_TRIES - 1):
                assert states(workflow)["b"] == "ready"
                retry_now(workflow)
                workflows.advance_due()
        assert states(workflow)["b"] == "failed"
        assert read(workflow).state == "failed"

    def test_what_a_middleware_rejects_fails_its_step_at_once(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        reject = "tests.operations.workflows.test_advance.reject"
        with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [reject]}):
            finish("a")
        assert states(workflow)["b"] == "failed"
        assert step_of(workflow, "b").error["code"] == "invalid_request"

    def test_the_delays_between_tries_are_doubled_up_to_the_largest(self) -> None:
        found = [starting.delay_after(failures).total_seconds() for failures in (1, 2, 3, 10)]
        assert found == [1, 2, 4, 300]
        # "About nine minutes", as the documents say: none comes after the last try.
        pauses = (starting.delay_after(failures) for failures in range(1, starting.MAX_TRIES))
        assert sum(pauses, timedelta()) == timedelta(minutes=8, seconds=31)


FAILING = "tests.operations.workflows.test_advance.fail_for_b"


def prune_jobs() -> None:
    """Prune by the settings, and by the retention of queues."""
    maintenance.prune()
    maintenance.QueuePruner().prune()


def retry_now(workflow: Workflow) -> None:
    """Let the time pass after which steps are tried again."""
    steps = WorkflowStep.primary.filter(workflow_id=workflow.pk)
    steps.update(start_after=F("start_after") - timedelta(hours=1))


def drop(job: Any, proceed: Any) -> None:
    """An enqueue middleware that drops every job."""


def fail_for_b(job: Any, proceed: Any) -> Any:
    """An enqueue middleware whose lookup of something fails for jobs of the type b."""
    if job.type == "b":
        raise OSError("connection reset")
    return proceed(job)


def reject(job: Any, proceed: Any) -> None:
    """An enqueue middleware that rejects every job."""
    raise InvalidRequest.of("type", "is not wanted")


class TestLocks:
    @pytest.mark.postgresql
    @pytest.mark.django_db(transaction=True)
    def test_a_workflow_that_another_process_advances_is_left_to_it(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        ack.ack(take("a").id)
        row = Workflow.primary.select_for_update().filter(pk=workflow.pk)
        with open_transaction(lambda: list(row)):
            workflows.advance(workflow.pk)
            assert states(workflow)["b"] == "waiting"
        workflows.advance(workflow.pk)
        assert states(workflow)["b"] == "enqueued"

    @pytest.mark.postgresql
    @pytest.mark.django_db(transaction=True)
    def test_a_unique_key_in_an_open_transaction_delays_its_own_step_only(self) -> None:
        unique = {"keys": ["args"], "on_conflict": "replace"}
        members = [job("report.make", "same", unique=unique), job("free")]
        workflow, other = (
            create(chain(job("a"), group(*members))),
            create(chain(job("b"), job("c"))),
        )
        ack.ack(take("a").id)
        ack.ack(take("b").id)
        with held_key("report.make", "same") as commit:
            for _ in range(2):  # However often it is tried, it does not count as a failure.
                workflows.advance_due()
                assert states(other)["c"] == "enqueued"
                assert states(workflow) == {
                    "a": "completed",
                    "report.make": "ready",
                    "free": "enqueued",
                }
            assert step_of(workflow, "report.make").start_failures == 0
            commit()
        workflows.advance_due()
        assert states(workflow)["report.make"] == "enqueued"
        assert Counter(jobs().filter(type="report.make").values_list("state", flat=True)) == {
            "available": 1,
            "cancelled": 1,
        }

    @pytest.mark.django_db(transaction=True)
    def test_what_ends_while_a_workflow_is_advanced_is_found_by_the_same_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        workflow = create(group(job("a"), job("b")))
        ack.ack(take("a").id)
        second = take("b")
        take_ended = stored.take_ended_jobs
        ended = []

        def take_then_end(*args: Any) -> Any:
            found = take_ended(*args)
            if not ended:
                # Stands for another process, whose advance found the row locked.
                ended.append(second)
                EndedWorkflowJobFactory(
                    workflow_id=workflow.pk, job_id=second.id, state="completed"
                )
            return found

        monkeypatch.setattr(stored, "take_ended_jobs", take_then_end)
        workflows.advance(workflow.pk)
        assert read(workflow).state == "completed"

    @pytest.mark.requirement("WF-18")
    def test_a_second_row_about_the_same_end_changes_nothing(self) -> None:
        workflow = create(chain(job("a"), job("b")))
        claimed = finish("a")
        EndedWorkflowJobFactory(workflow_id=workflow.pk, job_id=claimed.id, state="discarded")
        workflows.advance(workflow.pk)
        assert states(workflow) == {"a": "completed", "b": "enqueued"}
        assert Job.primary.filter(type="b").count() == 1

    def test_one_that_cannot_be_advanced_keeps_no_other_from_it(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = create(chain(job("a"), job("b")))
        second = create(chain(job("c"), job("d")))
        for each in ("a", "c"):
            ack.ack(take(each).id)
        take_ended = stored.take_ended_jobs

        def broken(workflow_ids: Any, limit: int) -> Any:
            if first.pk in workflow_ids:
                raise RuntimeError
            return take_ended(workflow_ids, limit)

        monkeypatch.setattr(stored, "take_ended_jobs", broken)
        workflows.advance_due()
        assert states(second)["d"] == "enqueued"
        assert "will be tried again" in caplog.text

    def test_one_that_meets_a_statement_timeout_keeps_no_other_from_it(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = create(chain(job("a"), job("b")))
        second = create(chain(job("c"), job("d")))
        for each in ("a", "c"):
            ack.ack(take(each).id)
        push_jobs = starting.push

        def slow(envelopes: Any, *options: Any) -> Any:
            if "b" in {envelope.type for envelope in envelopes}:
                raise OperationalError("canceling statement due to statement timeout")
            return push_jobs(envelopes, *options)

        monkeypatch.setattr(starting, "push", slow)
        workflows.advance_due()
        assert states(first)["b"] == "waiting"
        assert states(second)["d"] == "enqueued"
        assert str(first.pk) in caplog.text

    @pytest.mark.parametrize("is_away", [False, True])
    @pytest.mark.django_db(transaction=True)
    def test_one_that_loses_its_connection_keeps_others_from_it_only_if_there_is_no_new_one(
        self, monkeypatch: pytest.MonkeyPatch, is_away: bool
    ) -> None:
        first = create(chain(job("a"), job("b")))
        second = create(chain(job("c"), job("d")))
        for each in ("a", "c"):
            ack.ack(take(each).id)
        take_ended = stored.take_ended_jobs
        lost: list[Any] = []

        def reject() -> None:
            raise OperationalError("connection refused")

        with monkeypatch.context() as patch:

            def lose(workflow_ids: Any, limit: int) -> Any:
                if first.pk not in workflow_ids:
                    return take_ended(workflow_ids, limit)
                # They lose it together, and the first one alone then.
                if not lost:
                    patch.setattr(connection, "is_usable", lambda: False)
                    if is_away:
                        patch.setattr(connection, "ensure_connection", reject)
                lost.append(workflow_ids)
                raise OperationalError("server closed the connection unexpectedly")

            patch.setattr(stored, "take_ended_jobs", lose)
            advancing.advance_all([first.pk, second.pk])
        assert states(second)["d"] == ("waiting" if is_away else "enqueued")
        workflows.advance_due()
        assert (states(first)["b"], states(second)["d"]) == ("enqueued", "enqueued")


class TestTogether:
    """Several workflows are advanced in one transaction."""

    def queries_for(self, number: int) -> int:
        created = [create(chain(job("a"), group(job("b"), job("c")))) for _ in range(number)]
        for claimed in fetch.fetch(["default"], count=100, due=False):
            if claimed.type == "a":
                ack.ack(claimed.id)
        with CaptureQueriesContext(connection) as captured:
            assert workflows.advance_due() == number
        for each in created:
            assert states(each) == {"a": "completed", "b": "enqueued", "c": "enqueued"}
        return len(captured)

    @pytest.mark.statements
    def test_ten_take_as_many_statements_as_two(self) -> None:
        assert self.queries_for(2) == self.queries_for(10)

    def test_they_are_advanced_alone_if_they_have_too_many_steps(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(advancing, "STEPS_TOGETHER", 3)
        assert self.queries_for(1) < self.queries_for(2) / 2
        assert not caplog.records

    @pytest.mark.django_db(transaction=True)
    def test_those_that_wait_for_room_are_started_alone_if_they_have_too_many_steps(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queues.configure("small", {"backpressure": {"max_depth": 1}})
        other = push(queue="small")
        waiting = [create(chain(job("a"), group(*[job("b", queue="small")] * 3))) for _ in range(2)]
        for claimed in fetch.fetch(["default"], count=2, due=False):
            ack.ack(claimed.id)
        workflows.advance_due()
        queues.configure("small", {"backpressure": {"max_depth": 100}})
        cancel.cancel(other.pk)
        monkeypatch.setattr(advancing, "STEPS_TOGETHER", 5)
        workflows.advance_due()
        assert [states(each)["b"] for each in waiting] == ["enqueued", "enqueued"]


class TestRequests:
    """Requests that end jobs at the same time."""

    @pytest.mark.postgresql
    @pytest.mark.django_db(transaction=True)
    def test_one_of_them_advances_the_workflows_of_all(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        created = [create(chain(job(name), job("next"))) for name in "abc"]
        claimed = fetch.fetch(["default"], count=3, due=False)
        advance_all = after_commit.advance_all
        entered, release = threading.Event(), threading.Event()
        advanced: list[int] = []

        def slow(workflow_ids: Any) -> None:
            advanced.append(len(workflow_ids))
            entered.set()
            assert release.wait(BOUND)
            advance_all(workflow_ids)

        def end(job_id: UUID) -> None:
            workflows.advance_after_commit(ack.ack(job_id).workflow_id)

        monkeypatch.setattr(after_commit, "advance_all", slow)
        with beside(lambda: end(claimed[0].id)):
            assert entered.wait(BOUND)
            # These return, though the first one has not advanced anything yet.
            for each in claimed[1:]:
                end(each.id)
            release.set()
        assert advanced == [1, 2]
        assert {states(each)["next"] for each in created} == {"enqueued"}


class TestRoundRobin:
    @pytest.mark.django_db(transaction=True)
    def test_those_that_wait_for_a_full_queue_do_not_keep_another_from_its_start(self) -> None:
        for queue in ("full", "small"):
            queues.configure(queue, {"backpressure": {"max_depth": 1}})
        push(queue="full")
        other = push(queue="small")
        for _ in range(4):
            create(chain(job("a"), job("b", queue="full")))
        last = create(chain(job("a"), job("b", queue="small")))
        for claimed in fetch.fetch(["default"], count=5, due=False):
            ack.ack(claimed.id)
        assert workflows.advance_due() == 5
        assert states(last)["b"] == "ready"
        cancel.cancel(other.pk)
        for _ in range(3):
            workflows.advance_due(2)
        assert states(last)["b"] == "enqueued"

    def test_each_of_which_a_job_has_ended_is_returned(self) -> None:
        for number in range(5):
            EndedWorkflowJobFactory(
                workflow_id=UUID(int=number), job_id=UUID(int=number), state="completed"
            )
        found = [[each.int for each in stored.due.next(2)] for _ in range(4)]
        assert found == [[0, 1], [2, 3], [4, 0], [1, 2]]
        assert len(stored.due.next(9)) == 5


class TestCancel:
    def test_it_cancels_what_has_not_ended_and_starts_nothing(self) -> None:
        workflow = create(chain(group(job("a"), job("b"), job("c")), job("d")))
        finish("a")
        active = take("b")
        cancelled = workflows.cancel(workflow.pk)
        assert (cancelled.state, cancelled.steps_left) == ("cancelled", 0)
        workflows.advance_due()
        assert states(workflow) == {
            "a": "completed",
            "b": "cancelled",
            "c": "cancelled",
            "d": "cancelled",
        }
        assert Job.primary.get(pk=active.id).state == "cancelled"
        with pytest.raises(Conflict):
            ack.ack(active.id)
        assert available() == []
        assert not EndedWorkflowJob.primary.exists()

    @pytest.mark.requirement("WF-25")
    def test_a_workflow_that_has_ended_is_not_cancelled(self) -> None:
        workflow = create(chain(job("a")))
        finish("a")
        with pytest.raises(Conflict, match="completed"):
            workflows.cancel(workflow.pk)

    def test_a_job_that_ended_just_now_is_counted_and_starts_nothing(self) -> None:
        workflow = create(chain(job("a"), job("b"), job("c")))
        ack.ack(take("a").id, result=5)
        workflows.cancel(workflow.pk)
        workflows.advance_due()
        cancelled = read(workflow)
        assert (cancelled.state, cancelled.jobs_completed, cancelled.jobs_failed) == (
            "cancelled",
            1,
            0,
        )
        assert states(workflow) == {"a": "completed", "b": "cancelled", "c": "cancelled"}
        assert step_of(workflow, "a").result == 5
        assert available() == []

    @pytest.mark.parametrize(("fails", "state"), [(False, "completed"), (True, "failed")])
    def test_one_whose_last_job_ended_just_now_has_ended(self, fails: bool, state: str) -> None:
        last = [job("b")] if fails else []
        workflow = create(chain(job("a"), *last))
        claimed = take("a")
        if fails:
            fail.fail(claimed.id, FATAL)
        else:
            ack.ack(claimed.id, result=5)
        with pytest.raises(Conflict, match=state):
            workflows.cancel(workflow.pk)
        ended = read(workflow)
        assert (ended.state, ended.steps_left) == (state, 0)
        assert workflows.advance_due() == 0

    def test_a_job_that_was_cancelled_just_before_counts_as_failed(self) -> None:
        workflow = create(group(job("a"), job("b")))
        cancel.cancel(job_of(workflow, "a").pk)
        workflows.cancel(workflow.pk)
        ended = read(workflow)
        assert (ended.state, ended.jobs_failed) == ("cancelled", 1)
        assert states(workflow) == {"a": "cancelled", "b": "cancelled"}


class TestAtomicHandlers:
    """A handler whose rows commit with its completion cancels the workflow of its own job."""

    @pytest.fixture(autouse=True)
    def context(self) -> Iterator[None]:
        yield
        enter(None)

    def run(self, function: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
        run = run_of(function, atomic=True, job=take("a"))
        monkeypatch.setitem(registry.handlers, "a", run.handler)
        enter(run.context)
        run_handler(run)

    def test_it_cannot_do_so_before_its_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        workflow = create(chain(job("a"), job("b")))
        with pytest.raises(Conflict, match="handler is atomic") as caught:
            self.run(lambda: cancel_workflow(workflow.pk), monkeypatch)
        assert "on_commit" in str(caught.value.hint)
        assert read(workflow).state == "running"

    @pytest.mark.django_db(transaction=True)
    def test_it_does_so_after_its_commit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        workflow = create(chain(job("a"), job("b")))
        self.run(
            lambda: transaction.on_commit(lambda: cancel_workflow(workflow.pk)),
            monkeypatch,
        )
        assert read(workflow).state == "cancelled"
        assert states(workflow) == {"a": "completed", "b": "cancelled"}


@pytest.mark.usefixtures("all_events")
class TestEvents:
    @pytest.fixture
    def all_events(self, settings: Any) -> None:
        settings.OJS = {**settings.OJS, "KEEP_EVENTS": ["workflow.*"]}

    @pytest.mark.requirement("L3-WF-EVT-001", "WF-38")
    def test_of_a_batch(self) -> None:
        create(batch(job("a"), job("b"), on_failure=job("badly")))
        finish("a")
        finish("b", fails=True)
        finish("badly")
        assert events() == [
            "workflow.created",
            "workflow.started",
            "workflow.job_completed",
            "workflow.job_failed",
            "workflow.callback_fired",
            "workflow.job_completed",
            "workflow.completed",
        ]

    def test_of_two_that_are_advanced_together(self) -> None:
        first, second = create(chain(job("a"))), create(chain(job("b")))
        ack.ack(take("a").id)
        fail.fail(take("b").id, FATAL)
        workflows.advance_due()
        for workflow, end in ((first, "completed"), (second, "failed")):
            found = Event.objects.filter(subject=str(workflow.pk)).order_by("pk")
            assert list(found.values_list("type", flat=True)) == [
                "workflow.created",
                "workflow.started",
                f"workflow.step_{end}",
                f"workflow.{end}",
            ]

    @pytest.mark.requirement("WF-38")
    def test_of_a_chain_that_fails_and_of_one_that_is_cancelled(self) -> None:
        create(chain(job("a"), job("b")))
        finish("a")
        finish("b", fails=True)
        workflows.cancel(create(chain(job("c"))).pk)
        assert events() == [
            "workflow.created",
            "workflow.started",
            "workflow.step_completed",
            "workflow.step_failed",
            "workflow.failed",
            "workflow.created",
            "workflow.cancelled",
        ]

    @pytest.mark.requirement("EV-05", "EV-09")
    def test_they_have_what_the_document_requires(self) -> None:
        good = create(chain(job("a"), name="order"))
        finish("a")
        bad = create(chain(job("b"), job("c")))
        finish("b", fails=True)
        data = {each.type: each.data for each in Event.primary.order_by("pk")}
        which = {"workflow_id": str(good.pk), "workflow_name": "order"}
        assert (
            data["workflow.step_completed"].items()
            >= {
                **which,
                "step_id": "0",
                "step_type": "a",
                "steps_remaining": 0,
            }.items()
        )
        assert data["workflow.step_completed"]["duration_ms"] >= 0
        assert data["workflow.completed"].items() >= {**which, "total_steps": 1}.items()
        assert data["workflow.completed"]["duration_ms"] >= 0
        which = {"workflow_id": str(bad.pk), "workflow_name": ""}
        assert data["workflow.started"].items() >= {**which, "total_steps": 2}.items()
        assert (
            data["workflow.failed"].items()
            >= {
                **which,
                "failed_step_id": "0",
                "failed_step_type": "b",
                "error": {"code": "Boom", "message": "it broke"},
            }.items()
        )


class TestPruning:
    def test_a_workflow_is_deleted_with_its_steps_after_its_retention(self) -> None:
        kept, old, running = (create(chain(job("a"))) for _ in range(3))
        for each in (kept, old):
            workflows.cancel(each.pk)
        Workflow.primary.filter(pk=old.pk).update(finished_at=F("finished_at") - timedelta(days=31))
        # The workflow and its step.
        assert pruning.prune() == 2
        assert set(Workflow.primary.values_list("pk", flat=True)) == {kept.pk, running.pk}
        assert not WorkflowStep.primary.filter(workflow_id=old.pk).exists()
        assert pruning.prune() == 0

    @pytest.mark.parametrize("config", [{}, {"retention": {"completed": "PT1H"}}])
    def test_a_job_is_kept_while_its_workflow_runs(self, config: Any) -> None:
        queues.configure("default", config)
        create(chain(job("a"), job("b")))
        large = "x" * (starting.MAX_INLINE_BYTES + 1)
        first = finish("a", large)
        age(first.id, timedelta(days=60))
        prune_jobs()
        (reference,) = take("b").parent_results
        assert reference["result_ref"] == f"/ojs/v1/jobs/{first.id}"
        assert Job.primary.get(pk=first.id).result == large
        ack.ack(jobs().get(type="b").pk)
        workflows.advance_due()
        prune_jobs()
        assert list(jobs().values_list("type", flat=True)) == ["b"]

    def test_a_row_of_a_workflow_that_is_gone_is_dropped(self) -> None:
        workflow = create(chain(job("a")))
        Workflow.primary.all().delete()
        ack.ack(take("a").id)
        workflows.advance(workflow.pk)
        assert not EndedWorkflowJob.primary.exists()

    def test_many_steps_are_deleted_in_transactions_of_bounded_size(self) -> None:
        workflow = create(group(*[job("a")] * 5))
        workflows.cancel(workflow.pk)
        Workflow.primary.update(finished_at=F("finished_at") - timedelta(days=31))
        # Four steps, then the fifth and the workflow.
        assert [pruning.prune(steps=4) for _ in range(3)] == [4, 2, 0]
        assert not WorkflowStep.primary.exists()
        assert not Workflow.primary.exists()


def test_a_fetch_over_http_advances_too_at_most_once_in_an_interval() -> None:
    workflow = create(chain(job("a"), job("b")))
    ack.ack(take("a").id)
    last_query.reset()
    (claimed,) = fetch.fetch(["default"])
    assert claimed.type == "b"
    ack.ack(claimed.id)
    fetch.fetch(["default"])
    assert read(workflow).state == "running"
    last_query.reset()
    fetch.fetch(["default"])
    assert read(workflow).state == "completed"
