"""BEAT, ojs-core §7.5 and worker-protocol §3 to §5."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import InternalError, connection
from django.db.models.functions import Now

from django_ojs.extensions.events.models import Event
from django_ojs.models import Job, Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import beat, cancel
from django_ojs.operations.beat import Registration
from django_ojs.operations.workers import removal, rescue
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.ids import uuid7
from django_ojs.storage import database
from tests.factories import HOUR, MINUTE, WORKER, WorkerFactory, active, age, jobs, read, silence
from tests.other_session import Other
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db


def left(job_id: Any, at_least: timedelta, at_most: timedelta) -> bool:
    """Say whether a lease still lasts that long, by the clock of the database."""
    # A clock may be set back meanwhile.
    most = Now() + at_most + timedelta(seconds=10)
    bounds = {"lease_until__gte": Now() + at_least, "lease_until__lte": most}
    return jobs().filter(pk=job_id, **bounds).exists()


@pytest.mark.requirement("CORE-7.5-1")
def test_the_first_beat_registers_the_worker_as_it_describes_itself() -> None:
    described = {"hostname": "host", "pid": 7, "queues": ("a", "b"), "labels": ("eu",)}
    sent = {"active_jobs": 3, "interval": timedelta(seconds=2)}
    known = WorkerFactory(concurrency=8, version="1", **described, **sent)
    assert (known.hostname, known.pid, known.queues, known.labels) == (
        "host",
        7,
        ["a", "b"],
        ["eu"],
    )
    assert (known.concurrency, known.version, known.active_jobs, str(known)) == (8, "1", 3, WORKER)
    assert (known.state, known.directive, known.dead_after_ms) == ("running", "running", 6_000)


def test_a_beat_without_a_registration_keeps_what_is_known() -> None:
    WorkerFactory(hostname="host")
    known = WorkerFactory(state=Directive.QUIET)
    assert (known.hostname, known.state, known.active_jobs) == ("host", "quiet", 0)


def test_a_worker_that_only_beats_is_known_too_and_since_when() -> None:
    known = WorkerFactory()
    assert (known.hostname, known.queues) == ("", [])
    assert Worker.objects.filter(started_at__range=(Now() - MINUTE, Now() + MINUTE)).exists()


@pytest.mark.requirement("CORE-7.5-3")
def test_must_2_each_beat_updates_the_time_the_worker_was_last_seen() -> None:
    WorkerFactory()
    silence(WORKER, HOUR)
    beat.beat(WORKER)
    assert Worker.objects.filter(beat_at__range=(Now() - MINUTE, Now() + MINUTE)).exists()


@pytest.mark.parametrize("directive", Directive)
def test_may_3_the_response_has_the_directive_of_the_worker(directive: Directive) -> None:
    WorkerFactory()
    assert beat.direct(WORKER, directive) is True
    assert beat.beat(WORKER).state is directive
    assert beat.beat("worker-b").state is Directive.RUNNING


def test_nobody_can_direct_a_worker_that_is_not_known() -> None:
    assert beat.direct("nobody", Directive.QUIET) is False
    assert not Worker.objects.exists()


def test_a_worker_that_was_given_up_registers_again_with_its_next_beat() -> None:
    WorkerFactory()
    rescue.rescue([WORKER])
    assert not Worker.objects.exists()
    assert beat.beat(WORKER).state is Directive.RUNNING
    assert Worker.objects.get().pk == WORKER


def test_a_beat_extends_the_leases_from_now_by_each_jobs_own_time() -> None:
    default, own = active(), active(visibility_timeout_ms=120_000)
    for job in (default, own):
        jobs().filter(pk=job.id).update(lease_until=Now() + MINUTE)
    assert beat.beat(WORKER, holding=[default.id, own.id]).jobs_extended == 2
    assert left(default.id, 29 * MINUTE, 30 * MINUTE)
    assert left(own.id, 1.9 * MINUTE, 2 * MINUTE)


def test_the_time_that_the_beat_asks_for_goes_before_the_jobs_own() -> None:
    job = active(visibility_timeout_ms=120_000)
    beat.beat(WORKER, holding=[job.id], visibility_timeout=HOUR)
    assert left(job.id, 59 * MINUTE, HOUR)


@pytest.mark.parametrize("asked", [None, timedelta(seconds=1)])
def test_a_lease_is_never_shortened(asked: timedelta | None) -> None:
    job = active(visibility_timeout_ms=60_000)
    jobs().filter(pk=job.id).update(lease_until=Now() + 5 * HOUR)
    beat.beat(WORKER, holding=[job.id], visibility_timeout=asked)
    assert left(job.id, 4.9 * HOUR, 5 * HOUR)


def test_only_what_this_worker_holds_is_extended_and_the_rest_is_named_as_lost() -> None:
    mine, others, gone = active(), active("worker-b"), active()
    cancel.cancel(gone.id)
    missing = uuid7()
    before = read(others.id).lease_until
    response = beat.beat(WORKER, holding=[mine.id, others.id, gone.id, missing])
    assert response.jobs_extended == 1
    assert response.lost == {others.id, gone.id, missing}
    assert read(others.id).lease_until == before
    assert Worker.objects.get().active_jobs == 4


def test_what_needs_no_extension_is_watched_all_the_same() -> None:
    near, far = active(), active()
    for job in (near, far):
        jobs().filter(pk=job.id).update(lease_until=Now() + MINUTE)
    cancel.cancel(far.id)
    response = beat.beat(WORKER, holding=[near.id, far.id], extend=[near.id])
    assert (response.jobs_extended, response.lost) == (1, {far.id})
    assert beat.beat(WORKER, holding=[near.id], extend=[]).jobs_extended == 0


def test_a_lease_that_ended_a_moment_ago_is_saved_by_a_beat_before_anybody_noticed() -> None:
    job = active()
    age(job.id, HOUR)
    assert beat.beat(WORKER, holding=[job.id]).lost == frozenset()
    assert rescue.lapse() == 0


def test_a_handler_may_extend_its_own_job() -> None:
    job = active(visibility_timeout_ms=60_000)
    assert beat.extend(WORKER, job.id) is True
    assert left(job.id, MINUTE / 2, MINUTE)
    assert beat.extend(WORKER, job.id, by=HOUR) is True
    assert left(job.id, 59 * MINUTE, HOUR)
    assert beat.extend("worker-b", job.id, by=HOUR) is False
    cancel.cancel(job.id)
    assert beat.extend(WORKER, job.id) is False


def test_a_worker_that_ended_well_is_forgotten() -> None:
    WorkerFactory()
    WorkerFactory(id="worker-b")
    removal.remove(WORKER)
    assert [known.pk for known in Worker.objects.all()] == ["worker-b"]


@pytest.mark.parametrize("worker_id", [None, "", "w" * 256, "a\nb", 7])
def test_a_beat_needs_the_id_of_a_worker(worker_id: Any) -> None:
    with pytest.raises(InvalidRequest, match="worker_id"):
        beat.beat(worker_id)
    assert not Worker.objects.exists()


class TestARenewal:
    """What a worker of the project sends while it holds no jobs."""

    INTERVAL = timedelta(seconds=2)
    DESCRIBED = Registration(hostname="host", queues=("a",))

    def send(self, **values: Any) -> beat.BeatResponse:
        known = {"interval": self.INTERVAL, "registration": self.DESCRIBED, "renews": True}
        return beat.beat(WORKER, **{**known, **values})

    def test_it_is_one_statement_that_stores_the_time_and_returns_the_directive(
        self, django_assert_num_queries: Any
    ) -> None:
        WorkerFactory(interval=self.INTERVAL, registration=self.DESCRIBED, active_jobs=3)
        silence(WORKER, HOUR)
        beat.direct(WORKER, Directive.QUIET)
        # MariaDB reads the directive by a second one.
        most = 2 if database.kind() == "mariadb" else 1
        with django_assert_num_queries(most, using=database.alias()):
            response = self.send()
        assert (response.state, response.jobs_extended) == (Directive.QUIET, 0)
        known = Worker.primary.get()
        assert known.active_jobs == 0
        recent = {"seen_at__gt": Now() - MINUTE, "beat_at__gt": Now() - MINUTE}
        assert Worker.primary.filter(**recent).exists()

    def test_a_worker_that_was_removed_is_registered_again(self) -> None:
        WorkerFactory(interval=self.INTERVAL, registration=self.DESCRIBED)
        Worker.primary.all().delete()
        assert self.send().state is Directive.RUNNING
        assert Worker.primary.get().hostname == "host"

    @pytest.mark.parametrize(
        "other",
        [
            {"state": Directive.QUIET},
            {"beat_interval_ms": 5},
            {"owner": "key"},
            {"session_pid": 5},
        ],
    )
    def test_a_row_that_is_another_one_is_written_whole(self, other: dict[str, Any]) -> None:
        WorkerFactory(interval=self.INTERVAL, registration=self.DESCRIBED)
        Worker.primary.update(**other)
        self.send()
        known = Worker.primary.get()
        assert (known.state, known.beat_interval_ms, known.owner, known.session_pid) == (
            "running",
            2000,
            "",
            None,
        )

    def test_what_else_there_is_to_say_is_stored(self) -> None:
        WorkerFactory(interval=self.INTERVAL, registration=self.DESCRIBED)
        job = active(worker_id=WORKER)
        age(job.id, MINUTE)
        assert self.send(holding=[job.id]).jobs_extended == 1
        assert Worker.primary.get().active_jobs == 1
        self.send(state=Directive.QUIET)
        assert Worker.primary.get().state == "quiet"

    def test_a_site_that_records_heartbeats_records_it(self, settings: Any) -> None:
        settings.OJS = {"KEEP_EVENTS": ["worker.heartbeat"]}
        WorkerFactory(interval=self.INTERVAL, registration=self.DESCRIBED)
        self.send()
        assert Event.primary.filter(type="worker.heartbeat").count() == 2


def test_the_lease_of_a_job_in_flight_that_would_end_before_the_next_beat_is_extended() -> None:
    # The clock of the database was set on: by its own, the worker need not extend it yet.
    job = active()
    age(job.id, HOUR)
    assert left(job.id, -HOUR, timedelta(0))
    response = beat.beat(WORKER, holding=[job.id], extend=[], interval=timedelta(seconds=5))
    assert (response.jobs_extended, response.lost) == (1, frozenset())
    assert left(job.id, MINUTE, HOUR)
    assert rescue.lapse() == 0


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_beat_that_is_frozen_while_it_extends_a_lease_keeps_the_job_from_no_other_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = active()

    def claimed() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '30s'")
        # It waits until the session of the beat has ended.
        Job.objects.filter(pk=job.id).update(priority=7)

    def frozen(*args: Any) -> int:
        with Other() as other:
            other.do(claimed).result(BOUND)
        return len(Job.objects.filter(pk=job.id))  # Its next statement.

    monkeypatch.setattr(beat, "LONGEST_IDLE_MS", 100)
    monkeypatch.setattr(beat, "_extend_and_publish", frozen)
    with pytest.raises(InternalError, match="idle-in-transaction") as failed:
        beat.beat(WORKER, holding=[job.id])
    assert database.is_unavailable(failed.value)
    assert (read(job.id).priority, read(job.id).state) == (7, "active")
