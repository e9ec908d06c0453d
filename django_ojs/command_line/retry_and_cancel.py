"""`retry`, `run-now` and `cancel`: change the jobs of a search.

Jobs that are named by id change at once, each with its result. A search becomes a bulk operation,
as in the admin. It is stored with the operator's name, so a worker finishes it if this command
dies.
"""

import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django_ojs.command_line.console import Console
from django_ojs.command_line.job_ids import with_whole_ids
from django_ojs.command_line.jobs import COLUMNS, first_of
from django_ojs.command_line.lists import write_table
from django_ojs.command_line.operator import operator
from django_ojs.command_line.searching import add_search, filter_of, has_only_ids, with_search_help
from django_ojs.command_line.subcommand import (
    FAILED,
    OK,
    Options,
    Subcommand,
    add_confirmation,
    usage_error,
)
from django_ojs.formatting import grouped, number_of
from django_ojs.models import BulkOperation
from django_ojs.models.bulk_operation import STOPPED_BY_ERROR, BulkActionName, BulkState
from django_ojs.operations.jobs import bulk, bulk_execution, bulk_operations, listing
from django_ojs.operations.jobs.bulk import Summary
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.keyset import PageRequest
from django_ojs.spec.errors import InvalidRequest

#: How many of the jobs --dry-run lists.
SAMPLE: Final = 10
#: Seconds between two checks of an operation that another process is executing.
_WAIT: Final = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    action: BulkActionName
    done: str
    warning: str
    by_ids: Callable[..., Summary]

    def run(self, console: Console, options: Options) -> int:
        which = filter_of(with_whole_ids(options), required=True)
        if not has_only_ids(which):
            try:
                which = bulk_operations.applicable(self.action, which)
            except InvalidRequest as error:
                raise usage_error(error.message) from None
        number, more = listing.count(which)
        if options["dry_run"]:
            return _dry_run(console, self.action, which, number, more)
        if not number and not more and not which.ids:
            return _nothing(console, self.action)
        touched = max(number, len(which.ids)) if has_only_ids(which) else number
        if touched > 1 or more:
            change = _in_words(self.action, number_of_jobs(touched, more)).capitalize()
            what = f"{change}? {self.warning}"
            ask(console, what, yes=options["yes"])
        if has_only_ids(which):
            return self._named(console, which)
        return self._matching(console, which)

    def _done(self, count: int) -> str:
        return f"{grouped(count)} {self.done}"

    def _named(self, console: Console, which: JobFilter) -> int:
        summary = self.by_ids(which.ids)
        if console.as_json:
            errors = {str(each.job_id): each.error for each in summary.errors}
            _json(console, self.action, summary.succeeded, 0, summary.failed, errors=errors)
        else:
            text = f"{self._done(summary.succeeded)}, {grouped(summary.failed)} failed."
            console.line(text)
            for each in summary.errors:
                console.note(f"{each.job_id}: {each.error}")
        return FAILED if summary.failed else OK

    def _matching(self, console: Console, which: JobFilter) -> int:
        operation = bulk_operations.order(self.action, which, by=operator())
        try:
            operation = _execute(console, operation)
        except KeyboardInterrupt:
            bulk_operations.stop(operation.pk, by=operator())
            operation = bulk_operations.get(operation.pk)
        is_done = operation.state == BulkState.DONE
        if console.as_json:
            _json(
                console,
                self.action,
                operation.done,
                operation.skipped,
                operation.failed,
                operation=operation.pk,
                state=operation.state,
                reasons=operation.reasons,
            )
        else:
            text = (
                f"{self._done(operation.done)}, {grouped(operation.skipped)} skipped, "
                f"{grouped(operation.failed)} failed (bulk operation {operation.pk})."
            )
            console.line(text)
            for stored, number in operation.reasons.items():
                console.note(f"{grouped(number)}: {stored}")
            if not is_done:
                by = operation.stopped_by
                who = "an error; see the log" if by == STOPPED_BY_ERROR else by
                console.note(f"The operation was stopped by {who}.")
        return OK if is_done and not operation.failed else FAILED


