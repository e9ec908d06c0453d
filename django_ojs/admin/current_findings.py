"""What is wrong now: the findings, and what is read for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.utils.translation import gettext_noop

from django_ojs.admin.query_timeout import TimedQueries, Unread, timed_queries
from django_ojs.extensions.statistics.admin_queue_figures import QueueRows, queue_rows
from django_ojs.operations import queues
from django_ojs.operations.access import key_expiry
from django_ojs.operations.keyset import Page
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.queues import QueueStatus
from django_ojs.reports import findings, health_queries
from django_ojs.reports.findings import Finding
from django_ojs.reports.health_queries import Observations
from django_ojs.spec.states import State
from django_ojs.storage.figures import oldest_available

#: Queues that are checked for findings: the configured ones, and of the others those with the most
#: waiting jobs.
MAX_CHECKED: Final = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class CurrentFindings:
    """The findings, and what was read for them."""

    findings: Sequence[Finding]
    listing: Page[QueueStatus] | None
    oldest: Mapping[str, datetime] | None
    queues: QueueRows
    maintenance: MaintenanceStatus | None


def read(query: TimedQueries) -> CurrentFindings:
    """Return the findings, with the figures from which they follow."""
    listing = query(gettext_noop("queues"), lambda: queues.busiest(limit=MAX_CHECKED))
    statuses = listing.rows if listing else []
    waiting = [status.name for status in statuses if status.counts.get(State.AVAILABLE)]
    oldest = query(gettext_noop("oldest jobs"), lambda: oldest_available.oldest(waiting))
    rows = queue_rows(query, statuses, oldest)
    status = _maintenance(query)
    found = findings.of_system(
        rows.rows,
        query(gettext_noop("failures"), health_queries.observe) or Observations(),
        maintenance=status,
        stale=rows.listening.stale if rows.listening else 0,
        transaction=query(gettext_noop("open transactions"), health_queries.oldest_transaction),
        keys=query(gettext_noop("API keys"), key_expiry.problems) or (),
    )
    return CurrentFindings(
        findings=found, listing=listing, oldest=oldest, queues=rows, maintenance=status
    )


def maintenance(unread: Unread) -> MaintenanceStatus | None:
    """Return the maintenance mode for a page; None, and a name in `unread`, if it is unknown."""
    with timed_queries() as query:
        found = _maintenance(query)
    unread.add(query.unread)
    return found


def _maintenance(query: TimedQueries) -> MaintenanceStatus | None:
    return query(gettext_noop("maintenance mode"), mode.status)
