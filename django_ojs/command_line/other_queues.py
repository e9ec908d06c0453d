"""`import-from`: move the waiting jobs of another queue, each in one transaction."""

from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.command_line.changes import counted_jobs
from django_ojs.command_line.console import Console
from django_ojs.command_line.subcommand import FAILED, OK, Options, Subcommand, usage_error
from django_ojs.conf import settings
from django_ojs.formatting import error_message, grouped
from django_ojs.handlers import Handler, get_handler
from django_ojs.job_type import job_type_of
from django_ojs.operations.access import audit_trail
from django_ojs.options import envelope_of
from django_ojs.registry import registry
from django_ojs.spec.envelope import validate
from django_ojs.spec.errors import OJSError
from django_ojs.storage import database
from django_ojs.storage.other_queues import OTHER_QUEUES, UnreadableArguments, WaitingJob

_TASKS: Final = "django-tasks-db"


class _Rejected(Exception):
    """A job cannot be moved; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a job: `text` is its type where it is moved, else the reason."""

    moved: bool
    text: str


@dataclass(slots=True)
class _Result:
    """The numbers of the jobs of one function: by type, and by the reason why they stay."""

    moved: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)


class _Import:
    """Moves the waiting jobs of a source, or only checks them, and counts the outcomes."""

    def __init__(self, source: str, types: dict[str, str], *, write: bool) -> None:
        self._source = OTHER_QUEUES[source]
        self._write = write
        self._move: Callable[[WaitingJob], str] = (
            self._move_task if source == _TASKS else partial(self._move_job, types)
        )
        self.results: defaultdict[str, _Result] = defaultdict(_Result)

    @property
    def moved(self) -> int:
        return sum(each.moved.total() for each in self.results.values())

    @property
    def rejected(self) -> int:
        return sum(each.rejected.total() for each in self.results.values())

    def run(self, console: Console) -> None:
        last: Any = None
        while True:
            jobs, outcomes = database.in_write_transaction(partial(self._move_batch, last))
            if not jobs:
                return
            for job, outcome in zip(jobs, outcomes, strict=True):
                result = self.results[job.function]
                (result.moved if outcome.moved else result.rejected)[outcome.text] += 1
            console.progress(counted_jobs(self.moved))
            last = jobs[-1].key

    def _move_batch(self, last: Any) -> tuple[list[WaitingJob], list[_Outcome]]:
        """Move the jobs after a key in the current transaction."""
        jobs = self._source.lock_waiting(last)
        outcomes = [self._try(job) for job in jobs]
        if self._write:
            pairs = zip(jobs, outcomes, strict=True)
            self._source.remove([job.key for job, outcome in pairs if outcome.moved])
        return jobs, outcomes

    def _try(self, job: WaitingJob) -> _Outcome:
        try:
            if job.reason:
                raise _Rejected(job.reason)
            # A savepoint: a job that is rejected leaves the others of the transaction.
            with database.atomic():
                return _Outcome(True, self._move(job))
        except OJSError as error:
            return _Outcome(False, error_message(error).removesuffix("."))
        except UnreadableArguments:
            return _Outcome(False, _("its arguments have an unknown form"))
        except _Rejected as error:
            return _Outcome(False, str(error))

    def _move_job(self, types: dict[str, str], job: WaitingJob) -> str:
        """Enqueue a job for the handler of its function, and return its type."""
        handler = _handler(job.function, types)
        options: dict[str, Any] = {}
        if job.priority:
            options["priority"] = job.priority
        if job.due_at is not None:
            options["scheduled_at"] = job.due_at
        enqueuer = handler.options(**options)
        args, kwargs = job.arguments()
        if self._write:
            enqueuer.enqueue(*args, **kwargs)
        else:
            request = enqueuer.request(*args, **kwargs)
            validate(envelope_of(request), settings().limits)
        return handler.type

    def _move_task(self, job: WaitingJob) -> str:
        """Enqueue a task through `django.tasks`, and return its type."""
        from django_ojs.tasks.backend import OJSTask
        from django_ojs.tasks.compat import InvalidTask

        try:
            task = import_string(job.function)
        except ImportError:
            raise _Rejected(_("it cannot be imported")) from None
        if not isinstance(task, OJSTask):
            raise _Rejected(
                _("TASKS names another backend for it: name django_ojs.tasks.OJSBackend")
            )
        try:
            task = task.using(queue_name=job.queue, priority=job.priority, run_after=job.due_at)
            task.get_backend().validate_task(task)
            type = job_type_of(job.function)
            args, kwargs = job.arguments()
            if self._write:
                task.enqueue(*args, **kwargs)
            elif handler := get_handler(type):
                handler.bind(tuple(args), kwargs)
        except (InvalidTask, ImproperlyConfigured) as error:
            raise _Rejected(str(error).removesuffix(".")) from None
        return type


