"""How many queues and job types a caller over HTTP may make known (HTTP_MAX_NAMES).

Each name has a cost in figures and lists for as long as they are kept. So a caller that makes up
names is rejected, and names that are in use still work.
"""

import hashlib
from collections.abc import Collection, Iterable
from typing import Final

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.models import KnownName, Queue
from django_ojs.models.known_name import NameKind
from django_ojs.spec.envelope import check_queue, check_type
from django_ojs.spec.errors import OJSError, PermissionDenied
from django_ojs.storage import database, in_memory_state
from django_ojs.storage.database import BATCH
from django_ojs.storage.figures import counts

#: A process remembers about this many names, so that it queries each name once.
_REMEMBERED: Final = 20_000

#: The most characters of a principal's id in the table: no database indexes a text of any length.
_LONGEST: Final = KnownName._meta.get_field("principal").max_length or 0

_CHECKS: Final = {NameKind.QUEUE: check_queue, NameKind.TYPE: check_type}
_FIELDS: Final = {NameKind.QUEUE: "queue", NameKind.TYPE: "type"}


class _Names:
    """The names, by kind, that this process knows to be stored."""

    def __init__(self) -> None:
        self._names: set[tuple[str, str]] = set()

    def missing(self, kind: NameKind, names: Iterable[object]) -> set[str]:
        return {
            name
            for name in names
            if isinstance(name, str) and (kind.value, name) not in self._names
        }

    def add(self, kind: NameKind, names: Collection[str]) -> None:
        if len(self._names) > _REMEMBERED:
            self.reset()
        self._names |= {(kind.value, name) for name in names}

    def reset(self) -> None:
        """Forget all names, so that each is queried again."""
        self._names = set()


_known = in_memory_state.register(_Names())


def make_known(
    principal: str, *, queues: Iterable[object] = (), types: Iterable[object] = ()
) -> None:
    """Store the names that are new, as names of this caller.

    A queue that has a row or jobs is not new. A name that is not valid is left out, because the
    operation that gets it rejects it. Raises PermissionDenied if the caller would have more names
    than HTTP_MAX_NAMES.
    """
    for kind, names in ((NameKind.QUEUE, queues), (NameKind.TYPE, types)):
        missing = {name for name in _known.missing(kind, names) if _is_valid(kind, name)}
        if missing:
            stored = KnownName.primary.filter(kind=kind, name__in=missing)
            if new := missing - set(stored.values_list("name", flat=True)):
                with database.waiting():
                    _store(principal, kind, new)
            _known.add(kind, missing)


@database.write_transaction
def _store(principal: str, kind: NameKind, new: Collection[str]) -> None:
    # One request of a caller runs at a time, so that two requests do not both take its last free
    # name.
    database.dialect().lock_subject(database.connection(), f"names of {principal}")
    of_kind = KnownName.primary.filter(kind=kind)
    missing = set(new) - set(of_kind.filter(name__in=new).values_list("name", flat=True))
    known = _queues_in_use(missing) if kind is NameKind.QUEUE else set()
    limit = settings().http_max_names
    if len(principal) > _LONGEST:
        principal = "sha256 " + hashlib.sha256(principal.encode()).hexdigest()
    theirs = len(missing - known)
    if theirs and of_kind.filter(principal=principal).count() + theirs > limit:
        raise PermissionDenied.of(
            _FIELDS[kind],
            f"is new, and these credentials have made {limit} known already.",
            hint=(
                "Use the names of queues and job types that exist; what differs from job to job "
                "belongs in args or meta. OJS['HTTP_MAX_NAMES'] sets the limit."
            ),
            limit=limit,
        )
    KnownName.primary.bulk_create(
        (
            KnownName(kind=kind, name=name, principal="" if name in known else principal)
            for name in sorted(missing)
        ),
        ignore_conflicts=True,
    )


def _is_valid(kind: NameKind, name: str) -> bool:
    try:
        _CHECKS[kind](name)
    except OJSError:
        return False
    return True


def prune() -> int:
    """Delete names that are older than figures are kept (KEEP_ROLLUPS). Return how many.

    A queue that is in use gets a row, so that its `created_at` stays the same.
    """
    old = KnownName.primary.filter(created_at__lte=Now() - settings().keep_rollups)
    return _prune(old) if old.exists() else 0


@database.write_transaction
def _prune(rows: QuerySet[KnownName]) -> int:
    # Rows that another process is pruning are left to it.
    old = list(rows.select_for_update(skip_locked=True)[:BATCH])
    queues = {each.name: each.created_at for each in old if each.kind == NameKind.QUEUE}
    Queue.primary.bulk_create(
        (Queue(name=name, created_at=queues[name]) for name in _queues_in_use(queues)),
        ignore_conflicts=True,
    )
    return KnownName.primary.filter(pk__in=[each.pk for each in old]).delete()[0]


def _queues_in_use(names: Collection[str]) -> set[str]:
    rows = Queue.primary.filter(pk__in=names).values_list("pk", flat=True)
    return {*rows, *(name for name, found in counts.by_queue(names).items() if found)}
