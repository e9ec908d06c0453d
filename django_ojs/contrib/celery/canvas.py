"""Signatures, chains and groups: tasks that are described before they are enqueued."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from django_ojs.contrib.celery import call_options, following, registration
from django_ojs.contrib.celery.exceptions import NoEquivalent
from django_ojs.contrib.celery.values import decode, encode
from django_ojs.job_type import job_type_of
from django_ojs.spec import ids
from django_ojs.spec.errors import DuplicateJob

if TYPE_CHECKING:
    from django_ojs.contrib.celery.result import AsyncResult, GroupResult
    from django_ojs.options import Request


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A task with arguments and options; an immutable one takes no result of the task before."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    immutable: bool = False

    @property
    def type(self) -> Any:
        """The `task.Task`. Raises KeyError when it is none of this process."""
        return registration.tasks[self.task]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of the task."""
        return self.type(*args, *self.args, **{**self.kwargs, **kwargs})

    def clone(
        self, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Signature:
        """Return a copy; these arguments come first. An immutable one keeps its own."""
        changed = replace(self, options={**self.options, **options})
        if self.immutable:
            return changed
        return replace(changed, args=(*args, *self.args), kwargs={**self.kwargs, **(kwargs or {})})

    def set(self, immutable: bool | None = None, **options: Any) -> Signature:
        """Return a copy with these options of `apply_async`."""
        changed = self.clone(**options)
        return changed if immutable is None else replace(changed, immutable=immutable)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue the task."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Enqueue the task; see `Task.apply_async`."""
        return self.clone(args, kwargs, **options)._enqueue(())

    def apply(self, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Run the task here and now."""
        whole = self.clone(args, kwargs)
        return whole.type.apply(whole.args, whole.kwargs)

    def __or__(self, other: Signature | chain) -> chain:
        return chain(self, other)

    def stored(self) -> dict[str, Any]:
        """Return it as a job before it keeps it, with the id of the job that it will be."""
        return {
            "id": str(self.options.get("task_id") or ids.uuid7()),
            "task": self.task,
            "args": encode(self.args),
            "kwargs": encode(dict(self.kwargs)),
            "options": encode({k: v for k, v in self.options.items() if k != "task_id"}),
            "immutable": self.immutable,
        }

    @classmethod
    def from_stored(cls, data: Mapping[str, Any]) -> Signature:
        """Read what `stored` returned."""
        return cls(
            task=data["task"],
            args=tuple(decode(data["args"])),
            kwargs=decode(data["kwargs"]),
            options=decode(data["options"]),
            immutable=data["immutable"],
        )

    def follow(self, result: Any, rest: Sequence[dict[str, Any]], task_id: str) -> AsyncResult:
        """Enqueue it as the next task of a chain. Raises DuplicateJob when it was already.

        The job of the task before it has done its work: a queue that is full must not fail it.
        """
        following_one = self.clone((decode(result),), task_id=task_id)
        return following_one._enqueue((rest,) if rest else (), on_full="outbox")

    def _enqueue(
        self, then: Sequence[Sequence[dict[str, Any]]], on_full: str | None = None
    ) -> AsyncResult:
        from django_ojs.contrib.celery.result import AsyncResult
        from django_ojs.operations.push import push
        from django_ojs.options import envelope_of, push_options_of

        item = self.request(then, on_full)
        return AsyncResult(push(envelope_of(item), push_options_of(item)).id)

    def request(
        self, then: Sequence[Sequence[dict[str, Any]]] = (), on_full: str | None = None
    ) -> Request:
        """Return the description of its job."""
        from django_ojs.options import Request, read_options

        options = dict(self.options)
        headers = options.pop("headers", None)
        links = options.pop("link", None) or ()
        if isinstance(links, Signature):
            links = (links,)
        given = call_options.read(options)
        then = [*then, *([link.stored()] for link in links)]
        if then:
            given.setdefault("id", ids.uuid7())
        given["meta"] = following.meta_of(str(given.get("id")), then, headers)
        given["on_full"] = on_full
        args, kwargs = encode(self.args), encode(dict(self.kwargs))
        task = registration.tasks.get(self.task)
        if task is not None:
            bound = task.handler.bind(tuple(args), kwargs)
        elif kwargs:
            raise NoEquivalent(
                f"{self.task} is no task of this process, and without its function the names of "
                "arguments have no position: pass them by position, or import its module."
            )
        else:
            bound = args
        return Request(
            type=job_type_of(self.task),
            args=bound,
            options=read_options(given),  # type: ignore[arg-type]  # read_options checks them
        )


def signature(
    task: Any,
    args: Iterable[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    immutable: bool = False,
    **more: Any,
) -> Signature:
    """Return a signature of a task, of another signature, or of a name in another process."""
    if isinstance(task, Signature):
        return task.clone(args or (), kwargs, **{**(options or {}), **more})
    return Signature(
        task=task if isinstance(task, str) else task.name,
        args=tuple(args or ()),
        kwargs=dict(kwargs or {}),
        options={**(options or {}), **more},
        immutable=immutable,
    )


def enqueue_following(job: following.HasMeta, result: Any) -> None:
    """Enqueue what follows a job, with its result. Raises InvalidMetadata; see `following`."""
    for first, *rest in following.chains_of(job):
        try:
            Signature.from_stored(first).follow(result, rest, first["id"])
        except DuplicateJob:
            continue  # An earlier run has enqueued it.


class chain:
    """Tasks one after the other, each with the result of the one before as its first argument.

    A task is enqueued when the one before it has returned. When one fails, those after it are
    never enqueued.
    """

    def __init__(self, *steps: Any) -> None:
        if len(steps) == 1 and not isinstance(steps[0], Signature | chain):
            steps = tuple(steps[0])
        found: list[Signature] = []
        for step in steps:
            if isinstance(step, chain):
                found.extend(step.tasks)
            elif isinstance(step, Signature):
                found.append(step)
            else:
                raise NoEquivalent(
                    f"A chain is of signatures of tasks, and not of a {type(step).__name__}: a "
                    "group has no end that a task could follow."
                )
        self.tasks: list[Signature] = found

    def __or__(self, other: Signature | chain) -> chain:
        return chain(self, other)

    def __call__(self, *args: Any, **kwargs: Any) -> AsyncResult:
        return self.apply_async(args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> AsyncResult:
        """Enqueue the first task."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncResult:
        """Enqueue the first task, and return the result of the last one."""
        from django_ojs.contrib.celery.result import AsyncResult

        first, *rest = self.tasks
        stored = [step.stored() for step in rest]
        enqueued = first.clone(args, kwargs, **options)._enqueue((stored,) if stored else ())
        return AsyncResult(stored[-1]["id"]) if stored else enqueued


class group:
    """Tasks that are enqueued together, in one statement: all or none."""

    def __init__(self, *members: Any) -> None:
        if len(members) == 1 and not isinstance(members[0], Signature):
            members = tuple(members[0])
        if not all(isinstance(member, Signature) for member in members):
            raise NoEquivalent("A group is of signatures of tasks: enqueue a chain by itself.")
        self.tasks: list[Signature] = list(members)

    def __iter__(self) -> Iterator[Signature]:
        return iter(self.tasks)

    def __or__(self, other: object) -> chord:
        return chord(self.tasks, other)

    def __call__(self, *args: Any, **kwargs: Any) -> GroupResult:
        return self.apply_async(args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> GroupResult:
        """Enqueue the tasks."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Iterable[Any] = (), kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> GroupResult:
        """Enqueue the tasks, and return their results."""
        from django_ojs.client import enqueue_batch
        from django_ojs.contrib.celery.result import AsyncResult, GroupResult

        args = tuple(args)
        requests = [member.clone(args, kwargs, **options).request() for member in self.tasks]
        jobs = enqueue_batch(requests) if requests else []
        return GroupResult([AsyncResult(job.id) for job in jobs])


class chord:
    """Not there: raises NoEquivalent, when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NoEquivalent(
            "A chord, a task after all tasks of a group, has no equivalent yet. Let each task of "
            "the group count itself in a row of yours, in its transaction, and the last one "
            "enqueue the task that follows."
        )
