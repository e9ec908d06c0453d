"""An extension that raises in a hook harms only the jobs for which it raises, and is named.

There is a story of jobs of two types. The extension raises for those of one of them, in each hook
of `Hooks` in turn: one that is new and that the story does not reach fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import InterfaceError
from django.test import Client, override_settings
from django.utils import timezone

import django_ojs as ojs
from django_ojs import hooks
from django_ojs.admin.panels import AdminColumn
from django_ojs.extension import Actor, Count, DueStep, Hooks, Reads
from django_ojs.hooks import registry
from django_ojs.models import ActorKind, Attempt, Job, Worker
from django_ojs.operations import (
    ack,
    activate,
    beat,
    delete,
    expiry,
    fail,
    fetch,
    progress,
    promotion,
    queues,
)
from django_ojs.operations.access import operator
from django_ojs.operations.jobs import bulk_step
from django_ojs.operations.jobs.redaction import redacted_key
from django_ojs.operations.maintenance import timeouts
from django_ojs.operations.workers import rescue
from django_ojs.reports.health_queries import failed_extensions
from django_ojs.spec.errors import Conflict, InvalidRequest, QueueFull
from django_ojs.spec.progress import Report
from django_ojs.spec.published import EventType, NewEvent
from django_ojs.spec.states import State, Trigger
from tests import factories as make
from tests.http.api import Api, make_key
from tests.test_extension import Other, installed

pytestmark = pytest.mark.django_db(transaction=True)

NUMBER = 40
BAD, GOOD = "bad.job", "good.job"
#: More than any hook raises in a story here. The failure of a test is no `Exception`, so it ends a
#: loop that goes on after each error.
MOST_RAISED = 100
#: `reads` and `published_types` say more about another hook, and `needed` is SQL.
NO_FUNCTIONS = {"reads", "published_types", "needed"}
#: These are called for a handler, a claim or a test, whose tests have them.
ELSEWHERE = {
    "claim_rule",
    "context",
    "stand_ins",
    "around_run",
    "worker_threads",
    "holds",
    "bounded_part",
}
#: What a hook returns for jobs for which it does not raise.
RETURNS: dict[str, Any] = {"kept": {}, "exported": {}, "shown": {}, "next_jobs": 0}
RETURNS |= {"push_headers": {}, "error_headers": {}}


@ojs.job(GOOD)
def good(number: int) -> int:
    return number


class Raises:
    """A hook that raises for jobs of one type, and where it is not said which jobs they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.raised = 0

    def __call__(self, *args: Any) -> Any:
        about = {each for arg in args for each in types_in(arg)}
        if BAD in about if self.name == "published" else about != {GOOD}:
            self.raised += 1
            if self.raised > MOST_RAISED:
                pytest.fail("It is called without an end.")
            raise LookupError("the extension broke")
        if self.name.startswith("around_"):
            return args[1]()
        return args[1] if self.name == "admit" else RETURNS.get(self.name)


def queue_of(type: str) -> str:
    return type.replace(".job", "-jobs")


def types_in(value: Any) -> set[str]:
    """Return which of the two types a value is about."""
    if isinstance(value, str):
        return {value} & {BAD, GOOD}
    if isinstance(value, UUID):
        return types_in(list(Job.primary.filter(pk=value).values_list("type", flat=True)))
    if isinstance(value, Mapping):
        return {each for item in value.items() for each in types_in(item)}
    if isinstance(value, list | tuple | set | frozenset):
        return {each for item in value for each in types_in(item)}
    if isinstance(value, NewEvent):
        return {each for each in (BAD, GOOD) if value.queue == queue_of(each)}
    for name in ("before", "jobs", "job", "type"):
        found = getattr(value, name, None)
        if found is not None and not callable(found):
            return types_in(list(found) if name == "jobs" else found)
    return set()


def hooks_with(name: str, hook: Callable[..., Any]) -> Hooks:
    if name in ("changed", "changed_and_committed"):
        each: dict[str, Any] = {name: dict.fromkeys(Trigger, hook)}
        return Hooks(**each, reads=dict.fromkeys(Trigger, Reads.JOBS))
    if name == "published":
        return Hooks(published=hook, published_types=frozenset(EventType))
    return Hooks(**{name: hook})


