"""`workflows`: list them, show the steps of one, and cancel them."""

from argparse import ArgumentParser
from collections import Counter
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext

from django_ojs.command_line.changes import ask
from django_ojs.command_line.console import NONE, Cell, Console, TableColumn
from django_ojs.command_line.subcommand import (
    FAILED,
    OK,
    Options,
    Subcommand,
    add_limit,
    usage_error,
)
from django_ojs.formatting import absolute_time, error_message, grouped
from django_ojs.models import Workflow
from django_ojs.models.workflow import StepState, WorkflowState
from django_ojs.operations import workflows
from django_ojs.operations.workflows import StepDetail
from django_ojs.spec.errors import OJSError
from django_ojs.spec.ids import parse_id
from django_ojs.spec.times import format_timestamp
from django_ojs.storage import find_database

_STYLES: Final[dict[str, str]] = {
    WorkflowState.RUNNING: "blue",
    WorkflowState.COMPLETED: "green",
    WorkflowState.FAILED: "red",
    "active": "blue",
    "retryable": "yellow",
    StepState.READY: "yellow",
}
_COLUMNS: Final = (
    TableColumn(gettext_lazy("ID")),
    TableColumn(gettext_lazy("KIND")),
    TableColumn(gettext_lazy("NAME"), shrinks=True),
    TableColumn(gettext_lazy("STATE")),
    TableColumn(gettext_lazy("COMPLETED"), right=True),
    TableColumn(gettext_lazy("FAILED"), right=True),
    TableColumn(gettext_lazy("CREATED")),
    TableColumn(gettext_lazy("ENDED")),
)
_STEP_COLUMNS: Final = (
    TableColumn(gettext_lazy("STEP"), shrinks=True),
    TableColumn(gettext_lazy("TYPE"), shrinks=True),
    TableColumn(gettext_lazy("STATE")),
    TableColumn(gettext_lazy("JOB")),
    TableColumn(gettext_lazy("WAITS FOR"), shrinks=True),
    TableColumn(gettext_lazy("ENDED")),
    TableColumn(gettext_lazy("ERROR"), shrinks=True),
)
#: States of a step that has no job yet, or never gets one.
_WITHOUT_JOB: Final = (StepState.WAITING, StepState.READY, StepState.SKIPPED)


def _ids(texts: list[str]) -> list[UUID]:
    if not texts:
        raise usage_error(
            _("Name the workflow by its id; `manage.py ojs workflows list` has those there are.")
        )
    try:
        return list(dict.fromkeys(parse_id(text) for text in texts))
    except OJSError as error:
        raise usage_error(error_message(error)) from None


def _list(console: Console, options: Options) -> int:
    if options["ids"]:
        raise usage_error(_("`list` has no ids: `manage.py ojs workflows show ID` shows one."))
    after = None if options["after"] is None else _ids([options["after"]])[0]
    page = workflows.page(before=after, limit=options["limit"], state=options["state"])
    end = str(page.workflows[-1].pk) if page.has_more else None
    if console.as_json:
        console.json({"workflows": [_as_json(each) for each in page.workflows], "next": end})
        return OK
    if not page.workflows:
        console.line(_("There is no such workflow.") if options["state"] else _("No workflows."))
        return OK
    console.table(_COLUMNS, [_row(each) for each in page.workflows])
    if end is not None:
        console.line(_("There are more: --after %(end)s") % {"end": end})
    return OK


def _row(workflow: Workflow) -> list[Cell | str]:
    return [
        str(workflow.pk),
        workflow.type,
        workflow.name or NONE,
        Cell(workflow.state, _STYLES.get(workflow.state, "")),
        f"{grouped(workflow.jobs_completed)}/{grouped(workflow.jobs_total)}",
        grouped(workflow.jobs_failed),
        absolute_time(workflow.created_at),
        absolute_time(workflow.finished_at) or NONE,
    ]


def _as_json(workflow: Workflow) -> dict[str, Any]:
    return {
        "id": str(workflow.pk),
        "type": workflow.type,
        "name": workflow.name,
        "state": workflow.state,
        "queues": workflow.queues,
        "jobs_total": workflow.jobs_total,
        "jobs_completed": workflow.jobs_completed,
        "jobs_failed": workflow.jobs_failed,
        "created_at": _timestamp(workflow.created_at),
        "started_at": _timestamp(workflow.started_at),
        "finished_at": _timestamp(workflow.finished_at),
    }


def _timestamp(at: datetime | None) -> str | None:
    return None if at is None else format_timestamp(at)


def _show(console: Console, options: Options) -> int:
    keys = _ids(options["ids"])
    if len(keys) > 1:
        raise usage_error(_("Name one workflow: its steps are shown."))
    with find_database.database_of(Workflow, keys[0]):
        workflow = workflows.get(keys[0])
        steps = workflows.details(workflow)
    if console.as_json:
        console.json({**_as_json(workflow), "steps": [_step_as_json(each) for each in steps]})
        return OK
    console.line(f"{workflow.type} {workflow.name or ''} {workflow.pk}".replace("  ", " "), "bold")
    state = _("state")
    console.line(f"  {state:<10} {workflow.state}", _STYLES.get(workflow.state, ""))
    for name, value in (
        (_("jobs"), _counted(workflow)),
        (_("queues"), ", ".join(workflow.queues)),
        (pgettext("before a time", "created"), absolute_time(workflow.created_at)),
        (pgettext("before a time", "started"), absolute_time(workflow.started_at)),
        (pgettext("before a time", "finished"), absolute_time(workflow.finished_at)),
    ):
        if value:
            console.line(f"  {name:<10} {value}")
    console.line()
    console.table(_STEP_COLUMNS, [_step_row(each, steps) for each in steps])
    if hints := list(_hints(steps)):
        console.line()
        for hint in hints:
            console.line(hint, "yellow")
    return OK


