"""Parts of the pages of objects, and columns of lists, that extensions bring."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db.models import Model
from django.http import HttpRequest

from django_ojs.admin.formatting import StrOrPromise
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.hooks import brought_by, contained, registry

if TYPE_CHECKING:
    from django_ojs.admin.base import OperatorModelAdmin


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """A part of the pages of objects: of a `Job`, a queue (`QueueStatus`), or the `Overview`.

    `read` returns what its template gets as `panel`, or None if there is nothing to show. Each of
    its queries runs in the `TimedQueries` of the page, and returns None if it takes too long.
    `template` and `figures` name templates. The page of a queue begins with a list of figures, to
    which `figures` adds; a panel with figures is right below the list, and any other one at the
    end. On the overview, the figures of a panel are above it. A lower `place` comes first.
    """

    kind: type[Any]
    read: "Callable[[OperatorModelAdmin, HttpRequest, TimedQueries, Any], Mapping[str, Any] | None]"
    template: str
    figures: str = ""
    place: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AdminColumn:
    """A column of the list of jobs (`model` is `Job`) or of the list of queues (`Queue`).

    `cells` is called with the rows of a page, which are jobs or `reports.queue_overview`'s rows of
    queues. It returns their cells, by the id of the job or the name of the queue; a row without one
    shows a dash. It may take as long as a query of the page. `template` shows a cell, which it gets
    as `cell`; without a template, a cell is a text. A narrow window hides the column if
    `is_wide_only`.
    """

    model: type[Model]
    title: StrOrPromise
    cells: Callable[[Sequence[Any]], Mapping[Any, Any]]
    template: str | None = None
    is_wide_only: bool = False


def columns_of(
    model: type[Model], query: TimedQueries, rows: Mapping[Any, Any]
) -> tuple[list[AdminColumn], dict[Any, list[tuple[AdminColumn, Any]]]]:
    """Return the columns of extensions in a list, and for each row, by its key, their cells."""
    columns, found = [], []
    for extension in registry.extensions():
        for each in brought_by(extension, "columns", of=AdminColumn):
            if each.model is model:
                ask = partial(each.cells, list(rows.values()))
                ask = partial(contained, extension.name, "failed to fill a column", ask, {})
                columns.append(each)
                found.append(query(str(each.title), ask))
    return columns, {
        key: [
            (column, (cells or {}).get(key)) for column, cells in zip(columns, found, strict=True)
        ]
        for key in rows
    }
