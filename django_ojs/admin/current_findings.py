"""What is wrong now: the findings, and what is read for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.utils.translation import gettext_noop

from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.admin.queue_figures import QueueRows, queue_rows
from django_ojs.operations import queues
from django_ojs.operations.access import key_expiry
from django_ojs.operations.figures import health
from django_ojs.operations.figures.health import Finding
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.queues import Listing
from django_ojs.spec.states import State
from django_ojs.storage import database, replica, sums
from django_ojs.storage.figures import oldest_available

#: Queues that are checked for findings: the configured ones, and of the others those with the most
#: waiting jobs.
MAX_CHECKED: Final = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class CurrentFindings:
    """The findings, and what was read for them."""

    findings: Sequence[Finding]
    listing: Listing | None
    oldest: Mapping[str, datetime] | None
    queues: QueueRows
    maintenance: MaintenanceStatus | None


def read(query: TimedQueries) -> CurrentFindings:
    found = _read(query)
    if not sums.are_together():
        return found
    # What is wrong is wrong in one database: its bounds, its workers, its claims.
    findings: list[Finding] = []
    for alias in database.aliases():
        with database.using(alias):
            findings += (replace(each, database=alias) for each in _read(query).findings)
    return replace(found, findings=health.worst_first(findings))


def _read(query: TimedQueries) -> CurrentFindings:
    listing = query(gettext_noop("queues"), lambda: queues.busiest(limit=MAX_CHECKED))
    statuses = listing.queues if listing else []
    waiting = [status.name for status in statuses if status.counts.get(State.AVAILABLE)]
    oldest = query(gettext_noop("oldest jobs"), lambda: oldest_available.oldest(waiting))
    rows = queue_rows(query, statuses, oldest)
    maintenance = query(gettext_noop("maintenance mode"), mode.status)
    findings = health.findings(
        rows.rows,
        query(gettext_noop("failures"), health.observe) or health.Observations(),
        maintenance=maintenance,
        stale=rows.listening.stale if rows.listening else 0,
        # Of the server that the claims are made on.
        transaction=query.of_primary(gettext_noop("open transactions"), health.oldest_transaction),
        replica=replica.problem(),
        keys=query(gettext_noop("API keys"), key_expiry.problems) or (),
    )
    return CurrentFindings(
        findings=findings,
        listing=listing,
        oldest=oldest,
        queues=rows,
        maintenance=maintenance,
    )
