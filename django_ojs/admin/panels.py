"""Parts of the page of an object that extensions bring."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest

from django_ojs.admin.query_timeout import TimedQueries

if TYPE_CHECKING:
    from django_ojs.admin.base import OperatorModelAdmin


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """A part of the pages of objects: of a `Job`, or of a queue, which is a `QueueStatus`.

    `read` returns what its template gets as `panel`, or None where there is nothing to show; each
    of its queries runs in the `TimedQueries` of the page, and gives None where it takes too long.
    `template` is the name of the template. A lower `place` comes first.
    """

    kind: type[Any]
    read: "Callable[[OperatorModelAdmin, HttpRequest, TimedQueries, Any], Mapping[str, Any] | None]"
    template: str
    place: int = 0
