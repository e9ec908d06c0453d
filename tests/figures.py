"""What tests count for the charts."""

from __future__ import annotations

from django_ojs.extensions.statistics import rollups


def note(
    what: int,
    queue: str,
    type: str,
    *,
    number: int = 1,
    waited: float | None = None,
    ran: float | None = None,
) -> None:
    """Count a change that was committed, with its durations in seconds."""
    rollups.note_all(what, [(queue, type, number, waited, ran)])
