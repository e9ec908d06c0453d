"""Jobs: a list with one search box, and a page that tells the whole story of each."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import get_content_type_for_model
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from django_ojs.admin import job_list, search_query, state_diagram, timeline
from django_ojs.admin.base import Pages
from django_ojs.admin.bulk_actions import choices
from django_ojs.admin.job_actions import JOB_ACTIONS
from django_ojs.admin.payloads import redacted
from django_ojs.admin.query_timeout import asking
from django_ojs.admin.search_access import discreet
from django_ojs.conf import settings
from django_ojs.models import Attempt, Job
from django_ojs.spec import json, progress
from django_ojs.spec.states import State
from django_ojs.storage import events

#: Characters of a JSON value that a page shows.
MOST_TEXT: Final = 200_000

#: Runs and events that a page reads.
_MOST_ATTEMPTS: Final = 200
_MOST_EVENTS: Final = 50


class JobPages(Pages):
    """The list, and a job."""

    operations = JOB_ACTIONS

    def found(self, request: HttpRequest, keys: Any) -> dict[str, Any]:
        """Return the jobs of these ids; a text that is no id is of none."""
        wanted = {str(key): _uuid(str(key)) for key in keys}
        there = Job.primary.filter(pk__in=[key for key in wanted.values() if key is not None])
        by_key = {job.pk: job for job in there.defer("args", "meta", "result")}
        return {text: by_key.get(key) if key else None for text, key in wanted.items()}

    def back(self, request: HttpRequest) -> str:
        """Return where an action leads: not to the page of a job that it has deleted."""
        wanted = super().back(request)
        match = request.resolver_match
        deleted = request.method == "POST" and match and match.kwargs.get("name") == "delete"
        return self.address("changelist") if deleted and "/change/" in wanted else wanted

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Show a page of jobs."""
        text = request.GET.get("q", "").strip()
        see = self.has_payload_permission(request)
        query = discreet(search_query.parse(text), payload=see)
        which = query.filter
        with asking() as ask:
            page = job_list.page(
                ask,
                which,
                request.GET.get("after", ""),
                request.GET.get("before", ""),
                payload=see,
            )
            tabs = job_list.tabs(ask, which)
        page["complaints"] = [*query.complaints, *page["complaints"]]
        return self.render(
            request,
            "jobs",
            "Jobs",
            {
                **page,
                "q": text,
                "here_q": urlencode({"q": text}),
                "tabs": tabs,
                "known_qualifiers": search_query.KNOWN.values(),
                "state": which.states[0] if len(which.states) == 1 else None,
                "any_state": job_list.address(replace(which, states=(), dead_letter=None)),
                "bulk": [
                    {
                        "label": action.label,
                        "address": self.address("do", action.name),
                        "asks": action.asks,
                        "destructive": action.destructive,
                    }
                    for action in self.offered(request)
                    if _fits(action, which.states)
                ],
                "all_matching": choices(self, request, which) if not query.complaints else (),
                "unknown": ask.unknown,
                "looked_at": timezone.now(),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show one job."""
        job_id = _uuid(key)
        job = Job.primary.filter(pk=job_id).first() if job_id else None
        if job is None:
            raise Http404("There is no job with this id; it may have been pruned or deleted.")
        see = self.has_payload_permission(request)
        with asking() as ask:
            attempts = ask("attempts", lambda: _attempts(job)) or []
            happened = events.kept().filter(subject=str(job.pk)).order_by("-id")
            kept = ask("events", lambda: list(happened[:_MOST_EVENTS]))
        now = timezone.now()
        shown = progress.shown(job.progress, run=job.run, attempt=job.attempt, state=job.state)
        verb, moment, form = job_list.since(job)
        return self.render(
            request,
            "job",
            f"{job.type} {job.pk}",
            {
                "job": job,
                "badge": job_list.badge(job),
                "verb": verb,
                "moment": moment,
                "form": form,
                "buttons": self.buttons(request, job),
                "machine": state_diagram.draw(job, attempts),
                "runs": timeline.runs(job, attempts, now),
                "more_attempts": len(attempts) >= _MOST_ATTEMPTS,
                "values": _values(job) if see else (),
                "policies": _shown(_policies(job)),
                "error": redacted(job.error) if see else None,
                "progress": shown,
                "progress_data": _shown(redacted(shown.data)) if see and shown.data else "",
                "events": kept,
                "log": self._log(request, job),
                "prune_at": _prune_at(job),
                "unknown": ask.unknown,
                "looked_at": now,
                "refresh": job.state not in ("completed", "cancelled", "discarded"),
            },
        )

    def _log(self, request: HttpRequest, job: Job) -> list[LogEntry]:
        kind = get_content_type_for_model(job)
        entries = LogEntry.objects.filter(content_type=kind, object_id=str(job.pk))
        return list(entries.select_related("user").order_by("-action_time")[:20])


def _fits(action: Any, states: tuple[State, ...]) -> bool:
    # A button that no job of the list could use is in the way.
    kinds = [Job(state=state, dead_letter=True) for state in states or State]
    return any(action.applies(job) for job in kinds)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _attempts(job: Job) -> list[Attempt]:
    newest = Attempt.primary.filter(job_id=job.pk).order_by("-id")
    return list(newest[:_MOST_ATTEMPTS])[::-1]


def _values(job: Job) -> list[tuple[str, str, str, bool]]:
    """Return what a job carries: a title, the JSON, how long it is, whether it is open at once."""
    parts = [("Arguments", job.args), ("Metadata", job.meta), ("Result", job.result)]
    shown = []
    for title, value in parts:
        if value in (None, {}) or (value == [] and title != "Arguments"):
            continue
        text = _shown(redacted(value))
        shown.append((title, text, title.lower(), len(text) < 4_000))
    return shown


def _shown(value: Any) -> str:
    text = json.pretty(value)
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:MOST_TEXT]}\n… {len(text) - MOST_TEXT:,} characters more; GET /ojs/v1/jobs/"


def _policies(job: Job) -> dict[str, Any]:
    policies = {"retry": job.retry_policy.render(), "max_attempts": job.max_attempts}
    timeouts = {
        "timeout_ms": job.timeout_ms,
        "visibility_timeout_ms": job.visibility_timeout_ms,
    }
    policies |= {name: value for name, value in timeouts.items() if value is not None}
    return policies | {name: value for name, value in job.options.items() if name != "retry"}


def _prune_at(job: Job) -> Any:
    if job.finished_at is None:
        return None
    keep = settings()
    ages = {
        State.COMPLETED: keep.keep_completed,
        State.CANCELLED: keep.keep_cancelled,
        State.DISCARDED: keep.keep_dead_letters if job.dead_letter else keep.keep_discarded,
    }
    return job.finished_at + ages[State(job.state)]


__all__ = ["JobPages"]
