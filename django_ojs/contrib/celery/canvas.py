"""Signatures, chains and groups: tasks that are described before they are enqueued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from django_ojs import hooks
from django_ojs.contrib.celery import call_options, following, registration
from django_ojs.contrib.celery.configuration import configuration
from django_ojs.contrib.celery.exceptions import NoEquivalent, NotRegistered
from django_ojs.contrib.celery.values import decode, encode
from django_ojs.job_type import job_type_of
from django_ojs.not_installed import check_module
from django_ojs.spec import ids, json
from django_ojs.spec.errors import DuplicateJob

if TYPE_CHECKING:
    from django_ojs.contrib.celery.result import AsyncResult, EagerResult, GroupResult
    from django_ojs.enqueue_options import Request

    Result = AsyncResult | EagerResult

Arguments = Iterable[Any] | None
Keywords = Mapping[str, Any] | None


@dataclass(kw_only=True)
class Signature:
    """A task with arguments and options; an immutable one takes no result of the task before."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    immutable: bool = False

    @property
    def type(self) -> Any:
        """The `task.Task`. Raises NotRegistered when this process does not have it."""
        if self.task not in registration.tasks:
            raise NotRegistered(self.task)
        return registration.tasks[self.task]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function of the task."""
        whole = self.clone(args, kwargs)
        return whole.type(*whole.args, **whole.kwargs)

    def clone(self, args: Arguments = None, kwargs: Keywords = None, **options: Any) -> Signature:
        """Return a copy, with these arguments first. An immutable one keeps its own arguments."""
        changed = replace(self, options={**self.options, **options}, kwargs=dict(self.kwargs))
        if self.immutable:
            return changed
        return replace(
            changed, args=(*(args or ()), *self.args), kwargs={**self.kwargs, **(kwargs or {})}
        )

    def set(self, immutable: bool | None = None, **options: Any) -> Signature:
        """Set options of `apply_async`, and return this signature."""
        if immutable is not None:
            self.immutable = immutable
        self.options.update(options)
        return self

    def link(self, callback: Signature | chain) -> Signature | chain:
        """Enqueue another task with the result of this one, and return its signature."""
        self.options["link"] = [*self.links, callback]
        return callback

    def link_error(self, errback: object) -> NoReturn:
        """Raise NoEquivalent, which says what to do."""
        raise call_options.rejection("link_error")

    on_error = link_error

    @property
    def links(self) -> list[Signature | chain]:
        """The tasks that follow this one."""
        return links_of(self.options.get("link"))

    def delay(self, *args: Any, **kwargs: Any) -> Result:
        """Enqueue the task."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> Result:
        """Enqueue the task; see `Task.apply_async`."""
        whole = self.clone(args, kwargs, **options)
        # A task of another process cannot run here.
        if configuration.task_always_eager and self.task in registration.tasks:
            return whole.run_eagerly()
        return _enqueue(whole.request())

    def apply(self, args: Arguments = None, kwargs: Keywords = None, **options: Any) -> EagerResult:
        """Run the task here and now."""
        whole = self.clone(args, kwargs, **options)
        result: EagerResult = whole.type.apply(whole.args, whole.kwargs, **whole.options)
        return result

    def run_eagerly(self) -> EagerResult:
        """Run the task here and now, with the checks and the JSON of an enqueue."""
        from django_ojs.conf import settings
        from django_ojs.enqueue_options import envelope_of
        from django_ojs.spec.envelope import validate

        envelope = envelope_of(self.request())
        validate(envelope, settings().limits)
        args, kwargs = self.type.handler.arguments_of(
            json.loads(json.dumps(envelope.args)), envelope.meta
        )
        return replace(self, args=tuple(args), kwargs=kwargs).apply()

    def __or__(self, other: Signature | chain) -> chain:
        return chain(self, other)

    def stored(self) -> dict[str, Any]:
        """Return this signature as the job before stores it, with the id of its own future job."""
        options = {k: v for k, v in self.options.items() if k not in ("task_id", "link")}
        return {
            "id": str(self.options.get("task_id") or ids.uuid7()),
            "task": self.task,
            "args": encode(self.args),
            "kwargs": encode(self.kwargs),
            "options": encode(options),
            "immutable": self.immutable,
            "then": [_stored(link) for link in self.links],
        }

    @classmethod
    def from_stored(cls, data: Mapping[str, Any]) -> Signature:
        """Read what `stored` returned; its `then` is an argument of `request`."""
        return cls(
            task=data["task"],
            args=tuple(decode(data["args"])),
            kwargs=decode(data["kwargs"]),
            options={**decode(data["options"]), "task_id": data["id"]},
            immutable=data["immutable"],
        )

    def step(self, *, is_first: bool = False) -> Request:
        """Return the description of its job in a workflow.

        Unless it is the first or immutable, the worker puts the result of the step before it in
        place of the first argument, which is None here.
        """
        for option in ("task_id", "link"):
            if self.options.get(option):
                raise NoEquivalent(f"A task of a chord has no {option}: its ids are made later.")
        if is_first or self.immutable:
            return self.request()
        return self.clone((None,)).request(takes_result=True)

    def request(
        self,
        then: Sequence[Sequence[dict[str, Any]]] = (),
        on_full: str | None = None,
        *,
        takes_result: bool = False,
        retries: int = 0,
    ) -> Request:
        """Return the description of its job. `then` are the chains that follow the job."""
        from django_ojs.enqueue_options import Request, read_options

        options = {k: v for k, v in self.options.items() if k not in ("headers", "link")}
        then = [*then, *map(_stored, self.links)]
        task = registration.tasks.get(self.task)
        args, kwargs = encode(self.args), encode(self.kwargs)
        if task is not None:
            bound = task.handler.bind(tuple(args), kwargs)
        elif kwargs:
            raise NoEquivalent(
                f"{self.task} is no task of this process, and without its function the names of "
                "arguments have no position: pass them by position, or import its module."
            )
        else:
            bound = args
            options = {**configuration.route(self.task), **options}
        given = call_options.read(options)
        if then:
            given.setdefault("id", ids.uuid7())
        given["meta"] = following.meta_of(
            str(given.get("id")),
            then,
            headers=self.options.get("headers"),
            positional=len(args) if kwargs else None,
            takes_result=takes_result,
            retries=retries,
        )
        given["on_full"] = on_full
        return Request(
            type=job_type_of(self.task),
            args=bound,
            options=read_options(given),  # type: ignore[arg-type]  # read_options checks them
        )


