"""Which of the databases of DATABASES has a row, by its id.

A site with one database never asks. Ids of jobs, workflows and workers are unique over all of them,
so the first one that has the row is the one.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import reduce, wraps
from itertools import count
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

from django.db import Error, connections
from django.db.models import Model

from django_ojs.models.base import StoredModel
from django_ojs.spec.errors import BackendUnavailable, Conflict, NotFound
from django_ojs.storage import database, in_memory_state, testing_hook

P = ParamSpec("P")
T = TypeVar("T")
Key = UUID | str | int
K = TypeVar("K", bound=UUID | str | int)

#: Seconds for which a database that did not respond is asked last, so that not every request waits.
_REST: Final = 5.0
#: Rows of one kind at a time: the number of parameters of a statement is limited.
_AT_ONCE: Final = 500


class DatabaseTurns:
    """With which database the next claim begins, and which ones did not respond lately."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with the first one."""
        self._next = count()
        self._away: dict[str, float] = {}

    def order(self) -> list[str]:
        """Return all aliases, beginning with another one each time; those away come last."""
        aliases = database.aliases()
        start = next(self._next) % len(aliases)
        return self.away_last([*aliases[start:], *aliases[:start]])

    def away_last(self, aliases: list[str]) -> list[str]:
        """Return these aliases, those that did not respond lately after the others."""
        now = time.monotonic()
        return sorted(aliases, key=lambda alias: now - self._away.get(alias, -math.inf) < _REST)

    def note_away(self, alias: str) -> None:
        """Ask a database after the others for a while."""
        self._away[alias] = time.monotonic()


#: The alias whose queries run under a timeout now, and the seconds that one has on the others.
_timeout: Final[ContextVar[tuple[str, float] | None]] = ContextVar(
    "django_ojs_timeout", default=None
)


def timeout_elsewhere(seconds: float) -> AbstractContextManager[None]:
    """Let `each_result` end a query after so many seconds, except in the current database.

    There the caller has set the timeout, which is one of that database alone.
    """
    return database.having(_timeout, (database.alias(), seconds))


@contextmanager
def _timeout_here() -> Iterator[None]:
    found = _timeout.get()
    if found is None or found[0] == database.alias():
        yield
        return
    with database.dialect().query_timeout(database.connection(), found[1]) as limit, limit():
        yield


turns: Final = in_memory_state.register(DatabaseTurns())


def first_result(operation: Callable[[], T]) -> tuple[str | None, T]:
    """Run an operation in one database after the other until one returns something.

    Return its alias as well; None where the current work is for one database. Each call begins with
    another one, so that none has to wait for the others. Raises the error of a database only if all
    fail.
    """
    if not database.is_to_be_chosen():
        return None, operation()
    empty: list[T] = []
    failed: Error | None = None
    for alias in turns.order():
        try:
            with database.using(alias):
                if result := operation():
                    return alias, result
        except Error as error:
            leave(alias, error)
            failed = failed or error
        else:
            empty.append(result)
    if failed is not None and not empty:
        raise failed
    return None, empty[0]


def each_result(operation: Callable[[], T]) -> dict[str, T | Error]:
    """Run an operation in each database. Return the results, and the errors of databases."""
    results: dict[str, T | Error] = {}
    for alias in all_in_turn():
        try:
            with database.using(alias), _timeout_here():
                results[alias] = operation()
        except Error as error:
            leave(alias, error)
            results[alias] = error
    return results


def leave(alias: str, error: Error) -> None:
    """Go on without a database that does not respond. Raises the error in its transaction."""
    if connections[alias].in_atomic_block:
        raise error
    connections[alias].close()
    turns.note_away(alias)


def all_in_turn() -> list[str]:
    """Return the aliases that the current work concerns: that of this process first."""
    if not database.is_to_be_chosen():
        return [database.primary_alias()]
    first = database.primary_alias()
    return [first, *(alias for alias in database.aliases() if alias != first)]


def of(model: type[StoredModel], key: Key) -> str:
    """Return the alias whose database has a row; that of this process where none has it.

    Raises the error of a database that cannot be asked, where none of the others has it: whether
    the row exists is unknown then.
    """
    return of_all(model, [key]).get(key, database.primary_alias())


