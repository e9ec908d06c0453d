"""The three modes: what an enqueue does in each, and whose jobs a test sees."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test import TestCase, override_settings
from django.utils import timezone

import django_ojs as ojs
from django_ojs import signals, testing
from django_ojs.models import Job
from django_ojs.operations.run_now import run_now
from django_ojs.spec.errors import DuplicateJob, InvalidArgs, JobNotFound
from django_ojs.testing import Drained, FakeModeError, TestContext
from tests.receivers import receiving
from tests.testapp.models import Thing
from tests.testapp.testing_jobs import asave, chain, save, save_atomically, send
from tests.threads import at_once, beside
from tests.worker.waiting import BOUND


def in_thread(target: Callable[[], object]) -> list[BaseException]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            target()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors


class TestReal:
    def test_a_job_is_a_row(self, ojs: TestContext) -> None:
        job = send.enqueue("ada")
        assert Job.objects.get().pk == job.id
        assert [each.pk for each in ojs.enqueued()] == [job.id]
        assert ojs.enqueued(send, queue="other") == ojs.enqueued("testing.save") == []

    @pytest.mark.django_db
    def test_jobs_from_before_the_context_are_not_the_test_s(self) -> None:
        send.enqueue("before")
        with testing.real() as context:
            send.enqueue("ada")
            assert [job.args for job in context.enqueued()] == [["ada"]]
            context.clear()
            assert context.enqueued() == []
        assert [job.args for job in Job.objects.all()] == [["before"]]

    def test_it_raises_what_an_enqueue_raises(self, ojs: TestContext) -> None:
        with pytest.raises(InvalidArgs):
            send.enqueue()
        assert ojs.enqueued() == []


@pytest.mark.requirement("TST-001")
class TestFake:
    def test_no_row_is_stored_and_no_database_needed(self, ojs_fake: TestContext) -> None:
        # This test may not use a database: pytest-django would raise.
        job = send.options(scheduled_at="+PT1H", meta={"a": 1}).enqueue("ada")
        [stored] = ojs_fake.enqueued(send)
        assert (stored.pk, stored.state, stored.args, stored.queue, stored.meta) == (
            *(job.id, "scheduled", ["ada"], "email"),
            {"a": 1},
        )
        assert stored.due_at is not None
        assert job.id.version == 7

    def test_a_job_is_read_and_cancelled_in_memory(self, ojs_fake: TestContext) -> None:
        job = send.enqueue("ada")
        assert ojs.get_job(job.id).state == job.job().state == "available"
        assert ojs.cancel(job.id).state == "cancelled"
        assert ojs.cancel(job.id).state == "cancelled"
        ojs_fake.assert_job_state(job.id, "cancelled")
        ojs_fake.assert_job_state(job, "cancelled")
        with pytest.raises(JobNotFound):
            ojs.get_job(ojs.new_id())

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("drain", ()),
            ("freeze", (datetime(2030, 1, 1, tzinfo=UTC),)),
            ("advance", (timedelta(hours=1),)),
            ("assert_performed", (send,)),
            ("refute_performed", (send,)),
            ("assert_completed", (send,)),
            ("assert_failed", (send,)),
        ],
    )
    def test_what_needs_rows_says_so(
        self, ojs_fake: TestContext, name: str, arguments: tuple[object, ...]
    ) -> None:
        now = timezone.now
        with pytest.raises(FakeModeError, match=rf"^{name}\(\) needs the rows .* Use real mode"):
            getattr(ojs_fake, name)(*arguments)
        assert timezone.now is now

    @pytest.mark.django_db
    def test_a_change_of_a_recorded_job_says_so_too(self, ojs_fake: TestContext) -> None:
        job = send.options(scheduled_at="+PT1H").enqueue("ada")
        with pytest.raises(FakeModeError, match=r"^A change of a job other than cancel\(\)"):
            run_now(job.id)
        ojs_fake.assert_job_state(job, "scheduled")

    def test_one_handler_runs_by_perform(self, ojs_fake: TestContext) -> None:
        assert ojs_fake.perform(send, "ada") == "ada"
        ojs_fake.fail_next(send, ValueError("no server"))
        with pytest.raises(ValueError, match="no server"):
            ojs_fake.perform(send, "ada")
        assert ojs_fake.enqueued() == []

    def test_what_an_enqueue_checks_is_checked(self, ojs_fake: TestContext) -> None:
        with pytest.raises(ojs.OJSError, match="queue"):
            ojs.enqueue("testing.send", ["ada"], queue="Not A Queue")
        key = ojs.new_id()
        send.options(id=key).enqueue("ada")
        with pytest.raises(DuplicateJob):
            ojs.enqueue_batch([send.request("eve"), send.options(id=key).request("ada")])
        assert [job.args for job in ojs_fake.enqueued()] == [["ada"]]

    def test_enqueue_middleware_runs(self, ojs_fake: TestContext) -> None:
        with override_settings(OJS={"ENQUEUE_MIDDLEWARE": ["tests.testing.test_modes.label"]}):
            send.enqueue("ada")
            assert send.enqueue("nobody@example.com").outcome == "dropped"
        ojs_fake.assert_enqueued(send, meta={"label": "set"}, count=1)

    def test_every_job_is_recorded_whatever_there_is_already(self, ojs_fake: TestContext) -> None:
        for _ in range(2):
            send.options(unique={"on_conflict": "reject"}).enqueue("ada")
        outbox = {"billing": {"url": "https://example.com/ojs", "types": ["bill.*"]}}
        with override_settings(OJS={"OUTBOX": outbox}):
            ojs.enqueue("bill.send", [])
        ojs_fake.assert_enqueued(send, count=2)
        ojs_fake.assert_enqueued("bill.send", count=1)

    def test_a_signal_is_sent(self, ojs_fake: TestContext) -> None:
        sent: list[str] = []

        def receive(signal: object, job: Job, **kwargs: object) -> None:
            sent.append(f"{job.type} {job.state}")

        with receiving(receive, signals.job_enqueued):
            send.enqueue("ada")
        assert sent == ["testing.send available"]

    @pytest.mark.django_db
    def test_after_it_jobs_are_rows_again(self) -> None:
        with testing.fake():
            send.enqueue("fake")
        send.enqueue("real")
        assert [job.args for job in Job.objects.all()] == [["real"]]


@pytest.mark.requirement("TST-R001")
class TestInline:
    def test_the_job_has_run_when_the_enqueue_returns(self, ojs_inline: TestContext) -> None:
        job = send.options(scheduled_at="+P1D").enqueue("ada")
        [done] = ojs_inline.assert_completed(send, count=1)
        assert (done.pk, done.result, done.attempt) == (job.id, "ada", 1)
        assert Job.objects.get().state == "completed"

    def test_it_has_run_whatever_keeps_it_from_starting(self, ojs_inline: TestContext) -> None:
        ojs.pause_queue("email")
        send.options(rate_limit={"key": "closed", "concurrency": 0}).enqueue("ada")
        ojs_inline.assert_completed(send, count=1)
        unique = ojs.UniquePolicy(on_conflict="reject", states=("completed",))
        send.options(unique=unique).enqueue("eve")
        with pytest.raises(DuplicateJob):
            send.options(unique=unique).enqueue("eve")

    def test_what_a_handler_enqueues_has_run_too(self, ojs_inline: TestContext) -> None:
        chain.enqueue(2)
        ojs_inline.assert_completed(chain, count=3)
        assert ojs_inline.drain() == Drained()

    def test_an_exception_reaches_the_caller_and_nothing_is_retried(
        self, ojs_inline: TestContext
    ) -> None:
        ojs_inline.fail_next(send, ValueError("no server"))
        with pytest.raises(ValueError, match="no server"):
            send.enqueue("ada")
        [failed] = ojs_inline.assert_failed(send)
        assert failed.attempt == 1

    @pytest.mark.django_db
    def test_handlers_use_the_database_of_the_test(self, ojs_inline: TestContext) -> None:
        save.enqueue("plain")
        save_atomically.enqueue("atomic")
        asave.enqueue("async")
        assert set(Thing.objects.values_list("name", flat=True)) == {"plain", "atomic", "async"}

    @pytest.mark.django_db
    def test_the_rows_of_a_block_that_is_rolled_back_go_with_it(
        self, ojs_inline: TestContext
    ) -> None:
        with transaction.atomic():
            save_atomically.enqueue("ada")
            assert Thing.objects.exists()
            transaction.set_rollback(True)
        assert not Thing.objects.exists()
        assert ojs_inline.enqueued() == []

    def test_a_type_without_a_handler_is_an_error(self, ojs_inline: TestContext) -> None:
        with pytest.raises(LookupError, match=r"'testing.sent' has no handler.*testing.send\?"):
            ojs.enqueue("testing.sent", ["ada"])


@pytest.mark.requirement("TST-005")
class TestIsolation:
    def test_the_jobs_of_a_thread_are_the_test_s(self, ojs_fake: TestContext) -> None:
        assert not in_thread(lambda: send.enqueue("ada"))
        assert not in_thread(lambda: copy_context().run(send.enqueue, "eve"))
        ojs_fake.assert_enqueued(send, count=2)

    def test_tests_in_two_threads_do_not_see_each_other(self) -> None:
        both, seen = threading.Barrier(2, timeout=BOUND), {}

        def run(name: str) -> None:
            with testing.fake() as context:
                both.wait()
                send.enqueue(name)
                both.wait()
                seen[name] = [job.args for job in context.enqueued()]
                both.wait()

        at_once([lambda: run("a"), lambda: run("b")])
        assert seen == {"a": [["a"]], "b": [["b"]]}

    def test_a_thread_of_neither_of_two_tests_is_an_error(self) -> None:
        inside, leave = threading.Event(), threading.Event()

        def other_test() -> None:
            with testing.fake():
                inside.set()
                leave.wait(BOUND)

        with beside(other_test):
            inside.wait(BOUND)
            with testing.fake() as context:
                [error] = in_thread(lambda: send.enqueue("ada"))
                assert "this thread belongs to none" in str(error)
                assert context.enqueued() == []
            leave.set()

    def test_a_thread_that_outlives_its_test_is_an_error(self) -> None:
        with testing.fake():
            left_over = copy_context()
        with testing.fake() as context:
            [error] = in_thread(lambda: left_over.run(send.enqueue, "ada"))
            assert "has ended" in str(error)
            assert context.enqueued() == []

    def test_contexts_can_be_nested(self, ojs_fake: TestContext) -> None:
        with testing.fake() as inner:
            send.enqueue("inner")
            assert not in_thread(lambda: send.enqueue("thread"))
        send.enqueue("outer")
        assert [job.args for job in inner.enqueued()] == [["inner"], ["thread"]]
        assert [job.args for job in ojs_fake.enqueued()] == [["outer"]]


class AfterCommit(TestCase):
    def test_a_function_that_waits_for_a_commit_is_named(self) -> None:
        def enqueue_later() -> None:
            send.enqueue("ada")

        with testing.real() as context:
            transaction.on_commit(enqueue_later)
            with pytest.raises(AssertionError) as failed:
                context.assert_enqueued(send)
            assert "1 on_commit function waits for a commit" in str(failed.value)
            assert "enqueue_later" in str(failed.value)
            assert "captureOnCommitCallbacks(execute=True)" in str(failed.value)
            connection.run_on_commit.clear()
            with self.captureOnCommitCallbacks(execute=True):
                transaction.on_commit(enqueue_later)
                send.enqueue_after_commit("eve")
            context.assert_enqueued(send, args=["ada"])
            context.assert_enqueued(send, args=["eve"])


def label(envelope: ojs.Request, proceed: Callable[[object], object]) -> object:
    """Set a label; drop what is for nobody."""
    if envelope.args == ["nobody@example.com"]:
        return None
    envelope.meta["label"] = "set"  # type: ignore[attr-defined]  # an Envelope
    return proceed(envelope)
