"""A step of the maintenance waits for no lock that another process holds by the same step.

On a machine without time, a step outlives the lease, and the next holder runs it as well. If that
one waited for the first, it would lose the lease too, until all processes stood in line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.extension import DueStep
from django_ojs.extensions.backpressure.models import Bound
from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.checkpoints.models import Checkpoint
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.events import commit_order
from django_ojs.extensions.events import storage as stored_events
from django_ojs.extensions.limits.models import LimitCheck, LimitedQueue
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.statistics import rollup_compaction, rollups
from django_ojs.extensions.steps.models import Step, StepSignal
from django_ojs.hooks import registry
from django_ojs.models import BulkOperationJob, Job, KnownName, Queue, Worker
from django_ojs.models.bulk_operation import BulkActionName
from django_ojs.models.known_name import NameKind
from django_ojs.operations import ack, queues
from django_ojs.operations.jobs import bulk_operations
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.progress import report
from django_ojs.operations.workers import rescue
from django_ojs.spec.progress import Report
from django_ojs.spec.states import State
from django_ojs.storage import database, in_memory_state
from django_ojs.storage.figures import counts
from django_ojs.worker import maintenance
from tests import factories
from tests import model_factories as rows
from tests.cases import begin_as_a_new_process
from tests.factories import HOUR, MINUTE, active, age, in_state, push
from tests.figures import note
from tests.operations.cron import scenes as cron_jobs
from tests.operations.workflows import scenes as workflows
from tests.other_session import Other, open_transaction, until_one_waits
from tests.worker.waiting import BOUND

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql,  # On SQLite, no transaction stays open beside one that writes.
]

YEARS = timedelta(days=4000)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a step has something to do with."""

    make: Callable[[], object]
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: What the first session does in place of the step, and the second one besides.
    first: Callable[[], object] | None = None
    second: Callable[[], object] | None = None
    #: The step itself executes no statement that locks.
    is_idle: bool = False


def silent_worker() -> None:
    factories.WorkerFactory(id="silent")
    factories.silence("silent", HOUR)
    factories.WorkerFactory(id="steady", interval=HOUR)
    Worker.primary.filter(pk="steady").update(steady_since=Now() - 3 * HOUR)


def lost_jobs() -> None:
    for _ in range(2):
        age(active(worker_id="silent", timeout_ms=1).id, 10 * HOUR)
    silent_worker()


def stalled_job() -> None:
    job = active()
    report(job.id, Report(progress=0.5))
    known = factories.read(job.id).progress
    Job.primary.update(progress={**known, "updated_at": "2020-01-01T00:00:00.000Z"})


def old_job_of_a_queue() -> None:
    queues.configure("short", {"retention": {"completed": "PT10M"}})
    age(in_state("completed", queue="short").pk, 20 * MINUTE)


def job_left_asleep() -> None:
    job = push(scheduled_at=HOUR)
    Step.primary.create(
        job_id=job.pk,
        number=0,
        name="n",
        kind="gather",
        outcome="waiting",
        signal="workflow",
        key=str(job.pk),
        run=1,
        started_at=Now(),
    )


def old_names() -> None:
    push(queue="in-use")
    for name in ("in-use", "gone"):
        KnownName.primary.create(kind=NameKind.QUEUE, name=name)
    KnownName.primary.update(created_at=Now() - YEARS)


def deleted_queues() -> None:
    for name in ("again", "gone"):
        in_state("completed", queue=name)
        queues.configure(name, {"max_envelope_bytes": 10_000})
        queues.delete(name)
    Job.primary.filter(queue="gone").delete()
    push(queue="again")


def wrong_rules() -> None:
    queues.configure("written", {"max_envelope_bytes": 10_000})
    Queue.primary.filter(pk="written").update(config={"concurrency": 1})


def crossing() -> None:
    # The jobs ran while others filled the queue up, so no enqueue has crossed the threshold.
    queues.configure("bounded", {"backpressure": {"max_depth": 10, "warning_threshold": 0.5}})
    for _ in range(8):
        push(queue="other", retry=factories.hourly())
    Job.primary.update(queue="bounded")


def bound_that_is_gone() -> None:
    for name in ("warned", "lost"):
        queues.configure(name, {"backpressure": {"max_depth": 4, "warning_threshold": 0.5}})
    for _ in range(3):
        push(queue="warned")
    queues.configure("warned", {"backpressure": {"max_depth": None}})
    Bound.primary.filter(pk="lost").delete()


def bulk_retry() -> None:
    for _ in range(3):
        in_state("discarded")
    which = JobFilter(states=(State.DISCARDED,))
    bulk_operations.order(BulkActionName.RETRY, which, by="ann")


def old_bulk_operation() -> None:
    operation = rows.BulkOperationFactory(state="done", finished_at=Now() - YEARS)
    BulkOperationJob.primary.create(operation=operation, job_id=push().pk)


def left_checkpoint() -> None:
    job = active()
    checkpoint.save(job.id, {"page": 4})
    left = list(Checkpoint.primary.all())
    ack.ack(job.id)
    Checkpoint.primary.bulk_create(left)


