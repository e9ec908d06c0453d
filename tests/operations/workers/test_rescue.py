"""Jobs are taken back from those who hold them no longer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from django_ojs.models import Worker
from django_ojs.operations import ack, beat, fail, fetch, queues, worker_activity
from django_ojs.operations.maintenance import lease
from django_ojs.operations.workers import rescue
from django_ojs.operations.workers.rescue import DeadWorkers
from django_ojs.spec.errors import Conflict
from django_ojs.spec.hold import held_by, open_to
from django_ojs.spec.isolation import ISOLATED_AFTER, Isolation
from django_ojs.storage import database, raw_queries
from tests.factories import (
    HOUR,
    MINUTE,
    WORKER,
    WorkerFactory,
    active,
    age,
    claim,
    held,
    hourly,
    in_state,
    jobs,
    push_many,
    read,
    silence,
    steady,
    take_back_dead,
)
from tests.worker.waiting import BOUND

pytestmark = pytest.mark.django_db
GONE = datetime(2020, 1, 1, tzinfo=UTC)


def test_the_leases_of_a_dead_worker_are_free_at_once() -> None:
    for name in ("maintenance", "of an extension"):
        assert lease.take("a", name)
        assert not lease.take("b", name)
    rescue.rescue(["c"])
    assert not lease.take("b")
    rescue.rescue(["a"])
    assert lease.take("b")
    assert lease.take("b", "of an extension")


@pytest.fixture(params=["lapse", "death"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def take_back(way: str) -> int:
    """Let all leases end, or worker A die, and look."""
    if way == "death":
        return rescue.rescue([WORKER])
    active_jobs = jobs().filter(state="active", worker_id=WORKER)
    age(list(active_jobs.values_list("pk", flat=True)), HOUR)
    return rescue.lapse()


ERROR = {"lapse": "visibility_timeout", "death": "worker_death"}
OUTCOME = {"lapse": "lapsed", "death": "lost"}


def test_with_attempts_left_the_job_is_available_at_once(way: str) -> None:
    # worker-protocol §5.5 (1), and ojs-core §6.3: clear started_at.
    job = active(retry=hourly(2))
    assert take_back(way) == 1
    stored = read(job.id)
    assert (stored.state, stored.worker_id, stored.lease_until, stored.started_at) == (
        "available",
        None,
        None,
        None,
    )
    assert stored.finished_at is None


def test_the_lost_attempt_is_counted_and_recorded(way: str) -> None:
    # worker-protocol §5.5 (2) and (3); `attempt` is increased by FETCH alone (contract §4).
    job = active(retry=hourly(2))
    take_back(way)
    stored = read(job.id)
    assert (stored.attempt, stored.spent) == (1, 1)
    assert stored.error["type"] == ERROR[way]
    (error,) = stored.envelope()["errors"]
    assert (error["type"], error["attempt"]) == (ERROR[way], 1)
    row = stored.attempts.get()
    assert (row.outcome, row.worker_id, row.started_at is None) == (OUTCOME[way], WORKER, False)


@pytest.mark.parametrize(("mode", "dead"), [("dead_letter", True), ("discard", False)])
def test_without_attempts_left_the_job_is_discarded(way: str, mode: Any, dead: bool) -> None:
    # worker-protocol §5.5 (4).
    job = active(retry=hourly(1, on_exhaustion=mode))
    take_back(way)
    stored = read(job.id)
    assert (stored.state, stored.discard_reason, stored.dead_letter) == (
        "discarded",
        "exhausted",
        dead,
    )
    assert stored.error["type"] == ERROR[way]
    assert stored.lease_until is None


def test_a_job_that_kills_each_of_its_workers_ends_after_its_attempts(way: str) -> None:
    job = active(queue="a", retry=hourly(3))
    states = []
    for _ in range(3):
        take_back(way)
        states.append(read(job.id).state)
        fetch.fetch(["a"], worker_id=WORKER)
    assert states == ["available", "available", "discarded"]


def test_what_was_given_back_before_does_not_count(way: str) -> None:
    job = active(queue="a", retry=hourly(2))
    fail.requeue(job.id)
    claim(read(job.id))
    take_back(way)
    assert read(job.id).state == "available"


def test_jobs_with_and_without_attempts_left_are_sorted_out_in_one_step(way: str) -> None:
    keys = [
        active(retry=hourly(n, on_exhaustion=mode)).id
        for n in (1, 2)
        for mode in ("discard", "dead_letter")
    ]
    jobs().update(lost_with_others=ISOLATED_AFTER)
    assert take_back(way) == 4
    assert [(read(k).state, read(k).dead_letter) for k in keys] == [
        ("discarded", False),
        ("discarded", True),
        ("available", False),
        ("available", False),
    ]


def alone(queue: str) -> list[Any]:
    """Claim a job that must run alone."""
    return [job.id for job in fetch.fetch([queue], worker_id="alone", isolation=Isolation.ALONE)]


def test_of_several_jobs_of_a_dead_worker_none_spends_an_attempt_twice() -> None:
    keys = [active(queue="a", retry=hourly(1)).id for _ in range(3)]
    for lost in (1, 2):
        assert rescue.rescue([WORKER]) == 3
        for key in keys:
            job = read(key)
            assert (job.state, job.attempt, job.spent, job.lost_with_others) == (
                "available",
                lost,
                0,
                lost,
            )
            row = job.attempts.last()
            assert (row.outcome, row.attempt, row.error["type"]) == ("lost", lost, "worker_death")
            assert "held 3 jobs" in row.error["message"]
            assert "spends no attempt" in row.error["message"]
        fetch.fetch(["a"], count=3, worker_id=WORKER)
    # The third loss of a worker that claims all jobs counts: no job may run forever.
    assert rescue.rescue([WORKER]) == 3
    assert {read(key).state for key in keys} == {"discarded"}


def test_a_job_that_was_lost_twice_beside_others_is_claimed_alone() -> None:
    first, second = (active(queue="a", retry=hourly(3)).id for _ in range(2))
    rescue.rescue([WORKER])
    assert not fetch.isolated_waiting(["a"], limit=9)
    jobs().filter(pk=second).update(lost_with_others=ISOLATED_AFTER)
    assert fetch.isolated_waiting(["b", "a"], limit=9)
    assert not fetch.isolated_waiting(["b"], limit=9)
    assert fetch.isolated_waiting(None, limit=9) == 1
    shared = fetch.fetch(["a"], count=9, worker_id=WORKER, isolation=Isolation.SHARED)
    assert [job.id for job in shared] == [first]
    assert alone("a") == [second]
    assert alone("a") == []
    assert not fetch.isolated_waiting(["a"], limit=9)


@pytest.mark.parametrize(
    ("isolation", "index"),
    [
        (Isolation.ANY, "ojs_job_claim"),
        (Isolation.SHARED, "ojs_job_claim"),
        (Isolation.ALONE, "ojs_job_isolated"),
    ],
)
@pytest.mark.statements
def test_a_claim_reads_the_index_of_its_jobs(isolation: Isolation, index: str) -> None:
    keys = [job.pk for job in push_many(1000, queue="a")]
    jobs().filter(pk=keys[-1]).update(lost_with_others=ISOLATED_AFTER)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with CaptureQueriesContext(connection) as queries:
        fetch.fetch(["a"], worker_id="w", due=False, isolation=isolation, registered=True)
    (statement,) = [query["sql"] for query in queries if "UPDATE ojs_job" in query["sql"]]
    explain = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {statement}")
        plan = str(cursor.fetchall())
    assert f"{index} " in plan


def test_no_job_waits_for_a_process_of_its_own_while_its_queue_is_paused() -> None:
    active(queue="a")
    rescue.rescue([WORKER])
    jobs().update(lost_with_others=ISOLATED_AFTER)
    queues.pause("a")
    assert not fetch.isolated_waiting(["a"], limit=9)
    queues.resume("a")
    assert fetch.isolated_waiting(["a"], limit=9) == 1


def test_no_job_waits_for_a_process_of_its_own_while_it_is_held() -> None:
    push_many(3, queue="a")
    jobs().update(lost_with_others=ISOLATED_AFTER, hold=held_by(5))
    assert not fetch.isolated_waiting(["a"], limit=9)
    jobs().update(hold=open_to(5))
    assert fetch.isolated_waiting(["a"], limit=9) == 3


def test_jobs_that_must_run_alone_are_counted_up_to_a_limit() -> None:
    push_many(3, queue="a")
    jobs().update(lost_with_others=ISOLATED_AFTER)
    assert [fetch.isolated_waiting(["a"], limit=limit) for limit in (2, 4)] == [2, 3]


def test_the_jobs_that_were_lost_with_the_cause_run_beside_others_again() -> None:
    cause, beside = (active(queue="a", retry=hourly(3)).id for _ in range(2))
    other, _ = (active("worker-b", queue="b", retry=hourly(3)).id for _ in range(2))
    rescue.rescue([WORKER, "worker-b"])
    jobs().update(lost_with_others=ISOLATED_AFTER)
    assert alone("a") == [cause]
    assert rescue.rescue(["alone"]) == 1
    # It was found alone: the loss counts, and the one that was lost beside it is cleared.
    assert read(cause).lost_with_others == ISOLATED_AFTER
    assert read(beside).lost_with_others == ISOLATED_AFTER - 1
    assert read(other).lost_with_others == ISOLATED_AFTER


def test_what_a_dead_worker_had_not_started_goes_back_as_it_was() -> None:
    started, waiting = (active(queue="a", retry=hourly(1)) for _ in range(2))
    before = read(waiting.id).enqueued_at
    assert rescue.give_back_all_but({(started.id, started.run)}, worker_id=WORKER) == 1
    job = read(waiting.id)
    assert (job.state, job.spent, job.lost_with_others, job.attempts.count()) == (
        "available",
        0,
        0,
        0,
    )
    assert job.enqueued_at == before
    # The other one was alone, so it was the cause.
    assert rescue.rescue([WORKER]) == 1
    assert read(started.id).state == "discarded"


def test_what_a_worker_holds_without_knowing_it_goes_back_and_its_history_says_so() -> None:
    known, unknown = (active(queue="a", retry=hourly(1)) for _ in range(2))
    theirs = active("worker-b")
    in_flight = [(known.id, known.run)]
    assert rescue.give_back_unknown(in_flight, worker_id=WORKER) == 1
    assert rescue.give_back_unknown(in_flight, worker_id=WORKER) == 0
    job = read(unknown.id)
    assert (job.state, job.spent) == ("available", 0)
    # A failover may have lost its completion: then it ran.
    (told,) = job.attempts.all()
    assert (told.outcome, told.run, told.worker_id) == ("returned", unknown.run, WORKER)
    assert "failover" in told.error["message"]
    assert {read(job.id).state for job in (known, theirs)} == {"active"}


def test_a_worker_that_died_before_it_started_any_of_its_jobs_may_have_died_of_them() -> None:
    job = active()
    assert rescue.give_back_all_but(set(), worker_id=WORKER) == 0
    assert read(job.id).state == "active"


def test_jobs_of_others_and_jobs_that_ended_are_left_alone(way: str) -> None:
    active()
    other, ended = active("worker-b"), in_state("completed")
    assert take_back(way) == 1
    assert [read(key).state for key in (other.id, ended.pk)] == ["active", "completed"]


def test_the_worker_that_comes_back_cannot_change_the_job(way: str) -> None:
    job = active(queue="a")
    take_back(way)
    claim(read(job.id), "worker-b")
    with pytest.raises(Conflict):
        ack.ack(job.id, claim=held(job))
    assert beat.beat(WORKER, holding=[job.id]).lost == {job.id}
    assert (read(job.id).state, read(job.id).worker_id) == ("active", "worker-b")


def test_they_queue_up_at_the_end(way: str) -> None:
    push_many(2, queue="a")
    (first,) = fetch.fetch(["a"], worker_id=WORKER)
    take_back(way)
    assert fetch.fetch(["a"], count=2)[1].id == first.id


def test_a_lease_that_is_not_over_does_not_lapse() -> None:
    job = active(visibility_timeout_ms=3_600_000)
    age(job.id, 59 * MINUTE)
    assert rescue.lapse() == 0
    age(job.id, 2 * MINUTE)
    assert rescue.lapse() == 1


def test_a_step_is_bounded_and_a_rescue_goes_on_until_all_are_back() -> None:
    keys = [job.pk for job in push_many(7, queue="a")]
    fetch.fetch(["a"], count=7, worker_id=WORKER)
    age(keys, HOUR)
    assert rescue.lapse(limit=3) == 3
    assert rescue.rescue([WORKER], limit=1) == 4
    assert jobs().filter(state="available").count() == 7


def test_a_helper_takes_back_only_when_a_lease_lapsed_long_ago() -> None:
    job = active(visibility_timeout_ms=1000)
    age(job.id, timedelta(seconds=30))
    check = rescue.LapseCheck(since=MINUTE)
    with steady():
        assert check.lapse() == 0
        age(job.id, MINUTE)
        assert check.lapse() == 1


def test_a_lease_of_a_worker_that_says_it_cannot_extend_it_is_left_to_it_until_it_can() -> None:
    job = active()
    check = rescue.LapseCheck()
    with steady():
        beat.beat(WORKER, interval=MINUTE, is_behind=True)
        age(job.id, HOUR)
        assert check.lapse() == 0
        for renews in (True, False):
            beat.beat(WORKER, interval=MINUTE, is_behind=True)
            beat.beat(WORKER, interval=MINUTE, renews=renews)
            assert Worker.objects.get(pk=WORKER).steady_since is not None
        assert check.lapse() == 1


def test_jobs_are_found_for_many_batches_and_a_lease_that_was_extended_since_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rescue, "BATCH", 1)
    push_many(3, queue="a")
    keys = [job.id for job in fetch.fetch(["a"], count=3, worker_id=WORKER)]
    age(keys, HOUR)
    check = rescue.LapseCheck()
    with steady():
        assert check.lapse() == 1
    active_jobs = jobs().filter(state="active").values_list("pk", flat=True)
    ended, extended = sorted(active_jobs, key=check._found.index)
    ack.ack(ended)
    beat.beat(WORKER, holding=[extended])
    # The first is no reason to stop: another one was found.
    assert [check.lapse(), check.lapse(), check.lapse()] == [1, 0, 0]
    assert [read(key).state for key in (ended, extended)] == ["completed", "active"]


def test_nobody_dead_nothing_to_do() -> None:
    job = active()
    assert rescue.rescue([]) == 0
    assert read(job.id).state == "active"


def test_a_worker_is_dead_after_three_beats_that_did_not_come() -> None:
    job = active()
    # In minutes: seconds may go by on a busy machine.
    WorkerFactory(interval=20 * MINUTE)
    silence(WORKER, 58 * MINUTE)
    dead = DeadWorkers()
    assert take_back_dead(dead) == 0
    silence(WORKER, 4 * MINUTE)
    assert take_back_dead(dead) == 1
    assert read(job.id).state == "available"
    assert not Worker.objects.exists()


def beats_again(worker_id: str, *, after: timedelta, before: timedelta) -> None:
    """Let a worker beat every 20 minutes, not for a time, and once again; some time has passed."""
    beat.beat(worker_id, interval=20 * MINUTE)
    silence(worker_id, after)
    beat.beat(worker_id, interval=20 * MINUTE)
    workers = Worker.objects.filter(pk=worker_id)
    workers.update(steady_since=F("steady_since") - before)


@pytest.mark.parametrize(
    ("silent", "steady_for", "count"),
    [
        # The other one has sent none for 50 minutes, and one now: it was no silence of this one.
        (70, 0, 0),
        # It has had the time of two.
        (70, 39, 0),
        (70, 41, 1),
        (59, 41, 0),
    ],
)
def test_silence_counts_while_the_heartbeats_of_others_are_stored(
    silent: int, steady_for: int, count: int
) -> None:
    active()
    WorkerFactory(interval=20 * MINUTE)
    silence(WORKER, silent * MINUTE)
    beats_again("other", after=50 * MINUTE, before=steady_for * MINUTE)
    dead = DeadWorkers("other")
    assert [dead.take_back(), dead.take_back()] == [0, count]


def test_a_witness_that_is_late_itself_proves_nothing() -> None:
    active()
    WorkerFactory(interval=20 * MINUTE)
    silence(WORKER, 100 * MINUTE)
    beats_again("other", after=50 * MINUTE, before=HOUR)
    silence("other", 31 * MINUTE)
    dead = DeadWorkers("other")
    assert [dead.take_back() for _ in range(3)] == [0, 0, 0]


def test_a_heartbeat_in_time_leaves_the_steady_time_and_a_late_one_begins_it_anew() -> None:
    first = WorkerFactory(interval=20 * MINUTE).steady_since
    assert first is not None
    silence(WORKER, 39 * MINUTE)
    for renews in (True, False):
        beat.beat(WORKER, interval=20 * MINUTE, renews=renews)
        assert Worker.objects.get().steady_since == first
    for renews in (True, False):
        silence(WORKER, 41 * MINUTE)
        # Not a moment ago: the clock may be set back meanwhile.
        Worker.objects.update(steady_since=first - HOUR)
        beat.beat(WORKER, interval=20 * MINUTE, renews=renews)
        again = Worker.objects.get().steady_since
        assert again is not None
        assert again > first - HOUR / 2


def test_the_steady_time_begins_anew_after_the_clock_was_set_back() -> None:
    WorkerFactory(interval=20 * MINUTE)
    for renews in (True, False):
        later = {name: F(name) + HOUR for name in ("beat_at", "seen_at", "steady_since")}
        Worker.objects.update(**later)
        beat.beat(WORKER, interval=20 * MINUTE, renews=renews)
        assert Worker.objects.filter(steady_since__lte=Now()).exists()


def test_a_worker_whose_interval_is_not_known_is_no_witness() -> None:
    assert WorkerFactory().steady_since is None


def test_one_look_that_finds_a_silent_worker_is_not_enough() -> None:
    active()
    WorkerFactory(interval=20 * MINUTE)
    silence(WORKER, HOUR)
    dead = DeadWorkers()
    with steady():
        assert dead.take_back() == 0
        beat.beat(WORKER, interval=20 * MINUTE)
        assert dead.take_back() == 0
    assert Worker.objects.exists()


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_silent_worker_whose_row_a_stranger_has_locked_may_live() -> None:
    job = active()
    WorkerFactory(interval=20 * MINUTE)
    silence(WORKER, HOUR)
    dead = DeadWorkers()
    with steady():
        with transaction.atomic(), ThreadPoolExecutor(1) as other:
            # Its heartbeat waits for this lock.
            Worker.objects.select_for_update().get(pk=WORKER)
            assert other.submit(looks, dead, 3).result(BOUND) == [0, 0, 0]
        assert dead.take_back() == 1
    assert read(job.id).state == "available"


def looks(dead: DeadWorkers, times: int) -> list[int]:
    try:
        return [dead.take_back() for _ in range(times)]
    finally:
        connections.close_all()


def test_a_lease_that_ended_while_nothing_was_stored_is_left_to_its_worker() -> None:
    job = active(visibility_timeout_ms=600_000)
    WorkerFactory(interval=20 * MINUTE)
    age(job.id, 30 * MINUTE)
    beats_again("other", after=50 * MINUTE, before=9 * MINUTE)
    check = rescue.LapseCheck()
    assert (check.lapse(), raw_queries.holds(rescue.lapsed_condition())) == (0, False)
    Worker.objects.filter(pk="other").update(steady_since=F("steady_since") - 2 * MINUTE)
    assert raw_queries.holds(rescue.lapsed_condition())
    assert check.lapse() == 1


@pytest.mark.parametrize("way", ["lapse", "death"])
def test_after_a_lock_on_the_jobs_the_others_report_first(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = active()
    age(job.id, HOUR)
    WorkerFactory(interval=20 * MINUTE)
    silence(WORKER, HOUR)
    dead, check, waited = DeadWorkers(), rescue.LapseCheck(), [False]
    monkeypatch.setattr(
        worker_activity, "jobs_are_writable", lambda: waited.pop() if waited else True
    )
    look = dead.take_back if way == "death" else check.lapse
    with steady():
        if way == "death":
            assert look() == 0
        assert look() == 0, "it waited for the lock"
        beat.beat(WORKER, interval=20 * MINUTE, holding=[job.id])
        assert [look(), look()] == [0, 0]
    assert read(job.id).state == "active"


def test_each_worker_says_how_long_it_may_be_silent() -> None:
    WorkerFactory(id="patient", interval=HOUR)
    WorkerFactory(id="hasty", interval=timedelta(seconds=1))
    silence("patient")
    silence("hasty")
    take_back_dead()
    assert [known.pk for known in Worker.objects.all()] == ["patient"]


def test_a_worker_without_jobs_is_forgotten_too() -> None:
    WorkerFactory()
    silence(WORKER, HOUR)
    assert take_back_dead() == 0
    assert not Worker.objects.exists()


@pytest.mark.postgresql
def test_a_session_that_is_gone_twice_is_a_worker_that_died() -> None:
    job = active()
    WorkerFactory(session=(1, GONE))
    dead = DeadWorkers()
    assert dead.take_back() == 0
    assert read(job.id).state == "active"
    assert dead.take_back() == 1
    assert read(job.id).error["type"] == "worker_death"


@pytest.mark.postgresql
def test_after_an_outage_a_session_proves_nothing_until_its_worker_has_sent_a_heartbeat() -> None:
    active()
    WorkerFactory(session=(1, GONE))
    dead = DeadWorkers()
    # It may still wait for the server that is gone, while this one has found the new one.
    dead.database_was_away()
    assert [dead.take_back() for _ in range(3)] == [0, 0, 0]
    WorkerFactory(interval=HOUR, session=(1, GONE))
    # Later than a busy machine takes from the look at the clock to the statement.
    silence(WORKER, -MINUTE)
    assert [dead.take_back() for _ in range(2)] == [0, 1]


@pytest.mark.postgresql
def test_the_lease_of_a_worker_whose_session_has_ended_need_not_expire() -> None:
    WorkerFactory(session=(1, GONE))
    assert lease.take(WORKER)
    other = DeadWorkers("other")
    # After an outage of the database the holder may not have its new session yet.
    other.database_was_away()
    assert not other.take_lease("other")
    assert DeadWorkers("third").take_lease("third")
    assert not other.take_lease("other"), "of a holder without a session nothing is known"
    assert not lease.take(WORKER)
    lease.give("third")
    assert lease.take(WORKER)
    session = beat.attach_session(WORKER)
    assert session is not None
    assert not other.take_lease("other")
    WorkerFactory(interval=HOUR, session=(1, GONE))
    waiting = DeadWorkers("waiting")
    waiting.database_was_away()
    with CaptureQueriesContext(connection) as queries:
        assert not waiting.take_lease("waiting")
    assert len(queries) == 1
    silence(WORKER, -MINUTE)  # As above.
    assert other.take_lease("other")


@pytest.mark.postgresql
def test_the_session_of_a_worker_that_sends_none_any_more_proves_nothing() -> None:
    active()
    WorkerFactory(session=(1, GONE))
    WorkerFactory(interval=HOUR)
    dead = DeadWorkers()
    assert [dead.take_back() for _ in range(3)] == [0, 0, 0]


@pytest.mark.postgresql
def test_a_worker_that_found_another_session_in_between_lives() -> None:
    active()
    WorkerFactory(session=(1, GONE))
    dead = DeadWorkers()
    dead.take_back()
    WorkerFactory(session=(2, GONE))
    assert dead.take_back() == 0
    session = beat.attach_session(WORKER)
    assert session is not None
    assert [dead.take_back() for _ in range(3)] == [0, 0, 0]
    assert Worker.objects.get().session_pid == session[0]


@pytest.mark.postgresql
def test_a_session_counts_only_with_the_time_it_started() -> None:
    # The server gives the numbers of its processes again.
    session = database.dialect().session(connection)
    assert session is not None
    WorkerFactory(session=(session[0], GONE))
    assert database.dialect().dead_workers(connection) == [(WORKER, (session[0], GONE))]


@pytest.mark.sqlite
def test_without_sessions_silence_alone_is_death() -> None:
    WorkerFactory(session=(1, GONE))
    assert beat.attach_session(WORKER) is None
    dead = DeadWorkers()
    assert [dead.take_back(), dead.take_back()] == [0, 0]
    assert Worker.objects.exists()
