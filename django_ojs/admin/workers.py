"""Workers: who is there, how busy, since when silent, and what each has in hand."""

from collections.abc import Iterable
from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone

from django_ojs.admin.base import Pages
from django_ojs.admin.query_timeout import asking
from django_ojs.admin.worker_actions import ACTIONS
from django_ojs.models import Worker
from django_ojs.operations.workers import registry
from django_ojs.operations.workers.registry import WorkerStatus
from django_ojs.spec.errors import OJSError

PER_PAGE: Final = 100

#: Jobs of one worker that its page shows.
JOBS: Final = 100

#: What a beat may carry, and a page does not show whole.
_LABELS: Final = 20


class WorkerPages(Pages):
    """The workers that have sent a beat and were not deregistered since."""

    operations = ACTIONS

    def found(self, request: HttpRequest, keys: Iterable[str]) -> dict[str, Any]:
        """Return the workers, each with its condition."""
        return {key: _worker(key) for key in dict.fromkeys(keys)}

    def list_page(self, request: HttpRequest) -> HttpResponse:
        """Show them, the silent ones first."""
        text = request.GET.get("p", "")
        page = int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 7 else 1
        with asking() as ask:
            found = ask("workers", lambda: registry.listing(limit=10_000))
            rows = sorted(
                found.workers if found else [], key=lambda each: each.condition != registry.STALE
            )
            page = max(1, min(page, -(-len(rows) // PER_PAGE)))
            shown = rows[(page - 1) * PER_PAGE : page * PER_PAGE]
            held = ask("jobs in hand", lambda: registry.held([each.worker.pk for each in shown]))
        return self.render(
            request,
            "workers",
            "Workers",
            {
                "rows": [
                    (each, None if held is None else held.get(each.worker.pk, 0)) for each in shown
                ],
                "found": found,
                "before": page - 1,
                "after": page + 1 if page * PER_PAGE < len(rows) else 0,
                "unknown": ask.unknown,
                "bulk": self.bulk(request),
                "looked_at": timezone.now(),
            },
        )

    def object_page(self, request: HttpRequest, key: str) -> HttpResponse:
        """Show one, and the jobs in its hands."""
        with asking() as ask:
            worker = ask("worker", lambda: _worker(key))
            if worker is None and not ask.unknown:
                raise Http404("There is no such worker: it ended, or was deregistered.")
            jobs = (
                ask("jobs in hand", lambda: registry.jobs_of(key)) if worker is not None else None
            )
        return self.render(
            request,
            "worker",
            key,
            {
                "worker": worker,
                "queues": WorkerStatus(worker=worker, condition="").queues if worker else (),
                "labels": _texts(worker.labels) if worker else (),
                "jobs": None if jobs is None else jobs[:JOBS],
                "more_jobs": max(0, len(jobs or ()) - JOBS),
                "unknown": ask.unknown,
                "buttons": self.buttons(request, worker) if worker is not None else (),
                "looked_at": timezone.now(),
            },
        )


def _worker(key: str) -> Worker | None:
    try:
        status = registry.get(key)
    except OJSError:
        return None
    status.worker.condition = status.condition  # type: ignore[attr-defined]  # for `applies`
    return status.worker


def _texts(values: Any) -> list[str]:
    return [str(each) for each in values[:_LABELS]] if isinstance(values, list) else []


__all__ = ["WorkerPages"]
