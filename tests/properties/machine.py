"""What may be done to jobs, each operation beside what the model says of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule

from django_ojs.operations import (
    ack,
    activate,
    beat,
    cancel,
    expiry,
    fail,
    fetch,
    promotion,
    queues,
    retry,
)
from django_ojs.operations import push as pushing
from django_ojs.operations.maintenance import job_pruning
from django_ojs.operations.workers import rescue
from django_ojs.spec.errors import ClaimLost, Conflict, JobNotFound
from django_ojs.storage.transitions import Claim
from tests.factories import BOOM, EnvelopeFactory, age_all, hourly, ids_against_time
from tests.properties.model import HOUR, Entry, Model
from tests.spec.test_states import ROWS

NEVER = 10**9

QUEUES = st.sampled_from(["a", "b", "c"])
WORKERS = st.sampled_from(["w1", "w2"])
# Waits end at odd hours and time passes in even ones: no test depends on how long a step takes.
WAITS = st.none() | st.sampled_from([1, 3, 5])
JOBS = st.fixed_dictionaries(
    {
        "queue": QUEUES,
        "priority": st.sampled_from([-3, 0, 0, 100]),
        "max_attempts": st.integers(1, 3),
        "due": WAITS,
        "expires": WAITS,
        "pending": st.sampled_from([False] * 4 + [True]),
    }
)


class Run(NamedTuple):
    """A claim, as long as a worker may remember it."""

    key: UUID
    worker: str
    run: int


def hours(number: int | None) -> timedelta | None:
    return None if number is None else timedelta(hours=number)


class JobRules(RuleBasedStateMachine):
    """Apply the same operations to the database and to the model, and compare the results."""

    known = Bundle("known")
    runs = Bundle("runs")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.example = transaction.atomic()
        self.example.__enter__()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.example.__exit__(None, None, None)

    @rule(target=known, wanted=st.lists(JOBS, min_size=1, max_size=4))
    def push(self, wanted: list[dict[str, Any]]) -> Any:
        keys = ids_against_time(len(wanted))
        envelopes = []
        for n, (key, values) in enumerate(zip(keys, wanted, strict=True)):
            given = dict(values)
            due, expires, pending = (given.pop(name) for name in ("due", "expires", "pending"))
            state = "pending" if pending else "scheduled" if due else "available"
            now = self.model.now
            self.model.jobs[key] = Entry(
                key=key,
                state=state,
                place=(now, n),
                due=now + (due or 0) * HOUR,
                expires=NEVER if expires is None else now + expires * HOUR,
                **given,
            )
            policy = hourly(given.pop("max_attempts"))
            times = {"scheduled_at": hours(due), "expires_at": hours(expires)}
            envelopes.append(
                EnvelopeFactory(id=key, retry=policy, pending=pending, **times, **given)
            )
        assert [job.id for job in pushing.push_batch(envelopes)] == keys
        return multiple(*keys)

    @rule(
        target=runs,
        names=st.lists(QUEUES, min_size=1, max_size=3, unique=True),
        count=st.integers(1, 5),
        worker=WORKERS,
    )
    def fetch(self, names: list[str], count: int, worker: str) -> Any:
        found = fetch.fetch(
            names, count=count, worker_id=worker, visibility_timeout=hours(1), due=False
        )
        assert [job.id for job in found] == self.model.fetch(names, count, worker)
        return multiple(*[Run(job.id, worker, job.run) for job in found])

    def response(
        self, run: Run, operation: Callable[[Claim], Any], after: Callable[..., Any]
    ) -> None:
        """Report an outcome under a claim: only a claim that is held may change the job."""
        claim = Claim(worker_id=run.worker, run=run.run)
        job = self.model.jobs.get(run.key)
        if job is None:
            with pytest.raises(JobNotFound):
                operation(claim)
        elif job.state != "active" or (job.worker, job.run) != (run.worker, run.run):
            with pytest.raises(Conflict) as caught:
                operation(claim)
            assert isinstance(caught.value, ClaimLost) is (job.state == "active")
        else:
            operation(claim)
            after(job)

    @rule(run=runs)
    def ack(self, run: Run) -> None:
        self.response(
            run,
            lambda claim: ack.ack(run.key, claim=claim),
            lambda job: self.model.move(job, "ack", "completed"),
        )

    @rule(run=runs)
    def fail(self, run: Run) -> None:
        self.response(
            run,
            lambda claim: fail.fail(run.key, BOOM, claim=claim),
            lambda job: self.model.lose(job, "fail", "retryable"),
        )

    @rule(run=runs, with_error=st.booleans())
    def requeue(self, run: Run, with_error: bool) -> None:
        def after(job: Entry) -> None:
            if with_error:
                job.note()
            self.model.move(job, "return", "available", returned=job.returned + 1)

        error = BOOM if with_error else None
        self.response(run, lambda claim: fail.requeue(run.key, error, claim=claim), after)

    @rule(run=runs, wait=st.sampled_from([1, 3]))
    def postpone(self, run: Run, wait: int) -> None:
        def after(job: Entry) -> None:
            # One after the other of the same reason are recorded once.
            if not job.is_postponed:
                job.note(is_postponed=True)
            due = self.model.now + wait * HOUR
            self.model.move(job, "fail", "retryable", due=due, returned=job.returned + 1)

        delay = timedelta(hours=wait)
        self.response(
            run, lambda claim: fail.postpone(run.key, BOOM, delay=delay, claim=claim), after
        )

    def held(self, claims: list[Run], worker: str) -> list[Entry]:
        return [
            job
            for job in self.model.of("active")
            if job.worker == worker and any((r.key, r.run) == (job.key, job.run) for r in claims)
        ]

    @rule(claims=st.lists(runs, max_size=4, unique=True), worker=WORKERS)
    def ack_batch(self, claims: list[Run], worker: str) -> None:
        held = self.held(claims, worker)
        done = ack.ack_batch(worker, [(run.key, run.run, None) for run in claims])
        assert done == {job.key for job in held}
        for job in held:
            self.model.move(job, "ack", "completed")

    @rule(claims=st.lists(runs, max_size=4, unique=True), worker=WORKERS)
    def give_back(self, claims: list[Run], worker: str) -> None:
        held = self.held(claims, worker)
        given = rescue.give_back([(run.key, run.run) for run in claims], worker_id=worker)
        assert given == len(held)
        for job in held:
            values = {"returned": job.returned + 1, "place": job.place}
            self.model.move(job, "return", "available", **values)

    def asked(self, key: UUID, event: str, target: str, operation: Any, **values: Any) -> None:
        """Ask for a change of one job; it happens where the table has the row, and nowhere else."""
        job = self.model.jobs.get(key)
        if job is None:
            with pytest.raises(JobNotFound):
                operation(key)
        elif (job.state, event, target) in ROWS:
            operation(key)
            if job.state == "active":
                job.note()
            self.model.move(job, event, target, **values)
        elif (event, job.state) == ("cancel", "cancelled"):
            operation(key)
        else:
            with pytest.raises(Conflict):
                operation(key)

    @rule(key=known)
    def cancel(self, key: UUID) -> None:
        self.asked(key, "cancel", "cancelled", cancel.cancel)

    @rule(key=known)
    def activate(self, key: UUID) -> None:
        self.asked(key, "activate", "available", activate.activate)

    @rule(key=known)
    def retry(self, key: UUID) -> None:
        job = self.model.jobs.get(key)
        ahead = job.expires if job is not None and job.expires > self.model.now else NEVER
        values = {"attempt": 0, "returned": 0, "dead": False, "expires": ahead}
        self.asked(key, "retry", "available", retry.retry, **values)

    @rule(worker=WORKERS)
    def beat(self, worker: str) -> None:
        mine = [job for job in self.model.of("active") if job.worker == worker]
        response = beat.beat(worker, holding=list(self.model.jobs), visibility_timeout=hours(1))
        assert response.jobs_extended == len(mine)
        assert response.lost == self.model.jobs.keys() - {job.key for job in mine}
        for job in mine:
            job.lease = self.model.now + HOUR

    @rule(number=st.sampled_from([2, 2, 4, 6]))
    def hours_pass(self, number: int) -> None:
        age_all(timedelta(hours=number))
        self.model.now += number * HOUR

    @rule()
    def promote(self) -> None:
        promotion.promote()
        self.model.promote()

    @rule()
    def expire(self) -> None:
        expiry.expire()
        self.model.expire()

    @rule()
    def lapse(self) -> None:
        lapsed = [job for job in self.model.of("active") if job.lease <= self.model.now]
        assert rescue.lapse() == len(lapsed)
        for job in lapsed:
            self.model.lose(job, "lapse", "available")

    @rule(worker=WORKERS)
    def rescue(self, worker: str) -> None:
        assert rescue.rescue([worker]) == self.model.rescue(worker)

    @rule()
    def prune(self) -> None:
        before = len(self.model.jobs)
        self.model.prune()
        assert job_pruning.prune() == before - len(self.model.jobs)

    @rule(name=QUEUES)
    def pause(self, name: str) -> None:
        queues.pause(name)
        self.model.paused.add(name)

    @rule(name=QUEUES)
    def resume(self, name: str) -> None:
        queues.resume(name)
        self.model.paused.discard(name)
