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
from django_ojs.conf import AUTHENTICATION, NO_TIME_ZONES, settings
from django_ojs.extension import INTERFACE, Extension
from django_ojs.hooks import registry
from django_ojs.not_installed import line_for_database
from django_ojs.operations.queues.unbounded import BOUND_HINT, CHECK_ID, message, unbounded
from django_ojs.spec.suggestions import one_of
from django_ojs.storage import database
from django_ojs.storage.dialects.rows import SHORTEST_LEASE_MS

SHORTEST_HEARTBEAT: Final = timedelta(seconds=1)
SHORTEST_STALL: Final = timedelta(seconds=2)
SHORTEST_LEASE: Final = timedelta(milliseconds=SHORTEST_LEASE_MS)

OPEN = "The HTTP API is open: OJS['HTTP_AUTHENTICATION'] lists AllowAny."
OPEN_HINT = "Leave HTTP_AUTHENTICATION out: programs then need an API key, users a staff session."


@register("django_ojs")
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """Check OJS, the classes it names, and the time zone support that leases need."""
    if not django_settings.USE_TZ:
        hint = (
            "Set USE_TZ = True. On PostgreSQL Django then reads the times that it has stored as "
            "before. On other databases convert them to UTC first, if TIME_ZONE is another zone: "
            "see Django's page on time zones."
        )
        return [Error(NO_TIME_ZONES, hint=hint, id="django_ojs.E002")]
    problems: list[CheckMessage] = []
    try:
        settings()
        middleware.enqueue_chain()
        middleware.execution_chain()
        _api_is_open()
    except ImproperlyConfigured as error:
        problems.append(Error(str(error), id="django_ojs.E001"))
    return problems


@register("django_ojs")
def check_alias(**kwargs: Any) -> list[CheckMessage]:
    """Check that DATABASES has the alias of the jobs, and that an app supports its database."""
    alias = database.alias()
    if alias in connections.settings:
        vendor = database.connection(alias).vendor
        if database.of_vendor(vendor) is None:
            problem = database.not_supported(alias, vendor)
            return [Error(problem, hint=line_for_database(vendor), id="django_ojs.E003")]
        return []
    return [
        Error(
            f"A database router names {alias!r} for the jobs of django_ojs, and DATABASES has no "
            "such alias.",
            hint=f"Add it to DATABASES, or let db_for_write return {one_of(connections.settings)}.",
            id="django_ojs.E013",
        )
    ]


@register("django_ojs")
def check_extensions(**kwargs: Any) -> list[CheckMessage]:
    """Check that extensions were written for this version of the interface."""
    return [_misfit(each) for each in registry.extensions() if not each.fits()]


def _misfit(extension: Extension) -> CheckMessage:
    name, given = extension.name, extension.interface
    if given is None:
        cause = f"The extension {name} does not say for which interface of django_ojs it is written"
        cure = f"When it works with this version, give its class `interface = {INTERFACE}`."
    else:
        cause = f"The extension {name} is written for the interface {given} of django_ojs"
        cure = (
            f"Install a release of it for the interface {INTERFACE}, or adapt it to "
            f"django_ojs.extension and give its class `interface = {INTERFACE}`."
            if given < INTERFACE
            else f"Install a newer django-ojs, or a release of it for the interface {INTERFACE}."
        )
    message = f"{cause}, and this version has the interface {INTERFACE}."
    return Error(message, hint=cure, id="django_ojs.E014")


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
            "VISIBILITY_TIMEOUT is shorter than two seconds: leases last at least two seconds."
        )
    return [Warning(f"OJS: {problem}", id="django_ojs.W010") for problem in problems]


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
    """Warn of queues without a bound (backpressure §6.3)."""
    if not _holds_jobs(databases):
        return []
    try:
        names = unbounded()
    except (DatabaseError, ImproperlyConfigured, NotSupportedError):
        return []  # There is no table yet, or another check reports it.
    return [Warning(message(names), hint=BOUND_HINT, id=CHECK_ID)] if names else []


@register(Tags.database)
def check_database(databases: Collection[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Check the version and the settings of the database."""
    if not _holds_jobs(databases):
        return []
    dialect = database.of_vendor(database.connection().vendor)
    return [] if dialect is None else dialect.check(database.connection())


def _holds_jobs(databases: Collection[str] | None) -> bool:
    """Whether the jobs are in one of these databases."""
    # `databases` is None unless the command names some, as `migrate` does. Without them, these
    # checks use no connection, like Django's own.
    return databases is not None and database.alias() in databases