def tell(type: str, attempt: Callable[..., Any]) -> None:
    """Do what hooks hear of with jobs of a type in a queue of their own."""
    queue = queue_of(type)
    attempt(queues.configure, queue, {"concurrency": 1000})
    waits = attempt(ojs.enqueue, type, [1], queue=queue, on_full="outbox", pending=True)
    if waits is not None:
        attempt(activate.activate, waits.id)
        with operator.acting(Actor(kind=ActorKind.COMMAND, name="ann")):
            attempt(ojs.cancel, waits.id)
        attempt(delete.delete, waits.id)
    failing = attempt(ojs.enqueue, type, [1], queue=queue)
    Job.primary.filter(type=type).update(marks=1 << NUMBER)
    claimed = attempt(fetch.fetch, [queue], count=5, worker_id=make.WORKER) or []
    for job in claimed:
        attempt(progress.report, job.id, Report(progress=0.5))
        attempt(fail.fail, job.id, replace(make.BOOM, rate_limit_until=timezone.now() + make.HOUR))
    if failing is not None:
        attempt(hooks.kept, [uuid4(), failing.id])
        rows = list(Job.primary.filter(type=type))
        attempt(hooks.exported, rows)
        attempt(hooks.imported, {failing.id: {"breaks": type}})
        full = QueueFull("full", details={"queue": queue})
        attempt(hooks.rejected, full, rows)
    attempt(hooks.count, Count.REJECTED, {(queue, type): 1})
    attempt(redacted_key, type, may_see=False)


def serve(type: str, attempt: Callable[..., Any]) -> None:
    """Do the same over HTTP."""
    with override_settings(OJS={}):
        api = Api(make_key("admin"))
        queue = queue_of(type)
        sent = attempt(api.post, "jobs", {"type": type, "args": [1], "options": {"queue": queue}})
        attempt(api.post, "jobs", {"type": "", "args": []})
        if sent is None or sent.status != 201:
            return
        attempt(api.get, f"jobs/{sent['job']['id']}")
        for job in attempt(fetch.fetch, [queue], count=5, worker_id=make.WORKER) or []:
            attempt(api.post, "workers/ack", {"job_id": str(job.id), "result": None})


def of_no_job(attempt: Callable[..., Any]) -> None:
    """Do what is about no job."""
    attempt(lambda: hooks.call_within(hooks.registry.counts_repaired))
    attempt(hooks.run_task, "ojs.test", lambda: 1)
    attempt(lambda: hooks.call_after(hooks.registry.worker_passes))
    attempt(queues.configure, "gone", {"concurrency": 5})
    attempt(queues.delete, "gone")


FUNCTIONS = [each.name for each in fields(Hooks) if each.name not in NO_FUNCTIONS | ELSEWHERE]