def links_of(option: Any) -> list[Signature | chain]:
    """Return the signatures in `link` of `apply_async`, which may be one or several."""
    return [option] if isinstance(option, Signature | chain) else list(option or ())


def _stored(link: Signature | chain) -> list[dict[str, Any]]:
    if not isinstance(link, Signature | chain):
        raise NoEquivalent(
            f"A link is the signature of a task or a chain, and not a {type(link).__name__}."
        )
    return [step.stored() for step in ([link] if isinstance(link, Signature) else link.tasks)]


def _enqueue(item: Request, rest: Sequence[dict[str, Any]] = ()) -> AsyncResult:
    from django_ojs.enqueue_options import envelope_of, push_options_of
    from django_ojs.operations.push import push

    return _result_of(push(envelope_of(item), push_options_of(item)).id, rest)


def _result_of(job_id: UUID, rest: Sequence[dict[str, Any]]) -> AsyncResult:
    """Return the result of the last step; its parents are the results before it."""
    from django_ojs.contrib.celery.result import AsyncResult

    result = AsyncResult(job_id)
    for step in rest:
        result = AsyncResult(step["id"], parent=result)
    return result


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


def enqueue_following(chains: Iterable[Sequence[dict[str, Any]]], result: Any) -> None:
    """Enqueue the tasks that follow a job, with the result of the job."""
    for first, *rest in chains:
        whole = Signature.from_stored(first).clone((decode(result),))
        then = [*([rest] if rest else []), *first["then"]]
        # The job before has done its work, and must not fail because a queue is full.
        with suppress(DuplicateJob):  # An earlier run has enqueued it.
            _enqueue(whole.request(then, on_full=_on_full()))


def enqueue_again(whole: Signature, retries: int) -> None:
    """Enqueue a task again, with this number of retries, while its present run continues."""
    _enqueue(whole.request(on_full=_on_full(), retries=retries))


