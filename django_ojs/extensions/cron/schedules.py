"""`@cron`: run a handler on a schedule, which is stored when a worker starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, Unpack

from django.core.exceptions import ImproperlyConfigured

from django_ojs.conf import settings
from django_ojs.enqueue_options import OptionArguments, envelope_of
from django_ojs.extensions.cron import operations
from django_ojs.extensions.cron.models import CronOwner
from django_ojs.extensions.cron.operations.sync import SyncResult
from django_ojs.extensions.cron.operations.sync import sync as _sync
from django_ojs.handler_registry import registry
from django_ojs.handlers import Handler
from django_ojs.job_type import job_type_of
from django_ojs.spec.envelope.wire import template
from django_ojs.spec.errors import InvalidArgs, InvalidRequest
from django_ojs.spec.json import JSON
from django_ojs.spec.suggestions import nearest

#: The schedules that the code of this process declares, by name.
declarations: dict[str, CronDeclaration] = {}

T = TypeVar("T")
OverlapPolicyName = Literal["skip", "allow", "cancel_previous", "enqueue"]
_OPTIONS = ("name", "timezone", "args", "kwargs", "overlap_policy", "description")
_JOB_OPTIONS = OptionArguments.__annotations__


@dataclass(frozen=True, kw_only=True, slots=True)
class CronDeclaration:
    """A schedule of a handler, or of a task, whose handler may be registered later."""

    target: Any
    name: str
    expression: str
    timezone: str
    args: Sequence[JSON]
    kwargs: Mapping[str, JSON]
    overlap_policy: str
    description: str | None
    options: OptionArguments

    def definition(self) -> operations.Definition:
        """Return the cron job to register. Raises an OJSError that names the field and the rule."""
        handler = _handler_of(self.target)
        request = handler.options(**self.options).request(*self.args, **self.kwargs)
        return operations.Definition(
            name=self.name,
            expression=self.expression,
            timezone=self.timezone,
            template=template(envelope_of(request)),
            overlap_policy=self.overlap_policy,
            description=self.description,
            owner=CronOwner.CODE,
            service=settings().service_name,
            defined_in=path_of(handler.function),
        )


def cron(
    expression: str,
    /,
    *,
    name: str | None = None,
    timezone: str = "UTC",
    args: Sequence[JSON] = (),
    kwargs: Mapping[str, JSON] | None = None,
    overlap_policy: OverlapPolicyName = "skip",
    description: str | None = None,
    **options: Unpack[OptionArguments],
) -> Callable[[T], T]:
    """Run a handler on a schedule.

    @ojs.cron("0 9 * * MON-FRI", timezone="Europe/Paris")
    @ojs.job("report.daily")
    def daily_report() -> None: ...

    Put it above `@ojs.job` or Django's `@task`, several times if each has its own `name`; the
    default name is the job type, with "-" for "_". The handler gets `args` and `kwargs`. The
    options of its jobs replace those of the handler. The schedule is stored when a worker starts,
    and by `manage.py ojs cron sync`. Raises as `@ojs.job` does: InvalidCronExpression and
    InvalidRequest name what is wrong with the schedule.
    """
    if callable(expression):
        raise ImproperlyConfigured(
            'The expression of @ojs.cron is missing: write @ojs.cron("0 9 * * MON-FRI").'
        )
    if isinstance(args, str):
        raise InvalidArgs.of("args", "must be a list of the handler's positional arguments.")
    for option in options:
        meant = None if option in _JOB_OPTIONS else nearest(option, _OPTIONS)
        if meant is not None:
            raise InvalidRequest(
                f"{option} is not an option of a cron job. Did you mean {meant}?",
                details={"field": option},
            )

    def decorate(target: T) -> T:
        job_type = _type_of(target)
        if job_type is None:
            return target
        declaration = CronDeclaration(
            target=target,
            name=job_type.replace("_", "-") if name is None else name,
            expression=expression,
            timezone=timezone,
            args=args,
            kwargs=kwargs or {},
            overlap_policy=overlap_policy,
            description=_first_line(target) if description is None else description,
            options=options,
        )
        if isinstance(target, Handler):
            operations.check(declaration.definition())
        _add(declaration)
        return target

    return decorate


def declared() -> list[CronDeclaration]:
    """Return the schedules that the code of this process declares, by name."""
    return [declarations[name] for name in sorted(declarations)]


def sync(*, dry_run: bool = False) -> SyncResult:
    """Store the declared schedules; remove those that this project no longer declares."""
    definitions = [each.definition() for each in declared()]
    return _sync(definitions, service=settings().service_name, dry_run=dry_run)


def path_of(function: Callable[..., Any]) -> str:
    """Return the importable path of a function."""
    return f"{function.__module__}.{function.__qualname__}"


def _add(declaration: CronDeclaration) -> None:
    known = declarations.get(declaration.name)
    # If the function is the same, its module was reloaded, which made a new handler.
    if known is not None and (
        known.target is declaration.target
        or path_of(_function_of(known.target)) != path_of(_function_of(declaration.target))
    ):
        raise ImproperlyConfigured(
            f"The cron job {declaration.name!r} is declared twice, for "
            f"{path_of(_function_of(known.target))} and "
            f"{path_of(_function_of(declaration.target))}: give one of them another name=..."
        )
    declarations[declaration.name] = declaration


def _type_of(target: object) -> str | None:
    """Return the job type of a handler or task, or None for a task of another backend."""
    if isinstance(target, Handler):
        return target.type
    if hasattr(target, "module_path"):
        from django_ojs.tasks.backend import OJSTask

        return job_type_of(target.module_path) if isinstance(target, OJSTask) else None
    raise ImproperlyConfigured("@ojs.cron(...) stands above @ojs.job(...) or @task.")


def _handler_of(target: Any) -> Handler[..., Any]:
    if isinstance(target, Handler):
        return target
    found: Handler[..., Any] | None = registry.handlers.get(str(_type_of(target)))
    if found is None:
        raise ImproperlyConfigured(f"The task {target.module_path} has no handler.")
    return found


def _function_of(target: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = target.function if isinstance(target, Handler) else target.func
    return function


def _first_line(target: Any) -> str | None:
    text = (_function_of(target).__doc__ or "").strip()
    return text.partition("\n")[0] or None
