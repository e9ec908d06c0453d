"""The queues of a worker: `*`, and the warning when they are not those of the handlers."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from django.core.management import call_command

import django_ojs as ojs
from django_ojs import handlers
from django_ojs.models import Job
from django_ojs.storage.figures import counts
from django_ojs.worker import process as processes
from django_ojs.worker.process import WorkerProcess
from django_ojs.worker.queue_selection import QueueSelection, handler_queues, mismatch
from tests import factories
from tests.cases import together
from tests.worker.acceptance.ledger import ALIASES, becomes, stored
from tests.worker.test_process import configured, working
from tests.worker.waiting import eventually

both = pytest.mark.django_db(transaction=True, databases=ALIASES)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A project whose handlers have the queues "email" and "reports"."""
    monkeypatch.setattr(handlers.registry, "handlers", {})
    ojs.job("email.send", queue="email")(lambda: "sent")
    ojs.job("report.build", queue="reports")(lambda: "built")


HANDLERS = {"default": ["a.b"], "email": ["email.send"]}


@together(
    ("queues", "found", "says"),
    [
        (("default", "email"), HANDLERS, None),
        (("email",), HANDLERS, None),
        (("*",), HANDLERS, None),
        (("emial",), {}, None),
        (("default",), HANDLERS, "claims from 'default' only. Handlers here have 'email' as"),
        (("default",), HANDLERS, "use --queues default,email, or --queues '*'"),
        (("emial", "default"), HANDLERS, "No handler here has 'emial' as its queue. Handlers"),
        (("default",), {"email": ["x"]}, "No handler here has 'default' as its queue."),
        (("default",), {"email": ["x"]}, "use --queues email, or"),
        (("default", "x"), {"default": ["x"]}, "No handler here has 'x' as its queue."),
    ],
)
def test_queues_that_are_not_those_of_the_handlers_are_named(
    queues: tuple[str, ...], found: dict[str, list[str]], says: str | None
) -> None:
    warning = mismatch(queues, found)
    if says is None:
        assert warning is None
    else:
        assert warning is not None
        assert says in warning


@both
def test_the_start_is_logged_with_database_queues_and_handlers(
    shop: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "django_ojs")
    assert handler_queues() == {"email": ["email.send"], "reports": ["report.build"]}
    call_command("ojs_worker", "--once")
    assert "Database default: " in caplog.text
    assert "Handlers of the queue email: email.send" in caplog.text
    assert "runs jobs of default" in caplog.text
    (warning,) = [r for r in caplog.records if "No handler here has 'default'" in r.getMessage()]
    assert warning.levelno == logging.WARNING
    assert "use --queues email,reports" in warning.getMessage()


@both
def test_a_worker_without_jobs_of_its_handlers_repeats_the_warning(
    shop: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "IDLE_WARNING_INTERVAL", 0.01)
    with working():
        eventually(lambda: caplog.text.count("No job came in the last") > 1, "it warns twice")
    caplog.clear()
    with working(queues=("email", "reports")):
        job = stored(ojs.enqueue("email.send"))
        eventually(lambda: factories.read(job.pk).state == "completed", "it works")
    assert "No job came" not in caplog.text


@both
def test_a_star_is_every_other_queue(shop: None) -> None:
    jobs = [stored(ojs.enqueue(type_)) for type_ in ("email.send", "report.build")]
    moved = stored(ojs.enqueue("email.send", queue="rare"))
    due = stored(ojs.enqueue("email.send", queue="late", scheduled_at="+PT1H"))
    Job.objects.filter(pk=due.pk).update(due_at=due.created_at)
    call_command("ojs_worker", "--once", "--queues", "*")
    for job in [*jobs, moved, due]:
        assert becomes(job, "completed")


@both
def test_a_running_worker_finds_a_queue_that_is_new(shop: None) -> None:
    with working(queues=("*",)):
        for queue in ("first", "second"):
            assert becomes(stored(ojs.enqueue("email.send", queue=queue)), "completed")


@pytest.mark.django_db
def test_named_queues_keep_their_order_around_the_star() -> None:
    for queue in ("b", "a", "critical", "bulk"):
        factories.push(queue=queue)
    selection = QueueSelection(("critical", "*", "bulk"), max_age=3600)
    assert selection.current() == ("critical", "a", "b", "bulk")
    factories.push(queue="c")
    assert selection.current() == ("critical", "a", "b", "bulk")
    selection.expire()
    assert selection.current() == ("critical", "a", "b", "c", "bulk")
    assert QueueSelection(("x",), max_age=0).current() == ("x",)


@pytest.mark.django_db
def test_a_queue_that_gets_a_job_while_the_list_is_read_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factories.push(queue="a")
    selection = QueueSelection(("*",), max_age=0)
    assert selection.read_at == -math.inf
    assert selection.current() == ("a",)
    read_at = selection.read_at
    real = counts.queues_with

    def queues_with(states: Any) -> frozenset[str]:
        real(states)
        # Its last job ended, and another one comes after the database has looked.
        selection.add(["a"])
        return frozenset()

    monkeypatch.setattr(counts, "queues_with", queues_with)
    assert selection.current() == ("a",)
    assert selection.read_at > read_at
    assert QueueSelection(("x",), max_age=0).read_at == math.inf


@pytest.mark.django_db
def test_a_queue_in_which_no_job_is_available_is_left_out_unless_claims_promote() -> None:
    factories.push(queue="now")
    factories.in_state("scheduled", queue="later")
    factories.in_state("retryable", queue="again")
    for state in ("pending", "active", "completed", "discarded"):
        factories.in_state(state, queue=state)
    assert QueueSelection(("*",), max_age=0).current() == ("now",)
    assert QueueSelection(("*",), max_age=0, due=True).current() == ("again", "later", "now")


@both
def test_a_worker_of_all_queues_waits_for_the_first_job_of_the_database(
    shop: None, caplog: pytest.LogCaptureFixture
) -> None:
    with working(queues=("*",)) as process:

        def polled_at() -> float:
            return process._claimer.began_at if hasattr(process, "_claimer") else 0.0

        eventually(polled_at, "it polls")
        first = polled_at()
        eventually(lambda: polled_at() > first, "it polls again")
        assert becomes(stored(ojs.enqueue("email.send")), "completed")
    assert "does not respond" not in caplog.text


@both
def test_a_star_without_any_job_claims_nothing() -> None:
    WorkerProcess(configured(once=True, queues=("*",))).run()
