"""What matches, and the text of a failure: the nearest jobs, and why each does not match."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from textwrap import dedent
from typing import Any
from unittest.mock import ANY

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

import django_ojs
from django_ojs.testing import TestContext
from tests.testapp.testing_jobs import forever, save, send

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


def message(assertion: Callable[..., object], *args: Any, **options: Any) -> str:
    """Return the message of an assertion that fails, with ID for each id."""
    with pytest.raises(AssertionError) as failed:
        assertion(*args, **options)
    return _ID.sub("ID", str(failed.value))


def text(shown: str) -> str:
    return dedent(shown).strip()


@pytest.fixture(params=["ojs", "ojs_fake"])
def context(request: pytest.FixtureRequest, db: None) -> TestContext:
    opened: TestContext = request.getfixturevalue(request.param)
    return opened


@pytest.mark.requirement("TST-002")
def test_what_matches(context: TestContext) -> None:
    at = datetime(2040, 1, 2, 3, 4, 5, 678900, tzinfo=UTC)
    send.options(meta={"a": {"b": 1}, "c": 2}, priority=7, scheduled_at=at).enqueue("ada")
    send.options(scheduled_at=timedelta(days=1)).enqueue("eve", "receipt", {"pages": (1, 2)})
    for each in (send, "testing.send"):
        assert len(context.assert_enqueued(each)) == 2
    context.assert_enqueued(send, args=["ada"], queue="email", priority=7, count=1)
    context.assert_enqueued(send, meta={"a": {"b": 1}}, scheduled_at=at, count=1)
    context.assert_enqueued(send, delay=timedelta(days=1), count=1)
    context.assert_enqueued(send, delay=86_400, args=["eve", ANY, {"pages": (1, 2)}], count=1)
    context.assert_enqueued(send, kwargs={"template": "receipt"}, count=1)
    # The default of a parameter is what the job runs with.
    context.assert_enqueued(send, args=["ada"], kwargs={"template": "welcome"}, count=1)
    context.assert_enqueued(send, kwargs={"template": "letter"}, count=0)


def test_numbers_and_booleans_differ_as_in_json(context: TestContext) -> None:
    django_ojs.enqueue("elsewhere.run", [1, True, {"a": 0}])
    context.assert_enqueued("elsewhere.run", args=[1.0, ANY, {"a": ANY}])
    found = message(context.assert_enqueued, "elsewhere.run", args=[True, 1, {"a": False}])
    assert found.splitlines()[3:] == [
        "     args[0]: expected True, got 1",
        "     args[1]: expected 1, got True",
        "     args[2]['a']: expected False, got 0",
    ]


@pytest.mark.requirement("TST-003")
def test_refute_is_the_inverse(context: TestContext) -> None:
    send.enqueue("ada")
    context.refute_enqueued(save)
    context.refute_enqueued(send, args=["eve"])
    context.refute_enqueued(send, priority=1)
    assert message(context.refute_enqueued, send, queue="email") == text(
        """
        1 matching job enqueued, none expected: testing.send with queue='email'
          testing.send ID (available), args=['ada']
        """
    )


@pytest.mark.requirement("TST-004")
def test_cleared_jobs_are_gone(context: TestContext) -> None:
    send.enqueue("ada")
    context.clear()
    context.refute_enqueued(send)
    assert context.enqueued() == []


def test_the_nearest_job_comes_first_with_each_difference(context: TestContext) -> None:
    save.enqueue("thing")
    send.options(queue="other", priority=3).enqueue("eve", "receipt", {"pages": [1, 2], "a": 0})
    send.options(meta={"tenant": 1}).enqueue("ada", "welcome", {"pages": [1, 3]})
    assert message(
        context.assert_enqueued,
        send,
        args=["ada", "welcome", {"pages": [1, 2]}],
        meta={"tenant": 2},
        queue="email",
        priority=0,
    ) == text(
        """
        No matching job enqueued: testing.send with args=['ada', 'welcome', {'pages': [1, 2]}], \
