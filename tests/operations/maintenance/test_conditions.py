"""The conditions of the steps of maintenance: each says what its step would find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db.models.functions import Now

from django_ojs.extensions.backpressure import storage as bounds
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.cron.operations import tick
from django_ojs.extensions.cron.operations.pruning import RunPruner
from django_ojs.extensions.events import storage as stored_events
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.limits import limit_journal
from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.extensions.statistics import extension as statistics
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.webhooks.operations import dispatch
from django_ojs.extensions.workflows import storage as workflows_storage
from django_ojs.extensions.workflows.operations import pruning as workflow_pruning
from django_ojs.models import Worker
from django_ojs.operations import expiry, promotion, queues
from django_ojs.operations.jobs import bulk_execution
from django_ojs.operations.maintenance import job_pruning, timeouts
from django_ojs.operations.workers.rescue import DeadWorkers, lapsed_condition
from django_ojs.storage import database, raw_queries
from django_ojs.storage.figures import counts
from tests import factories
from tests import model_factories as rows
from tests.operations.cron import scenes as cron_jobs

pytestmark = pytest.mark.django_db

YEARS = timedelta(days=4000)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def due_job() -> None:
    factories.age(factories.push(scheduled_at=HOUR).pk, 2 * HOUR)


def failed_job_that_is_due() -> None:
    factories.age(factories.in_state("retryable").pk, 2 * HOUR)


def expired_job() -> None:
    factories.age(factories.push(expires_at=HOUR).pk, 2 * HOUR)


def due_cron_job() -> None:
    cron_jobs.register("c")
    CronJob.primary.update(due_at=Now() - HOUR)


def silent_worker() -> None:
    factories.WorkerFactory(id="silent")
    factories.silence("silent", HOUR)
    factories.WorkerFactory(id="steady", interval=HOUR)
    Worker.primary.filter(pk="steady").update(steady_since=Now() - 3 * HOUR)


def lapsed_lease() -> None:
    factories.age(factories.active(worker_id="silent").id, 10 * HOUR)
    silent_worker()


Make = Callable[[], object]

#: By the condition: what makes it hold, and what does not.
CONDITIONS: dict[Callable[[], str], tuple[list[Make], list[Make]]] = {
    promotion.due_condition: (
        [due_job, failed_job_that_is_due],
        [lambda: factories.push(scheduled_at=HOUR), factories.push],
    ),
    expiry.expired_condition: ([expired_job], [lambda: factories.push(expires_at=HOUR)]),
    tick.due_condition: (
        [due_cron_job],
        [lambda: cron_jobs.register("c")],
    ),
    workflows_storage.due_condition: (
        [
            lambda: rows.WorkflowStepFactory(state="ready"),
            lambda: rows.WorkflowStepFactory(state="ready", start_after=Now() - HOUR),
            rows.EndedWorkflowJobFactory,
        ],
        [lambda: rows.WorkflowStepFactory(state="ready", start_after=Now() + HOUR)],
    ),
    limit_journal.due_condition: (
        [lambda: rows.LimitCheckFactory(due_at=Now() - HOUR)],
        [lambda: rows.LimitCheckFactory(due_at=Now() + HOUR)],
    ),
    lambda: DeadWorkers().condition(): (
        [silent_worker],
        [lambda: factories.WorkerFactory(id="live")],
    ),
    lapsed_condition: (
        [lapsed_lease],
        [factories.active, lambda: factories.age(factories.active().id, 10 * HOUR)],
    ),
    timeouts.active_condition: ([factories.active], [factories.push]),
    bounds.any_condition: (
        [
            lambda: queues.configure("q", {"backpressure": {"max_depth": 5}}),
            lambda: queues.configure("q", {"backpressure": {"max_size_bytes": 5000}}),
        ],
        [lambda: queues.configure("q", {"concurrency": 5})],
    ),
    bulk_execution.open_condition: (
        [
            lambda: rows.BulkOperationFactory(state="pending"),
            lambda: rows.BulkOperationFactory(state="running"),
        ],
        [lambda: rows.BulkOperationFactory(state="done")],
    ),
    dispatch.active_condition: (
        [rows.SubscriptionFactory],
        [lambda: rows.SubscriptionFactory(active=False)],
    ),
    local.condition: (
        [rows.OutboxEntryFactory],
        [lambda: rows.OutboxEntryFactory(state="sent", sent_at=Now())],
    ),
    stored_events.unsettled_condition: (
        [rows.EventFactory],
        [lambda: rows.EventFactory(position=1)],
    ),
    log.old_condition: (
        [lambda: rows.EventFactory(position=1, time=Now() - YEARS)],
        [lambda: rows.EventFactory(position=1)],
    ),
    job_pruning.condition: (
        [
            lambda state=state: factories.age(factories.in_state(state).pk, YEARS)  # type: ignore[misc]  # its default binds the state
            for state in ("completed", "cancelled", "discarded")
        ],
        [
            lambda: factories.age(factories.push().pk, YEARS),
            lambda: factories.in_state("completed"),
        ],
    ),
    workflow_pruning.condition: (
        [lambda: rows.WorkflowFactory(state="cancelled", finished_at=Now() - YEARS)],
        [],
    ),
    RunPruner().condition: (
        [lambda: rows.CronRunFactory(triggered_at=Now() - YEARS)],
        [],
    ),
    statistics.condition: (
        [
            lambda: rows.RollupFactory.create_batch(2, ago=5 * MINUTE),
            lambda: rows.RollupFactory(ago=YEARS),
        ],
        [lambda: rows.RollupFactory(ago=5 * MINUTE), lambda: rows.RollupFactory.create_batch(2)],
    ),
    outbox.old_condition: (
        [
            lambda: rows.OutboxEntryFactory(state="sent", sent_at=Now() - YEARS),
            lambda: rows.OutboxEntryFactory(state="rejected", created_at=Now() - YEARS),
        ],
        [
            lambda: rows.OutboxEntryFactory(state="pending", created_at=Now() - YEARS),
            lambda: rows.OutboxEntryFactory(
                state="rejected", created_at=Now() - YEARS, sent_at=Now()
            ),
        ],
    ),
}

HOLDS = [(condition, make) for condition, (makes, _) in CONDITIONS.items() for make in makes]
HOLDS_NOT = [(condition, make) for condition, (_, makes) in CONDITIONS.items() for make in makes]


@pytest.mark.parametrize(("condition", "make"), HOLDS)
def test_it_holds_while_there_is_something_to_do(condition: Callable[[], str], make: Make) -> None:
    assert raw_queries.which_hold([condition()]) == [False]
    make()
    assert raw_queries.which_hold([condition()]) == [True]


@pytest.mark.parametrize(("condition", "make"), HOLDS_NOT)
def test_it_does_not_hold_otherwise(condition: Callable[[], str], make: Make) -> None:
    make()
    assert raw_queries.which_hold([condition()]) == [False]


def test_they_are_asked_together_in_their_order() -> None:
    due_job()
    rows.EventFactory()
    found = raw_queries.which_hold([condition() for condition in CONDITIONS])
    wanted = {promotion.due_condition, stored_events.unsettled_condition}
    assert {each for each, holds in zip(CONDITIONS, found, strict=True) if holds} == wanted


def test_what_is_due_for_a_while_is_that_much_later() -> None:
    due_job()
    expired_job()
    due_cron_job()
    for condition in (
        promotion.due_condition,
        expiry.expired_condition,
        tick.due_condition,
    ):
        asked = [condition(timedelta(minutes=50)), condition(timedelta(minutes=70))]
        assert raw_queries.which_hold(asked) == [True, False]


def test_changes_of_the_counts_hold_until_they_are_folded() -> None:
    assert not raw_queries.holds(counts.changes_condition())
    factories.push()
    # On SQLite there is nothing to fold.
    assert raw_queries.holds(counts.changes_condition()) == (counts.fold() > 0)
    assert not raw_queries.holds(counts.changes_condition())


@pytest.mark.postgresql
def test_a_session_that_ended_holds_and_is_dead_only_in_two_checks_in_a_row() -> None:
    gone = datetime.fromisoformat("2026-01-01T00:00:00Z")
    factories.WorkerFactory(session=(1, gone))
    dead = DeadWorkers()
    assert raw_queries.holds(dead.condition())
    assert dead.take_back() == 0
    dead.none_found()
    assert dead.take_back() == 0
    assert Worker.primary.exists()
    assert dead.take_back() == 0
    assert not Worker.primary.exists()


def test_ages_longer_than_any_database_subtracts_are_no_error() -> None:
    factories.in_state("completed")
    assert not raw_queries.holds(
        f"({raw_queries.is_older(Rollup, 'minute', '1 = 1', timedelta.max)})"
    )
    assert database.dialect().ago(0.5)
