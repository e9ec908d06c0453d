"""What extensions that are not installed any more have left behind."""

from collections.abc import Iterator
from typing import Final

from django_ojs.command_line.checks.finding import Check
from django_ojs.finding import Finding, Severity
from django_ojs.formatting import grouped
from django_ojs.not_installed import line_to_add, name_of
from django_ojs.operations.maintenance import lease
from django_ojs.storage import remains

_CURE: Final = (
    "Install the extension again and run `manage.py migrate`. If no worker has it any more, run "
    "`manage.py ojs doctor --only remains --repair`: it removes this, and the jobs run without the "
    "extension."
)


def _remains() -> Iterator[Finding]:
    for name in lease.left_out():
        yield Finding(
            kind="remains_extension",
            subject=name,
            # Another deployment that works on the same database may have it.
            severity=Severity.ADVICE,
            text=f"The database has the extension {name}, which is not installed here.",
            why=(
                "What it has stored waits for a worker that has it: jobs of an outbox, schedules, "
                "deliveries, the next steps of workflows."
            ),
            cure=(
                f"{line_to_add(name)} If no worker of any deployment has it, and it is to go for "
                f"good, then run `manage.py migrate ojs_{name} zero`, and take the app out again."
            ),
        )
    for each in remains.objects():
        yield Finding(
            kind="remains_object",
            subject=str(each),
            text=f"The {each} belongs to an extension that is not installed.",
            why="Writes of jobs take longer, and a trigger writes rows that nothing reads.",
            cure=_CURE,
        )
    for number, names in remains.queues().items():
        yield Finding(
            kind="remains_rule",
            subject=str(number),
            text=(
                "Queues have a rule of an extension that is not installed, or that has no rule "
                f"({name_of(number)}): {', '.join(names)}."
            ),
            why="Their jobs do not start: a worker claims none from a queue whose rule it lacks.",
            cure=_CURE,
        )
    for number, names in remains.held().items():
        yield Finding(
            kind="remains_held",
            subject=str(number),
            text=(
                "Jobs are kept for an extension that is not installed, or that keeps "
                f"none ({name_of(number)}), in the queues {', '.join(names)}."
            ),
            why="No worker without the extension claims them.",
            cure=_CURE,
        )
    for number, jobs in remains.marked().items():
        yield Finding(
            kind="remains_mark",
            subject=str(number),
            text=(
                f"Unfinished jobs have the mark of an extension that is not installed "
                f"({name_of(number)}): {grouped(jobs)}."
            ),
            why="An extension that gets this number would take them for its own.",
            cure=_CURE,
        )


CHECK: Final = Check(
    name="remains",
    about="What extensions have left",
    run=_remains,
    repair=(remains.drop, remains.free_jobs, remains.free_queues, remains.unmark),
    is_repaired_alone=True,
)