def due_cron_jobs() -> None:
    for name in ("one", "other"):
        cron_jobs.register(name)
    cron_jobs.make_due("one", "other", ago=MINUTE)


def late_cron_job() -> None:
    cron_jobs.register("report", expression="* * * * *")
    CronJob.primary.update(due_at=F("due_at") + HOUR, next_run_at=F("next_run_at") + HOUR)


def old_events() -> None:
    for position in (1, 2):
        rows.EventFactory(position=position, time=Now() - YEARS)


def limited_jobs(number: int = 2) -> None:
    factories.push_limited(number=number, concurrency=1)
    (running,) = factories.claim_limited()
    ack.ack(running.id)


def lost_journal() -> None:
    limited_jobs()
    LimitCheck.primary.all().delete()
    Queue.primary.update(rules=0)


def outbox_entries() -> None:
    for queue in ("a", "a", "b"):
        factories.put(factories.EnvelopeFactory(queue=queue))
    commit_order.assign(OutboxEntry, database.alias())


def sent_entries() -> None:
    rows.OutboxEntryFactory(state="sent", sent_at=Now() - YEARS)
    rows.OutboxEntryFactory(state="rejected", created_at=Now() - YEARS)


def split_minutes(ago: timedelta) -> None:
    hour = (timezone.now() - ago).replace(minute=0, second=0, microsecond=0)
    rows.RollupFactory.create_batch(3, minute=hour + MINUTE)


def unmarked_job() -> None:
    queues.configure("shared", {"tenant_limits": {"max_queue_depth": 5}})
    push(queue="shared", meta={"tenant_id": "acme"})
    Job.primary.update(marks=0)


def events_for_a_webhook() -> None:
    rows.SubscriptionFactory(events=("queue.*",))
    rows.EventFactory()
    stored_events.assign_positions()


def old_delivery() -> None:
    webhook, _ = rows.SubscriptionFactory()
    rows.WebhookDeliveryFactory(webhook=webhook, created_at=Now() - YEARS)


def workflows_to_advance() -> None:
    for name in ("a", "b"):
        workflows.create(workflows.chain(workflows.job(name), workflows.job(f"then-{name}")))
        ack.ack(workflows.take(name).id)
    # The job of a workflow that was pruned.
    rows.EndedWorkflowJobFactory()


def old_workflow() -> None:
    workflow = rows.WorkflowFactory(state="cancelled", finished_at=Now() - YEARS)
    rows.WorkflowStepFactory(workflow_id=workflow.pk)


def figures() -> None:
    note(rollups.COMPLETED, "a", "t")
    rollups.accumulator.written_at -= 2 * rollups.DUE
    rollups.flush_if_due()


