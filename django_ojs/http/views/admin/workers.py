"""Workers: list, look at, direct, deregister (ojs-admin-api §9)."""

from typing import Any, ClassVar

from rest_framework.request import Request

from django_ojs.http.access import Scope
from django_ojs.http.views.admin.answers import summary
from django_ojs.http.views.admin.base import AdminView
from django_ojs.models.worker import Directive
from django_ojs.operations.workers import registry
from django_ojs.operations.workers.registry import WorkerStatus
from django_ojs.spec.times import format_timestamp


class AdminWorkers(AdminView):
    """All workers that are known."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: Request) -> dict[str, Any]:
        """List workers, and how many there are in which condition."""
        page = self.page()
        known = registry.listing(offset=page.offset, limit=page.per_page, within=self.within)
        sums = {
            "total": known.total,
            "running": known.running,
            "quiet": known.quiet,
            "stale": known.stale,
        }
        return self.listed(map(_status, known.workers), known.total, summary=sums)


class AdminWorker(AdminView):
    """One worker."""

    needs = {"GET": Scope.OPERATOR, "DELETE": Scope.OPERATOR}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        """Return the worker with the jobs in its hands."""
        status = registry.get(key, within=self.within)
        held = registry.jobs_of(key, within=self.within)
        return {**_status(status), "jobs": [summary(job) for job in held]}

    def delete(self, request: Request, key: str) -> dict[str, Any]:
        """Forget a worker whose beats have stopped, and give its jobs back."""
        self.access.check_all_queues()
        back = registry.deregister(key)
        return {"id": key, "deregistered": True, "jobs_rescheduled": back}


class _Direct(AdminView):
    needs = {"POST": Scope.OPERATOR}
    directive: ClassVar[Directive]

    def post(self, request: Request, key: str) -> dict[str, Any]:
        """Tell the worker, with its next beat."""
        self.access.check_all_queues()
        return _status(registry.direct(key, self.directive))


class AdminWorkerQuiet(_Direct):
    """Fetch no more jobs, and finish those in hand."""

    directive = Directive.QUIET


class AdminWorkerResume(_Direct):
    """Fetch jobs again."""

    directive = Directive.RUNNING


class AdminWorkerTerminate(_Direct):
    """Finish, and end."""

    directive = Directive.TERMINATE


def _status(status: WorkerStatus) -> dict[str, Any]:
    worker = status.worker
    out: dict[str, Any] = {
        "id": worker.pk,
        "hostname": worker.hostname,
        "state": status.condition,
        "directive": worker.directive,
        "queues": status.queues,
        "active_jobs": worker.active_jobs,
        "last_heartbeat_at": format_timestamp(worker.beat_at),
        "version": worker.version,
        "labels": worker.labels,
        "metadata": worker.metadata,
    }
    if worker.concurrency is not None:
        out["concurrency"] = worker.concurrency
    if worker.pid is not None:
        out["pid"] = worker.pid
    if worker.started_at is not None:
        out["started_at"] = format_timestamp(worker.started_at)
    return out
