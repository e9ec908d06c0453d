"""Failed runs that are stored together become what each becomes by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_ojs import signals
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import cancel, fail, fetch, promotion, queues
from django_ojs.operations import push as pushing
from django_ojs.operations.enqueue.result import EnqueuedJob
from django_ojs.operations.workers import rescue
from django_ojs.spec.failure import DeadLetter, Discard, Failure, Retry
from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.unique_policy import UniquePolicy
from django_ojs.storage import claimed_job
from django_ojs.storage.claimed_job import Claimed
from tests.factories import (
    BOOM,
    HOUR,
    MINUTE,
    WORKER,
    EnvelopeFactory,
    active,
    age,
    checks_are_due,
    claim,
    held,
    hourly,
    is_duplicate,
    push,
    read,
    snapshot,
)
from tests.operations.test_history_failures import without_history
from tests.operations.workflows import scenes
from tests.receivers import receiving

pytestmark = pytest.mark.django_db(transaction=True)

FAILED, TIMEOUT = AttemptOutcome.FAILED, AttemptOutcome.TIMEOUT

POLICIES = [
    RetryPolicy(),
    hourly(1),
    hourly(1, on_exhaustion="discard"),
    RetryPolicy(max_attempts=2, backoff_strategy="linear", initial_interval=1.2345678),
    RetryPolicy(max_attempts=5, non_retryable_errors=("gateway.*",)),
    # Longer than the calendars of some databases.
    RetryPolicy(initial_interval="P1000Y", max_interval="P1000Y", jitter=False),
]
RAISED = (Retry("later", delay=90.0015), Retry("now", delay=0), Discard(), DeadLetter())
FAILURES = [
    BOOM,
    Failure(type="gateway.Down", message="ż 'quoted' \\ %s {0} \N{PILE OF POO}"),
    Failure(type="X", message="", backtrace=("a.py:1 in f", "b.py:2 in g"), details={"n": [1e300]}),
    Failure(type="X", message="no more", retryable=False, exception_class="tests.Boom"),
    *map(Failure.from_exception, RAISED),
]
#: What differs between two jobs that are the same otherwise.
_OWN = {"id", "pk", "job_id", "queue", "original_queue", "size_bytes"}


def rows_of(job: Claimed, since: datetime) -> Any:
    """Return what is stored about a failed job and its runs; of times, whether they are near."""
    stored = snapshot(job.id)
    waits = None
    if stored["job"]["due_at"] is not None:
        due = (stored["job"]["due_at"] - stored["attempts"][-1]["finished_at"]).total_seconds()
        waits = pytest.approx(due, abs=30)
    return {
        "job": _plain(stored["job"], since),
        "queues": (stored["job"]["queue"][:6], stored["job"]["original_queue"]),
        "attempts": [_plain(row, since) for row in stored["attempts"]],
        "waits": waits,
    }


def _plain(row: dict[str, Any], since: datetime) -> dict[str, Any]:
    return {
        name: (value >= since if name != "due_at" else "due") if _is_time(value) else value
        for name, value in row.items()
        if name not in _OWN
    }


def _is_time(value: object) -> bool:
    return isinstance(value, datetime)


def events_of(job: Claimed) -> list[Any]:
    """Return the events of a job, without its names and times."""
    own = {"job_id", "queue", "next_retry_at"}
    return [
        (event.type, {name: value for name, value in event.data.items() if name not in own})
        for event in Event.primary.filter(subject=str(job.id)).order_by("pk")
    ]


@contextmanager
def received() -> Iterator[list[tuple[str, UUID, str, str]]]:
    """Collect what the receivers of the signals of failures get."""
    found: list[tuple[str, UUID, str, str]] = []
    names = ("job_failed", "job_retrying", "job_discarded")

    def receiver(name: str) -> Callable[..., None]:
        def receive(job: Job, failure: Failure, **_: Any) -> None:
            # All columns are there: a receiver is given the whole job.
            assert not job.get_deferred_fields()
            found.append((name, job.pk, job.queue, failure.type))

        return receive

    with ExitStack() as stack:
        for name in names:
            stack.enter_context(receiving(receiver(name), getattr(signals, name)))
        yield found


def figures_of(queue: str) -> Any:
    """Return what was counted of a queue, over all minutes."""
    rollups.flush()
    names = ("failed", "discarded", "completed", "lost")
    rows = Rollup.objects.filter(queue=queue).values_list(*names)
    return {name: sum(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def test_together_they_have_the_rows_the_events_the_signals_and_the_figures_of_each_by_itself(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OJS = {"KEEP_EVENTS": ["job.failed", "job.retrying", "job.discarded"]}
    monkeypatch.setattr(fail.random, "random", lambda: 0.25)
    queues.configure("single", {"dead_letter_queue": "dead"})
    queues.configure("joined", {"dead_letter_queue": "dead"})
    cases = [
        (policy, failure, runs, outcome)
        for policy in POLICIES
        for failure in FAILURES
        for runs, outcome in ((1, FAILED), (2, TIMEOUT))
    ]
    claimed: dict[str, list[Claimed]] = {}
    for queue in ("single", "joined"):
        claimed[queue] = []
        for policy, _, runs, _ in cases:
            job = active(queue=queue, retry=policy)
            if runs == 2:
                fail.requeue(job.id, BOOM)
                job = claim(read(job.id))
            claimed[queue].append(job)
    age([job.id for each in claimed.values() for job in each], HOUR)
    since = timezone.now() - HOUR / 2

    with received() as one_by_one:
        for job, (_, failure, _, outcome) in zip(claimed["single"], cases, strict=True):
            fail.fail(job.id, failure, claim=held(job), outcome=outcome)
    figures = figures_of("single")
    with received() as at_once:
        stored = fail.fail_batch(
            WORKER,
            [(job, case[1], case[3]) for job, case in zip(claimed["joined"], cases, strict=True)],
        )
    assert figures_of("joined") == figures
    assert figures["failed"] == len(cases) > figures["discarded"] > 0

    states = set()
    for single, joined, case in zip(claimed["single"], claimed["joined"], cases, strict=True):
        one, other = rows_of(single, since), rows_of(joined, since)
        one["queues"] = tuple(q and q.replace("single", "joined") for q in one["queues"])
        assert other == one, case
        assert events_of(joined) == events_of(single) != [], case
        said, row = stored[joined.id, joined.run], read(joined.id)
        assert said[:3] == (row.state, row.spent, row.max_attempts), case
        assert said.dead_letter == row.dead_letter, case
        if row.state == "retryable":
            assert said.due_at is not None
            assert row.due_at is not None
            assert abs(said.due_at - row.due_at) < HOUR / 2, case
        else:
            assert said.due_at is None
        states.add((row.state, row.dead_letter, row.discard_reason))
    assert len(states) == 7, "the cases have every end"
    # In the order of the runs, as one after the other.
    assert [(name, type) for name, _, _, type in at_once] == [
        (name, type) for name, _, _, type in one_by_one
    ]
    assert [key for name, key, _, _ in at_once if name == "job_failed"] == [
        job.id for job in claimed["joined"]
    ]
    assert {queue for _, _, queue, _ in at_once} == {"joined"}


@pytest.mark.statements
def test_a_group_of_any_size_takes_the_same_few_statements(settings: Any) -> None:
    settings.OJS = {"KEEP_EVENTS": []}
    for number in (2, 5):
        jobs = [active(retry=hourly(attempts)) for attempts in (1, 2) for _ in range(number)]
        with CaptureQueriesContext(connection) as captured:
            fail.fail_batch(WORKER, [(job, BOOM, FAILED) for job in jobs])
        said = [each["sql"].partition("\n")[0] for each in captured if "json" in each["sql"]]
        # The claims, the histories, those that wait, and those that are discarded.
        assert len(said) == 4, said
        # No row is read again where no extension needs it.
        assert not any('FROM "ojs_job"' in each["sql"] for each in captured)


def test_a_policy_is_kept_for_the_other_jobs_with_the_same_options_unless_these_are_long() -> None:
    claimed_job._policy_of.cache_clear()
    one, other, hers = active(retry=hourly(2)), active(retry=hourly(2)), active(retry=hourly(3))
    long = active(retry=RetryPolicy(max_attempts=4, extra={"x_note": "n" * 2_000}))
    assert one.retry_policy is other.retry_policy
    attempts = [job.retry_policy.max_attempts for job in (one, other, hers, long)]
    assert attempts == [2, 2, 3, 4]
    assert claimed_job._policy_of.cache_info().currsize == 2


def test_only_runs_that_the_worker_still_holds_are_changed() -> None:
    again = {"queue": "again", "retry": hourly()}
    ours, cancelled, gone, completed = (active(retry=hourly()) for _ in range(4))
    taken_over, lapsed, claimed_anew = active(), active(retry=hourly()), active(**again)
    of_another = active("worker-b")
    for job in (taken_over, lapsed, claimed_anew):
        age(job.id, HOUR)
    rescue.lapse()
    claim(read(taken_over.id), "worker-b")
    # The same worker has claimed it once more, and both runs have failed.
    second = claim(read(claimed_anew.id))
    cancel.cancel(cancelled.id)
    fail.fail(completed.id, BOOM)
    Job.primary.filter(pk=gone.id).delete()
    changed = [cancelled, taken_over, lapsed, completed, of_another]
    before = [snapshot(job.id) for job in changed]
    runs = [*changed, gone, claimed_anew, ours, second]
    stored = fail.fail_batch(WORKER, [(job, BOOM, FAILED) for job in runs])
    assert set(stored) == {(ours.id, ours.run), (second.id, second.run)}
    assert [snapshot(job.id) for job in changed] == before
    assert [read(job.id).state for job in (ours, second)] == ["retryable", "retryable"]
    assert [row.run for row in Attempt.primary.filter(job_id=second.id).order_by("pk")] == [1, 2]
    # A second time, nothing is held.
    assert fail.fail_batch(WORKER, [(job, BOOM, FAILED) for job in runs]) == {}
    assert Attempt.primary.filter(job_id=ours.id).count() == 1


def test_histories_that_cannot_be_stored_do_not_hold_up_the_jobs() -> None:
    runs = [active(retry=hourly(attempts)) for attempts in (1, 2)]
    with without_history():
        fail.fail_batch(WORKER, [(job, BOOM, FAILED) for job in runs])
        assert [read(job.id).state for job in runs] == ["discarded", "retryable"]
    assert not Attempt.primary.exists()


def test_a_limit_a_unique_key_and_a_workflow_learn_of_it_as_of_each_by_itself() -> None:
    limited = [push(queue="one", rate_limit={"key": "k", "concurrency": 1}) for _ in range(2)]
    (first,) = fetch.fetch(["one"], worker_id=WORKER, count=2)
    policy = UniquePolicy(keys=("type", "queue"), on_conflict="ignore")
    unique = active(queue="u", retry=hourly(1), unique=policy)
    flow = scenes.create(scenes.chain(scenes.job("a", retry={"max_attempts": 1}), scenes.job("b")))
    (step,) = fetch.fetch(["default"], worker_id=WORKER)
    fail.fail_batch(WORKER, [(job, BOOM, FAILED) for job in (first, unique, step)])
    checks_are_due()
    assert [job.id for job in fetch.fetch(["one"], worker_id=WORKER)] == [limited[1].pk]
    assert not is_duplicate(push_unique(policy))
    workflows.advance_due()
    assert scenes.read(flow).state == "failed"


def push_unique(policy: UniquePolicy) -> EnqueuedJob:
    return pushing.push(EnvelopeFactory(queue="u", unique=policy))


def test_the_backtrace_is_left_out_where_the_settings_say_so(settings: Any) -> None:
    settings.OJS = {"BACKTRACES": False}
    jobs = [active(), active()]
    failure = Failure(type="X", message="", backtrace=("a.py:1 in f",))
    fail.fail_batch(WORKER, [(job, failure, FAILED) for job in jobs])
    assert ["backtrace" in read(job.id).error for job in jobs] == [False, False]
    assert timedelta(0) < read(jobs[0].id).due_at - jobs[0].started_at


def test_jobs_that_are_postponed_together_are_as_those_that_are_postponed_alone() -> None:
    unknown = Failure(type="unknown_job_type", message="no handler")
    alone, first, second, lost = (active() for _ in range(4))
    fail.postpone(alone.id, unknown, delay=MINUTE)
    claims = [(first.id, first.run), (second.id, second.run), (lost.id, lost.run + 1)]
    received: list[UUID] = []
    with receiving(lambda job, **values: received.append(job.pk), signals.job_returned):
        fail.postpone_batch(WORKER, claims, unknown, delay=MINUTE)
    assert set(received) == {first.id, second.id}
    assert read(lost.id).state == "active"
    shown = [
        {name: getattr(read(job.id), name) for name in ("state", "spent", "error", "worker_id")}
        for job in (alone, first, second)
    ]
    assert shown[0]["spent"] == 0
    assert shown == [shown[0]] * 3
    for job in (first, second):
        (run,) = read(job.id).attempts.all()
        assert (run.outcome, run.retry_delay_ms) == ("returned", 60_000)
        age(job.id, HOUR)
    promotion.promote()
    again = [claim(read(job.id)) for job in (first, second)]
    with CaptureQueriesContext(connection) as captured:
        fail.postpone_batch(WORKER, [(job.id, job.run) for job in again], unknown, delay=MINUTE)
    assert len(captured) < 12
    # The reason is recorded once.
    assert [read(job.id).attempts.count() for job in again] == [1, 1]
