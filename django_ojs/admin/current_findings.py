"""What is wrong now: the findings, and what is read for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.db import DatabaseError
from django.utils.translation import gettext, gettext_noop

from django_ojs.admin.query_timeout import TimedQueries, Unread, timed_queries
from django_ojs.admin.queue_figures import QueueRows, queue_rows
from django_ojs.operations import queues
from django_ojs.operations.access import key_expiry
from django_ojs.operations.figures import findings, health_queries
from django_ojs.operations.figures.findings import Finding
from django_ojs.operations.figures.health_queries import Observations
from django_ojs.operations.maintenance import mode
from django_ojs.operations.maintenance.mode import MaintenanceStatus
from django_ojs.operations.queues import Listing
from django_ojs.spec.states import State
from django_ojs.storage import all_databases, database, replica
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Figures:
    """What is read for the findings of a database, or of all."""

    listing: Listing | None
    oldest: Mapping[str, datetime] | None
    queues: QueueRows
    maintenance: MaintenanceStatus | None


def read(query: TimedQueries) -> CurrentFindings:
    """Return the findings, with the figures of all databases within `all_databases.together`."""
    figures = _figures(query)
    found = _of_each(query) if all_databases.are_together() else _findings(query, figures)
    return CurrentFindings(
        findings=found,
        listing=figures.listing,
        oldest=figures.oldest,
        queues=figures.queues,
        maintenance=figures.maintenance,
    )


def maintenance(unread: Unread) -> MaintenanceStatus | None:
    """Return the maintenance mode for a page; None, and a name in `unread`, if it is unknown."""
    with timed_queries() as query:
        found = _maintenance(query)
    unread.add(query.unread)
    return found


def _maintenance(query: TimedQueries) -> MaintenanceStatus | None:
    return query(gettext_noop("maintenance mode"), mode.status)


def read_alone(query: TimedQueries) -> Sequence[Finding]:
    """Return the findings alone."""
    return _of_each(query) if all_databases.are_together() else _findings(query, _figures(query))


def _of_each(query: TimedQueries) -> Sequence[Finding]:
    """What is wrong is wrong in one database: its bounds, its workers, its claims."""
    found: list[Finding] = []
    for alias in database.aliases():
        try:
            with query.in_database(alias) as there:
                own = _findings(there, _figures(there))
        except DatabaseError:
            # The sums of the page name it.
            query.unread.failed.append(
                gettext("problems of the database %(alias)s") % {"alias": alias}
            )
            continue
        found += (replace(each, database=alias) for each in own)
    return findings.worst_first(found)


def _figures(query: TimedQueries) -> _Figures:
    listing = query(gettext_noop("queues"), lambda: queues.busiest(limit=MAX_CHECKED))
    statuses = listing.queues if listing else []
    waiting = [status.name for status in statuses if status.counts.get(State.AVAILABLE)]
    oldest = query(gettext_noop("oldest jobs"), lambda: oldest_available.oldest(waiting))
    rows = queue_rows(query, statuses, oldest)
    return _Figures(listing=listing, oldest=oldest, queues=rows, maintenance=_maintenance(query))


def _findings(query: TimedQueries, figures: _Figures) -> Sequence[Finding]:
    listening = figures.queues.listening
    # API keys are in the first of several databases.
    has_keys = database.primary_alias() == database.aliases()[0]
    keys = query(gettext_noop("API keys"), key_expiry.problems) if has_keys else None
    return findings.of_system(
        figures.queues.rows,
        query(gettext_noop("failures"), health_queries.observe) or Observations(),
        maintenance=figures.maintenance,
        stale=listening.stale if listening else 0,
        # Of the server that the claims are made on.
        transaction=query.of_primary(
            gettext_noop("open transactions"), health_queries.oldest_transaction
        ),
        lock_holders=query.of_primary(gettext_noop("locked jobs"), health_queries.lock_holders)
        or (),
        replica=replica.problem(),
        keys=keys or (),
    )