def _on_full() -> str:
    """Return what becomes of a job that follows another one if its queue is full."""
    return "outbox" if hooks.registry.has("outbox") else "block"


class chain:
    """Tasks one after the other, each with the result of the one before as its first argument.

    A task is enqueued when the one before it has returned. When one fails, the tasks after it
    are never enqueued.
    """

    def __init__(self, *steps: Any) -> None:
        if len(steps) == 1 and not isinstance(steps[0], Signature | chain):
            steps = tuple(steps[0])
        found: list[Signature] = []
        for step in steps:
            if isinstance(step, chain):
                found.extend(step.tasks)
            elif isinstance(step, Signature):
                found.append(step.clone())
            else:
                raise NoEquivalent(
                    f"A chain has signatures of tasks, and no {type(step).__name__}: for a task "
                    "after a group use a chord, for other workflows ojs.chain and ojs.group."
                )
        self.tasks: list[Signature] = found

    def __or__(self, other: Signature | chain) -> chain:
        return chain(self, other)

    def __call__(self, *args: Any, **kwargs: Any) -> Result | None:
        return self.apply_async(args, kwargs)

    def set(self, **options: Any) -> chain:
        """Set options of the first task, as Celery does, and return this chain."""
        self.tasks[0].set(**options)
        return self

    def link(self, callback: Signature | chain) -> Signature | chain:
        """Enqueue another task with the result of the last one, and return its signature."""
        return self.tasks[-1].link(callback)

    def delay(self, *args: Any, **kwargs: Any) -> Result | None:
        """Enqueue the first task."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> Result | None:
        """Enqueue the first task, and return the result of the last one, or None without tasks.

        The options are for the first task; `link` and `task_id` are for the last one.
        """
        if not self.tasks:
            return None
        if configuration.task_always_eager:
            return self._apply(Signature.run_eagerly, args, kwargs, options)
        return _enqueue(*self.prepared(args, kwargs, options))

    def apply(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> EagerResult | None:
        """Run the tasks here and now. Raises the error of a task, unless it is the last."""
        return self._apply(Signature.apply, args, kwargs, options)

    def prepared(
        self, args: Arguments, kwargs: Keywords, options: dict[str, Any]
    ) -> tuple[Request, list[dict[str, Any]]]:
        """Return the description of the first job, and the steps that it stores."""
        first, *rest = self._steps(args, kwargs, options)
        stored = [step.stored() for step in rest]
        return first.request([stored] if stored else ()), stored

    def _steps(self, args: Arguments, kwargs: Keywords, options: dict[str, Any]) -> list[Signature]:
        steps = [step.clone() for step in self.tasks]
        options = dict(options)
        for callback in links_of(options.pop("link", None)):
            steps[-1].link(callback)
        if options.get("task_id") is not None:
            steps[-1].set(task_id=options.pop("task_id"))
        return [steps[0].clone(args, kwargs, **options), *steps[1:]]

    def _apply(
        self,
        run: Callable[[Signature], EagerResult],
        args: Arguments,
        kwargs: Keywords,
        options: dict[str, Any],
    ) -> EagerResult | None:
        last: EagerResult | None = None
        for step in self._steps(args, kwargs, options) if self.tasks else ():
            result = run(step if last is None else step.clone((last.get(),)))
            last = replace(result, parent=last)
        return last


class group:
    """Tasks and chains that are enqueued together, in one statement: all or none."""

    def __init__(self, *members: Any) -> None:
        if len(members) == 1 and not isinstance(members[0], Signature | chain | group):
            members = tuple(members[0])
        self.tasks: list[Signature | chain] = []
        for member in members:
            if isinstance(member, group):
                self.tasks.extend(member.tasks)
            elif isinstance(member, Signature | chain):
                self.tasks.append(member)
            else:
                raise NoEquivalent(
                    f"A group has signatures of tasks, and no {type(member).__name__}."
                )

    def __iter__(self) -> Iterator[Signature | chain]:
        return iter(self.tasks)

    def __or__(self, other: object) -> chord:
        return chord(self.tasks, other)

    def __call__(self, *args: Any, **kwargs: Any) -> GroupResult:
        return self.apply_async(args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> GroupResult:
        """Enqueue the tasks."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> GroupResult:
        """Enqueue the tasks, and return their results. The options are for each task."""
        from django_ojs.client import enqueue_batch
        from django_ojs.contrib.celery.result import GroupResult

        args = tuple(args or ())
        members = [chain(member) for member in self.tasks]
        if configuration.task_always_eager:
            return GroupResult([m.apply_async(args, kwargs, **options) for m in members])
        prepared = [member.prepared(args, kwargs, options) for member in members if member.tasks]
        jobs = enqueue_batch([item for item, _ in prepared]) if prepared else []
        pairs = zip(jobs, prepared, strict=True)
        return GroupResult([_result_of(job.id, rest) for job, (_, rest) in pairs])

    def apply(self, args: Arguments = None, kwargs: Keywords = None, **options: Any) -> GroupResult:
        """Run the tasks here and now."""
        from django_ojs.contrib.celery.result import GroupResult

        args = tuple(args or ())
        return GroupResult([member.apply(args, kwargs, **options) for member in self.tasks])