def _handler(function: str, types: dict[str, str]) -> Handler[..., Any]:
    if function in types:
        handler = get_handler(types[function])
        if handler is None:
            raise _Rejected(_("no handler has the type %(type)s") % {"type": types[function]})
        return handler
    for type in registry.handlers:
        handler = get_handler(type)
        if handler is not None and function in (type, _path(handler)):
            return handler
    raise _Rejected(
        _("no handler has this function; name its type: --type %(function)s=TYPE")
        % {"function": function}
    )


def _path(handler: Handler[..., Any]) -> str:
    return f"{handler.function.__module__}.{handler.function.__qualname__}"


def _run(console: Console, options: Options) -> int:
    name, write = options["source"], options["write"]
    if not OTHER_QUEUES[name].exists():
        raise usage_error(_("The database of the jobs has no tables of %(name)s.") % {"name": name})
    found = _Import(name, dict(options["type"]), write=write)
    # First, because many transactions follow.
    entry = None
    if write:
        entry = audit_trail.record("jobs.imported", object_type="job", source=name)
    try:
        found.run(console)
    finally:
        console.progress("")
        # Also when it is interrupted: the batches before that are committed.
        if write:
            counts = {"stored": found.moved, "rejected": found.rejected}
            audit_trail.complete(entry, **counts)
    _report(console, name, found, written=write)
    return FAILED if found.rejected else OK


def _report(console: Console, source: str, found: _Import, *, written: bool) -> None:
    results = sorted(found.results.items())
    if console.as_json:
        functions = {
            name: {"types": dict(each.moved), "rejected": dict(each.rejected)}
            for name, each in results
        }
        console.json({"source": source, "written": written, "functions": functions})
        return
    for name, each in results:
        for type, number in each.moved.items():
            console.line(
                _("%(name)s: %(number)s, as %(type)s.")
                % {"name": name, "number": grouped(number), "type": type}
            )
        for reason, number in each.rejected.items():
            console.line(
                _("%(name)s: %(number)s not moved: %(reason)s.")
                % {"name": name, "number": grouped(number), "reason": reason}
            )
    total = found.moved + found.rejected
    text = (
        _("%(number)s of %(total)s waiting jobs were moved.")
        if written
        else _("%(number)s of %(total)s waiting jobs can be moved.")
    )
    console.line(text % {"number": grouped(found.moved), "total": grouped(total)})
    if found.moved and not written:
        console.note(_("Nothing was changed. Move them with --write."))


def _pair(text: str) -> tuple[str, str]:
    function, _equals, type = text.partition("=")
    if not (function and type):
        raise ArgumentTypeError(_("must be FUNCTION=TYPE, such as shop.tasks.send=email.send"))
    return function, type


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source", choices=sorted(OTHER_QUEUES), help=_("the package of the other queue")
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        type=_pair,
        metavar="FUNCTION=TYPE",
        help=_("the job type for a function whose handler has another function; may be repeated"),
    )
    parser.add_argument("--write", action="store_true", help=_("move them; without it, only check"))


SUBCOMMANDS: Final = (
    Subcommand(
        name="import-from",
        help=gettext_lazy("move the waiting jobs of another queue"),
        description=gettext_lazy("""\
Move the jobs that wait in the tables of another queue. Each is enqueued here and taken from there
in one transaction: it is never in both and never in neither, also while workers of both queues
run. Running and finished jobs stay. The tables must be in the database of the jobs.

A job goes to the handler of its function; --type names the job type of another handler. Arguments,
priority and due time are kept, and attempts start anew. A job that cannot be moved stays where it
is: its function is named with the reason, and the exit code is 1."""),
        examples="""\
  manage.py ojs import-from procrastinate
  manage.py ojs import-from procrastinate --type shop.tasks.send=email.send --write
  manage.py ojs import-from django-tasks-db --write""",
        add_arguments=_add_arguments,
        run=_run,
    ),
)
