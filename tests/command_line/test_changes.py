"""`retry`, `cancel`, `pause` and `resume`."""

from __future__ import annotations

import io

import pytest
from django.db import connection

from django_ojs.command_line.operator import operator
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.events.models import Event
from django_ojs.models import BulkOperation, Job
from django_ojs.models.bulk_operation import BulkActionName
from django_ojs.operations import queues
from django_ojs.operations.jobs import bulk_operations
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.spec import ids
from tests.command_line.run import Run, ojs
from tests.factories import in_state, jobs, push, push_many
from tests.model_factories import QueueFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]


class Keyboard(io.StringIO):
    """stdin of a terminal."""

    def isatty(self) -> bool:
        return True


def discarded(number: int, queue: str = "mail") -> list[Job]:
    return [in_state("discarded", queue=queue) for _ in range(number)]


def states(queue: str = "mail") -> list[str]:
    return sorted(jobs().filter(queue=queue).values_list("state", flat=True))


def typed(text: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Run:
    monkeypatch.setattr("sys.stdin", Keyboard(text))
    return ojs(*arguments)


def test_one_job_is_retried_without_a_question() -> None:
    (job,) = discarded(1)
    run = ojs("retry", job.pk)
    assert (run.code, run.out) == (0, "1 retried, 0 failed.\n")
    assert states() == ["available"]


@pytest.mark.both
@pytest.mark.both
def test_a_search_is_a_bulk_operation_with_the_name_of_the_operator() -> None:
    discarded(3)
    discarded(1, "other")
    run = ojs("retry", "state:discarded", "queue:mail", "--yes")
    operation = BulkOperation.objects.get()
    assert run.code == 0
    assert run.out == f"3 retried, 0 skipped, 0 failed (bulk operation {operation.pk}).\n"
    assert (operation.state, operation.ordered_by) == ("done", operator())
    assert operator().endswith("(manage.py ojs)")
    assert (states(), states("other")) == (["available"] * 3, ["discarded"])


def test_jobs_that_wait_for_their_time_run_now() -> None:
    scheduled, retryable = (in_state(state, queue="mail") for state in ("scheduled", "retryable"))
    run = ojs("run-now", "queue:mail", "--dry-run")
    assert run.out.startswith("This would run 2 jobs now; nothing was changed.")
    assert ojs("run-now", scheduled.pk).out == "1 made available, 0 failed.\n"
    assert states() == ["available", "retryable"]
    run = ojs("run-now", "state:retryable", "queue:mail", "--yes")
    assert run.out.startswith("1 made available, 0 skipped, 0 failed")
    retryable.refresh_from_db()
    assert retryable.state == "available"


def test_jobs_that_are_named_are_in_the_audit_trail() -> None:
    (job,) = discarded(1)
    ojs("retry", job.pk)
    entry = AuditEntry.primary.get()
    assert (entry.action, entry.actor, entry.object_id) == ("jobs.retry", operator(), str(job.pk))
    assert entry.detail == {"jobs": 1, "skipped": 0}


def test_the_audit_trail_names_the_caller_of_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ann")
    assert "sudo by ann" in operator()


def test_several_jobs_need_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded(2)
    search = ("retry", "queue:mail")
    run = typed("n\n", monkeypatch, *search)
    assert (run.code, states()) == (2, ["discarded"] * 2)
    assert run.err == (
        "Retry 2 jobs? They become available again, with all their attempts. [y/N] "
        "Nothing was changed.\n"
    )
    assert typed("", monkeypatch, *search).code == 2
    assert states() == ["discarded"] * 2
    assert typed("y\n", monkeypatch, *search).code == 0
    assert states() == ["available"] * 2


def test_without_a_terminal_several_jobs_need_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded(2)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    run = ojs("retry", "queue:mail")
    assert (run.code, states()) == (2, ["discarded"] * 2)
    assert "stdin is no terminal: confirm with --yes." in run.err


def test_several_ids_need_a_yes_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = discarded(2)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert ojs("retry", first.pk, second.pk).code == 2
    run = ojs("retry", first.pk, second.pk, "--yes", "--json")
    assert run.json == {"action": "retry", "done": 2, "skipped": 0, "failed": 0, "errors": {}}
    assert states() == ["available"] * 2


def test_a_dry_run_shows_the_jobs_and_changes_nothing() -> None:
    first, second = discarded(2)
    run = ojs("retry", "queue:mail", "--dry-run")
    assert run.out.startswith("This would retry 2 jobs; nothing was changed.\n")
    assert str(first.pk) in run.out
    assert str(second.pk) in run.out
    assert ojs("retry", "queue:mail", "--dry-run", "--json").json == {
        "action": "retry",
        "dry_run": True,
        "matched": 2,
        "more": False,
    }
    assert states() == ["discarded"] * 2
    assert not BulkOperation.objects.exists()


def test_a_job_that_is_not_there_or_not_discarded_is_a_failure() -> None:
    job, unknown = push(queue="mail"), ids.uuid7()
    run = ojs("retry", job.pk, unknown, "--yes")
    assert (run.code, run.out) == (1, "0 retried, 2 failed.\n")
    assert f"{job.pk}: The job is available; retry needs it discarded." in run.err
    assert f"{unknown}: There is no job with this id." in run.err


@pytest.mark.django_db(transaction=True)
def test_jobs_that_have_no_room_are_a_failure_with_its_reason() -> None:
    discarded(2)
    queues.configure("mail", {"backpressure": {"max_depth": 1}})
    run = ojs("retry", "queue:mail", "--yes", "--json")
    assert run.code == 1
    assert (run.json["done"], run.json["failed"]) == (1, 1)
    assert run.json["reasons"] == {"queue mail is full": 1}
    assert states() == ["available", "discarded"]


@pytest.mark.parametrize("action", ["retry", "cancel"])
def test_without_a_search_nothing_is_changed(action: str) -> None:
    push(queue="mail")
    run = ojs(action, "--yes")
    assert (run.code, states()) == (2, ["available"])
    assert "Name the jobs: by id, or by a search" in run.err


def test_no_match_is_no_failure() -> None:
    assert ojs("retry", "type:none").out == "No job matches.\n"
    assert ojs("retry", "type:none", "--json").json["done"] == 0


def test_a_state_that_the_action_does_not_change_ends_with_2() -> None:
    run = ojs("retry", "state:completed", "--yes")
    assert run.code == 2
    assert "retry needs jobs that are discarded." in run.err


def test_cancel_takes_the_waiting_jobs_and_running_ones_only_if_they_are_named() -> None:
    running = in_state("active", queue="mail")
    push_many(2, queue="mail")
    assert ojs("cancel", "queue:mail", "--yes").code == 0
    assert states() == ["active", "cancelled", "cancelled"]
    run = ojs("cancel", running.pk)
    assert (run.code, run.out) == (0, "1 cancelled, 0 failed.\n")
    assert states() == ["cancelled"] * 3


def test_an_interrupt_stops_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded(2)

    def interrupted(**values: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("django_ojs.operations.jobs.bulk_execution.work_once", interrupted)
    run = ojs("retry", "queue:mail", "--yes")
    assert run.code == 1
    assert "The operation was stopped by" in run.err
    operation = BulkOperation.objects.get()
    assert (operation.state, operation.stopped_by) == ("stopped", operator())
    assert states() == ["discarded"] * 2


def test_an_operation_that_waits_already_is_left_to_the_workers() -> None:
    discarded(1, "other")
    older = bulk_operations.order(BulkActionName.RETRY, JobFilter(queue="other"), by="ann")
    discarded(2)
    assert ojs("retry", "queue:mail", "--yes").code == 0
    assert (states(), states("other")) == (["available"] * 2, ["discarded"])
    older.refresh_from_db()
    assert older.state == "pending"


def test_queues_are_paused_and_resumed_in_the_name_of_the_operator() -> None:
    push(queue="mail")
    push(queue="reports")
    run = ojs("pause", "mail", "reports")
    assert run.out == (
        "Queue mail is paused: it accepts jobs, and workers fetch none.\n"
        "Queue reports is paused: it accepts jobs, and workers fetch none.\n"
    )
    assert queues.get("mail").paused
    paused = Event.objects.filter(type="queue.paused", subject="mail").get()
    assert paused.data["paused_by"] == operator()
    assert ojs("resume", "mail", "--json").json == {"queues": {"mail": "active"}}
    assert [queues.get(name).paused for name in ("mail", "reports")] == [False, True]


def test_a_misspelt_queue_is_not_paused_and_neither_are_the_others() -> None:
    push(queue="mail")
    run = ojs("pause", "mail", "mial")
    assert (run.code, run.out) == (2, "")
    assert run.err == "There is no queue 'mial'. Did you mean mail?\n"
    assert not queues.get("mail").paused
    assert ojs("pause", "MAIL").code == 2


def test_a_misspelt_queue_of_many_is_compared_with_all_and_few_are_named() -> None:
    names = [f"q{number:03}" for number in range(300)]
    for name in names:
        QueueFactory(name=name)
    # It waits least, so it is the last of them.
    QueueFactory(name="zebra")
    assert ojs("resume", "zebar").err == "There is no queue 'zebar'. Did you mean zebra?\n"
    run = ojs("resume", "nosuch")
    assert run.code == 2
    assert run.err == (
        "There is no queue 'nosuch', nor one with a similar name. There are 301 queues, such as "
        f"{', '.join(names[:10])}.\n"
    )


@pytest.mark.django_db(transaction=True)
def test_a_database_that_may_only_be_read_ends_the_command_without_a_traceback() -> None:
    push(queue="mail")
    is_sqlite = connection.vendor == "sqlite"
    on, off = (
        ("PRAGMA query_only = ON", "PRAGMA query_only = OFF")
        if is_sqlite
        else ("SET default_transaction_read_only = on", "RESET default_transaction_read_only")
    )
    with connection.cursor() as cursor:
        cursor.execute(on)
        try:
            run = ojs("pause", "mail")
        finally:
            cursor.execute(off)
    reason = (
        "attempt to write a readonly database"
        if is_sqlite
        else "cannot execute INSERT in a read-only transaction"
    )
    assert (run.code, run.err) == (1, f"The database reported an error: {reason}.\n")
