"""The bounds of the queues, and what the overview of the admin shows."""

from collections.abc import Iterator
from typing import Final

from django.conf import settings as django_settings

from django_ojs.command_line.checks.finding import Check
from django_ojs.finding import Finding, Severity
from django_ojs.operations.queues.unbounded import BOUND_HINT, CHECK_ID, SHOWN, unbounded
from django_ojs.reports import findings, incidents
from django_ojs.storage import lock_holders


def _bounds() -> Iterator[Finding]:
    if CHECK_ID in django_settings.SILENCED_SYSTEM_CHECKS:
        return
    if names := unbounded():
        more, shown = len(names) - SHOWN, ", ".join(names[:SHOWN])
        if more > 0:
            found = f"The queues {shown} and {more} more have no limit."
        elif len(names) > 1:
            found = f"The queues {shown} have no limit."
        else:
            found = f"The queue {shown} has no limit."
        yield Finding(
            kind="queues_unbounded",
            severity=Severity.ADVICE,
            text=found,
            why=(
                "If jobs are enqueued faster than workers run them, they fill the disk of the "
                "database."
            ),
            cure=BOUND_HINT,
        )


def _overview() -> Iterator[Finding]:
    yield from incidents.look()
    yield from map(findings.locked, lock_holders.lasting())


OVERVIEW: Final = Check(name="overview", about="What the overview shows", run=_overview)

CHECKS: Final = (
    Check(name="bounds", about="The bounds of the queues", run=_bounds),
    OVERVIEW,
)
