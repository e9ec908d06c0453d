"""Jobs: a list with a search box, and a page with the history of each job."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from django.db.models import QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    JsonResponse,
)
from django.urls import URLPattern
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from django_ojs.admin import enqueue, job_list, limit_key_text, payload_permission
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.bulk_actions import bulk_buttons
from django_ojs.admin.formatting import grouped
from django_ojs.admin.job_actions import JOB_ACTIONS
from django_ojs.admin.not_running_remedies import remedies
from django_ojs.admin.query_timeout import TimedQueries, timed_queries
from django_ojs.admin.state_strip import state_strip
from django_ojs.admin.timeline import timeline
from django_ojs.handlers import job_types, parameter_names, parameters_of, positions
from django_ojs.models import Attempt, Job
from django_ojs.operations.jobs import family, listing, search_query
from django_ojs.operations.jobs.job_filter import JobFilter
from django_ojs.operations.jobs.redaction import redacted, redacted_args
from django_ojs.operations.jobs.search_access import permitted
from django_ojs.operations.jobs.search_hints import members_with, unknown_name
from django_ojs.operations.keyset import PageRequest
from django_ojs.operations.maintenance import job_retention
from django_ojs.reports import search_suggestions
from django_ojs.reports.not_running import why_not_running
from django_ojs.spec import json, progress
from django_ojs.spec.states import TERMINAL, State

#: The most characters of a JSON value on a page, and how short one must be to be unfolded.
_MAX_JSON: Final = 200_000
UNFOLDED_JSON: Final = 4_000
#: The most characters that are shown of the message of a progress report.
_MAX_MESSAGE: Final = 200

#: A frame as a worker of this package writes it, and frames of libraries and of this package.
_PYTHON_FRAME: Final = re.compile(r".+\.py:\d+ in ")
_LIBRARY_FRAME: Final = re.compile(
    r"[/\\](?:site-packages|dist-packages|node_modules|django_ojs|lib[/\\]python3[^/\\]*)[/\\]"
    r"|^<frozen |node:internal"
)

#: The options that everyone who sees the job may see, because they contain nothing of its arguments
#: and results. The column `options` has `parent_results` and unknown attributes of clients as well.
_SHOWN_OPTIONS: Final = (
    *("specversion", "scheduled_at", "expires_at", "unique", "schema", "tags"),
    *("parent_id", "root_id", "offloaded"),
)

#: The page of a search that only tells whether any job matches.
_ONE: Final = PageRequest(limit=1)

#: The actions that have a button; the others are in a list.
_MAIN: Final = ("retry", "run-now", "activate", "cancel")

#: The most attempts and children on the page of a job.
_MAX_ATTEMPTS: Final = 200
_MAX_CHILDREN: Final = 10


class JobAdmin(OperatorModelAdmin):
    place = 20
    object_actions = JOB_ACTIONS

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        # Actions need none of the large columns.
        return super().get_queryset(request).defer("args", "meta", "result")

    def get_urls(self) -> list[URLPattern]:
        return [
            self.pattern("enqueue/", self.enqueue_view, "enqueue"),
            self.pattern("suggestions/", self.suggestions_view, "suggestions"),
            *super().get_urls(),
        ]

    def enqueue_view(self, request: HttpRequest) -> HttpResponse:
        """Enqueue a job, or a changed copy of the job that `copy` names."""
        return enqueue.enqueue_view(self, request)

    def suggestions_view(self, request: HttpRequest) -> HttpResponse:
        """Return what the search box suggests, as JSON."""
        self.check_view_permission(request)
        with timed_queries() as query:
            values = query(gettext_noop("suggestions"), search_suggestions.values) or {}
        values.setdefault("type", [])
        values["type"] = sorted({*values["type"], *job_types()})[: search_suggestions.MAX_VALUES]
        found = {
            "qualifiers": search_query.qualifiers(),
            "values": values,
            "parameters": parameter_names()[: search_suggestions.MAX_VALUES],
        }
        return JsonResponse(found)

    def return_url(self, request: HttpRequest) -> str:
        # The page of a job that the action has deleted does not exist any more.
        url = super().return_url(request)
        match = request.resolver_match
        deleted = request.method == "POST" and match and match.kwargs.get("name") == "delete"
        return self.url("changelist") if deleted and "/change/" in url else url

    def list_page(self, request: HttpRequest) -> HttpResponse:
        text = request.GET.get("q", "").strip()
        payload = payload_permission.has_permission(request)
        search = _search(text, payload)
        which = search.filter
        if which is None:
            return self._unreadable(request, text, search.errors, payload)
        for_all = bulk_buttons(self, request, which)
        # This works without JavaScript too: the link "Select all" leads to this page with all rows
        # selected.
        all_selected = bool(for_all) and "all" in request.GET
        with timed_queries() as query:
            page = job_list.page(request, query, which, payload=payload)
            tabs = job_list.tabs(query, which)
            hint, meant = None, []
            if not page["rows"]:
                hint = query(gettext_noop("queues"), lambda: unknown_name(which))
                meant = _meant(query, text, payload)
        if hint:
            page["errors"].append(hint)
        examples = [Job(state=state, dead_letter=True) for state in which.states or State]
        return self.render(
            request,
            "jobs",
            _("Jobs"),
            {
                **page,
                "q": text,
                "q_query": urlencode({"q": text}),
                "tabs": tabs,
                "meant": meant,
                "qualifiers": search_query.qualifiers().values(),
                "any_state": job_list.filter_query(
                    replace(which, states=(), states_excluded=None, dead_letter=None)
                ),
                "type": which.type if which.type and not which.type.endswith("*") else None,
                "enqueue_url": enqueue.url(self, request),
                "buttons": [] if all_selected else self.selection_buttons(request, examples),
                "bulk_buttons": for_all,
                "all_selected": all_selected,
                "unread": query.unread,
            },
        )

    def _unreadable(
        self, request: HttpRequest, text: str, errors: list[str], payload: bool
    ) -> HttpResponse:
        """Return the page of a search that cannot be read; it has no jobs and no actions."""
        with timed_queries() as query:
            tabs = job_list.tabs(query, JobFilter())
            meant = _meant(query, text, payload)
        context = {
            "q": text,
            "errors": errors,
            "unreadable": True,
            "meant": meant,
            "tabs": [replace(tab, current=False) for tab in tabs],
            "qualifiers": search_query.qualifiers().values(),
            "complete": True,
            "unread": query.unread,
        }
        return self.render(request, "jobs", _("Jobs"), context)

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        job = Job.primary.filter(pk=self._parse_key(key)).first()
        if job is None:
            raise Http404(_("There is no job with this id; it may have been pruned or deleted."))
        payload = payload_permission.has_permission(request)
        with timed_queries() as query:
            attempts = query(gettext_noop("attempts"), lambda: _attempts(job)) or []
            family = query(gettext_noop("lineage"), lambda: _family(job)) or {}
            limits = limit_key_text.policy(request, job.options.get("rate_limit"))
            not_running = query(
                gettext_noop("why it does not run"),
                lambda: why_not_running(job, may_see=payload_permission.may_see(request)),
            )
            panels = self.panels(request, query, job)
        now = timezone.now()
        discarded = job.state == State.DISCARDED
        main = self.buttons(request, job, *(_MAIN if discarded else (*_MAIN, "run-again")))
        error = redacted(job.error) if payload else None
        reported = progress.shown(job.progress, run=job.run, attempt=job.attempt, state=job.state)
        return self.render(
            request,
            "job",
            f"{job.type} {job.pk}",
            {
                "job": job,
                "badge": job_list.badge(job),
                "time": job_list.job_time(job),
                "buttons": main,
                "more_buttons": [each for each in self.buttons(request, job) if each not in main],
                "edit_url": enqueue.copy_url(self, request, job),
                "not_running": not_running,
                "remedies": remedies(self, request, job, not_running),
                "strip": state_strip(job, attempts),
                "runs": timeline(job, attempts, now),
                "more_attempts": len(attempts) >= _MAX_ATTEMPTS,
                "values": _values(job, reported.data) if payload else (),
                **family,
                "policies": pretty(_policies(job, limits)),
                "error": error,
                "frame": _own_frame(error),
                "progress": reported.progress,
                "progress_message": _message(reported.data) if payload else "",
                "panels": panels,
                "prune_at": _prune_at(job),
                "unread": query.unread,
                "refresh": job.state not in TERMINAL,
            },
        )


def _search(text: str, payload: bool) -> search_query.Search:
    return permitted(search_query.parse(text), payload=payload, positions=positions)


def _meant(query: TimedQueries, text: str, payload: bool) -> list[tuple[str, str]]:
    """Return searches that the user may have meant and that find jobs, each with its link."""

    def finds(which: JobFilter) -> bool:
        return bool(query(gettext_noop("jobs"), lambda: listing.list_jobs(which, _ONE).rows))

    def found(others: Iterable[str]) -> list[tuple[str, str]]:
        return [
            (other, "?" + urlencode({"q": other}))
            for other in others
            if (which := _search(other, payload).filter) is not None and finds(which)
        ]

    return found(search_query.alternatives(text)) or found(_by_members(query, text, payload))


def _by_members(query: TimedQueries, text: str, payload: bool) -> Iterator[str]:
    """Yield searches for a value, such as an email, in each member of arguments that has it."""
    value, rest = search_query.value_and_rest(text, "args")
    which = _search(" ".join(rest), payload).filter
    if not (value and value.isprintable() and payload) or which is None:
        return
    (typed,) = (each for _name, each, _quoted in search_query.split(value))
    names = query(gettext_noop("arguments"), lambda: members_with(typed, which, parameters_of))
    for name in names or ():
        yield " ".join([*rest, f"{name}:{value}"])


def _attempts(job: Job) -> list[Attempt]:
    newest = Attempt.primary.filter(job_id=job.pk).order_by("-run")
    return list(newest[:_MAX_ATTEMPTS])[::-1]


def _family(job: Job) -> dict[str, Any]:
    """Return the parent of a job and its first children, if they still exist."""
    found = list(family.children_of([job.pk])[: _MAX_CHILDREN + 1])
    parent = None
    if job.parent_id is not None:
        parent = Job.primary.filter(pk=job.parent_id).only("type").first()
    return {
        "parent": parent,
        "children": found[:_MAX_CHILDREN],
        "more_children": len(found) > _MAX_CHILDREN,
        "children_query": job_list.filter_query(JobFilter(parent_id=job.pk)),
    }


def _own_frame(error: Any) -> str | None:
    """Return the innermost frame of an error that is not in a library."""
    frames = error.get("backtrace") if isinstance(error, dict) else None
    if not isinstance(frames, list):
        return None
    texts = [frame for frame in frames if isinstance(frame, str)]
    # Python prints the innermost frame last; other languages print it first.
    inner = texts[::-1] if any(_PYTHON_FRAME.match(text) for text in texts) else texts
    return next((text for text in inner if not _LIBRARY_FRAME.search(text)), None)


def _values(job: Job, progress_data: Any) -> list[tuple[str, str, bool]]:
    """Return what a job carries: for each value a title, its JSON, and whether it is unfolded."""
    values = [(_("Arguments"), pretty(redacted_args(job.args, parameters_of(job.type, job.args))))]
    values += [
        (title, pretty(redacted(value)))
        for title, value in (
            (_("Metadata"), job.meta),
            (_("Other attributes"), job.options.get("extra")),
            (_("Results of the steps before"), job.options.get("parent_results")),
            (_("Result"), job.result),
            (_("Progress"), progress_data),
        )
        if value not in (None, {}, [])
    ]
    return [(title, text, len(text) < UNFOLDED_JSON) for title, text in values]


def _message(progress_data: Any) -> str:
    shown = redacted(progress_data)
    message = shown.get("message") if isinstance(shown, dict) else None
    return message[:_MAX_MESSAGE] if isinstance(message, str) else ""


def pretty(value: Any) -> str:
    """Return a value as JSON for a page; a very long text is cut."""
    text = json.pretty(value)
    if len(text) <= _MAX_JSON:
        return text
    return _("%(text)s\n… %(count)s more characters. The HTTP API returns all of them.") % {
        "text": text[:_MAX_JSON],
        "count": grouped(len(text) - _MAX_JSON),
    }


def _policies(job: Job, limits: Any) -> dict[str, Any]:
    """Return what decides how a job runs; `limits` is its `rate_limit` as the user may see it."""
    timeouts = {
        "timeout_ms": job.timeout_ms,
        "visibility_timeout_ms": job.visibility_timeout_ms,
    }
    return {
        "retry": job.retry_policy.render(),
        "max_attempts": job.max_attempts,
        **{name: value for name, value in timeouts.items() if value is not None},
        **{name: job.options[name] for name in _SHOWN_OPTIONS if name in job.options},
        **({"rate_limit": limits} if limits else {}),
    }


def _prune_at(job: Job) -> datetime | None:
    if job.finished_at is None:
        return None
    return job.finished_at.astimezone(UTC) + job_retention.of(job)
