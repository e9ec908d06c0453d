"""Look at the system, and keep what was found."""

from collections.abc import Collection, Sequence

from django.utils import timezone

from django_ojs.extensions.incidents import storage
from django_ojs.finding import Finding
from django_ojs.reports import current_findings
from django_ojs.reports.findings import worst_first


def look(within: Collection[str] | None = None, *, and_keep: bool = True) -> Sequence[Finding]:
    """Return what was found, each since when it has been so.

    `within` are the queues that the caller may use: then only what concerns these is returned.
    `and_keep`: what has begun or ended is written, if that is possible; without it, `since` is that
    of the finding alone.
    """
    now = timezone.now()
    before = storage.rows() if and_keep else {}
    found = current_findings.read()
    if and_keep:
        storage.write(before, found.findings, now=now)
    return worst_first(
        [
            storage.since(each, before.get(each.identity), now)
            for each in found.causes_within(within)
        ]
    )


def look_and_forget() -> int:
    """Keep what a worker finds, for those who look later."""
    now = timezone.now()
    before = storage.rows()
    found = current_findings.read(with_keys=False).findings
    storage.write(before, found, now=now, without=current_findings.OF_KEYS)
    return 0
