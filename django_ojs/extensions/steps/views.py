"""Steps over HTTP, for workers in other languages. These routes are not in the specification."""

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from django_ojs.extensions.steps import remote
from django_ojs.extensions.steps.models import MAX_NAME, SPENT, Step, StepKind, StepStatus
from django_ojs.extensions.steps.remote import ClientStep
from django_ojs.extensions.steps.sending import signal
from django_ojs.http import fields
from django_ojs.http.responses import json_response
from django_ojs.http.views.base import OJSView
from django_ojs.http.views.jobs import JobView, job_id
from django_ojs.operations.fetch import check_worker_id
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.failure import Failure
from django_ojs.spec.scopes import Scope
from django_ojs.spec.times import format_timestamp
from django_ojs.storage.transitions import Claim

_MOST: Final = 2**31 - 1


class StepsView(JobView):
    def read(self, key: str) -> tuple[dict[str, Any], UUID, Claim]:
        """Return the body, the id of the job, and the claim, which must have a `run`."""
        data = self.body()
        fields.required(data, "run")
        claim = self.claim_in(data)
        check_worker_id(claim.worker_id)
        self.check_queue_of(job_id(key))
        return data, job_id(key), claim


class JobSteps(StepsView):
    """The steps of a job, for the worker that runs it."""

    needs = {"GET": Scope.WORKER, "POST": Scope.WORKER}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Return the history, which the worker replays."""
        self.check_queue_of(job_id(key))
        query = request.GET
        run = fields.query_integer(query, "run", default=0, minimum=1, maximum=_MOST)
        if not run:
            raise InvalidRequest.of("run", "is required")
        worker_id = query.get("worker_id")
        check_worker_id(worker_id)
        job, found = remote.history(job_id(key), Claim(worker_id=worker_id, run=run))
        return {"steps": [_render(step) for step in found], SPENT: job.spent}

    def post(self, request: HttpRequest, key: str) -> HttpResponse:
        """Store that a step is done, or has failed."""
        data, wanted, claim = self.read(key)
        step, is_stored = remote.store_step(
            wanted, claim, _taken(data), result=data.get("result"), error=_error(data)
        )
        return json_response({"step": _render(step)}, 201 if is_stored else 200)


class JobSuspension(StepsView):
    """The suspension of a run that sleeps, waits for a signal, or tries a step again later."""

    needs = {"POST": Scope.WORKER}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        """Give the job back, unless there is nothing to wait for."""
        data, wanted, claim = self.read(key)
        kind = fields.choice(data, "kind", remote.KINDS, StepKind.SLEEP)
        signal_key = None
        if kind == StepKind.WAIT:
            fields.required(data, "key")
            signal_key = fields.text(data, "key", MAX_NAME)
            if not signal_key:
                raise InvalidRequest.of("key", f"must be a text of 1 to {MAX_NAME} characters")
        step = remote.suspend(
            wanted,
            claim,
            _taken(data, kind, signal_key),
            until=_until(data),
            error=_error(data),
        )
        return {"suspended": step.outcome == StepStatus.WAITING, "step": _render(step)}


class Signals(OJSView):
    """Signals, for which jobs in any queue may wait."""

    needs = {"POST": Scope.PRODUCER}

    def post(self, request: HttpRequest) -> HttpResponse:
        """Send a signal."""
        data = self.body()
        self.access.check_all_queues()
        name, key = fields.text(data, "name", MAX_NAME), fields.text(data, "key", MAX_NAME)
        signal(name, key, data.get("payload"))
        return json_response({"signal": {"name": name, "key": key}}, 201)


def _taken(
    data: dict[str, Any], kind: StepKind = StepKind.RUN, key: str | None = None
) -> ClientStep:
    fields.required(data, "number")
    fields.required(data, "name")
    number = fields.integer(data, "number", maximum=_MOST)
    name = fields.text(data, "name", MAX_NAME + 10)
    return ClientStep(number=number or 0, name=name, kind=kind, key=key)


def _error(data: dict[str, Any]) -> dict[str, Any] | None:
    error = data.get("error")
    return None if error is None else dict(Failure.parse(error).render())


def _until(data: dict[str, Any]) -> datetime | timedelta | None:
    delay = fields.integer(data, "delay_ms", minimum=1, maximum=_MOST)
    return fields.timestamp(data, "until") if delay is None else timedelta(milliseconds=delay)


def _render(step: Step) -> dict[str, Any]:
    times = {name: getattr(step, name) for name in ("until", "started_at", "ended_at")}
    shown = {
        "number": step.number,
        "name": step.name,
        "kind": step.kind,
        "outcome": step.outcome,
        "attempts": step.attempts,
        "result": step.value,
        "error": step.error,
        "signal": step.signal,
        "key": step.key,
    } | {name: format_timestamp(at) for name, at in times.items() if at is not None}
    return {name: value for name, value in shown.items() if value is not None or name == "result"}