queue='email', meta={'tenant': 2}, priority=0
        Nearest first, this test enqueued:
        1. testing.send ID (available)
             args[2] (options)['pages'][1]: expected 2, got 3
             meta['tenant']: expected 2, got 1
        2. testing.send ID (available)
             args[0] (to): expected 'ada', got 'eve'
             args[1] (template): expected 'welcome', got 'receipt'
             args[2] (options)['a']: expected nothing, got 0
             queue: expected 'email', got 'other'
             meta['tenant']: expected 2, got nothing
             priority: expected 0, got 3
        3. testing.save ID (available)
             type: expected 'testing.send', got 'testing.save'
             args[0] (to): expected 'ada', got 'thing'
             args[1] (template): expected 'welcome', got nothing
             args[2] (options): expected {'pages': [1, 2]}, got nothing
             queue: expected 'email', got 'default'
             meta['tenant']: expected 2, got nothing
        """
    )


def test_a_message_has_ten_lines_for_a_job_and_five_jobs(context: TestContext) -> None:
    for number in range(7):
        django_ojs.enqueue("elsewhere.run", list(range(number, number + 12)))
    found = message(context.assert_enqueued, "elsewhere.run", args=list(range(20, 32)))
    head, *jobs = found.split("\n")
    assert head.startswith("No matching job enqueued: elsewhere.run with args=[20, 21, 22,")
    assert jobs[0] == "Nearest first, this test enqueued:"
    assert jobs[1:11] == [
        "1. elsewhere.run ID (available)",
        *(f"     args[{n}]: expected {20 + n}, got {n}" for n in range(8)),
        "     and 4 more differences",
    ]
    assert jobs[51:] == ["and 2 more"]


def test_long_values_are_cut(context: TestContext) -> None:
    send.enqueue("x" * 1_000)
    found = message(context.assert_enqueued, send, args=["y" * 1_000])
    assert len(found) < 800
    assert "args[0] (to): expected 'yyyyyy" in found


def test_times(context: TestContext) -> None:
    at = timezone.now() + timedelta(hours=2)
    send.options(scheduled_at=at).enqueue("ada")
    send.enqueue("eve")
    wanted = datetime(2040, 1, 1, tzinfo=UTC)
    found = message(context.assert_enqueued, send, scheduled_at=wanted, delay=timedelta(days=1))
    assert "scheduled_at: expected 2040-01-01T00:00:00.000Z, got 20" in found
    assert "delay: expected 1 day, 0:00:00, got " in found
    assert "scheduled_at: expected a time, got none; the job was available at once" in found


def test_counts(context: TestContext) -> None:
    for name in ("ada", "eve"):
        send.enqueue(name)
    assert message(context.assert_enqueued, send, count=1) == text(
        """
        2 matching jobs enqueued, 1 expected: testing.send
          testing.send ID (available)
          testing.send ID (available)
        """
    )
    assert message(context.assert_enqueued, send, args=["ada"], count=2) == text(
        """
        1 matching job enqueued, 2 expected: testing.send with args=['ada']
          testing.send ID (available)
        Nearest first, this test enqueued:
        1. testing.send ID (available)
             args[0] (to): expected 'ada', got 'eve'
        """
    )


@pytest.mark.requirement("TST-R003")
def test_runs_and_outcomes(ojs: TestContext) -> None:
    send.enqueue("ada")
    assert message(ojs.assert_performed, send) == text(
        """
        No matching job performed: testing.send
        Nearest first, this test enqueued:
        1. testing.send ID (available)
             it has not run; it is available
        """
    )
    ojs.fail_next(send, ConnectionError("no server"))
    ojs.drain()
    ojs.assert_performed(send)
    ojs.assert_failed(send)
    assert message(ojs.assert_completed, send, count=1) == text(
        """
        No matching job completed, 1 expected: testing.send
        Nearest first, this test enqueued:
        1. testing.send ID (retryable)
             state: expected completed, got retryable (ConnectionError: 'no server')
        """
    )
    assert message(ojs.refute_performed, send).startswith("1 matching job performed, none")
    [job] = ojs.enqueued()
    expected = f"testing.send {job.pk} is retryable, not completed."
    with pytest.raises(AssertionError, match=re.escape(expected)):
        ojs.assert_job_state(job.pk, "completed")
    ojs.drain(with_retries=True)
    ojs.assert_completed(send)
    assert "state: expected retryable or discarded" in message(ojs.assert_failed, send)


def test_nothing_was_enqueued_at_all(context: TestContext) -> None:
    assert message(context.assert_enqueued, send) == text(
        """
        No matching job enqueued: testing.send
        * This test enqueued no job at all. Did the code reach its enqueue? Did it run in \
