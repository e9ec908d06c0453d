"""The scheduler: each occurrence that is due enqueues one job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from django_ojs import hooks
from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron import storage as cron_jobs
from django_ojs.extensions.cron.models import CronJob, CronRun, CronRunPhase
from django_ojs.extensions.cron.operations import pruning, schedule
from django_ojs.extensions.cron.operations import tick as tick_module
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.operations import ack, activate, cancel, fail, fetch, queues, retry
from django_ojs.operations.due_jobs import DueCheck
from django_ojs.spec.errors import Conflict, QueueFull
from django_ojs.spec.states import State
from django_ojs.storage import database
from tests.factories import BOOM, jobs, read
from tests.held_key import held_key
from tests.operations.cron.scenes import SECOND, events, make_due, reasons, register, tick
from tests.other_session import open_transaction

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def finish(queue: str = "default") -> None:
    """Complete the best available job of a queue."""
    (claimed,) = fetch.fetch([queue], due=False)
    ack.ack(claimed.id)


@pytest.mark.requirement("CRON-20", "CRON-29", "EV-10")
def test_what_is_due_enqueues_its_job_and_says_so() -> None:
    register(
        template={
            "args": [{"day": 1}],
            "meta": {"team": "x"},
            "options": {"queue": "slow", "priority": 7, "tags": ["night"], "timeout": 30},
        }
    )
    at = make_due("report")
    assert cron.fire_due() == 1
    job = jobs().get()
    assert (job.type, job.queue, job.priority) == ("report.make", "slow", 7)
    assert (job.args, job.tags, job.timeout_ms) == ([{"day": 1}], ["night"], 30_000)
    assert job.state == State.AVAILABLE
    stamp = f"{at:%Y-%m-%dT%H:%M:%S}.000Z"
    assert job.meta == {"team": "x", "cron_name": "report", "cron_triggered_at": stamp}
    stored = cron.get("report")
    assert (stored.run_count, stored.last_job_id) == (1, job.pk)
    assert stored.last_run_at is not None
    assert stored.next_run_at is not None
    assert stored.next_run_at > stored.last_run_at
    (event,) = events()
    assert (event.type, event.subject, event.queue) == ("cron.triggered", "report", "slow")
    assert event.data["job_id"] == str(job.pk)
    assert event.data["run_count"] == 1
    assert event.data["scheduled_time"] == stamp
    assert event.data["cron_expression"] == stored.expression
    # The same under the names of ojs-events.
    assert (event.data["scheduled_at"], event.data["cron_expr"]) == (stamp, stored.expression)
    assert event.data["job_type"] == "report.make"
    run = cron.runs("report").get()
    assert (run.job_id, run.scheduled_at, run.triggered_by) == (job.pk, at, "")
    assert str(run).startswith("report at ")


def test_what_is_not_due_enqueues_nothing() -> None:
    register()
    assert cron.fire_due() == 0
    register("other")
    cron.set_enabled("other", False)
    assert cron.fire_due() == 0
    assert not jobs().exists()


def test_many_are_due_at_once_and_some_of_them_are_of_other_queues() -> None:
    names = [f"c{n}" for n in range(30)]
    for n, name in enumerate(names):
        register(name, template={"options": {"queue": f"q{n % 3}"}})
    assert tick(*names) == 30
    assert {job.meta["cron_name"] for job in jobs()} == set(names)
    assert cron.fire_due() == 0


def test_a_batch_is_bounded_and_the_earliest_go_first() -> None:
    for n in range(3):
        register(f"c{n}")
        make_due(f"c{n}", ago=(3 - n) * SECOND)
    assert cron.fire_due(limit=2) == 2
    assert {job.meta["cron_name"] for job in jobs()} == {"c0", "c1"}
    assert cron.fire_due(limit=2) == 1


def test_jobs_of_alike_schedules_have_their_own_values() -> None:
    options = {"queue": "slow", "retry": {"max_attempts": 2}}
    for n in range(3):
        register(f"c{n}", template={"args": [n], "meta": {"in": {"n": [1]}}, "options": options})
    register("other", template={"args": [3], "meta": {"in": {"n": [1.0]}}, "options": options})
    assert tick("c0", "c1", "c2", "other") == 4
    found = {job.meta["cron_name"]: job for job in jobs()}
    assert {name: job.args for name, job in found.items()} == {
        "c0": [0],
        "c1": [1],
        "c2": [2],
        "other": [3],
    }
    assert {(job.queue, job.max_attempts) for job in found.values()} == {("slow", 2)}
    assert isinstance(found["other"].meta["in"]["n"][0], float)
    assert isinstance(found["c2"].meta["in"]["n"][0], int)
    assert {row.last_job_id for row in CronJob.primary.all()} == {job.pk for job in jobs()}


def test_the_number_of_statements_does_not_depend_on_how_many_are_due() -> None:
    names = [f"c{n}" for n in range(12)]
    for name in names:
        register(name, overlap_policy="allow")
    numbers = []
    for due in (names[:2], names):
        make_due(*due)
        with CaptureQueriesContext(database.connection()) as captured:
            assert cron.fire_due() == len(due)
        numbers.append(len(captured))
        CronRun.primary.all().delete()
    assert numbers[0] == numbers[1]


@pytest.mark.requirement("CRON-25")
def test_of_missed_occurrences_one_enqueues_a_job_and_the_others_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(expression="0 3 * * *", timezone="Europe/Paris")
    at = datetime.now(UTC).replace(hour=2, minute=0, second=0, microsecond=0) - 5 * DAY
    paris = at.astimezone(schedule.check_timezone("Europe/Paris"))
    at -= timedelta(hours=paris.hour - 3)
    CronJob.primary.update(due_at=at, next_run_at=at)
    assert cron.fire_due() == 1
    assert jobs().count() == 1
    missed = cron.get("report").missed_count
    assert missed in (4, 5)
    skipped, triggered = events()
    assert skipped.data["reason"] == "missed"
    assert skipped.data["count"] == missed
    assert triggered.data["scheduled_time"] == f"{at:%Y-%m-%dT%H:%M:%S}.000Z"
    assert f"{missed} occurrences since" in caplog.text
    assert cron.fire_due() == 0


def test_missed_occurrences_are_in_the_log_where_nothing_wants_events(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(expression="@every 10m")
    monkeypatch.setattr(hooks.registry, "published", ())
    assert tick("report", ago=timedelta(minutes=25)) == 1
    assert "2 occurrences since" in caplog.text
    assert not events()


def test_an_interval_keeps_its_rhythm_after_missed_occurrences() -> None:
    register(expression="@every 10m")
    at = make_due("report", ago=timedelta(minutes=25))
    assert cron.fire_due() == 1
    stored = cron.get("report")
    assert stored.due_at == at + timedelta(minutes=30)
    assert stored.missed_count == 2


def test_more_missed_occurrences_than_are_counted_are_so_many_or_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(expression="* * * * * *")
    assert tick("report", ago=2 * DAY) == 1
    assert cron.get("report").missed_count == schedule.MOST_PASSED
    assert "1000 or more" in caplog.text
    assert jobs().count() == 1


@pytest.mark.requirement("CRON-16", "CRON-30")
def test_an_occurrence_that_summer_time_skips_enqueues_nothing_and_is_reported() -> None:
    register(expression="30 2 * * *", timezone="America/New_York")
    gap = datetime(2026, 3, 8, 7, tzinfo=UTC)
    CronJob.primary.update(due_at=gap, next_run_at=gap + timedelta(hours=23, minutes=30))
    assert cron.fire_due() == 1
    first, *_, last = events()
    assert (first.data["reason"], first.data["scheduled_time"]) == (
        "dst_skip",
        "2026-03-08T07:00:00.000Z",
    )
    # What is fired is the occurrence of the day after, 02:30 in summer time.
    assert last.data["scheduled_time"] == "2026-03-09T06:30:00.000Z"
    assert jobs().count() == 1


@pytest.mark.parametrize(
    ("expression", "skipped"),
    [("0 * * * *", 1), ("*/30 * * * *", 2), ("0 2,3 * * *", 1), ("30 3 * * *", 0)],
)
def test_a_skipped_occurrence_is_reported_beside_one_that_fires_at_the_change(
    expression: str, skipped: int
) -> None:
    register(expression=expression, timezone="Europe/Berlin")
    before = datetime(2026, 3, 29, 0, 45, tzinfo=UTC)
    times = schedule.first(expression, "Europe/Berlin", before)
    assert times.due_at is not None
    assert times.next_run_at is not None
    passed = schedule.passed(
        expression, "Europe/Berlin", times.due_at, times.due_at + SECOND,
        is_skipped=times.due_at != times.next_run_at,
    )  # fmt: skip
    assert (passed.fires_at, passed.missed) == (times.due_at, 0)
    assert passed.gaps == [datetime(2026, 3, 29, 1, tzinfo=UTC)] * skipped


def test_a_missed_time_that_enqueues_no_job_is_not_logged_as_enqueued(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(overlap_policy="skip")
    tick("report")
    assert tick("report", ago=5 * timedelta(hours=1)) == 1
    assert jobs().count() == 1
    assert "were missed." in caplog.text
    assert "enqueued" not in caplog.text


def test_a_held_job_waits_for_its_own_time_as_well() -> None:
    register(overlap_policy="enqueue", template={"options": {"scheduled_at": "+PT5M"}})
    tick("report")
    tick("report")
    first, held = jobs().get(state=State.SCHEDULED), jobs().get(state=State.PENDING)
    cancel.cancel(first.pk)
    assert cron.fire_due() == 0
    assert read(held.pk).state == State.PENDING
    jobs().filter(pk=held.pk).update(due_at=F("created_at"))
    assert cron.fire_due() == 1
    assert read(held.pk).state == State.AVAILABLE


def test_a_schedule_that_changes_during_a_tick_is_evaluated_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(expression="0 0 1 1 *")
    due = make_due("report")
    lock_as_read = cron_jobs.lock_as_read

    def register_then_lock(due: Any) -> list[CronJob]:
        register(expression="* * * * *")
        return lock_as_read(due)

    with monkeypatch.context() as patch:
        patch.setattr(cron_jobs, "lock_as_read", register_then_lock)
        assert cron.fire_due() == 0
    assert cron.get("report").due_at == due
    assert not jobs().exists()
    assert not events()
    assert cron.fire_due() == 1
    next_due = cron.get("report").due_at
    assert next_due is not None
    assert next_due - due < timedelta(minutes=2)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_many_that_wait_do_not_keep_the_others_from_their_turn() -> None:
    unique = {"keys": ["args"], "on_conflict": "ignore"}
    for n in range(3):
        register(f"locked{n}", template={"args": ["same"], "options": {"unique": unique}})
    register("free")
    with held_key("report.make", "same") as commit:
        make_due("locked0", "locked1", "locked2", ago=3 * SECOND)
        make_due("free")
        assert sum(cron.fire_due(limit=2) for _ in range(2)) == 1
        assert cron.get("free").run_count == 1
        commit()
    assert sum(cron.fire_due(limit=2) for _ in range(2)) == 3


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_cron_job_that_a_transaction_has_locked_releases_its_held_job_later() -> None:
    register(overlap_policy="enqueue")
    tick("report")
    tick("report")
    finish()

    row = CronJob.primary.select_for_update().filter(pk="report")
    with open_transaction(lambda: list(row)) as commit:
        assert cron.fire_due() == 0
        commit()
    assert cron.fire_due() == 1
    assert jobs().filter(state=State.AVAILABLE).count() == 1


@pytest.mark.postgresql  # On SQLite no transaction stays open beside one that writes.
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("policy", ["skip", "cancel_previous"])
def test_a_unique_key_in_an_open_transaction_delays_its_own_cron_job_only(policy: str) -> None:
    unique = {"keys": ["args"], "on_conflict": "ignore"}
    template = {"args": ["same"], "options": {"unique": unique}}
    register("locked", overlap_policy=policy, template=template)
    register("free", template={"args": ["other"]})
    if policy == "cancel_previous":
        register("locked", overlap_policy=policy, template=template | {"args": ["before"]})
        tick("locked")
        register("locked", overlap_policy=policy, template=template)
    before = {job.pk for job in jobs()}

    with held_key("report.make", "same") as commit:
        due = make_due("locked", "free", ago=timedelta(hours=2))
        assert cron.fire_due() == 1
        new = [job for job in jobs() if job.pk not in before]
        assert [job.args for job in new] == [["other"]]
        assert {job.state for job in jobs()} == {State.AVAILABLE}
        row = cron.get("locked")
        assert (row.due_at, row.next_run_at, row.missed_count) == (due, due, 0)
        assert {event.subject for event in events("cron.skipped")} == {"free"}
        assert cron.fire_due() == 0
        commit()
        assert cron.fire_due() == 1
    assert "duplicate" in reasons()
    assert cron.get("locked").missed_count >= 1


def test_before_a_skipped_occurrence_the_next_run_is_the_one_after_it() -> None:
    saturday = datetime(2026, 3, 7, 7, 30, tzinfo=UTC)
    passed = schedule.passed("30 2 * * *", "America/New_York", saturday, saturday)
    assert passed.fires_at == saturday
    assert passed.next.due_at == datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert passed.next.next_run_at == datetime(2026, 3, 9, 6, 30, tzinfo=UTC)
    at_gap = schedule.passed(
        "30 2 * * *", "America/New_York", passed.next.due_at, passed.next.due_at, is_skipped=True
    )
    assert (at_gap.fires_at, len(at_gap.gaps)) == (None, 1)
    assert at_gap.next.due_at == at_gap.next.next_run_at == passed.next.next_run_at


@pytest.mark.requirement("CRON-17")
def test_a_time_that_winter_time_repeats_is_due_once_the_first_time() -> None:
    first = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)  # 01:30 EDT
    passed = schedule.passed("30 1 * * *", "America/New_York", first, first)
    assert (passed.fires_at, passed.missed) == (first, 0)
    assert passed.next.due_at == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)  # 01:30 EST


def test_one_that_cannot_be_evaluated_any_more_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register("a")
    register("b")
    CronJob.primary.filter(pk="a").update(timezone="Gone/Zone")
    assert tick("a", "b") == 2
    assert [job.meta["cron_name"] for job in jobs()] == ["b"]
    assert cron.get("a").due_at is None
    assert reasons() == ["rejected"]
    assert "a cannot be evaluated" in caplog.text


class TestOverlap:
    @pytest.mark.requirement("CRON-18", "CRON-30", "EV-10")
    @pytest.mark.parametrize("state", ["available", "active"])
    def test_skip_skips_while_a_run_has_not_ended(self, state: str) -> None:
        register()
        tick("report")
        first = jobs().get()
        if state == "active":
            fetch.fetch(["default"])
        tick("report")
        assert jobs().count() == 1
        (skipped,) = events("cron.skipped")
        assert skipped.data["reason"] == "overlap_skip"
        assert skipped.data["active_job_id"] == str(first.pk)
        assert skipped.data["existing_job_id"] == str(first.pk)
        assert skipped.data["cron_expr"] == cron.get("report").expression
        assert skipped.data["job_type"] == "report.make"
        assert cron.get("report").run_count == 1

    def test_skip_counts_runs_that_wait_for_their_next_attempt(self) -> None:
        register()
        tick("report")
        (claimed,) = fetch.fetch(["default"])
        fail.fail(claimed.id, BOOM)
        assert read(claimed.id).state == "retryable"
        tick("report")
        assert reasons() == ["overlap_skip"]

    def test_skip_goes_on_when_the_run_has_ended(self) -> None:
        register()
        for _ in range(3):
            tick("report")
            finish()
        assert jobs().count() == 3
        assert reasons() == []
        # Ended runs are not queried again: one stays open, whose job may be retried.
        assert [run.phase for run in cron.runs("report")] == ["open", "open", "ended"]

    def test_a_run_counts_again_when_its_discarded_job_is_retried(self) -> None:
        register(template={"options": {"retry": {"max_attempts": 1}}})
        tick("report")
        (claimed,) = fetch.fetch(["default"])
        fail.fail(claimed.id, BOOM)
        assert read(claimed.id).state == "discarded"
        retry.retry(claimed.id)
        tick("report")
        assert reasons() == ["overlap_skip"]

    def test_skip_counts_no_run_whose_job_is_gone(self) -> None:
        register()
        tick("report")
        jobs().delete()
        tick("report")
        assert jobs().count() == 1

    def test_each_cron_job_has_its_own_runs(self) -> None:
        register("a")
        register("b")
        tick("a")
        tick("a", "b")
        assert [job.meta["cron_name"] for job in jobs().order_by("pk")] == ["a", "b"]

    @pytest.mark.requirement("CRON-18")
    def test_allow_runs_beside_the_run_before(self) -> None:
        register(overlap_policy="allow")
        for _ in range(3):
            tick("report")
        assert len(fetch.fetch(["default"], count=9)) == 3

    @pytest.mark.requirement("CRON-18")
    def test_cancel_previous_cancels_the_runs_that_have_not_ended(self) -> None:
        register(overlap_policy="cancel_previous")
        tick("report")
        (running,) = fetch.fetch(["default"])
        tick("report")
        assert read(running.id).state == "cancelled"
        (waiting,) = jobs().filter(state="available")
        tick("report")
        assert read(waiting.pk).state == "cancelled"
        assert jobs().filter(state="available").count() == 1

    def test_cancel_previous_cancels_nothing_if_no_job_takes_its_place(self) -> None:
        register(overlap_policy="cancel_previous")
        tick("report")
        (running,) = fetch.fetch(["default"])
        queues.drain("default")
        tick("report")
        assert read(running.id).state == "active"
        assert jobs().count() == 1

    @pytest.mark.requirement("CRON-18", "CRON-S04")
    def test_enqueue_lets_every_run_wait_for_the_one_before(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        register(overlap_policy="enqueue")
        for _ in range(3):
            tick("report")
        assert "wait for the run" not in caplog.text
        tick("report")
        assert "3 runs of the cron job report wait for the run before them" in caplog.text
        ran = []
        for _ in range(4):
            # However often it is asked, one runs at a time.
            cron.fire_due()
            (claimed,) = fetch.fetch(["default"], count=9)
            cron.fire_due()
            assert fetch.fetch(["default"], count=9) == []
            ran.append(claimed.id)
            ack.ack(claimed.id)
        assert ran == [run.job_id for run in CronRun.primary.order_by("id")]
        assert reasons() == []

    def test_enqueue_goes_on_when_a_waiting_job_is_cancelled_or_activated_by_hand(self) -> None:
        register(overlap_policy="enqueue")
        for _ in range(4):
            tick("report")
        _, second, third, fourth = (run.job_id for run in CronRun.primary.order_by("id"))
        cancel.cancel(second)
        activate.activate(third)
        finish()
        finish()
        cron.fire_due()
        assert read(fourth).state == "available"

    def test_what_waits_is_released_also_after_its_cron_job_is_removed(self) -> None:
        register(overlap_policy="enqueue")
        tick("report")
        tick("report")
        cron.remove("report")
        finish()
        DueCheck().promote()
        assert tick_module.fire_if_due() == 1
        finish()

    def test_enqueue_holds_no_job_of_another_server_which_nothing_here_could_activate(self) -> None:
        there = {"remote": {"url": "http://127.0.0.1:9", "queues": ["away"]}}
        with override_settings(OJS={"OUTBOX": there}):
            register("there", template={"options": {"queue": "away"}}, overlap_policy="enqueue")
            register("here", overlap_policy="enqueue")
            for _ in range(2):
                tick("there", "here")
        sent = [json.loads(text) for text in OutboxEntry.primary.values_list("envelope", flat=True)]
        assert [each["options"].get("pending", False) for each in sent] == [False, False]
        held = CronRun.primary.filter(phase=CronRunPhase.HELD)
        assert [run.name for run in held] == ["here"]


class TestFullQueue:
    @pytest.mark.django_db(transaction=True)
    def test_the_job_of_a_full_queue_waits_in_the_outbox(self) -> None:
        queues.configure("default", {"max_size": 1})
        register("a")
        register("b")
        tick("a", "b")
        assert jobs().count() + OutboxEntry.primary.count() == 2
        assert OutboxEntry.primary.exists()
        assert cron.get("a").run_count == cron.get("b").run_count == 1
        # What waits there has not ended: runs do not pile up.
        tick("a", "b")
        assert reasons() == ["overlap_skip"] * 2


class TestRejected:
    def test_a_unique_policy_that_finds_another_job_skips(self) -> None:
        unique = {"keys": ["type"], "on_conflict": "reject"}
        for name in ("a", "b", "c"):
            register(name, template={"options": {"unique": unique}})
        tick("a", "b", "c")
        assert jobs().count() == 1
        assert reasons() == ["duplicate"] * 2
        assert events("cron.skipped")[0].data["active_job_id"] == str(jobs().get().pk)

    def test_a_unique_policy_that_ignores_skips_as_well(self) -> None:
        unique = {"keys": ["type"], "on_conflict": "ignore"}
        for name in ("a", "b"):
            register(name, template={"options": {"unique": unique}})
        tick("a", "b")
        assert reasons() == ["duplicate"]

    @pytest.mark.parametrize(
        ("middleware", "reason"),
        [
            ("tests.operations.cron.test_tick.drop", "dropped"),
            ("tests.operations.cron.test_tick.fail_for_b", "rejected"),
            ("tests.operations.cron.test_tick.reject_b", "rejected"),
        ],
    )
    def test_what_a_middleware_does_to_one_leaves_the_others(
        self, middleware: str, reason: str
    ) -> None:
        for name in ("a", "b", "c"):
            register(name)
        with override_settings(OJS={"ENQUEUE_MIDDLEWARE": [middleware]}):
            assert tick("a", "b", "c") == 3
        assert {job.meta["cron_name"] for job in jobs()} == {"a", "c"}
        assert reasons() == [reason]
        assert cron.fire_due() == 0


def drop(envelope: Any, next: Any) -> Any:
    return None if envelope.meta["cron_name"] == "b" else next(envelope)


def fail_for_b(envelope: Any, next: Any) -> Any:
    if envelope.meta["cron_name"] == "b":
        raise RuntimeError("no")
    return next(envelope)


def find_a_locked_queue(job: Any, proceed: Any) -> None:
    """An enqueue middleware that enqueues another job, and waits in vain for its queue."""
    raise QueueFull.at("audit", depth=1, bound=1, strategy="reject", busy=True)


def reject_b(envelope: Any, next: Any) -> Any:
    if envelope.meta["cron_name"] == "b":
        envelope.type = "Not A Type"
    return next(envelope)


class TestPruning:
    def test_a_run_is_deleted_after_its_job(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pruning, "WALK", 2)
        register(overlap_policy="allow")
        for _ in range(5):
            tick("report")
        kept = {run.job_id for run in CronRun.primary.order_by("id")[3:]}
        jobs().exclude(pk__in=kept).delete()
        pruner = pruning.RunPruner()
        with override_settings(OJS={"KEEP_COMPLETED": DAY}):
            assert pruner.prune() == 0
            CronRun.primary.update(triggered_at=F("triggered_at") - 2 * DAY)
            # Two at a step; a walk that has ended begins again.
            assert [pruner.prune() for _ in range(4)] == [2, 1, 0, 0]
        assert {run.job_id for run in cron.runs("report")} == kept

    @pytest.mark.django_db(transaction=True)
    def test_a_run_whose_job_waits_in_the_outbox_is_kept(self) -> None:
        queues.configure("default", {"max_size": 1})
        register("a")
        register("b")
        tick("a", "b")
        CronRun.primary.update(triggered_at=F("triggered_at") - 99 * DAY)
        with override_settings(OJS={"KEEP_COMPLETED": DAY}):
            assert pruning.RunPruner().prune() == 0


class TestTrigger:
    def test_a_run_that_is_asked_for_leaves_the_schedule_as_it_is(self) -> None:
        register()
        cron.set_enabled("report", False)
        job = cron.trigger("report", by="anna")
        stored = cron.get("report")
        assert (stored.run_count, stored.due_at, stored.enabled) == (1, None, False)
        assert read(job.id).meta["cron_name"] == "report"
        assert cron.runs("report").get().triggered_by == "anna"
        assert events("cron.triggered")[0].data["triggered_by"] == "anna"

    def test_its_overlap_policy_applies(self) -> None:
        register()
        job = cron.trigger("report", by="anna")
        with pytest.raises(Conflict) as caught:
            cron.trigger("report", by="anna")
        assert caught.value.details["active_job_id"] == str(job.id)
        assert reasons() == []  # No occurrence was skipped.

    def test_a_job_that_is_rejected_says_why(self) -> None:
        register("b")
        middleware = "tests.operations.cron.test_tick.reject_b"
        with (
            override_settings(OJS={"ENQUEUE_MIDDLEWARE": [middleware]}),
            pytest.raises(Conflict, match="type"),
        ):
            cron.trigger("b", by="anna")

    def test_a_middleware_that_finds_another_queue_locked_rejects_it(self) -> None:
        register()
        middleware = "tests.operations.cron.test_tick.find_a_locked_queue"
        with (
            override_settings(OJS={"ENQUEUE_MIDDLEWARE": [middleware]}),
            pytest.raises(Conflict, match="transactions are open"),
        ):
            cron.trigger("report", by="anna")


def test_fetch_over_http_fires_what_is_due() -> None:
    register()
    make_due("report")
    (claimed,) = fetch.fetch_remotely(["default"], worker_id="node")
    assert claimed.meta["cron_name"] == "report"


def test_without_cron_jobs_a_process_queries_them_twice_a_second_at_most(
    django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tick_module.INTERVAL == 0.4
    # It may go by on a busy machine.
    monkeypatch.setattr(tick_module, "INTERVAL", 3600)
    with django_assert_num_queries(1):
        for _ in range(5):
            assert tick_module.fire_if_due() == 0
    with django_assert_num_queries(1):
        DueCheck().promote()


def test_what_is_left_of_a_batch_is_fired_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        register(name)
    make_due("a", "b", "c")
    monkeypatch.setattr(tick_module, "fire_due", lambda: cron.fire_due(limit=2))
    assert [tick_module.fire_if_due() for _ in range(3)] == [2, 1, 0]


def test_workers_that_help_leave_what_is_due_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tick_module, "INTERVAL", 0)
    late = timedelta(minutes=5)
    register()
    make_due("report")
    assert tick_module.fire_if_due(late) == 0
    make_due("report", ago=timedelta(minutes=9))
    assert tick_module.fire_if_due(late) == 1