def _execute(console: Console, operation: BulkOperation) -> BulkOperation:
    """Execute an operation until it is over; workers may execute it too."""
    while operation.state not in bulk_operations.OVER:
        if bulk_execution.work_once(only=operation.pk) is None:
            # A worker is executing it now.
            time.sleep(_WAIT)
        operation = bulk_operations.get(operation.pk)
        console.progress(number_of(operation.matched, "job"))
    console.progress("")
    return operation


def ask(console: Console, question: str, *, yes: bool) -> None:
    """Ask whether to continue. Raises a usage error unless the operator agrees."""
    answer = console.confirmed(question, yes=yes)
    if answer is None:
        raise usage_error(f"{question} stdin is no terminal: confirm with --yes.")
    if not answer:
        raise usage_error("Nothing was changed.")


def _dry_run(
    console: Console, action: BulkActionName, which: JobFilter, number: int, more: bool
) -> int:
    if console.as_json:
        console.json({"action": action, "dry_run": True, "matched": number, "more": more})
        return OK
    change = _in_words(action, number_of_jobs(number, more))
    console.line(f"This would {change}; nothing was changed.")
    if jobs := first_of(console, which, PageRequest(limit=SAMPLE)).rows:
        write_table(console, COLUMNS, jobs)
    return OK


def _in_words(action: BulkActionName, jobs: str) -> str:
    """Return "retry 3 jobs" or "run 3 jobs now"."""
    return f"run {jobs} now" if action == BulkActionName.RUN_NOW else f"{action.value} {jobs}"


def _nothing(console: Console, action: str) -> int:
    if console.as_json:
        _json(console, action, 0, 0, 0)
    else:
        console.line("No job matches.")
    return OK


def _json(console: Console, action: str, done: int, skipped: int, failed: int, **more: Any) -> None:
    result = {"action": action, "done": done, "skipped": skipped, "failed": failed}
    console.json(result | more)


def number_of_jobs(number: int, more: bool) -> str:
    """Return "1 job", or "at least 7 jobs" where there may be more."""
    if not more:
        return number_of(number, "job")
    return f"at least {grouped(number)} jobs"


def _arguments(parser: ArgumentParser) -> None:
    add_search(parser)
    add_confirmation(parser)


SUBCOMMANDS: Final = (
    Subcommand(
        name="retry",
        help="make discarded jobs available again",
        description=with_search_help(
            "Retry the discarded jobs of a search, dead letters included, with all their attempts."
        ),
        examples="""\
  manage.py ojs retry 019539a4-b68c-7def-8000-1a2b3c4d5e6f
  manage.py ojs retry is:dead queue:email error_type:Timeout --dry-run
  manage.py ojs retry is:dead queue:email error_type:Timeout --yes""",
        add_arguments=_arguments,
        run=_Change(
            action=BulkActionName.RETRY,
            done="retried",
            warning="They become available again, with all their attempts.",
            by_ids=bulk.retry_all,
        ).run,
    ),
    Subcommand(
        name="run-now",
        help="make scheduled and retryable jobs available before they are due",
        description=with_search_help(
            "Make the scheduled and retryable jobs of a search available now. "
            "Their attempts stay as they are."
        ),
        examples="""\
  manage.py ojs run-now 019539a4-b68c-7def-8000-1a2b3c4d5e6f
  manage.py ojs run-now state:retryable queue:payments --dry-run
  manage.py ojs run-now state:retryable queue:payments --yes""",
        add_arguments=_arguments,
        run=_Change(
            action=BulkActionName.RUN_NOW,
            done="made available",
            warning="They become available before they are due.",
            by_ids=bulk.run_all_now,
        ).run,
    ),
    Subcommand(
        name="cancel",
        help="cancel jobs that have not ended",
        description=with_search_help(
            "Cancel the waiting jobs of a search. Running ones are cancelled "
            "only if they are named by id, or by state:active: what the "
            "handler has done is not undone."
        ),
        examples="""\
  manage.py ojs cancel 019539a4-b68c-7def-8000-1a2b3c4d5e6f
  manage.py ojs cancel tag:campaign-7 --dry-run
  manage.py ojs cancel queue:email state:scheduled --yes""",
        add_arguments=_arguments,
        run=_Change(
            action=BulkActionName.CANCEL,
            done="cancelled",
            warning="A cancelled job does not run again and cannot be restored.",
            by_ids=bulk.cancel_all,
        ).run,
    ),
)