class chord:
    """A task after all tasks of a group. Its first argument is the list of their results.

    It is a workflow (`django_ojs.extensions.workflows.api`): when a task of the group fails, the
    body never runs. The group's members and the body may be chains.
    """

    def __init__(self, header: Any, body: object = None) -> None:
        self.tasks = group(header).tasks
        if body is not None and not isinstance(body, Signature | chain):
            raise NoEquivalent(
                f"The body of a chord is the signature of a task or a chain, and not a "
                f"{type(body).__name__}."
            )
        self.body = None if body is None else chain(body)

    def __call__(self, body: Signature | chain | None = None, **options: Any) -> Result | None:
        whole = self if body is None else chord(self.tasks, body)
        return whole.apply_async(**options)

    def __or__(self, other: Signature | chain) -> chord:
        return chord(self.tasks, chain(self._body(), other))

    def delay(self, *args: Any, **kwargs: Any) -> Result | None:
        """Enqueue the chord."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> Result | None:
        """Enqueue the group, and return the result of the body; its `parent` is the group's.

        The arguments are for each task of the group, the options for the body's first task.
        """
        from django_ojs.contrib.celery.result import AsyncResult, GroupResult

        check_module("django_ojs.extensions.workflows.api", "chain")
        from django_ojs.extensions.workflows import api as workflows
        from django_ojs.extensions.workflows.operations import step_ids

        body = [step.clone() for step in self._body().tasks]
        if configuration.task_always_eager:
            results = [each.apply_async(args, kwargs) for each in self.tasks]
            values = [each.get() for each in results if each is not None]
            return self._body().apply_async((values,), **options)
        if not self.tasks:
            return self._body().apply_async(([],), **options)
        body[0].set(**options)
        members = [chain(member)._steps(args, kwargs, {}) for member in self.tasks]
        stored = workflows.chain(
            workflows.group(*[_line_of(steps) for steps in members]),
            *[step.step() for step in body],
        ).enqueue()
        keys = iter(step_ids(stored.id))
        ends = [[AsyncResult(next(keys)) for _ in steps][-1] for steps in members]
        result = AsyncResult(next(keys), parent=GroupResult(ends))
        for key in keys:
            result = AsyncResult(key, parent=result)
        return result

    def apply(
        self, args: Arguments = None, kwargs: Keywords = None, **options: Any
    ) -> EagerResult | None:
        """Run the tasks here and now. Raises the error of a task of the group that fails."""
        results = [member.apply(args, kwargs) for member in self.tasks]
        values = [each.get() for each in results if each is not None]
        return self._body().apply((values,), **options)

    def _body(self) -> chain:
        if self.body is None or not self.body.tasks:
            raise NoEquivalent("A chord needs a body: chord(header)(body).")
        return self.body


def _line_of(steps: Sequence[Signature]) -> Any:
    """Return a member of a chord's group as a part of a workflow."""
    from django_ojs.extensions.workflows import api as workflows

    first, *rest = steps
    if not rest:
        return first.step(is_first=True)
    return workflows.chain(first.step(is_first=True), *[step.step() for step in rest])
