"""All operations in any order, stale claims among them, against a model that fits on a page."""

from __future__ import annotations

import os
from datetime import timedelta
from uuid import UUID

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from django_ojs.extension import Change, Extension, Hooks
from django_ojs.hooks import registry
from django_ojs.spec.states import Trigger
from django_ojs.storage.figures import counts
from tests.factories import age_all, jobs
from tests.properties.machine import JobRules
from tests.properties.model import ENDED, KEEP, KEEP_DEAD
from tests.sizes import FULL
from tests.spec.test_states import ROWS

# More on demand: OJS_TEST_EXAMPLES=2000.
EXAMPLES = int(os.environ.get("OJS_TEST_EXAMPLES", "200" if FULL else "20"))
STEPS = 40
PAIRS = {(source, target) for source, _, target in ROWS}


class Follower(Extension):
    """Knows the state of each job by the changes that it is told alone."""

    name = "follower"
    number = 50

    def __init__(self) -> None:
        self.states: dict[UUID, str] = {}

    def hooks(self) -> Hooks:
        return Hooks(changed=dict.fromkeys(Trigger, self.follow))

    def follow(self, change: Change) -> None:
        assert change.before
        assert change.before.keys() == change.after.keys()
        for key, left in change.before.items():
            # A change that is told twice, or of which none was told, does not begin here.
            assert self.states[key] == left, (change.trigger, key)
            assert (left, change.trigger, change.after[key]) in ROWS
            self.states[key] = change.after[key].value


class Machine(JobRules):
    """The rules, and what must be so after each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[UUID, str] = {}
        self.follower = Follower()
        registry.register(self.follower)

    def teardown(self) -> None:
        registry.remove(self.follower)
        super().teardown()

    @invariant()
    def each_change_of_a_state_was_told_once(self) -> None:
        now = {job.pk: job.state for job in jobs()}
        new = now.keys() - self.follower.states.keys()
        # PUSH is no change of a state.
        assert {now[key] for key in new} <= {"available", "scheduled", "pending"}
        known = {key: state for key, state in self.follower.states.items() if key in now}
        assert known == {key: state for key, state in now.items() if key not in new}
        self.follower.states = now

    @invariant()
    def every_job_is_as_the_model_says(self) -> None:
        found = {job.pk: job for job in jobs()}
        assert found.keys() == self.model.jobs.keys()
        for key, expected in self.model.jobs.items():
            job = found[key]
            assert (job.state, job.attempt, job.run, job.returned, job.dead_letter) == (
                expected.state,
                expected.attempt,
                expected.run,
                expected.returned,
                expected.dead,
            )
            assert (job.worker_id, job.lease_until is None) == (expected.worker, False) or (
                job.state != "active" and job.lease_until is None
            )
            assert (job.finished_at is not None) is (job.state in ENDED)

    @invariant()
    def only_rows_of_the_table_were_taken(self) -> None:
        now = {job.pk: job.state for job in jobs()}
        moved = {(self.before.get(key), state) for key, state in now.items()}
        assert {(old, new) for old, new in moved if old != new} <= PAIRS
        self.before = now

    @invariant()
    def the_counts_are_the_sums_of_the_rows(self) -> None:
        counted = {
            (queue, state.value): number
            for queue, states in counts.by_queue().items()
            for state, number in states.items()
        }
        assert counted == self.model.counts()
        traces = jobs().filter(attempts__isnull=False).values_list("pk", "attempts__id")
        assert len(traces) == sum(job.traces for job in self.model.jobs.values())

    @invariant()
    def a_second_passes(self) -> None:
        # What happens in two steps happens at two times, on clocks that stop at milliseconds too.
        age_all(timedelta(seconds=1))
        self.model.now += 1


@pytest.mark.sized
@pytest.mark.django_db
@pytest.mark.timeout(600 + EXAMPLES)
@override_settings(
    OJS={
        "KEEP_COMPLETED": KEEP,
        "KEEP_CANCELLED": KEEP,
        "KEEP_DISCARDED": KEEP,
        "KEEP_DEAD_LETTERS": KEEP_DEAD,
    }
)
def test_whatever_is_done_in_whatever_order_the_jobs_are_as_the_model_says() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            # Every step is some statements; how long an example takes is not judged here.
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
