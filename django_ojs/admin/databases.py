"""Pages where jobs are in several databases: figures of all, rows of one, objects of any.

The switch on each page chooses a database, which a cookie keeps. It selects what is shown. Actions
on jobs, workers and workflows find their objects in all databases, and those on queues run in each.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from django.db import Error, connections
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from django_ojs.storage import all_databases, database

#: The cookie, and the parameter that sets it. It is a session cookie.
COOKIE: Final = "ojs_database"
PARAMETER: Final = "database"
#: The value that chooses all of them.
ALL: Final = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A link of the switch. An empty alias stands for all databases."""

    alias: str
    url: str
    is_current: bool


def page_of(
    request: HttpRequest, page: Callable[[], HttpResponse], *, shows_all: bool, alias: str | None
) -> HttpResponse:
    """Return a page of the chosen database; without a choice of all, or of the first.

    `shows_all`: it has figures, which add up. `alias`: the database that has its object. Where the
    chosen one does not respond, the page is that of the first and says so, with its switch.
    """
    first = database.aliases()[0]
    chosen = alias or _chosen(request)
    if chosen is None and not shows_all:
        chosen = first
    page_in = partial(_page_in, request, page, shows_all=shows_all, alias=alias)
    try:
        return page_in(chosen)
    except Error:
        if alias is not None or chosen is None or chosen == first:
            raise
        if request.method not in ("GET", "HEAD") or connections[chosen].in_atomic_block:
            raise
        connections[chosen].close()
        return page_in(first, missing=[chosen])


def _page_in(
    request: HttpRequest,
    page: Callable[[], HttpResponse],
    chosen: str | None,
    *,
    shows_all: bool,
    alias: str | None,
    missing: Iterable[str] = (),
) -> HttpResponse:
    with ExitStack() as stack:
        if chosen is None:
            missing = stack.enter_context(all_databases.together())
        else:
            stack.enter_context(database.using(chosen))
        response = page()
        if isinstance(response, TemplateResponse) and response.context_data is not None:
            response.context_data |= {
                "databases": _choices(request, chosen or "", shows_all=shows_all, fixed=alias),
                "database": chosen or "",
                "missing_databases": ", ".join(missing),
            }
            response.render()  # The queries of the template are part of the page.
    if PARAMETER in request.GET:
        response.set_cookie(
            COOKIE, chosen or ALL, secure=request.is_secure(), httponly=True, samesite="Lax"
        )
    return response


def _chosen(request: HttpRequest) -> str | None:
    for given in (
        request.POST.get(PARAMETER),
        request.GET.get(PARAMETER),
        request.COOKIES.get(COOKIE),
    ):
        if given == ALL:
            return None
        if given in database.aliases():
            return given
    return None


def _choices(
    request: HttpRequest, current: str, *, shows_all: bool, fixed: str | None
) -> list[Choice]:
    if fixed is not None:
        # The page of an object, which is in one of them.
        return [Choice(alias=fixed, url="", is_current=True)]
    return [
        Choice(
            alias=alias,
            url=f"{request.path}?{_query(request, alias or ALL)}",
            is_current=alias == current,
        )
        for alias in (*([""] if shows_all else []), *database.aliases())
    ]


def _query(request: HttpRequest, alias: str) -> str:
    query = request.GET.copy()
    for name in ("after", "before", "page", "all"):
        query.pop(name, None)
    query[PARAMETER] = alias
    return query.urlencode()
