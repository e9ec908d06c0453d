"""The navigation of the pages: a link to each one that the user may view, some with a number."""

import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_noop, npgettext

from django_ojs.admin.operator_views import view_name
from django_ojs.admin.query_timeout import timed_queries
from django_ojs.models import DeadLetterJob, Overview
from django_ojs.models.base import StoredModel
from django_ojs.storage import in_memory_state
from django_ojs.storage.figures import counts

if TYPE_CHECKING:
    from django_ojs.finding import Finding

#: The place of a page that does not set one: after all others.
_LAST: Final = 1_000

#: How many pages the navigation shows beside its list of more pages.
_TABS: Final = 6

#: Seconds for which a number is reused.
_REUSED_FOR: Final = 15

#: The timeout in seconds of one query, so that a number of the navigation does not delay a page.
_QUERY_SECONDS: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """The number beside a link."""

    value: int
    is_of: Literal["problems", "jobs"]
    level: str = ""

    @property
    def unit(self) -> str:
        """What is counted, for a screen reader."""
        if self.is_of == "problems":
            return npgettext("beside a number", "problem", "problems", self.value)
        return npgettext("beside a number", "job", "jobs", self.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A link. `current` is its `aria-current`: "page", or "true" on a page below the linked one."""

    label: str
    url: str
    current: str
    number: Number | None


class RecentNumbers:
    """The numbers that this process has read lately; None stands for no number."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._read: dict[type[Model], tuple[float, Number | None]] = {}

    def __setitem__(self, model: type[Model], number: Number | None) -> None:
        self._read[model] = time.monotonic(), number

    def keep(self, model: type[Model]) -> None:
        """Reuse the former number for a time, because a new one could not be read."""
        former = self._read.get(model)
        self[model] = None if former is None else former[1]

    def __getitem__(self, model: type[Model]) -> Number | None:
        return self._read[model][1]

    def __contains__(self, model: type[Model]) -> bool:
        found = self._read.get(model)
        return found is not None and time.monotonic() - found[0] < _REUSED_FOR


_recent: Final = in_memory_state.register(RecentNumbers())


def entries(
    site: admin.AdminSite, request: HttpRequest, current: type[Model] | None
) -> list[Entry]:
    """Return the pages of a site that the user may view; `current` is the model of this page."""
    pages = dict(viewable(site, request))
    numbers = _numbers(pages, current)
    return [
        Entry(
            label=str(model._meta.verbose_name_plural),
            url=url,
            current="" if model is not current else "page" if url == request.path else "true",
            number=numbers.get(model),
        )
        for model, url in pages.items()
    ]


def behind_more(found: list[Entry]) -> list[Entry]:
    """Return the pages for the list of more pages, which never holds just one."""
    return found[_TABS:] if len(found) > _TABS + 1 else []


def viewable(site: admin.AdminSite, request: HttpRequest) -> Iterator[tuple[type[Model], str]]:
    """Yield the models whose pages the user may view, by place, each with the URL of its list."""
    registered = [model for model in apps.get_models() if site.is_registered(model)]
    pages = [(model, site.get_model_admin(model)) for model in registered]
    ours = [(m, p) for m, p in pages if issubclass(m, StoredModel) or hasattr(p, "place")]
    for model, page in sorted(ours, key=lambda pair: getattr(pair[1], "place", _LAST)):
        if page.has_view_or_change_permission(request):
            yield model, reverse(view_name(model, "changelist"), current_app=site.name)


def remember_findings(findings: "Sequence[Finding]", *, are_complete: bool) -> None:
    """Keep the number of incidents among the findings that a page has read.

    If some findings could not be read, the former number stays.
    """
    if not are_complete:
        _recent.keep(Overview)
        return
    number = None
    if incidents := [each for each in findings if each.is_incident]:  # The worst is the first.
        level = "bad" if incidents[0].is_critical else "fair"
        number = Number(value=len(incidents), is_of="problems", level=level)
    _recent[Overview] = number


def _numbers(
    pages: Container[type[Model]], current: type[Model] | None
) -> dict[type[Model], Number | None]:
    """Return the numbers of these pages. The page of dead letters always reads its own number."""
    wanted = [model for model in (Overview, DeadLetterJob) if model in pages]
    outdated = [m for m in wanted if m not in _recent or m is current is DeadLetterJob]
    if outdated:
        with timed_queries(_QUERY_SECONDS) as query:
            if Overview in outdated:
                # The reports import much, so they are imported only where they are needed.
                from django_ojs.reports import current_findings

                found = current_findings.read(query).causes
                remember_findings(found, are_complete=not query.unread)
            if DeadLetterJob in outdated:
                with_dead = query(gettext_noop("dead letters"), lambda: (_dead_letters(),))
                if with_dead is None:
                    _recent.keep(DeadLetterJob)
                else:
                    _recent[DeadLetterJob] = with_dead[0]
    return {model: _recent[model] for model in wanted}


def _dead_letters() -> Number | None:
    number = counts.dead_letters()
    return Number(value=number, is_of="jobs") if number else None
