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
from django.test import override_settings
from django.utils import timezone

import django_ojs as ojs
from django_ojs import hooks
from django_ojs.extension import Actor, Count, Hooks, Reads
from django_ojs.hooks import registry
from django_ojs.models import ActorKind, Job
from django_ojs.operations import activate, delete, fail, fetch, progress, promotion, queues
from django_ojs.operations.access import operator
from django_ojs.operations.jobs.redaction import redacted_key
from django_ojs.operations.workers import rescue
from django_ojs.reports.health_queries import failed_extensions
from django_ojs.spec.errors import QueueFull
from django_ojs.spec.progress import Report
from django_ojs.spec.published import EventType, NewEvent
from django_ojs.spec.states import State, Trigger
from tests import factories as make
from tests.http.api import Api, make_key
from tests.test_extension import Other, installed

pytestmark = pytest.mark.django_db(transaction=True)

NUMBER = 40
BAD, GOOD = "bad.job", "good.job"
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


def hooks_with(name: str, hook: Raises) -> Hooks:
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