def _counted(workflow: Workflow) -> str:
    return _("%(completed)s of %(total)s completed, %(failed)s failed") % {
        "completed": grouped(workflow.jobs_completed),
        "total": grouped(workflow.jobs_total),
        "failed": grouped(workflow.jobs_failed),
    }


def _state(detail: StepDetail) -> str:
    """Return the state of a step; while it has a job that has not ended, that of the job."""
    return detail.job_state or detail.step.state


def _step_row(detail: StepDetail, steps: list[StepDetail]) -> list[Cell | str]:
    step = detail.step
    ended = {each.step.name or each.step.key for each in steps if each.step.finished_at is not None}
    waits = step.state == StepState.WAITING
    error = step.error if isinstance(step.error, dict) else {}
    return [
        step.name or step.key,
        str(step.type),
        Cell(_state(detail), _STYLES.get(_state(detail), "")),
        NONE if step.state in _WITHOUT_JOB else str(step.pk),
        ", ".join(name for name in detail.depends_on if waits and name not in ended) or NONE,
        absolute_time(step.finished_at) or NONE,
        str(error.get("type") or NONE),
    ]


def _hints(steps: list[StepDetail]) -> list[str]:
    """Return what to do about steps that do not go on."""
    found = Counter(each.step.state for each in steps)
    hints = []
    if found[StepState.ENQUEUED]:
        first = next(each for each in steps if each.step.state == StepState.ENQUEUED)
        hints.append(_("What a job waits for: manage.py ojs show %(id)s") % {"id": first.step.pk})
    if found[StepState.READY]:
        text = ngettext(
            "%(number)s step may start and is enqueued when its queue has room.",
            "%(number)s steps may start and are enqueued when their queues have room.",
            found[StepState.READY],
        )
        hints.append(text % {"number": grouped(found[StepState.READY])})
    return hints


def _step_as_json(detail: StepDetail) -> dict[str, Any]:
    step = detail.step
    error = step.error if isinstance(step.error, dict) else {}
    return {
        "name": step.name,
        "key": step.key,
        "type": step.type,
        "callback": step.callback,
        "state": step.state,
        "job_id": None if step.state in _WITHOUT_JOB else str(step.pk),
        "job_state": detail.job_state,
        "attempt": detail.attempt,
        "depends_on": detail.depends_on,
        "started_at": _timestamp(detail.started_at),
        "finished_at": _timestamp(step.finished_at),
        "start_after": _timestamp(step.start_after),
        "error_type": error.get("type"),
    }


def _cancel(console: Console, options: Options) -> int:
    keys = _ids(options["ids"])
    question = ngettext(
        "Cancel %(number)s workflow? Its jobs that have not ended are cancelled, those that are "
        "running included.",
        "Cancel %(number)s workflows? Their jobs that have not ended are cancelled, those that "
        "are running included.",
        len(keys),
    )
    ask(console, question % {"number": grouped(len(keys))}, yes=options["yes"])
    results: dict[str, dict[str, Any]] = {}
    code = OK
    for key in keys:
        try:
            workflow = workflows.cancel(key)
        except OJSError as error:
            code = FAILED
            results[str(key)] = {"error": error_message(error)}
            console.note(f"{key}: {error_message(error)}")
            continue
        results[str(key)] = {"state": workflow.state}
        if not console.as_json:
            name = workflow.name or workflow.pk
            console.line(_("Workflow %(name)s is cancelled.") % {"name": name})
    if console.as_json:
        console.json({"workflows": results})
    return code


_ACTIONS: Final = {"list": _list, "show": _show, "cancel": _cancel}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help=_("what to do"))
    parser.add_argument("ids", nargs="*", metavar="ID", help=_("the id of a workflow"))
    parser.add_argument(
        "--state",
        choices=[str(each.value) for each in WorkflowState],
        help=_("with list: only those in this state"),
    )
    add_limit(parser, 50, _("with list: the number of workflows (default: %(default)d)"))
    parser.add_argument(
        "--after", metavar="NEXT", help=_("with list: continue after an earlier page")
    )
    parser.add_argument("--yes", action="store_true", help=_("with cancel: do not ask"))


SUBCOMMANDS: Final = (
    Subcommand(
        name="workflows",
        help=gettext_lazy("list workflows, show the steps of one, cancel them"),
        description=gettext_lazy(
            "list: the workflows, the latest first, and how far each is. show: the steps of one, "
            "their states, which jobs they are and what the others wait for. cancel: cancel "
            "workflows with their jobs that have not ended; the steps that wait never start, and "
            "what their jobs have done so far stays done."
        ),
        examples="  manage.py ojs workflows list --state running\n"
        "  manage.py ojs workflows show 019539a4-b68c-7def-8000-1a2b3c4d5e6f\n"
        "  manage.py ojs workflows cancel 019539a4-b68c-7def-8000-1a2b3c4d5e6f --yes",
        add_arguments=_arguments,
        run=lambda console, options: _ACTIONS[options["action"]](console, options),
    ),
)
