"""What needs attention of the outbox."""

from django.db import Error, connections
from django.db.models import Count, Min
from django.utils.http import urlencode

from django_ojs.extension import Problem
from django_ojs.extensions.outbox import operations, storage
from django_ojs.extensions.outbox.models import Delivery, OutboxEntry
from django_ojs.formatting import grouped
from django_ojs.storage import database

#: Rejected jobs are counted up to this.
_MOST = 10_000


def found() -> list[Problem]:
    """Find the jobs that the outbox of each alias could not deliver."""
    return [each for alias in operations.aliases() for each in _of(alias)]


def _of(alias: str) -> list[Problem]:
    is_here = alias == database.alias()
    rows = storage.entries(alias)
    rejected = rows.filter(state=Delivery.REJECTED).order_by("created_at").values("created_at")
    try:
        figures = rejected[: _MOST + 1].aggregate(number=Count("*"), since=Min("created_at"))
    except Error:
        if is_here:
            raise
        connections[alias].close()  # A database without jobs does not respond.
        return []
    if not figures["number"]:
        return []
    number = min(figures["number"], _MOST)
    some = f"at least {grouped(number)}" if figures["number"] > _MOST else grouped(number)
    query = {"state": Delivery.REJECTED.value}
    where = ""
    if not is_here:
        query["outbox_of"] = alias
        where = f" It is the outbox of the database {alias}."
    return [
        Problem(
            found=f"Rejected jobs of the outbox: {some}.{where}",
            why="They are not sent again by themselves, and deleted after KEEP_DEAD_LETTERS.",
            cure="The outbox in the admin has their errors; once the cause is removed, requeue "
            "them there, or delete them.",
            since=figures["since"],
            model=OutboxEntry,
            query=f"?{urlencode(query)}",
        )
    ]
