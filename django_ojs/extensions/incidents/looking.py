"""Look at the system, and keep what was found."""

from collections.abc import Collection, Sequence

from django_ojs.extensions.incidents import storage
from django_ojs.finding import Finding
from django_ojs.reports import current_findings


def look(within: Collection[str] | None = None) -> Sequence[Finding]:
    """Return what was found, each since when it has been so; it is kept, if that is possible.

    `within` are the queues that the caller may use: then only what concerns these is returned.
    """
    before = storage.rows()
    found = current_findings.read().findings
    storage.write(before, found)
    return [
        storage.since(each, before.get(each.identity))
        for each in found
        if within is None or each.queue in within
    ]


def look_and_forget() -> int:
    """Keep what a worker finds, for those who look later."""
    before = storage.rows()
    found = current_findings.read(with_keys=False).findings
    storage.write(before, found, without=current_findings.OF_KEYS)
    return 0