def _run(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


CASES: dict[str, Case] = {
    "operations.due_jobs.DueCheck.promote": Case(
        make=lambda: age(push(scheduled_at=HOUR).pk, 2 * HOUR)
    ),
    "operations.expiry.expire": Case(make=lambda: age(push(expires_at=HOUR).pk, 2 * HOUR)),
    "operations.workers.rescue.DeadWorkers.take_back": Case(
        make=lost_jobs,
        # The step locks the rows of the workers first, in a transaction of its own.
        first=lambda: rescue.rescue(["silent"]),
        second=lambda: rescue.rescue(["silent"]),
    ),
    "operations.workers.rescue.LapseCheck.lapse": Case(make=lost_jobs),
    "operations.maintenance.timeouts.enforce_for_a_moment": Case(make=lost_jobs),
    "operations.maintenance.stalled.tell_stalled": Case(
        make=stalled_job, settings={"KEEP_EVENTS": ["progress.stalled"]}
    ),
    "storage.figures.counts.CountKeeper.fold": Case(make=push),
    "storage.figures.counts.CountKeeper.vacuum_counts": Case(
        make=push,
        # What VACUUM locks: it runs in no transaction.
        first=lambda: _run("LOCK TABLE ojs_count_change IN SHARE UPDATE EXCLUSIVE MODE"),
        second=counts.vacuum,
        is_idle=True,
    ),
    "operations.maintenance.job_pruning.prune": Case(
        make=lambda: age(in_state("completed").pk, YEARS)
    ),
    "operations.maintenance.job_pruning.QueuePruner.prune": Case(make=old_job_of_a_queue),
    "operations.access.known_names.prune": Case(make=old_names),
    "operations.queue_rows.settle_deleted": Case(make=deleted_queues),
    "operations.queue_rows.put_rules_right": Case(make=wrong_rules),
    "extensions.audit.storage.prune": Case(make=lambda: rows.AuditEntryFactory(pk=1)),
    "extensions.backpressure.operations.pressure_monitor.check_all": Case(make=crossing),
    "extensions.backpressure.operations.pressure_monitor.restore_bounds": Case(
        make=bound_that_is_gone
    ),
    "operations.jobs.bulk_execution.work": Case(make=bulk_retry),
    "operations.jobs.bulk_operations.prune": Case(make=old_bulk_operation),
    "operations.jobs.bulk_operations.prune_followed": Case(make=old_bulk_operation),
    "extensions.checkpoints.pruning.CheckpointPruner.prune": Case(make=left_checkpoint),
    "extensions.cron.extension._fire": Case(make=due_cron_jobs),
    "extensions.cron.operations.tick.fire_if_due": Case(make=due_cron_jobs),
    "extensions.cron.operations.clock.put_right": Case(make=late_cron_job),
    "extensions.cron.operations.pruning.RunPruner.prune": Case(
        make=lambda: rows.CronRunFactory(triggered_at=Now() - YEARS)
    ),
    "extensions.events.storage.assign_positions": Case(
        make=rows.EventFactory,
        # It assigns none in a caller's transaction. It asks for the lock for a moment, because
        # readers of the events hold it, too.
        first=lambda: database.dialect().lock_subject(database.connection(), "ojs_event"),
        is_idle=True,
    ),
    "extensions.events.operations.log.prune": Case(make=old_events),
    "reports.incidents.look_and_forget": Case(make=lambda: queues.pause(push().queue)),
    "extensions.limits.pruning.StartsPruner.prune": Case(
        make=lambda: LimitedQueue.primary.create(queue="a")
    ),
    "extensions.limits.limit_journal.open_due": Case(make=limited_jobs),
    "extensions.limits.claims_by_key.recheck": Case(make=lost_journal),
    "extensions.limits.claims_by_key.prune": Case(
        make=lambda: rows.LimitKeyFactory(key="k", expires_at=Now() - YEARS)
    ),
    "extensions.outbox.local.deliver": Case(make=outbox_entries),
    "extensions.outbox.operations.prune": Case(make=sent_entries),
    "extensions.payloads.sweep.Sweeper.start": Case(
        # It starts a thread, which only reads from the database.
        make=lambda: None,
        is_idle=True,
    ),
    "extensions.statistics.extension.fold": Case(make=lambda: split_minutes(HOUR)),
    "extensions.statistics.rollup_compaction.coarsen": Case(
        make=lambda: split_minutes(rollup_compaction.MINUTES + 2 * HOUR)
    ),
    "extensions.statistics.rollups.flush_if_due": Case(
        # A process has its own figures.
        make=lambda: None,
        first=figures,
        second=figures,
    ),
    "extensions.steps.gathering.LeftAsleep.wake": Case(make=job_left_asleep),
    "extensions.steps.pruning.prune_signals": Case(
        make=lambda: StepSignal.primary.create(
            name="n", key="k", payload="1", sent_at=Now() - YEARS
        )
    ),
    "extensions.tenants.storage.JobMarker.mark_all": Case(make=unmarked_job),
    "extensions.webhooks.operations.dispatch.WebhookDispatcher.dispatch": Case(
        make=events_for_a_webhook
    ),
    "extensions.webhooks.operations.dispatch.prune": Case(make=old_delivery),
    "extensions.workflows.operations.advance.advance_if_due": Case(make=workflows_to_advance),
    "extensions.workflows.operations.pruning.prune": Case(make=old_workflow),
}


def steps_of_a_new_process() -> Iterator[tuple[str, Callable[[], object]]]:
    """Return what the thread of the maintenance calls, with or without the lease, by its name."""
    in_memory_state.reset()
    behind = maintenance.BEHIND
    due: list[DueStep] = [
        *maintenance._steps(rescue.DeadWorkers("other")),
        *registry.brought("due_steps", of=DueStep),
        *maintenance._helping_steps(),
        *registry.brought("helping_steps", behind, of=DueStep),
    ]
    for run in [*(step.run for step in due), *(hook for _, hook in registry.worker_passes)]:
        function: Any = run
        while isinstance(function, partial):
            function = function.func
        yield f"{function.__module__}.{function.__qualname__}".removeprefix("django_ojs."), run


def do(name: str) -> None:
    """Do a step as the thread of the maintenance does; a check of workers needs two calls."""
    for each, run in list(steps_of_a_new_process()):
        if each == name:
            with database.passing_by():
                run()
                run()


def test_each_step_has_a_case() -> None:
    assert set(CASES) == {name for name, _ in steps_of_a_new_process()}


@pytest.mark.parametrize("name", CASES)
def test_a_step_waits_for_no_other_process_in_the_same_step(name: str, settings: Any) -> None:
    case = CASES[name]
    settings.OJS = settings.OJS | case.settings
    case.make()
    begin_as_a_new_process()

    def first() -> None:
        if case.first is None:
            do(name)
        else:
            case.first()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
            # A transaction that has neither changed nor locked a row has no number.
            assert cursor.fetchone()[0] or case.is_idle, "the step had nothing to do"

    def second() -> None:
        do(name)
        if case.second is not None:
            case.second()

    with open_transaction(first) as commit:
        with Other() as other:
            done = other.do(second)
            until_one_waits(done)
            assert done.done(), "it waits for the lock of the other session"
            done.result(BOUND)
        commit()
    # What was left to the first session is done.
    second()
