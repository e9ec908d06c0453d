"""`workflows`: list them, show the steps of one, and cancel them."""

from argparse import ArgumentParser
from collections import Counter
from functools import partial
from typing import Any, Final
from uuid import UUID

from django_ojs.command_line.console import NONE, Console
from django_ojs.command_line.lists import (
    ListColumn,
    act_on_each,
    as_json,
    column,
    members,
    read_page,
    write_details,
    write_list,
    write_table,
)
from django_ojs.command_line.retry_and_cancel import ask
from django_ojs.command_line.subcommand import (
    OK,
    Options,
    Subcommand,
    add_limit,
    parsed_ids,
    usage_error,
)
from django_ojs.extensions.workflows import operations as workflows
from django_ojs.extensions.workflows.models import StepState, Workflow, WorkflowState
from django_ojs.extensions.workflows.operations import StepDetail
from django_ojs.formatting import absolute_time, grouped

_COLUMNS: Final = [
    column("id"),
    column("type", drops=3),
    column("name"),
    column("state", "state"),
    *members("queues"),
    column("jobs_total", "number", title="JOBS", drops=1),
    column("jobs_completed", "number", title="COMPLETED", drops=4),
    column("jobs_failed", "number", title="FAILED", drops=2),
    column("created_at", "time", title="CREATED"),
    *members("started_at"),
    column("finished_at", "time", title="FINISHED", drops=5),
]
#: States of a step that has no job yet, or never gets one.
_WITHOUT_JOB: Final = (StepState.WAITING, StepState.READY, StepState.SKIPPED)


def _ids(options: Options) -> list[UUID]:
    unnamed = "Name the workflow by its id; `manage.py ojs workflows list` shows the ids."
    return parsed_ids(options["ids"], unnamed=unnamed)


def _list(console: Console, options: Options) -> int:
    if options["ids"]:
        raise usage_error("`list` takes no ids: `manage.py ojs workflows show ID` shows one.")
    page = read_page(options, partial(workflows.page, state=options["state"]))
    none = "No workflow is in this state." if options["state"] else "No workflows."
    is_table = write_list(console, "workflows", _COLUMNS, page.rows, none=none, next=page.after)
    if is_table and page.after is not None:
        console.prose(f"There are more: --after={page.after}")
    return OK


def _show(console: Console, options: Options) -> int:
    keys = _ids(options)
    if len(keys) > 1:
        raise usage_error("Name only one workflow: `show` lists its steps.")
    workflow = workflows.get(keys[0])
    steps = workflows.details(workflow)
    columns = _step_columns(steps)
    if console.as_json:
        each_step = [as_json(columns, step) for step in steps]
        console.json({**as_json(_COLUMNS, workflow), "steps": each_step})
        return OK
    console.line(f"{workflow.type} {workflow.name or ''} {workflow.pk}".replace("  ", " "), "bold")
    lines = (
        ("state", workflow.state),
        ("jobs", _counted(workflow)),
        ("queues", ", ".join(workflow.queues)),
        ("created", absolute_time(workflow.created_at)),
        ("started", absolute_time(workflow.started_at)),
        ("finished", absolute_time(workflow.finished_at)),
    )
    write_details(console, lines)
    console.line()
    write_table(console, columns, steps)
    if hints := list(_hints(steps)):
        console.line()
        for hint in hints:
            console.line(hint, "yellow")
    return OK


def _counted(workflow: Workflow) -> str:
    return (
        f"{grouped(workflow.jobs_completed)} of {grouped(workflow.jobs_total)} completed, "
        f"{grouped(workflow.jobs_failed)} failed"
    )


def _error_type(detail: StepDetail) -> Any:
    error = detail.step.error
    return error.get("type") if isinstance(error, dict) else None


def _job_id(detail: StepDetail) -> UUID | None:
    return None if detail.step.state in _WITHOUT_JOB else detail.step.pk


def _step_columns(steps: list[StepDetail]) -> list[ListColumn[StepDetail]]:
    ended = {each.step.name or each.step.key for each in steps if each.step.finished_at is not None}

    def waits_for(detail: StepDetail) -> str:
        if detail.step.state != StepState.WAITING:
            return NONE
        return ", ".join(name for name in detail.depends_on if name not in ended)

    return [
        column("name", path="step.name", words=lambda detail: detail.step.name or detail.step.key),
        *members("key", of="step"),
        column("type", path="step.type", drops=1),
        *members("callback", of="step"),
        # While a step has a job that has not ended, the state of the job is shown.
        column(
            "state",
            "state",
            "step.state",
            words=lambda detail: detail.job_state or detail.step.state,
        ),
        ListColumn(name="job_id", value=_job_id, kind="job", drops=2),
        *members("job_state attempt"),
        column("depends_on", "text", words=waits_for, title="WAITS FOR"),
        *members("started_at"),
        column("finished_at", "time", "step.finished_at"),
        *members("start_after", of="step"),
        ListColumn(name="error_type", value=_error_type),
    ]


def _hints(steps: list[StepDetail]) -> list[str]:
    """Return what to do about steps that make no progress."""
    found = Counter(each.step.state for each in steps)
    hints = []
    if found[StepState.ENQUEUED]:
        first = next(each for each in steps if each.step.state == StepState.ENQUEUED)
        hints.append(f"What a job waits for: manage.py ojs show {first.step.pk}")
    if found[StepState.READY]:
        text = (
            f"{grouped(found[StepState.READY])} step may start and is enqueued when its queue has "
            "room."
            if found[StepState.READY] == 1
            else (
                f"{grouped(found[StepState.READY])} steps may start and are enqueued when their "
                "queues have room."
            )
        )
        hints.append(text)
    return hints


def _cancel(console: Console, options: Options) -> int:
    keys = _ids(options)
    question = (
        f"Cancel {grouped(len(keys))} workflow? Its jobs that have not ended are cancelled, even "
        "those that are running."
        if len(keys) == 1
        else (
            f"Cancel {grouped(len(keys))} workflows? Their jobs that have not ended are "
            "cancelled, even those that are running."
        )
    )
    ask(console, question, yes=options["yes"])
    return act_on_each(console, "workflows", {str(key): key for key in keys}, _cancel_one)


def _cancel_one(key: UUID) -> tuple[dict[str, Any], str]:
    workflow = workflows.cancel(key)
    return {"state": workflow.state}, f"Workflow {workflow.name or workflow.pk} is cancelled."


_ACTIONS: Final = {"list": _list, "show": _show, "cancel": _cancel}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument("ids", nargs="*", metavar="ID", help="the id of a workflow")
    parser.add_argument(
        "--state",
        choices=[str(each.value) for each in WorkflowState],
        help="with list: only those in this state",
    )
    add_limit(parser, 50, "with list: the number of workflows (default: %(default)d)")
    parser.add_argument("--after", metavar="NEXT", help="with list: continue after an earlier page")
    parser.add_argument("--yes", action="store_true", help="with cancel: do not ask")


SUBCOMMANDS: Final = (
    Subcommand(
        name="workflows",
        help="list workflows, show the steps of one, cancel them",
        description=(
            "list: the workflows, the latest first, and how far each is. show: the steps of one, "
            "with their states, their jobs and what waiting steps wait for. cancel: cancel "
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
