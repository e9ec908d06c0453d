"""Tasks of Celery as jobs: what is enqueued, and how they run."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
from django.utils import timezone
from django.utils.translation import gettext_lazy

from django_ojs import testing
from django_ojs.contrib.celery import (
    Celery,
    Task,
    current_task,
    shared_task,
    signals,
    signature,
)
from django_ojs.contrib.celery.exceptions import MaxRetriesExceededError, NoEquivalent, Retry
from django_ojs.models import Job
from django_ojs.operations.fetch import fetch
from django_ojs.spec.errors import InvalidArgs, OJSError
from django_ojs.spec.states import State


def test_a_task_is_called_as_a_function(shop: ModuleType) -> None:
    assert shop.add(1, b=2) == 3
    assert (shop.add.__name__, shop.add.__wrapped__(1)) == ("add", 11)
    assert shop.call() == [None, 0, {}, None] if current_task else True
    assert not current_task
    with pytest.raises(ConnectionError):
        shop.call("down")


def test_delay_enqueues_a_job_and_a_worker_runs_it(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = shop.add.delay(1, b=2)
    assert result.state == "PENDING"
    ojs.assert_enqueued(shop.add, args=[1, 2])
    ojs.drain()
    assert (result.state, result.result, result.ready()) == ("SUCCESS", 3, True)
    assert Job.objects.get().type == "tests.contrib.celery.tasks.add"


def test_the_options_of_a_task_and_of_a_call(ojs: testing.TestContext, shop: ModuleType) -> None:
    shop.mail.delay("ada@example.com", "bob@example.com", subject="Hi", reply_to="eve@example.com")
    job = Job.objects.get()
    assert (job.queue, job.priority) == ("low-priority", 3)
    assert job.args[:2] == ["ada@example.com", "bob@example.com"]
    assert job.args[2] == {"subject": "Hi", "reply_to": "eve@example.com"}
    assert job.expires_at - job.created_at == pytest.approx(
        timedelta(hours=1), abs=timedelta(minutes=1)
    )
    ojs.drain()
    assert Job.objects.get().result is None

    at = timezone.now() + timedelta(hours=2)
    shop.add.apply_async(
        (1,), queue="bulk", priority=9, eta=at, retry=True, retry_policy={"max_retries": 3}
    )
    shop.add.apply_async(kwargs={"a": 2}, countdown=60, time_limit=9, soft_time_limit=8)
    first, second = Job.objects.filter(type__endswith="add").order_by("id")
    assert (first.queue, first.priority, first.state) == ("bulk", 9, State.SCHEDULED)
    assert first.due_at == at
    assert (second.args, second.timeout_ms) == ([2], 9000)
    late = shop.add.apply_async([0], None, countdown=-1, queue=None)
    assert Job.objects.get(pk=late.id).state == State.AVAILABLE


def test_arguments_that_json_has_no_type_for(ojs: testing.TestContext, shop: ModuleType) -> None:
    result = shop.total.delay(Decimal("1.50"), day=date(2026, 11, 22))
    assert Job.objects.get().type == "shop.order-total"
    ojs.drain()
    assert result.get() == [Decimal("3.00"), date(2026, 11, 22)]
    shop.mail.delay(gettext_lazy("Yes"))
    assert Job.objects.get(queue="low-priority").args[0] == "Yes"


@pytest.mark.parametrize("given", [object(), b"bytes", {1, 2}])
def test_other_arguments_are_rejected(
    ojs: testing.TestContext, shop: ModuleType, given: object
) -> None:
    with pytest.raises(OJSError):
        shop.add.delay(given)
    with pytest.raises(InvalidArgs, match="missing a required argument"):
        shop.add.delay()
    assert not Job.objects.exists()


def test_retry_runs_the_task_again_until_it_gives_up(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = shop.call.delay("no answer")
    ojs.drain()
    job = Job.objects.get()
    assert (job.state, result.state) == (State.RETRYABLE, "RETRY")
    assert 15_000 < job.attempts.get().retry_delay_ms < 45_000
    assert (job.error["type"], job.error["message"]) == ("ConnectionError", "no answer")
    assert "tasks.py" in job.error["backtrace"][-1]
    ojs.drain(with_retries=True)
    job.refresh_from_db()
    assert (job.state, job.spent, job.dead_letter) == (State.DISCARDED, 3, True)
    assert result.failed()
    assert str(result.result) == "ConnectionError: no answer"


def test_the_request_of_a_run(ojs: testing.TestContext, shop: ModuleType) -> None:
    result = shop.call.apply_async(headers={"tenant": "acme"})
    ojs.fail_next(shop.call, Retry("later"))
    ojs.drain(with_retries=True)
    name = "tests.contrib.celery.tasks.call"
    assert result.get() == [result.id, 1, {"tenant": "acme"}, name]


def test_only_what_a_task_asks_for_is_retried(ojs: testing.TestContext, shop: ModuleType) -> None:
    fetched, looked = shop.fetch.delay("down"), shop.look_up.delay("x")
    ojs.drain()
    assert (fetched.state, looked.state) == ("RETRY", "FAILURE")
    job = Job.objects.get(pk=fetched.id)
    # The attempt says how long the wait is: until it is over, a clock would say less and less.
    assert job.attempts.get().retry_delay_ms == 2_000
    ojs.drain(with_retries=True)
    assert fetched.state == "FAILURE"
    assert (Job.objects.get(pk=fetched.id).spent, Job.objects.get(pk=looked.id).spent) == (2, 1)


@pytest.mark.parametrize(
    ("how", "state", "dead"),
    [
        ("ignore", State.COMPLETED, False),
        ("reject", State.DISCARDED, False),
        ("requeue", State.RETRYABLE, False),
        ("arguments", State.DISCARDED, True),
    ],
)
def test_a_task_that_ends_in_another_way(
    ojs: testing.TestContext, shop: ModuleType, how: str, state: State, dead: bool
) -> None:
    shop.stop.delay(how)
    ojs.drain(max_jobs=1)
    job = Job.objects.get()
    assert (job.state, job.dead_letter) == (state, dead)
    if how == "arguments":
        assert job.error["type"] == "NoEquivalent"


def test_more_retries_than_a_task_declares(ojs: testing.TestContext, shop: ModuleType) -> None:
    more = shop.stop.delay("retry")
    fetched = shop.fetch_once.delay(1)
    assert Job.objects.get(pk=fetched.id).max_attempts == 6
    # As in Celery, None is the limit of the task.
    same = shared_task(name="shop.same", max_retries=2, retry_kwargs={"max_retries": None})(print)
    assert same.most_retries == 2
    ojs.drain(with_retries=True)
    job = Job.objects.get(pk=more.id)
    assert (job.state, job.dead_letter, job.spent) == (State.DISCARDED, True, 4)
    assert "Write @shared_task(max_retries=9)" in job.error["message"]
    assert (fetched.get(), fetched.retries, fetched.queue) == (1, 1, "default")


def test_a_retry_that_does_not_raise_is_another_job(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    arguments = [["ada", "down", "bob"]]
    result = shop.mail_all.apply_async(arguments, queue="slow", headers={"tenant": "acme"})
    ojs.drain(max_jobs=1)
    again = Job.objects.exclude(pk=result.id).get()
    assert (result.get(), again.state, again.queue) == (["ada", "bob"], State.SCHEDULED, "slow")
    assert again.args == [["down"], {"sender": "again"}]
    ojs.drain(with_scheduled=True)

    last = Job.objects.get(state=State.DISCARDED)
    assert (Job.objects.count(), last.spent) == (3, 1)
    assert last.error["message"] == "down"
    tenant = {"tenant": "acme"}
    assert shop.calls == [("", 0, tenant), ("again", 1, tenant)]

    shop.calls.clear()
    assert shop.mail_all.apply(arguments).get() == ["ada", "bob"]
    assert shop.calls == [("again", 1, {}), ("", 0, {})]


def test_arguments_keep_their_names(ojs: testing.TestContext, shop: ModuleType) -> None:
    results = [
        shop.given.delay(1, c=3),
        shop.given.delay(a=1),
        shop.given.delay(1, 2, 3),
        shop.given.delay(b=Decimal(2), a=1, c=3),
    ]
    ojs.drain()
    assert [each.get() for each in results] == [
        [[1], {"b": 0, "c": 3}],
        [[], {"a": 1}],
        [[1, 2, 3], {}],
        [[], {"a": 1, "b": Decimal(2), "c": 3}],
    ]
    same = shop.stop.delay(how="same")
    ojs.drain(with_retries=True)
    assert same.result.type == "MaxRetriesExceededError"


def test_a_run_that_is_interrupted_is_no_success(shop: ModuleType) -> None:
    with pytest.raises(KeyboardInterrupt):
        shop.recorded.apply(("interrupt",))
    assert shop.calls == [("before_start", ("interrupt",), {})]


def test_a_base_class_with_a_call_of_its_own(ojs: testing.TestContext, shop: ModuleType) -> None:
    result = shop.counted.delay(1)
    ojs.drain()
    assert (result.get(), shop.counted.run(1), shop.counted(1)) == (3, 2, 3)


def test_the_hooks_of_a_base_class(ojs: testing.TestContext, shop: ModuleType) -> None:
    shop.recorded.delay("good")
    ojs.drain()
    assert shop.calls == [
        ("before_start", ("good",), {}),
        ("on_success", "good"),
        ("after_return", "SUCCESS"),
    ]
    shop.calls.clear()
    shop.recorded.delay("bad")
    ojs.drain()
    assert shop.calls[1:] == [("on_failure", "bad", True), ("after_return", "FAILURE")]


def test_signals_are_sent_around_a_run(ojs: testing.TestContext, shop: ModuleType) -> None:
    names = ("task_prerun", "task_success", "task_retry", "task_failure", "task_postrun")
    sent: list[Any] = []
    for name in names:

        @getattr(signals, name).connect(weak=False, dispatch_uid="test")
        def record(sender: Task, signal: object, name: str = name, **values: Any) -> None:
            told = {"einfo", "traceback"} & values.keys()
            sent.append((name, sender.name.rpartition(".")[2], told, values.get("state")))
            raise ValueError("A receiver does not fail the run.")

    @signals.task_success.connect(sender=shop.add, retry=True)
    def remember(result: Any, **values: Any) -> None:
        sent.append(result)

    try:
        added = shop.add.delay(1)
        ojs.drain()
        assert added.get() == 11
        assert sent == [
            ("task_prerun", "add", set(), None),
            ("task_success", "add", set(), None),
            11,
            ("task_postrun", "add", set(), "SUCCESS"),
        ]
        del sent[:]
        shop.fetch.delay("down")
        ojs.drain(with_retries=True)
        assert sent == [
            ("task_prerun", "fetch", set(), None),
            ("task_retry", "fetch", {"einfo"}, None),
            ("task_postrun", "fetch", set(), "RETRY"),
            ("task_prerun", "fetch", set(), None),
            ("task_failure", "fetch", {"einfo", "traceback"}, None),
            ("task_postrun", "fetch", set(), "FAILURE"),
        ]
        shop.stop.delay("ignore")
        ojs.drain()
        assert sent[-1] == ("task_postrun", "stop", set(), "IGNORED")
    finally:
        signals.task_success.disconnect(remember, sender=shop.add)
        for name in names:
            assert getattr(signals, name).disconnect(dispatch_uid="test")
    with pytest.raises(ImportError, match=r"celery\.signals\.worker_ready has no equivalent"):
        from django_ojs.contrib.celery.signals import worker_ready  # noqa: F401


def test_a_class_of_tasks_and_a_task_that_is_named(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    results = [shop.counter.delay(1), shop.app.send_task("shop.counter", [2])]
    elsewhere = shop.app.send_task("billing.charge", [3], countdown=5)
    with pytest.raises(NoEquivalent, match="no task of this process"):
        shop.app.send_task("billing.charge", kwargs={"order": 3})
    ojs.drain(max_jobs=2)
    assert [each.result for each in results] == [2, 3]
    assert shop.app.AsyncResult(results[0].id).maybe_throw() == 2
    shop.app.control.revoke(elsewhere.id, terminate=True)
    assert elsewhere.state == "REVOKED"
    with pytest.raises(NoEquivalent, match="admin"):
        shop.app.control.inspect()
    assert Job.objects.get(pk=elsewhere.id).type == "billing.charge"


def test_progress_is_the_state_of_a_task_that_runs(
    ojs: testing.TestContext, shop: ModuleType
) -> None:
    result = shop.import_file.delay()
    ojs.drain()
    assert result.result == ["PROGRESS", {"line": 3}]


@pytest.mark.parametrize("ignores", [True, False])
def test_results_are_ignored_where_the_settings_say_so(
    ojs: testing.TestContext, shop: ModuleType, ignores: bool, settings: Any
) -> None:
    settings.CELERY_TASK_IGNORE_RESULT = ignores
    result = shop.add.delay(1)
    ojs.drain()
    assert result.result == (None if ignores else 11)


@pytest.mark.django_db
def test_eager_tasks_run_at_once_with_their_retries(shop: ModuleType, settings: Any) -> None:
    settings.CELERY_TASK_ALWAYS_EAGER = True
    assert shop.add.delay(1, 2).get() == 3
    failed = shop.fetch.delay("down")
    assert (failed.state, failed.failed()) == ("FAILURE", True)
    with pytest.raises(ConnectionError, match="down"):
        failed.get()
    settings.CELERY_TASK_EAGER_PROPAGATES = True
    with pytest.raises(ConnectionError, match="down"):
        shop.call.delay("down")
    assert not Job.objects.exists()


def test_the_queues_of_the_settings(settings: Any) -> None:
    settings.CELERY_TASK_ROUTES = (
        [
            ("routed.*", {"queue": "routed", "priority": 5}),
            ("routed.exact", "Exact"),
            (re.compile(r"(video|image)\..*"), {"queue": "media"}),
        ],
        {"late.*": {"queue": "late"}, "routed.*": {"queue": "never"}},
        {"keyed.*": {"exchange": "media"}},
    )
    settings.CELERY_TASK_DEFAULT_QUEUE = "Celery_Default"

    def queue(name: str, **options: Any) -> tuple[str | None, int | None]:
        defaults = Celery().task(name=name, **options)(print).handler.defaults
        return defaults.queue, defaults.priority

    assert queue("routed.one") == ("routed", 5)
    assert queue("routed.own", queue="own", priority=0) == ("own", 0)
    assert queue("routed.exact") == ("exact", None)
    assert queue("image.scale") == ("media", None)
    assert queue("late.one") == ("late", None)
    assert queue("other.one") == ("celery-default", None)
    assert signature("video.cut").request().options.queue == "media"
    with pytest.raises(NoEquivalent, match="queue="):
        queue("keyed.one")
    settings.CELERY_TASK_ROUTES = "shop.routers.route"
    with pytest.raises(NoEquivalent, match="patterns"):
        queue("shop.one")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("rate", "throttle"),
    [
        ("10/m", {"limit": 10, "period": "PT1M"}),
        ("100/h", {"limit": 100, "period": "PT1H"}),
        (5, {"limit": 5, "period": "PT1S"}),
        ("0.5/s", {"limit": 1, "period": "PT2S"}),
        (0, None),
    ],
)
def test_a_rate_limit_is_a_limit_of_the_type(
    shop: ModuleType, rate: Any, throttle: dict[str, Any] | None
) -> None:
    task = shared_task(name="limited.task", rate_limit=rate)(lambda: None)
    for _ in range(2):
        task.delay()
    jobs = list(Job.objects.all())
    wanted = None if throttle is None else {"key": "type:limited.task", "throttle": throttle}
    assert [job.options.get("rate_limit") for job in jobs] == [wanted, wanted]
    assert len(fetch([jobs[0].queue], count=2)) == (2 if throttle is None else 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate_limit": "0.0/s"}, "not a rate"),
        ({"rate_limit": "ten a minute"}, "rate_limit='ten a minute'"),
        ({"serializer": "pickle"}, "JSON"),
        ({"max_retrys": 3}, "max_retrys is an option"),
    ],
)
def test_options_of_a_task_without_an_equivalent(options: dict[str, Any], said: str) -> None:
    with pytest.raises(NoEquivalent, match=said):
        shared_task(**options)(lambda: None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"link_error": None, "routing_key": "a.b"}, "queue="),
        ({"exchange": "media"}, "queue="),
        ({"countdwn": 3}, "countdwn is an option"),
        ({"serializer": "pickle"}, "JSON"),
    ],
)
def test_options_of_a_call_without_an_equivalent(
    shop: ModuleType, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(NoEquivalent, match=said):
        shop.add.apply_async((1,), **options)


def test_what_celery_cannot_do_here_is_said(shop: ModuleType) -> None:
    async def coroutine() -> None: ...

    with pytest.raises(NoEquivalent, match=r"@ojs\.job"):
        shared_task(coroutine)
    with pytest.raises(TypeError, match="keyword"):
        shared_task("a", "b")
    with pytest.raises(NoEquivalent, match="Django's settings"):
        Celery().config_from_object("celeryconfig")
    with pytest.raises(NoEquivalent, match="ojs_worker"):
        Celery().start()
    with pytest.raises(NoEquivalent, match="replace"):
        shop.add.replace(shop.add.s())
    with pytest.raises(AttributeError, match="No task runs here"):
        current_task.name  # noqa: B018 - read for its error


def test_retry_outside_of_a_run(shop: ModuleType) -> None:
    with pytest.raises(Retry, match="called as a function"):
        shop.stop.retry()
    with pytest.raises(ConnectionError):
        shop.stop.retry(exc=ConnectionError())


def test_eta_is_a_retry_too(shop: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2026, 11, 22, 9, tzinfo=UTC)
    monkeypatch.setattr(timezone, "now", lambda: now)
    seen: list[Any] = []

    @shared_task(bind=True, name="shop.eta", max_retries=1)
    def task(self: Any) -> None:
        try:
            self.retry(eta=now + timedelta(minutes=5))
        except Retry as retry:
            seen.append(retry.delay)
            raise

    with pytest.raises(MaxRetriesExceededError):
        task.apply(throw=True)
    now = now.replace(tzinfo=None)
    with pytest.raises(NoEquivalent, match="time zone"):
        task.apply(throw=True)
    assert seen == [timedelta(minutes=5)]


@pytest.mark.parametrize("delay", [0, None])
def test_a_task_without_a_delay_of_its_retries(
    ojs: testing.TestContext, shop: ModuleType, delay: float | None
) -> None:
    @shared_task(bind=True, name="shop.hasty", max_retries=1, default_retry_delay=delay)
    def task(self: Any) -> None:
        raise self.retry()

    result = task.delay()
    ojs.drain()
    # The second attempt is due at once, and so within the millisecond of SQLite's clock.
    ojs.advance(timedelta(milliseconds=2))
    ojs.drain()
    assert Job.objects.get(pk=result.id).spent == 2