setUpTestData, or in another process? Those are not the jobs of the test.
        """
    )


def test_a_type_that_was_misspelt(context: TestContext) -> None:
    save.enqueue("thing")
    found = message(context.assert_enqueued, "testing.sennd")
    assert found.splitlines()[-1] == (
        "* The type 'testing.sennd' has no handler here. Did you mean testing.send?"
    )


def test_a_job_that_was_rolled_back(ojs: TestContext) -> None:
    with transaction.atomic():
        send.enqueue("ada")
        transaction.set_rollback(True)
    assert message(ojs.assert_enqueued, send) == text(
        """
        No matching job enqueued: testing.send
        * 1 job of this type was enqueued and then rolled back with the transaction, or deleted.
        """
    )


def test_jobs_that_became_no_row_of_their_own(ojs: TestContext) -> None:
    once = forever.options(unique={"on_conflict": "ignore"})
    once.enqueue()
    once.enqueue()
    outbox = {"billing": {"url": "https://example.com/ojs", "types": ["testing.send"]}}
    with override_settings(OJS={"OUTBOX": outbox}):
        send.enqueue("ada")
        send.enqueue("eve")
    with override_settings(OJS={"ENQUEUE_MIDDLEWARE": ["tests.testing.test_assertions.drop"]}):
        save.enqueue("thing")
    assert message(ojs.assert_enqueued, send).splitlines()[-1] == (
        "* 2 jobs of this type were stored in the outbox for billing, and not as a job of this "
        "site: see django_ojs.extensions.outbox.models.OutboxEntry."
    )
    assert message(ojs.assert_enqueued, save).splitlines()[-1] == (
        "* 1 job of this type was dropped by an enqueue middleware."
    )
    assert message(ojs.assert_enqueued, forever, count=2).splitlines()[-1] == (
        "* 1 job of this type was not stored, because its unique policy found another job."
    )


def drop(envelope: object, proceed: object) -> None:
    """Drop every job."""


def test_functions_that_wait_for_a_commit(
    ojs: TestContext, django_capture_on_commit_callbacks: Any
) -> None:
    def enqueue_receipt() -> None:
        send.enqueue("ada")

    with django_capture_on_commit_callbacks(execute=True):
        transaction.on_commit(enqueue_receipt)
        assert message(ojs.assert_enqueued, send) == text(
            """
            No matching job enqueued: testing.send
            * 1 on_commit function waits for a commit, which this test never makes: \
tests.testing.test_assertions.test_functions_that_wait_for_a_commit.<locals>.enqueue_receipt. Run \
the code inside captureOnCommitCallbacks(execute=True), or with pytest's fixture \
django_capture_on_commit_callbacks.
            """
        )
    ojs.assert_enqueued(send, args=["ada"])


def test_what_makes_no_sense_is_an_error(ojs_fake: TestContext) -> None:
    with pytest.raises(TypeError, match=r"has no parameter templte. Did you mean template\?"):
        ojs_fake.assert_enqueued(send, kwargs={"templte": "receipt"})
    with pytest.raises(LookupError, match=r"kwargs= needs the handler of 'elsewhere.run'"):
        ojs_fake.assert_enqueued("elsewhere.run", kwargs={"a": 1})
    with pytest.raises(TypeError, match="A job type, a handler or a task is needed"):
        ojs_fake.assert_enqueued(send.function)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValueError, match="times must be at least 1"):
        ojs_fake.fail_next(send, ValueError, times=0)
