"""Checkpoints of a job (ojs-durable-execution §4, §7)."""

from typing import Any

from rest_framework.request import Request

from django_ojs.http import fields
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.operations import checkpoint
from django_ojs.operations.fetch import check_worker_id
from django_ojs.spec import times
from django_ojs.spec.checkpoint import SavedCheckpoint
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope
from django_ojs.storage.transitions import Claim


class JobCheckpoint(JobView):
    """The latest checkpoint of a job: a worker saves it, and its next run gets it."""

    needs = {"GET": Scope.READ, "POST": Scope.WORKER, "DELETE": Scope.OPERATOR}

    def get(self, request: Request, key: str) -> dict[str, Any]:
        found = checkpoint.found(self.info(job_id(key)))
        return {"checkpoint": {**_render(key, found), "state": found.state}}

    def post(self, request: Request, key: str) -> dict[str, Any]:
        data = self.body()
        if "state" not in data:
            raise InvalidRequest.of("state", "is required")
        worker_id = fields.string(data, "worker_id")
        check_worker_id(worker_id)
        self.check_queue_of(job_id(key))
        saved = checkpoint.save(
            job_id(key),
            data["state"],
            claim=Claim(worker_id=worker_id, attempt=fields.integer(data, "attempt", minimum=0)),
            principal=self.access.principal,
        )
        return {"checkpoint": _render(key, saved)}

    def delete(self, request: Request, key: str) -> dict[str, Any]:
        self.check_queue_of(job_id(key))
        checkpoint.delete(job_id(key))
        return {"deleted": True, "job_id": str(job_id(key))}


def _render(key: str, found: SavedCheckpoint) -> dict[str, Any]:
    return {
        "job_id": str(job_id(key)),
        "sequence": found.sequence,
        "created_at": times.format_timestamp(found.created_at),
    }
