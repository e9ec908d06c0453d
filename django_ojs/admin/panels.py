"""Parts of the page of an object that extensions bring."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db.models import Model
from django.http import HttpRequest

from django_ojs.admin.query_timeout import TimedQueries

if TYPE_CHECKING:
    from django_ojs.admin.base import OperatorModelAdmin


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """A part of the pages of a model's objects.

    `read` returns what its template gets as `panel`; each of its queries runs in the `TimedQueries`
    of the page, and gives None where it takes too long. `template` is the name of the template.
    """

    model: type[Model]
    read: "Callable[[OperatorModelAdmin, HttpRequest, TimedQueries, Any], Mapping[str, Any]]"
    template: str
