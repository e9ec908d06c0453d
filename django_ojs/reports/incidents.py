"""Incidents: an urgent finding is stored while it lasts, and for an hour after its end.

Several processes look for findings at the same time, and none waits for another. Each reads the
rows first, and later changes only rows that are as it read them, because what another process has
found in the meantime is newer.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from django.db import DatabaseError, transaction
from django.utils import timezone

from django_ojs.finding import Finding
from django_ojs.models import Incident
from django_ojs.reports import current_findings
from django_ojs.reports.causes import with_causes
from django_ojs.reports.current_findings import CurrentFindings
from django_ojs.reports.findings import without_consequences, worst_first
from django_ojs.storage import database

logger = logging.getLogger("django_ojs")

#: How long an incident is shown after its end.
KEPT: Final = timedelta(hours=1)
#: An incident that is found again so soon after its end counts as the same one.
SAME_WITHIN: Final = timedelta(minutes=1)
#: Texts and numbers are written at most this often, but at once if the severity changes.
WRITTEN_EVERY: Final = timedelta(seconds=15)

#: The most incidents that are stored, because problems of five hundred queues have one cause.
MOST: Final = 100

#: The length of the column.
_MOST_IDENTITY: Final = 600


def look(within: Collection[str] | None = None, *, and_keep: bool = True) -> Sequence[Finding]:
    """Return what was found, and since when each finding lasts; see `look_at_all`."""
    return look_at_all(within, and_keep=and_keep)[0]


def look_at_all(
    within: Collection[str] | None = None, *, and_keep: bool = True
) -> tuple[Sequence[Finding], CurrentFindings]:
    """Return what was found, worst first, and all that was read for it.

    `within` are the queues that the caller may use; with them, only findings about these are
    returned. With `and_keep`, starts and ends are written, if possible; without it, `since` is the
    finding's own or now, and no cause is known.
    """
    now = timezone.now()
    before = rows() if and_keep else {}
    found = current_findings.read()
    if and_keep:
        found = replace(found, findings=explained(before, found.findings, now))
        write(before, found.findings, now=now)
    causes = [since(each, before.get(each.identity), now) for each in found.causes_within(within)]
    return worst_first(causes), found


def look_and_forget() -> int:
    """Keep what a worker finds, for later readers."""
    now = timezone.now()
    before = rows()
    found = explained(before, current_findings.read(with_keys=False).findings, now)
    write(before, found, now=now, without=current_findings.OF_KEYS)
    return 0


def rows() -> dict[str, Incident]:
    """Return the incidents that are not over, and those that ended lately, by their identities."""
    return {row.identity: row for row in Incident.primary.all()}


def explained(
    before: Mapping[str, Incident], found: Sequence[Finding], now: datetime
) -> list[Finding]:
    """Return findings; those that begin an incident get their probable cause."""
    new = {
        each.identity: since(each, None, now)
        for each in without_consequences(found)
        if each.is_incident and _is_new(before.get(each.identity), now)
    }
    if not new:
        return list(found)
    causes = {each.identity: each.cause for each in with_causes(worst_first([*new.values()]))}
    return [replace(each, cause=causes.get(each.identity, each.cause)) for each in found]


def since(finding: Finding, row: Incident | None, now: datetime) -> Finding:
    """Return a finding that says since when it lasts; advice stays as it is."""
    if not finding.is_incident:
        return finding
    if row is None or _is_new(row, now):
        return replace(finding, since=finding.since or now)
    first = row.since if finding.since is None else min(row.since, finding.since)
    return replace(finding, since=first, cause=row.cause)


def _is_new(row: Incident | None, now: datetime) -> bool:
    """Whether a finding with this row begins a new incident."""
    return row is None or (row.ended_at is not None and now - row.ended_at > SAME_WITHIN)


def ended(
    before: Mapping[str, Incident], found: Sequence[Finding], *, now: datetime, are_complete: bool
) -> list[Incident]:
    """Return the incidents that are over, the latest first. `found` are all findings."""
    lasting = {each.identity for each in found if each.is_incident}
    said = _said_at_the_end(found)
    over = []
    for row in before.values():
        if row.identity in lasting:
            continue
        if row.ended_at is None and are_complete:
            row = copy(row)
            row.ended_at, row.text = now, said.get(row.identity, row.text)
        if row.ended_at is not None and row.ended_at >= now - KEPT:
            over.append(row)
    return sorted(over, key=lambda row: row.ended_at or now, reverse=True)


def write(
    before: Mapping[str, Incident],
    found: Sequence[Finding],
    *,
    now: datetime,
    are_complete: bool = True,
    without: Collection[str] = (),
) -> None:
    """Keep what was found at `now`; `before` are the rows as they were before the search.

    `found` are all findings: one that follows from another is not kept, and has not ended. What was
    not found may last if `are_complete` is False, or if its kind is in `without`. A failed write is
    logged, and does not change what is shown.
    """
    causes = without_consequences(found)
    incidents = {each.identity: each for each in causes if each.is_incident}
    lasting = {each.identity for each in found if each.is_incident}
    said = _said_at_the_end(found)
    new = [
        _row(each, now)
        for name, each in incidents.items()
        if name not in before and len(name) <= _MOST_IDENTITY
    ][: max(0, MOST - len(before))]
    changed = {
        name: (row, values)
        for name, row in sorted(before.items())
        if (
            values := _values(
                row,
                incidents.get(name),
                now,
                said=said.get(name, row.text),
                is_over=are_complete
                and name not in lasting
                and name.partition(":")[0] not in without,
            )
        )
    }
    old = [name for name, row in before.items() if row.ended_at and row.ended_at < now - KEPT]
    if not (new or changed or old):
        return
    try:
        with transaction.atomic(using=database.alias()):
            if not _try_lock():
                return  # Another process is writing what it has found at the same time.
            Incident.primary.bulk_create(new, ignore_conflicts=True)
            for row, values in changed.values():
                as_read = Incident.primary.filter(pk=row.pk, updated_at=row.updated_at)
                as_read.update(updated_at=now, **values)
            if old:
                Incident.primary.filter(pk__in=old, ended_at__lt=now - KEPT).delete()
    except DatabaseError as error:
        logger.warning("The incidents could not be stored (%s).", error.__class__.__name__)


def _try_lock() -> bool:
    dialect = database.dialect()
    # With one writer, the first row that is written takes the lock.
    return dialect.has_one_writer or dialect.lock_subject(
        database.connection(), "incidents", wait=False
    )


def _row(finding: Finding, now: datetime) -> Incident:
    return Incident(
        identity=finding.identity,
        severity=finding.severity.value,
        text=finding.text,
        cause=finding.cause,
        queue=finding.queue,
        type=finding.type,
        jobs=finding.jobs,
        since=finding.since or now,
        updated_at=now,
    )


def _said_at_the_end(found: Sequence[Finding]) -> dict[str, str]:
    """Return the texts of advice, which describe incidents of the same identity that are over."""
    return {each.identity: each.text for each in found if not each.is_incident}


def _values(
    row: Incident, finding: Finding | None, now: datetime, *, said: str, is_over: bool
) -> dict[str, object]:
    """Return what changes in a row; `said` is its text once it is over."""
    if finding is None:
        return {"ended_at": now, "text": said} if is_over and row.ended_at is None else {}
    values: dict[str, object] = {
        "severity": finding.severity.value,
        "text": finding.text,
        "jobs": finding.jobs,
    }
    if row.ended_at is not None:
        if now - row.ended_at > SAME_WITHIN:
            values |= {"since": finding.since or now, "cause": finding.cause}
        return {**values, "ended_at": None}
    if all(getattr(row, name) == value for name, value in values.items()):
        return {}
    is_due = now - row.updated_at >= WRITTEN_EVERY
    return values if is_due or row.severity != finding.severity.value else {}