# Which error harms whom is decided in Python; that the database undoes its part, the others show.
@pytest.mark.once
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_extension_that_raises_harms_only_its_jobs_and_is_named(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = []
    registry.failures.clear()

    def attempt(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            errors.append(error)
            return None

    hook = Raises(name)
    with installed(Other(hooks_with(name, hook), "breaks", NUMBER)):
        tell(BAD, attempt)
        of_no_job(attempt)
        serve(BAD, attempt)
        noticed = list(errors)
        tell(GOOD, attempt)
        serve(GOOD, attempt)
        job = make.push(type=GOOD, args=[7], queue=queue_of(GOOD))
        call_command("ojs_worker", "--once", "--queues", queue_of(GOOD))
    assert hook.raised, "The story does not reach it."
    assert make.read(job.id).state == State.COMPLETED
    is_named = "The extension breaks of django_ojs" in caplog.text
    assert is_named or any(isinstance(each, LookupError) for each in noticed), errors
    if is_named:
        assert any("The extension breaks" in each.text for each in failed_extensions())


def both(**values: Any) -> tuple[Job, Job]:
    return tuple(make.push(type=each, queue="both", **values) for each in (BAD, GOOD))  # type: ignore[return-value]  # two


def raising(trigger: Trigger) -> Other:
    return Other(Hooks(changed={trigger: Raises("changed")}), "breaks", NUMBER)


def test_a_claim_takes_the_other_jobs_and_the_one_waits(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = both()
    with installed(raising(Trigger.FETCH)):
        assert [job.id for job in fetch.fetch(["both"], count=2, worker_id="w")] == [good.pk]
        assert make.read(bad.pk).state == State.SCHEDULED
    assert "The extension breaks of django_ojs undid a change" in caplog.text


def test_one_that_raises_for_the_wait_too_does_not_stop_the_queue() -> None:
    bad, good = both()
    every = Other(Hooks(changed=dict.fromkeys(Trigger, Raises("changed"))), "breaks", NUMBER)
    with installed(every):
        assert fetch.fetch(["both"], worker_id="w") == []
        assert [job.id for job in fetch.fetch(["both"], worker_id="w")] == [good.pk]
    assert make.read(bad.pk).state == State.SCHEDULED


@pytest.mark.parametrize("rules", [{"concurrency": 5}, {"tenant_fairness": {"enabled": True}}])
def test_a_claim_by_rules_takes_the_other_jobs_and_the_one_waits(rules: dict[str, Any]) -> None:
    queues.configure("both", rules)
    bad, good = both()
    with installed(raising(Trigger.FETCH)):
        claimed = [job.id for _ in range(2) for job in fetch.fetch(["both"], worker_id="w")]
    assert claimed == [good.pk]
    assert make.read(bad.pk).state == State.SCHEDULED


def test_a_claim_by_key_takes_the_other_jobs_and_the_place_stays_free() -> None:
    bad, good = both(rate_limit={"key": "acme", "concurrency": 1})
    with installed(raising(Trigger.FETCH)):
        claimed = [job.id for _ in range(2) for job in fetch.fetch(["both"], worker_id="w")]
    assert claimed == [good.pk]
    assert make.read(bad.pk).state == State.SCHEDULED


@pytest.mark.parametrize("hook", ["published", "changed"])
def test_a_database_that_is_away_is_no_fault_of_the_extension(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*args: object) -> None:
        raise InterfaceError("connection already closed")

    def act() -> None:
        ack.ack(job.id)
        queues.pause(job.queue)  # The event of the ACK may have no listener.

    registry.failures.clear()
    job = make.active()
    with installed(Other(hooks_with(hook, away), "breaks", NUMBER)), pytest.raises(InterfaceError):
        act()
    assert registry.failures == {}
    assert "breaks" not in caplog.text


def test_a_database_that_is_away_fails_no_step_and_rejects_no_imported_job() -> None:
    def away(*args: object) -> None:
        raise InterfaceError("connection already closed")

    registry.failures.clear()
    with pytest.raises(InterfaceError):
        hooks._run_step("breaks", away)
    with (
        installed(Other(hooks_with("imported", away), "breaks", NUMBER)),
        pytest.raises(InterfaceError),
    ):
        hooks.imported({uuid4(): {"breaks": 1}})
    assert registry.failures == {}


def test_the_promotion_leaves_only_the_job_for_which_it_raises() -> None:
    bad, good = both(scheduled_at=make.HOUR)
    make.age([bad.pk, good.pk], make.HOUR)
    with installed(raising(Trigger.TIMER)):
        assert promotion.promote() == 1
    assert make.read(bad.pk).state == State.SCHEDULED
    assert make.read(good.pk).state == State.AVAILABLE


def test_a_return_of_lost_jobs_leaves_only_the_job_for_which_it_raises() -> None:
    bad, good = both()
    fetch.fetch(["both"], count=2, worker_id="w")
    make.age([bad.pk, good.pk], make.HOUR)
    with installed(raising(Trigger.LAPSE)):
        rescue.lapse()
    assert make.read(bad.pk).state == State.ACTIVE
    assert make.read(good.pk).state == State.AVAILABLE


def test_a_rescue_leaves_only_the_jobs_for_which_it_raises(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad = [make.active("a", type=BAD).id for _ in range(3)]
    good = [make.active(worker, type=GOOD).id for worker in ("a", "b")]
    for worker in ("a", "b"):
        make.WorkerFactory(id=worker)
    with installed(raising(Trigger.LAPSE)):
        assert rescue.rescue(["a", "b"], limit=2) == 2
    assert {make.read(key).state for key in bad} == {State.ACTIVE}
    assert {make.read(key).state for key in good} == {State.AVAILABLE}
    # No run has ended that stays active, and its worker is looked at again.
    assert not Attempt.primary.filter(job_id__in=bad).exists()
    assert list(Worker.primary.values_list("pk", flat=True)) == ["a"]
    assert "The extension breaks of django_ojs undid a change" in caplog.text


def test_a_dead_worker_whose_one_job_it_keeps_does_not_keep_those_after_it() -> None:
    bad, good = make.active("a", type=BAD), make.active("b", type=GOOD)
    with installed(raising(Trigger.LAPSE)):
        assert rescue.rescue(["a", "b"]) == 1
    assert make.read(bad.id).state == State.ACTIVE
    assert make.read(good.id).state == State.AVAILABLE


def test_the_expiry_leaves_only_the_job_for_which_it_raises() -> None:
    bad, good = both(expires_at=make.HOUR)
    make.age([bad.pk, good.pk], make.HOUR)
    with installed(raising(Trigger.EXPIRE)):
        assert expiry.expire() == 1
    assert make.read(bad.pk).state == State.AVAILABLE
    assert make.read(good.pk).state == State.DISCARDED


def test_a_timeout_leaves_only_the_jobs_for_which_it_raises() -> None:
    jobs = [make.active(type=each, timeout_ms=1000).id for each in (BAD, GOOD, BAD)]
    make.age(jobs, make.HOUR)
    with installed(raising(Trigger.FAIL)):
        assert timeouts.enforce() == 1
    states = [make.read(key).state for key in jobs]
    assert states == [State.ACTIVE, State.RETRYABLE, State.ACTIVE]


def test_claims_that_are_given_back_leave_only_the_job_for_which_it_raises() -> None:
    bad, good = (make.active("w", type=each) for each in (BAD, GOOD))
    with installed(raising(Trigger.RETURN)):
        claims = [(job.id, job.run) for job in (bad, good)]
        assert rescue.give_back(claims, worker_id="w") == 1
        assert rescue.give_back_unknown([], worker_id="w") == 0
    assert make.read(bad.id).state == State.ACTIVE
    assert make.read(good.id).state == State.AVAILABLE
    assert not Attempt.primary.filter(job_id=bad.id).exists()


def test_jobs_of_an_unknown_type_wait_but_for_the_one_for_which_it_raises() -> None:
    bad, good = (make.active("w", type=each) for each in (BAD, GOOD))
    claims = [(job.id, job.run) for job in (bad, good)]
    with installed(raising(Trigger.FAIL)):
        fail.postpone_batch("w", claims, make.BOOM, delay=make.HOUR)
    assert make.read(bad.id).state == State.ACTIVE
    assert make.read(good.id).state == State.RETRYABLE
    assert not Attempt.primary.filter(job_id=bad.id).exists()


def test_a_heartbeat_extends_the_other_leases() -> None:
    bad, good = (make.active("w", type=each, queue=queue_of(each)) for each in (BAD, GOOD))
    before = {job.id: job.lease_until for job in (bad, good)}
    hooks = Hooks(
        published=Raises("published"), published_types=frozenset({EventType.JOB_HEARTBEAT})
    )
    with installed(Other(hooks, "breaks", NUMBER)):
        found = beat.beat("w", holding=list(before), visibility_timeout=make.HOUR)
    assert (found.jobs_extended, found.locked, found.lost) == (1, {bad.id}, frozenset())
    assert make.read(good.id).lease_until > before[good.id]
    assert make.read(bad.id).lease_until == before[bad.id]


@pytest.mark.parametrize("error", [LookupError("no"), Conflict("Not this one.")])
@pytest.mark.parametrize("action", ["cancel", "delete", "retry", "run_now"])
def test_a_bulk_step_changes_the_other_jobs_and_says_why_not_this_one(
    action: str, error: Exception
) -> None:
    ended = {"delete": State.COMPLETED, "retry": State.DISCARDED, "run_now": State.SCHEDULED}
    before = ended.get(action, State.AVAILABLE)
    jobs = [make.in_state(before, type=each).pk for each in (BAD, GOOD)]

    def refuse(about: Any) -> None:
        if jobs[0] in getattr(about, "before", about):
            raise error

    changed = dict.fromkeys((Trigger.CANCEL, Trigger.RETRY, Trigger.TIMER), refuse)
    hooks = Hooks(erased=refuse) if action == "delete" else Hooks(changed=changed)
    with installed(Other(hooks, "breaks", NUMBER)):
        step = getattr(bulk_step, action.upper())
        result = bulk_step.BulkStep(step).run(jobs)
    wanted = "Not this one." if isinstance(error, Conflict) else "extension breaks"
    assert wanted in result.failed.pop(jobs[0])
    assert result.unchanged == {}
    assert make.read(jobs[0]).state == before
    assert not Job.primary.filter(pk=jobs[1], state=before).exists()


def test_what_one_cannot_bring_to_a_door_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Other):
        def findings(self) -> Any:
            raise LookupError("the extension broke")

    registry.failures.clear()
    with installed(Broken(Hooks(), "breaks", NUMBER)):
        assert isinstance(registry.brought("findings"), list)
    (problem,) = failed_extensions()
    assert problem.text == "The extension breaks failed to bring its findings (LookupError)."
    assert "The extension breaks of django_ojs failed to bring its findings" in caplog.text


def test_what_is_no_function_is_none_and_the_others_are_in_the_story() -> None:
    names = {each.name for each in fields(Hooks)}
    assert names >= NO_FUNCTIONS | ELSEWHERE


def test_a_claim_gives_the_other_jobs_although_one_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = both()
    Job.primary.update(marks=1 << NUMBER)
    with installed(Other(Hooks(fetched=Raises("fetched")), "breaks", NUMBER)):
        claimed = fetch.fetch(["both"], count=5, worker_id=make.WORKER)
        assert not fetch.fetch(["both"], count=5, worker_id=make.WORKER)
    assert [job.id for job in claimed] == [good.pk]
    waiting = make.read(bad.pk)
    assert (waiting.state, waiting.returned) == (State.RETRYABLE, 1)
    assert waiting.error is not None
    assert waiting.error["type"] == fetch.EXTENSION_FAILED
    assert "The extension breaks of django_ojs failed for a claimed job" in caplog.text
    assert any("The extension breaks" in each.text for each in failed_extensions())


class Stop(BaseException):
    """As a library raises it to end what it has begun."""


@pytest.mark.parametrize("hook", ["stored", "admit", "around_push", "acted", "kept"])
def test_what_an_operation_raises_is_logged_with_the_name_of_the_extension(
    hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    noticed: list[Exception] = []

    def attempt(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except Exception as error:
            noticed.append(error)

    registry.failures.clear()
    with installed(Other(Hooks(**{hook: Raises(hook)}), "breaks", NUMBER)):
        tell(BAD, attempt)
    assert noticed
    assert "The extension breaks of django_ojs" in caplog.text
    assert any("The extension breaks" in each.text for each in failed_extensions())


def test_the_error_of_an_inner_hook_is_no_fault_of_the_outer_one() -> None:
    def outer(batch: Any, go_on: Callable[[], Any]) -> Any:
        return go_on()

    registry.failures.clear()
    with (
        installed(
            Other(Hooks(around_push=outer), "outer", NUMBER),
            Other(Hooks(around_push=Raises("around_push")), "inner", NUMBER + 1),
        ),
        pytest.raises(LookupError),
    ):
        ojs.enqueue(BAD, [1])
    assert list(registry.failures) == ["inner"]


@pytest.mark.parametrize("trigger", [Trigger.FETCH, Trigger.ACK])
def test_an_error_that_is_no_exception_harms_only_its_job(trigger: Trigger) -> None:
    def stop(change: Any) -> None:
        if BAD in types_in(change):
            raise Stop

    _, good = both(args=[7])
    with installed(Other(Hooks(changed={trigger: stop}), "breaks", NUMBER)):
        call_command("ojs_worker", "--once", "--queues", "both")
    assert make.read(good.pk).state == State.COMPLETED


@pytest.mark.parametrize(
    "error", [LookupError("not now"), InvalidRequest("not now"), Conflict("not now")]
)
def test_a_completion_that_an_extension_undoes_is_a_dead_letter_that_names_it(
    error: Exception,
) -> None:
    def undo(change: Any) -> None:
        if bad.pk in change.after:
            raise error

    registry.failures.clear()
    bad, good = (make.push(type=GOOD, args=[7], queue="both") for _ in range(2))
    with installed(Other(Hooks(changed={Trigger.ACK: undo}), "breaks", NUMBER)):
        call_command("ojs_worker", "--once", "--queues", "both")
    stored = make.read(bad.pk)
    assert (stored.state, stored.error["type"]) == (State.DISCARDED, "result_rejected")
    assert "The extension breaks failed when the comp" in stored.error["message"]
    assert make.read(good.pk).state == State.COMPLETED
    assert any("The extension breaks" in each.text for each in failed_extensions())


def test_a_request_that_is_done_succeeds_although_a_hook_fails_after_it() -> None:
    def broken(*args: Any) -> Any:
        raise LookupError("the extension broke")

    failing = Hooks(request_ended=broken, request_served=broken, error_headers=broken, shown=broken)
    with override_settings(OJS={}), installed(Other(failing, "breaks", NUMBER)):
        api = Api(make_key("admin"))
        job = make.push(type=GOOD, queue="both")
        assert api.get(f"jobs/{job.pk}").status == 200
        (claimed,) = fetch.fetch(["both"], worker_id=make.WORKER)
        assert api.post("workers/ack", {"job_id": str(claimed.id), "result": None}).status == 200
        assert api.post("jobs", {"type": "", "args": []}).status == 400


class Silent(Other):
    """An extension that raises, or brings what is wrong, wherever it is asked."""

    def findings(self) -> Any:
        return ["no finding"]

    def may_find(self) -> str:
        raise InvalidRequest("not now")

    def manifest(self) -> Any:
        raise InvalidRequest("not now")

    def waits_for(self, jobs: Any) -> Any:
        raise LookupError("not now")

    def shown_of_queues(self, names: Any, to_operators: bool) -> Any:
        return [("another queue", {})]

    def columns(self) -> Any:
        return (AdminColumn(model=Job, title="Broken", cells=lambda rows: rows[0].nothing),)


def test_what_is_wrong_at_a_door_is_left_out(
    admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    make.push(type=GOOD, queue="both", scheduled_at=timezone.now() + make.HOUR)
    registry.failures.clear()
    with override_settings(OJS={}), installed(Silent(Hooks(), "breaks", NUMBER)):
        api = Api(make_key("admin"))
        assert api.get("/ojs/manifest").status == 200
        assert api.get("queues/both").status == 200
        for page in ("job", "overview"):
            assert admin_client.get(f"/admin/django_ojs/{page}/").status_code == 200
    assert "breaks" in registry.failures
    for what in ("bring its findings", "say what it looks for", "fill a column"):
        assert f"The extension breaks of django_ojs failed to {what}" in caplog.text


def test_a_step_of_the_maintenance_that_fails_is_named(caplog: pytest.LogCaptureFixture) -> None:
    def run() -> int:
        raise Stop

    class Stepping(Other):
        def due_steps(self) -> Any:
            return (DueStep(run=run, interval=0.125), "no step")[: self.many]

        many = 1

    with installed(Stepping(Hooks(), "breaks", NUMBER)):
        found = hooks.steps("due_steps")
        assert [step.run() for step in found if step.interval == 0.125] == [0]
        assert "The extension breaks of django_ojs failed in a step" in caplog.text
        Stepping.many = 2
        assert len(hooks.steps("due_steps")) == len(found) - 1