def of_all(
    model: type[StoredModel], keys: Sequence[Key], *, everywhere: bool = False
) -> dict[Key, str]:
    """Return the alias of each row that one of the databases has. Raises as `of` does.

    `everywhere`: in all databases, also within `database.using`.
    """
    found: dict[Key, str] = {}
    failed: Error | None = None
    for alias in turns.away_last([*database.aliases()] if everywhere else all_in_turn()):
        missing = [key for key in keys if key not in found]
        if not missing:
            break
        try:
            for start in range(0, len(missing), _AT_ONCE):
                part = missing[start : start + _AT_ONCE]
                for key in _existing(model, alias, part):
                    found[key] = alias
        except Error as error:
            leave(alias, error)
            failed = failed or error
    if failed is not None and any(key not in found for key in keys):
        raise failed
    return found


def by_database(model: type[StoredModel], keys: Iterable[K]) -> dict[str, list[K]]:
    """Return the keys by the alias that has their row; those of no row are of this process's.

    Raises as `of` does.
    """
    wanted = list(keys)
    found = of_all(model, [*wanted])
    aliases: dict[str, list[K]] = {}
    for key in wanted:
        aliases.setdefault(found.get(key, database.primary_alias()), []).append(key)
    return aliases


def _existing(model: type[Model], alias: str, keys: list[Key]) -> Iterator[Key]:
    # No row has a text that the column cannot hold, which must not reach the database.
    possible = [key for key in keys if not (isinstance(key, str) and "\0" in key)]
    rows: Any = model._default_manager.using(alias)
    return iter(rows.filter(pk__in=possible).values_list("pk", flat=True))


@contextmanager
def database_of(model: type[StoredModel], key: Key) -> Iterator[None]:
    """Work on the database that has a row, until the block ends."""
    if not database.is_to_be_chosen() or testing_hook.current() is not None:
        yield
        return
    with database.using(of(model, key)):
        yield


def in_database_of(model: type[StoredModel]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function of a row's id: it works on the database that has the row."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            if not database.is_to_be_chosen():
                return function(*args, **kwargs)
            key: Any = args[0] if args else next(iter(kwargs.values()))
            with database_of(model, key):
                return function(*args, **kwargs)

        return wrapper

    return decorate


def in_each_that_has(
    model: type[StoredModel],
) -> Callable[[Callable[Concatenate[Any, P], T]], Callable[Concatenate[Any, P], T]]:
    """Decorate a function of a row's id: it runs in each database that has the row.

    Where none has it, it runs in the first. It returns what it returns in the first of them. Raises
    as `of` does.
    """

    def decorate(
        function: Callable[Concatenate[Any, P], T],
    ) -> Callable[Concatenate[Any, P], T]:
        @wraps(function)
        def wrapper(key: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            if not database.is_to_be_chosen():
                return function(key, *args, **kwargs)

            def has_it() -> bool:
                return any(_existing(model, database.primary_alias(), [key]))

            answers = each_result(has_it)
            having = [alias for alias, has in answers.items() if has is True]
            failed = [each for each in answers.values() if isinstance(each, Error)]
            if failed and not having:
                raise failed[0]  # Whether the row exists is unknown.
            results = []
            for alias in having or [database.primary_alias()]:
                with database.using(alias):
                    results.append(function(key, *args, **kwargs))
            return results[0]

        return wrapper

    return decorate


def in_each(
    operation: Callable[[], T],
    *,
    needless: tuple[type[Exception], ...] = (Conflict, NotFound),
    add: Callable[[T, T], T] = lambda one, other: one,
) -> T:
    """Run an operation in each database, and return the result of the first one.

    `needless`: errors by which a database says that it has nothing to do, as one that was changed
    by an earlier call which another one missed; raised only if all say so. `add` returns two
    results as one. Raises any other error of the operation at once. Where a later database is
    unavailable the others have changed: raises BackendUnavailable, which names them.
    """
    first, *others = all_in_turn()
    if not others:
        return operation()
    results: list[T] = []
    rejected: list[Exception] = []
    failed: dict[str, Error] = {}
    for alias in (first, *others):
        try:
            with database.using(alias):
                results.append(operation())
        except needless as error:
            rejected.append(error)
        except Error as error:
            leave(alias, error)
            if alias == first:
                raise  # Nothing has changed.
            failed[alias] = error
    if failed:
        done = [alias for alias in (first, *others) if alias not in failed]
        raise BackendUnavailable(
            f"This was done in {', '.join(done)}, and not in {', '.join(failed)}: the database "
            "does not respond. Repeat the request when it does.",
            details={"done": done, "failed": list(failed)},
        ) from next(iter(failed.values()))
    if not results:
        # That one has none says less than what another one says of it.
        raise min(rejected, key=lambda error: isinstance(error, NotFound))
    return reduce(add, results)
