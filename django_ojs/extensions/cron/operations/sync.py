"""Make the stored cron jobs match those that the code of a project declares."""

from collections.abc import Collection
from dataclasses import dataclass, field

from django.db.models import Q

from django_ojs.extensions.cron.models import CronJob, CronOwner
from django_ojs.extensions.cron.operations.registration import (
    Definition,
    check,
    leave_code,
    register,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncResult:
    """What a sync changed, by name.

    `taken_over` were registered by something else before. `removed` and `kept` are no longer in the
    code; the latter were kept because they are disabled.
    """

    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    taken_over: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)

    def lines(self) -> list[tuple[str, str]]:
        """Return what changed, as pairs of a name and a text, in the order of the names."""
        texts = {
            "registered": self.created,
            "changed": self.changed,
            "taken over: something else had registered it": self.taken_over,
            "removed: the code no longer declares it": self.removed,
            "kept, as it is paused: the code no longer declares it": self.kept,
        }
        return sorted((name, text) for text, names in texts.items() for name in names)


def sync(definitions: Collection[Definition], *, service: str, dry_run: bool = False) -> SyncResult:
    """Register the cron jobs that a project declares, and remove those that it no longer declares.

    A disabled one stays when the code no longer declares it, so that it is still disabled if the
    code declares it again. The cron jobs of projects with another `service` stay. Raises as `check`
    does, before anything has changed.
    """
    wanted = {each.name: (each, check(each).values) for each in definitions}
    ours = Q(owner=CronOwner.CODE, service=service)
    stored = {row.name: row for row in CronJob.primary.filter(ours | Q(name__in=list(wanted)))}
    result = SyncResult()
    for name, (definition, values) in sorted(wanted.items()):
        row = stored.get(name)
        if row is None:
            result.created.append(name)
        elif all(getattr(row, column) == value for column, value in values.items()):
            result.unchanged.append(name)
            continue
        elif (row.owner, row.service) == (CronOwner.CODE, service):
            result.changed.append(name)
        else:
            result.taken_over.append(name)
        if not dry_run:
            register(definition)
    for name in sorted(stored.keys() - wanted.keys()):
        (result.removed if stored[name].enabled else result.kept).append(name)
        if not dry_run:
            leave_code(name, service=service)
    return result
