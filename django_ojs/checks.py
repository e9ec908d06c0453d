"""Django system checks of the settings, the database and the access to the API."""

from collections.abc import Collection
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import NotSupportedError, connections

from django_ojs import middleware
from django_ojs.conf import AUTHENTICATION, settings
from django_ojs.operations.queues.unbounded import BOUND_HINT, CHECK_ID, message, unbounded
from django_ojs.storage import database
from django_ojs.storage.dialects.base import SHORTEST_LEASE_MS

SHORTEST_HEARTBEAT: Final = timedelta(seconds=1)
SHORTEST_STALL: Final = timedelta(seconds=2)
SHORTEST_LEASE: Final = timedelta(milliseconds=SHORTEST_LEASE_MS)

OPEN = "The HTTP API is open: OJS['HTTP_AUTHENTICATION'] lists AllowAny."
OPEN_HINT = "Leave HTTP_AUTHENTICATION out: programs then need an API key, users a staff session."


@register("django_ojs")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check OJS, the classes it names, and the time zone support that leases need."""
    problems: list[CheckMessage] = []
    try:
        settings()
        middleware.enqueue_chain()
        middleware.execution_chain()
        _api_is_open()
    except ImproperlyConfigured as error:
        problems.append(Error(str(error), id="django_ojs.E001"))
    if not django_settings.USE_TZ:
        problems.append(
            Error(
                "django_ojs needs USE_TZ = True: without it the times of jobs would be "
                "ambiguous for an hour each autumn.",
                id="django_ojs.E002",
            )
        )
    return problems


@register("django_ojs")
def check_times(**kwargs: Any) -> list[CheckMessage]:
    """Warn of times that a busy machine cannot keep."""
    try:
        values = settings()
    except ImproperlyConfigured:
        return []  # check_settings reports it.
    problems = []
    if values.heartbeat_interval < SHORTEST_HEARTBEAT:
        problems.append(
            "HEARTBEAT_INTERVAL is shorter than a second: a live worker whose database is busy may "
            "miss three heartbeats, and its jobs run twice."
        )
    if timedelta(0) < values.stall_timeout < SHORTEST_STALL:
        problems.append(
            "STALL_TIMEOUT is shorter than two seconds: a worker shows twice a second that it "
            "lives, and a busy machine may be late."
        )
    if values.visibility_timeout < SHORTEST_LEASE:
        problems.append(
            "VISIBILITY_TIMEOUT is shorter than two seconds: a worker reserves its jobs for two."
        )
    return [Warning(f"OJS: {problem}", id="django_ojs.W009") for problem in problems]


@register("django_ojs")
def check_outbox(**kwargs: Any) -> list[CheckMessage]:
    """Check that the HTTP client of the outbox is installed."""
    try:
        wanted = settings().outbox
    except ImproperlyConfigured:
        return []  # check_settings reports it.
    if not wanted or find_spec("httpx") is not None:
        return []
    return [
        Error(
            "OJS['OUTBOX'] has destinations, and httpx is not installed.",
            hint="Install django-ojs[outbox].",
            id="django_ojs.E006",
        )
    ]


@register("django_ojs")
def check_read_database(**kwargs: Any) -> list[CheckMessage]:
    """Check that the alias of the replica is one, and that no page needs its connection."""
    try:
        using = settings().read_database
    except ImproperlyConfigured:
        return []  # check_settings reports it.
    if using is None:
        return []
    known = sorted(set(connections) - {database.primary_alias()})
    others = f"one of {', '.join(known)}" if known else "an alias that is added to DATABASES"
    if using not in connections:
        problem, hint = "is not in DATABASES", f"It must be {others}."
    elif using == database.primary_alias():
        problem, hint = "holds the jobs itself", f"Leave it out, or name {others}."
    elif connections[using].vendor != connections[database.primary_alias()].vendor:
        problem, hint = "is another kind of database", "It must be a replica of the jobs' database."
    elif connections[using].settings_dict["ATOMIC_REQUESTS"]:
        problem = "has ATOMIC_REQUESTS, so every request needs a connection to it"
        hint = f"DATABASES[{using!r}]['ATOMIC_REQUESTS'] = False"
    else:
        return []
    message = f"OJS['READ_DATABASE'] is {using!r}, which {problem}."
    return [Error(message, hint=hint, id="django_ojs.E008")]


@register("django_ojs")
def check_databases(**kwargs: Any) -> list[CheckMessage]:
    """Check that the aliases of DATABASES are different databases of one kind."""
    try:
        values = settings()
    except ImproperlyConfigured:
        return []  # check_settings reports it.
    problems, seen = [], dict[tuple[Any, ...], str]()
    for alias in values.databases:
        if alias not in connections:
            problems.append(f"names {alias!r}, which is not in DATABASES")
            continue
        given = connections.settings[alias]
        place = (
            *(given.get(name) for name in ("ENGINE", "HOST", "PORT", "NAME")),
            # The service of PostgreSQL may be all that says which database it is.
            (given.get("OPTIONS") or {}).get("service"),
        )
        if place in seen:
            problems.append(f"names {seen[place]!r} and {alias!r}, which are the same database")
        elif seen and place[0] != next(iter(seen))[0]:
            problems.append(f"names {alias!r}, which is another kind of database than the first")
        seen.setdefault(place, alias)
    if values.databases and values.read_database is not None:
        problems.append("does not go with READ_DATABASE: pages are read from the databases named")
    return [
        Error(
            f"OJS['DATABASES'] {problem}.",
            hint="See the settings of django_ojs in its reference.",
            id="django_ojs.E009",
        )
        for problem in problems
    ]


@register("django_ojs")
def check_access(**kwargs: Any) -> list[CheckMessage]:
    """Warn when the HTTP API needs no authentication."""
    return [Warning(OPEN, hint=OPEN_HINT, id="django_ojs.W002")] if _is_known_open() else []


@register("django_ojs", deploy=True)
def check_deployed_access(**kwargs: Any) -> list[CheckMessage]:
    """Reject a deployment whose HTTP API needs no authentication."""
    return [Error(OPEN, hint=OPEN_HINT, id="django_ojs.E005")] if _is_known_open() else []


def _is_known_open() -> bool:
    try:
        return _api_is_open()
    except ImproperlyConfigured:
        return False  # check_settings reports it.


def _api_is_open() -> bool:
    paths = settings().http_authentication
    # A project without the HTTP API need not have its dependencies.
    if paths == AUTHENTICATION or find_spec("rest_framework") is None:
        return False
    from django_ojs.http.authentication import AllowAny, authentication_classes

    return any(issubclass(each, AllowAny) for each in authentication_classes())


@register(Tags.database)
def check_bounds(databases: Collection[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Name the queues without a bound (backpressure §6.3)."""
    names: list[str] = []
    for alias in _with_jobs(databases):
        try:
            with database.using(alias):
                names += unbounded()
        except (DatabaseError, ImproperlyConfigured, NotSupportedError):
            pass  # Before the first migration, or another check reports it.
    found = list(dict.fromkeys(names))
    return [Warning(message(found), hint=BOUND_HINT, id=CHECK_ID)] if found else []


@register(Tags.database)
def check_database(databases: Collection[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the database is supported, and its settings."""
    problems: list[CheckMessage] = []
    for alias in _with_jobs(databases):
        try:
            with database.using(alias):
                problems += database.dialect().check(database.connection())
        except NotSupportedError as error:
            problems.append(Error(str(error), id="django_ojs.E003"))
    return problems


def _with_jobs(databases: Collection[str] | None) -> list[str]:
    # As Django's own checks of databases: without `--database` no command uses a connection.
    if databases is None:
        return []
    try:
        known = settings().databases or (database.alias(),)
    except ImproperlyConfigured:
        return []  # check_settings reports it.
    return [alias for alias in known if alias in databases]
