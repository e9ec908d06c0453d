"""Workers on the control plane: list, details, directives, removal (ojs-admin-api §9)."""

from typing import Any, ClassVar

from django.http import HttpRequest

from django_ojs.http.responses import timestamps
from django_ojs.http.views.admin.base import AdminView
from django_ojs.http.views.admin.job_rendering import summary
from django_ojs.http.views.base import OJSView
from django_ojs.models.worker import Directive
from django_ojs.operations.workers import registry
from django_ojs.operations.workers.registry import WorkerStatus
from django_ojs.spec.scopes import Scope


class AdminWorkers(AdminView):
    """All known workers, and the number of workers in each condition."""

    needs = {"GET": Scope.OPERATOR}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        wanted, within = self.wanted(), self.access.queues
        found = registry.listing(offset=wanted.offset, limit=wanted.limit, within=within)
        totals = {
            "total": found.total,
            "running": found.running,
            "quiet": found.quiet,
            "stale": found.stale,
        }
        return self.listed(map(_worker, found.workers), (found.total, False), summary=totals)


class AdminWorker(OJSView):
    """One worker with its active jobs; removal of a stale one."""

    needs = {"GET": Scope.OPERATOR, "DELETE": Scope.OPERATOR}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        status = registry.get(key, within=self.access.queues)
        jobs = registry.jobs_of(key, within=self.access.queues)
        return {**_worker(status), "jobs": [summary(job) for job in jobs]}

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Remove a worker whose heartbeats have stopped, and release its jobs."""
        self.access.check_all_queues()
        released = registry.deregister(key)
        return {"id": key, "deregistered": True, "jobs_rescheduled": released}


class DirectiveView(OJSView):
    """Set the directive that the worker gets in the response to its next BEAT."""

    needs = {"POST": Scope.OPERATOR}
    directive: ClassVar[Directive]

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        self.access.check_all_queues()
        return _worker(registry.direct(key, self.directive))


class AdminWorkerQuiet(DirectiveView):
    """Claim no more jobs, and finish those in flight."""

    directive = Directive.QUIET


class AdminWorkerResume(DirectiveView):
    """Claim jobs again."""

    directive = Directive.RUNNING


class AdminWorkerTerminate(DirectiveView):
    """Finish the jobs in flight, then exit."""

    directive = Directive.TERMINATE


def _worker(status: WorkerStatus) -> dict[str, Any]:
    worker = status.worker
    out: dict[str, Any] = {
        "id": worker.pk,
        "hostname": worker.hostname,
        "state": status.condition,
        "directive": worker.directive,
        "queues": status.queues,
        **({"pool": worker.pool} if worker.pool else {}),
        "active_jobs": status.active_jobs,
        **timestamps(last_heartbeat_at=worker.seen_at),
        "version": worker.version,
        "labels": worker.labels,
        "metadata": worker.metadata,
    }
    if worker.concurrency is not None:
        out["concurrency"] = worker.concurrency
    if worker.pid is not None:
        out["pid"] = worker.pid
    return {**out, **timestamps(started_at=worker.started_at)}
