"""The interface of extensions: who is called when, in which order, and what an error does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

import django_ojs as ojs
from django_ojs import conf, hooks, signals
from django_ojs.conf import settings
from django_ojs.extension import (
    INTERFACE,
    Act,
    Actor,
    Attribute,
    Change,
    Count,
    Extension,
    Hooks,
    Reads,
)
from django_ojs.hooks import registry
from django_ojs.models import Worker
from django_ojs.models.worker import Directive
from django_ojs.operations import ack, beat, fail, fetch, progress, promotion, queues
from django_ojs.operations.access import operator
from django_ojs.operations.maintenance import job_pruning
from django_ojs.setting import setting, strings
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.progress import Report
from django_ojs.spec.published import EventType, NewEvent, of_queue
from django_ojs.spec.queue_config import QueueFields
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import queue_configs
from tests import factories as make

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Other(Extension):
    """An extension with these hooks."""

    given: Hooks
    name: str = "other"
    number: int = 40
    interface: int | None = INTERFACE

    def hooks(self) -> Hooks:
        return self.given


@contextmanager
def installed(*extensions: Extension) -> Iterator[None]:
    registry.register(*extensions)
    try:
        yield
    finally:
        for each in extensions:
            registry.remove(each)


@dataclass
class Noted:
    """Notes the changes that it is told."""

    changes: list[tuple[Trigger, Mapping[Any, State], Mapping[Any, State]]] = field(
        default_factory=list
    )

    def __call__(self, change: Change) -> None:
        self.changes.append((change.trigger, change.before, change.after))


def of_all(hook: Callable[[Change], object]) -> dict[Trigger, Callable[[Change], object]]:
    return dict.fromkeys(Trigger, hook)


def broken(*args: Any) -> None:
    raise RuntimeError("the extension broke")


def test_a_change_is_told_in_its_transaction_and_after_its_commit() -> None:
    job, before, after = make.push(), Noted(), Noted()
    with installed(Other(Hooks(changed=of_all(before), changed_and_committed=of_all(after)))):
        with transaction.atomic():
            ojs.cancel(job.pk)
            assert before.changes == [
                (Trigger.CANCEL, {job.pk: State.AVAILABLE}, {job.pk: State.CANCELLED})
            ]
            assert after.changes == []
        assert after.changes == before.changes
        ojs.cancel(job.pk)
    assert len(before.changes) == 1


def test_what_is_rolled_back_is_not_told_after_it() -> None:
    job, after = make.push(), Noted()
    with installed(Other(Hooks(changed_and_committed=of_all(after)))), transaction.atomic():
        ojs.cancel(job.pk)
        transaction.set_rollback(True)
    assert after.changes == []


#: A statement of each kind that changes states: what is there before, and what changes it.
STATEMENTS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "one job": (make.active, lambda job: ack.ack(job.id)),
    "one job in the handler": (make.active, lambda job: ack.complete(job.id)),
    "a batch": (make.active, lambda job: ack.ack_batch(make.WORKER, [(job.id, job.run, None)])),
    "a failure": (make.active, lambda job: fail.fail(job.id, make.BOOM)),
    "a claim": (make.push, lambda job: fetch.fetch([job.queue], due=False)),
    "a cancellation": (make.push, lambda job: ojs.cancel(job.pk)),
}
each_statement = pytest.mark.parametrize("statement", STATEMENTS)


# A claim is repeated without the job: see test_extension_errors.
@pytest.mark.parametrize("statement", [each for each in STATEMENTS if each != "a claim"])
def test_an_error_before_the_commit_undoes_the_change(statement: str) -> None:
    given, act = STATEMENTS[statement]
    job = given()
    with (
        installed(Other(Hooks(changed=of_all(broken)))),
        pytest.raises(RuntimeError, match="the extension broke"),
    ):
        act(job)
    assert make.read(job.pk).state == job.state


@each_statement
def test_an_error_after_the_commit_is_logged_and_harms_nothing(
    statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, act = STATEMENTS[statement]
    job, last = given(), Noted()
    with installed(
        Other(Hooks(changed_and_committed=of_all(broken)), "breaks", 40),
        Other(Hooks(changed_and_committed=of_all(last)), "last", 41),
    ):
        act(job)
    assert make.read(job.pk).state != job.state
    # What follows an ACK within a handler is called by the worker.
    is_published = statement != "one job in the handler"
    assert len(last.changes) == is_published
    said = [record.getMessage() for record in caplog.records]
    assert ("The extension breaks of django_ojs failed after a commit." in said) is is_published


def test_an_error_of_stored_undoes_the_insert() -> None:
    with (
        installed(Other(Hooks(stored=broken))),
        pytest.raises(RuntimeError, match="the extension broke"),
    ):
        make.push()
    assert not make.jobs().exists()


@pytest.mark.statements
def test_new_jobs_are_told_after_the_commit_without_a_transaction_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[Any] = []
    with (
        installed(
            Other(Hooks(stored_and_committed=broken), "breaks", 40),
            Other(Hooks(stored_and_committed=found.extend), "last", 41),
        ),
        CaptureQueriesContext(connection) as queries,
    ):
        job = make.push()
    assert [each.pk for each in found] == [job.pk]
    assert "BEGIN" not in {q["sql"].split()[0] for q in queries}
    assert "The extension breaks of django_ojs failed after a commit." in caplog.messages


def test_hooks_are_called_in_the_order_of_the_numbers() -> None:
    called: list[str] = []

    def noting(name: str) -> Hooks:
        return Hooks(
            changed=of_all(lambda change: called.append(name)),
            committed=lambda numbers: called.append(name),
        )

    job = make.push()
    with installed(Other(noting("second"), "b", 41), Other(noting("first"), "a", 40)):
        ojs.cancel(job.pk)
        hooks.call_after(hooks.registry.committed, {("q", "t"): 1})
    assert called == ["first", "second"] * 2


def test_two_extensions_of_one_number_are_an_error() -> None:
    class Another(Other):
        pass

    with (
        installed(Other(Hooks(), "a")),
        pytest.raises(ImproperlyConfigured, match="a and b of django_ojs have the number 40"),
    ):
        registry.register(Another(Hooks(), "b"))


def test_two_extensions_of_one_name_are_an_error() -> None:
    with (
        installed(Other(Hooks(), "a", 40)),
        pytest.raises(ImproperlyConfigured, match="Two extensions of django_ojs have the name 'a'"),
    ):
        registry.register(Other(Hooks(), "a", 41))


@pytest.mark.parametrize("number", [-1, 63])
def test_a_number_that_is_no_bit_of_a_queue_is_an_error(number: int) -> None:
    with pytest.raises(ImproperlyConfigured, match="give it one below 63"):
        registry.register(Other(Hooks(), number=number))


def test_an_extension_that_cannot_say_its_hooks_again_keeps_its_former_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Other):
        fails = False

        def hooks(self) -> Hooks:
            if self.fails:
                raise LookupError
            return self.given

    numbers: list[Any] = []
    found = Failing(Hooks(committed=numbers.append))
    with installed(found, Other(Hooks(), "last", 41)):
        found.fails = True
        signals.job_cancelled.connect(receiver := lambda **signal: None)
        signals.job_cancelled.disconnect(receiver)
        make.push()
        found.fails = False
    assert numbers
    assert "The hooks of the extension other stay as they were." in caplog.messages


@pytest.mark.statements
@pytest.mark.parametrize("reads", Reads)
def test_all_hooks_share_one_query_of_the_rows(reads: Reads) -> None:
    jobs = make.push_many(3, args=["payload"])
    found: list[Sequence[Any]] = []

    def note(change: Change) -> None:
        found.append(change.rows())

    def statements() -> list[str]:
        claimed = fetch.fetch([jobs[0].queue], count=3, worker_id=make.WORKER, due=False)
        with CaptureQueriesContext(connection) as queries:
            ack.ack_batch(make.WORKER, [(job.id, job.run, None) for job in claimed])
        return [q["sql"] for q in queries if q["sql"].startswith("SELECT")]

    triggers = {Trigger.ACK: note}
    first = Other(Hooks(changed=triggers), "a", 40)
    wanted = dict.fromkeys(Trigger, reads)
    second = Other(Hooks(changed_and_committed=triggers, reads=wanted), "b", 41)
    with installed(first, second):
        selects = statements()
    rows = [sql for sql in selects if "ojs_job" in sql]
    assert len(rows) == 1
    assert ('"args"' in rows[0].replace("`", '"')) is (reads is Reads.WHOLE_ROWS)
    assert found[0] is found[1]
    assert {job.state for job in found[0]} == {"completed"}


@pytest.mark.statements
def test_a_change_that_nobody_wants_before_its_commit_opens_no_transaction() -> None:
    job = make.active()
    with CaptureQueriesContext(connection) as queries:
        ack.complete(job.id)
    assert [q["sql"].split()[0] for q in queries] == ["UPDATE"]


def test_an_event_is_made_only_where_its_type_is_wanted() -> None:
    found: list[NewEvent] = []
    wanted = frozenset({EventType.QUEUE_PAUSED})

    def never(*args: Any, **kwargs: Any) -> NewEvent:
        raise AssertionError("nobody wants it")

    with (
        override_settings(OJS={"KEEP_EVENTS": []}),
        installed(Other(Hooks(published=found.extend, published_types=wanted))),
    ):
        hooks.publish(EventType.QUEUE_RESUMED, never, "q")
        hooks.publish(EventType.QUEUE_PAUSED, of_queue, "q")
        hooks.publish_all([of_queue(EventType.QUEUE_RESUMED, "q")])
        assert hooks.is_published(EventType.QUEUE_PAUSED, EventType.QUEUE_RESUMED)
        assert not hooks.is_published(EventType.QUEUE_RESUMED)
    assert [(event.type, event.queue) for event in found] == [(EventType.QUEUE_PAUSED, "q")]


def test_an_error_of_what_is_published_undoes_what_happened() -> None:
    make.WorkerFactory()
    with (
        installed(Other(Hooks(published=broken, published_types=frozenset(EventType)))),
        pytest.raises(RuntimeError, match="the extension broke"),
    ):
        beat.direct(make.WORKER, Directive.QUIET)
    assert Worker.primary.get().directive == Directive.RUNNING


def test_an_act_of_an_operator_is_told_and_completed() -> None:
    acts: list[Act] = []
    added: list[Mapping[str, Any]] = []

    def act(each: Act) -> Callable[[Mapping[str, Any]], object]:
        acts.append(each)
        return added.append

    actor = Actor(kind="user", name="ann")
    with installed(Other(Hooks(acted=act)), Other(Hooks(acted=lambda act: None), "b", 41)):
        operator.acted("queue.purged", "q").complete(jobs=1)
        assert (acts, added) == ([], [])
        with operator.acting(actor):
            operator.acted("queue.purged", "q", states=["discarded"]).complete(jobs=2)
    (only,) = acts
    assert (only.actor, only.object_type, only.object_id) == (actor, "queue", "q")
    assert (only.detail, added) == ({"states": ["discarded"]}, [{"jobs": 2}])


def test_what_is_counted_is_told_after_the_commit() -> None:
    counted: list[Any] = []
    job = make.active()
    other = Other(Hooks(counted=lambda *args: counted.append(args)))
    with installed(other), transaction.atomic():
        progress.report(job.id, Report(progress=0.5))
        assert counted == []
    assert counted == [(Count.PROGRESS_UPDATES, {(job.queue, job.type): 1})]


def test_hooks_are_compiled_when_the_settings_change() -> None:
    with override_settings(OJS={"KEEP_EVENTS": []}):
        others = registry.published_types
        assert EventType.JOB_CANCELLED not in others
    with override_settings(OJS={"KEEP_EVENTS": ["job.cancelled"]}):
        assert registry.published_types == others | {EventType.JOB_CANCELLED}
        assert Trigger.CANCEL in registry.changes


def test_hooks_are_compiled_when_a_signal_gains_or_loses_a_receiver() -> None:
    def receiver(**kwargs: Any) -> None:
        pass

    signals.job_cancelled.connect(receiver)
    assert registry.changes[Trigger.CANCEL].reads is Reads.WHOLE_ROWS
    signals.job_cancelled.disconnect(receiver)


def test_settings_that_are_wrong_are_an_error_where_they_are_read_and_not_where_they_change() -> (
    None
):
    before = registry.published_types
    with override_settings(OJS={"KEEP_EVENTS": ["no.such"]}):
        assert registry.published_types == before
        with pytest.raises(ImproperlyConfigured, match="KEEP_EVENTS"):
            settings()


def test_a_promotion_tells_the_state_that_each_job_has_left() -> None:
    noted = Noted()
    first, second = make.in_state("scheduled"), make.in_state("retryable")
    for job in (first, second):
        make.age(job.pk, 2 * make.HOUR)
    with installed(Other(Hooks(changed=of_all(noted)))):
        promotion.promote()
    assert [before for _, before, _ in noted.changes] == [
        {first.pk: State.SCHEDULED, second.pk: State.RETRYABLE}
    ]


def test_a_fetch_without_a_worker_of_ours_lets_extensions_do_what_is_due() -> None:
    enqueued: list[Any] = []
    with installed(Other(Hooks(before_fetch=lambda: enqueued.append(make.push(queue="default"))))):
        assert fetch.fetch(["default"], due=False) == []
        (job,) = fetch.fetch(["default"])
        assert [each.pk for each in enqueued] == [job.id]


def test_a_task_is_told_if_it_has_changed_rows(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, int]] = []

    def tell(name: str, began: int, ended: int, changed: int) -> None:
        assert 0 < began <= ended
        told.append((name, changed))

    assert hooks.run_task("a", lambda: 1) == 1
    others = Other(Hooks(task_done=broken)), Other(Hooks(task_done=tell), "second", 41)
    with installed(*others):
        assert [hooks.run_task(f"{number}", lambda n=number: n) for number in (0, 3)] == [0, 3]
    assert told == [("3", 3)]
    assert "The extension other of django_ojs failed after a commit." in caplog.messages


@pytest.mark.parametrize("in_queue", [False, True])
def test_a_finished_job_that_an_extension_needs_outlives_its_retention(in_queue: bool) -> None:
    kept, gone = make.in_state("completed"), make.in_state("completed", queue="short")
    queue = gone.queue if in_queue else kept.queue
    if in_queue:
        queues.configure("short", {"retention": {"completed": "PT1H"}})
    make.age([kept.pk, gone.pk], timedelta(days=2 if in_queue else 400))
    with installed(Other(Hooks(needed=f"ojs_job.queue = '{queue}'"))):
        assert sum(job_pruning.overdue().values()) == (0 if in_queue else 1)
        assert job_pruning.prune() == (0 if in_queue else 1)
        job_pruning.QueuePruner().prune()
        assert make.jobs().filter(queue=queue).exists()
    job_pruning.prune()
    job_pruning.QueuePruner().prune()
    assert not make.jobs().filter(queue=queue).exists()


def test_a_worker_that_ends_calls_the_highest_number_first() -> None:
    called: list[int] = []
    others = [
        Other(Hooks(worker_ends=partial(called.append, number)), name=f"e{number}", number=number)
        for number in (40, 41)
    ]
    with installed(*others):
        hooks.call_after(hooks.registry.worker_ends)
    assert called == [41, 40]


@dataclass(frozen=True, kw_only=True)
class ColourSettings:
    """As an extension declares them."""

    colours: tuple[str, ...] = setting(("red",), strings, "a list of colours")


class WithSettings(Other):
    """An extension with settings."""

    settings = ColourSettings


def test_the_settings_of_an_extension_are_checked_as_those_of_the_core_are() -> None:
    with installed(WithSettings(Hooks())), override_settings(OJS={"COLOURS": ["blue"]}):
        assert conf.of(ColourSettings).colours == ("blue",)
    with (
        installed(WithSettings(Hooks())),
        override_settings(OJS={"COLOURS": 5}),
        pytest.raises(ImproperlyConfigured, match=r"OJS\['COLOURS'\] must be a list of colours"),
    ):
        conf.settings()


def test_a_setting_of_an_extension_that_is_not_there_is_unknown() -> None:
    assert conf.of(ColourSettings) == ColourSettings()
    with (
        override_settings(OJS={"COLOURS": ["blue"]}),
        pytest.raises(ImproperlyConfigured, match=r"OJS\['COLOURS'\] is not a setting"),
    ):
        conf.settings()


def test_no_setting_is_unknown_before_extensions_are_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"COLOURS": ["blue"], "RELEASE": "1.4"}
    with pytest.raises(ImproperlyConfigured, match=r"OJS\['COLOURS'\]"):
        conf._read(given)
    monkeypatch.setattr(registry, "settings", ())
    assert conf._read(given)[conf.Settings].release == "1.4"


class Colour(str):
    """What the field of a queue means."""


def colour(value: object, path: str) -> None:
    if value not in ("red", "blue"):
        raise InvalidRequest.of(path, "must be red or blue")


def not_green(envelope: Any) -> None:
    if envelope.meta.get("colour") == "green":
        raise InvalidRequest.of("meta.colour", "must not be green")


class WithQueueFields(Other):
    """An extension with a field of the configuration of queues."""

    queue_fields = QueueFields(
        checks={"colour": colour},
        read={Colour: lambda values: Colour(values["colour"]) if "colour" in values else None},
        check_job=not_green,
    )


def test_a_field_of_a_queue_is_checked_and_read_by_its_extension() -> None:
    with installed(WithQueueFields(Hooks())):
        with pytest.raises(InvalidRequest, match="must be red or blue"):
            queues.configure("email", {"colour": 7})
        queues.configure("email", {"colour": "red"})
        assert queue_configs.config_of("email").part(Colour) == "red"
        with pytest.raises(InvalidRequest, match="must not be green"):
            ojs.enqueue("email.send", [], queue="email", meta={"colour": "green"})
        ojs.enqueue("email.send", [], queue="other", meta={"colour": "green"})


def test_a_field_of_a_queue_that_no_extension_knows_is_kept_and_asks_for_nothing() -> None:
    queues.configure("email", {"colour": 7})
    config = queue_configs.config_of("email")
    assert (config.values["colour"], config.part(Colour)) == (7, None)


class WithAttribute(Other):
    """An extension that knows an attribute of envelopes."""

    attributes = (Attribute(name="colour", check=colour),)


def test_an_attribute_is_checked_by_its_extension_and_a_null_counts_as_missing() -> None:
    def enqueue(value: Any) -> None:
        ojs.enqueue("email.send", [], extra={"colour": value})

    enqueue(7)
    with installed(WithAttribute(Hooks())):
        enqueue("red")
        enqueue(None)
        with pytest.raises(InvalidRequest, match="colour must be red or blue"):
            enqueue(7)
