"""Checkpoints of a job (ojs-durable-execution §4, §7)."""

from typing import Any

from django.http import HttpRequest

from django_ojs.extensions.checkpoints import operations as checkpoint
from django_ojs.extensions.checkpoints.spec import SavedCheckpoint
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.operations.fetch import check_worker_id
from django_ojs.spec import times
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.scopes import Scope


class JobCheckpoint(JobView):
    """The latest checkpoint of a job: a worker saves it, and the next run of the job gets it."""

    needs = {
        "GET": Scope.READ,
        "POST": Scope.WORKER,
        "PUT": Scope.WORKER,
        "DELETE": Scope.OPERATOR,
    }

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        found = checkpoint.found(self.info(job_id(key)))
        return {"checkpoint": {**_render(key, found), "state": found.state}}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        data = self.body()
        if "state" not in data:
            raise InvalidRequest.of("state", "is required")
        claim = self.claim_in(data)
        check_worker_id(claim.worker_id)
        self.check_queue_of(job_id(key))
        saved = checkpoint.save(
            job_id(key),
            data["state"],
            claim=claim,
            principal=self.access.principal,
        )
        return {"checkpoint": _render(key, saved)}

    # Clients may use either method.
    put = post

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        self.check_queue_of(job_id(key))
        checkpoint.delete(job_id(key))
        return {"deleted": True, "job_id": str(job_id(key))}


def _render(key: str, found: SavedCheckpoint) -> dict[str, Any]:
    return {
        "job_id": str(job_id(key)),
        "sequence": found.sequence,
        "created_at": times.format_timestamp(found.created_at),
    }
