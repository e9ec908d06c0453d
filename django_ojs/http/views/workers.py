"""FETCH, ACK, FAIL and BEAT (http-binding §10, worker-protocol §4-6)."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from django_ojs import hooks
from django_ojs.conf import settings
from django_ojs.http import fields, long_poll
from django_ojs.http.access import Access
from django_ojs.http.responses import text_response, unwritable
from django_ojs.http.views.base import OJSView
from django_ojs.http.views.jobs import JobView, job_id, shown_to
from django_ojs.models import Attempt, Job
from django_ojs.models.worker import Directive
from django_ojs.operations.ack import ack
from django_ojs.operations.beat import Registration, beat
from django_ojs.operations.fail import fail, requeue
from django_ojs.operations.fetch import (
    MAX_COUNT,
    check_pool,
    check_worker_id,
    fetch_remotely,
    give_back,
)
from django_ojs.spec import envelope, ids, scheduling, times
from django_ojs.spec.errors import InvalidPayload, InvalidRequest, PermissionDenied
from django_ojs.spec.failure import Failure
from django_ojs.spec.scheduling import ALL, Pool, QueueOrder
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from django_ojs.spec.timeouts import limit_of
from django_ojs.storage.claimed_job import Claimed, texts_of
from django_ojs.storage.transitions import Claim

#: The longest wait of a FETCH, because proxies close idle connections.
LONGEST_WAIT_MS = 20_000
_MAX_JOBS = 10_000
#: The most queues in a FETCH, and the most queues and labels in a BEAT, which are stored in the
#: worker's row.
_MAX_NAMES = 1_000


class Fetch(OJSView):
    """FETCH (ojs-core §7.2)."""

    needs = {"POST": Scope.WORKER}

    def post(self, request: HttpRequest) -> HttpResponse:
        """Claim jobs. `wait_ms` is how long to wait for the first job."""
        data = self.body()
        pool = fields.string(data, "pool")
        queues = self.queues_of(data, pool)
        if len(queues) > _MAX_NAMES:
            # Each queue may take a statement.
            raise InvalidRequest.of("queues", f"must hold at most {_MAX_NAMES} names")
        order = _queue_order(data, queues)
        counts = [
            fields.integer(data, name, minimum=1, maximum=MAX_COUNT)
            for name in ("count", "batch_size")
        ]
        count = counts[0] or counts[1] or 1
        worker_id = fields.string(data, "worker_id")
        lease = fields.milliseconds(data, "visibility_timeout_ms")
        wait = fields.integer(data, "wait_ms", maximum=LONGEST_WAIT_MS) or 0
        for queue in queues:
            self.access.check_queue(queue)

        def claim() -> list[Claimed]:
            return fetch_remotely(
                queues,
                count=count,
                worker_id=worker_id,
                visibility_timeout=lease,
                principal=self.access.principal,
                order=order,
                pool=pool,
            )

        def claim_and_render() -> list[str]:
            claimed = claim()
            try:
                return _render_claimed(claimed)
            except Exception:
                give_back(claimed)
                raise

# No job is claimed for a client that is gone: the job would wait until its lease ends, and
        # spend an attempt. A busy server may begin the request when its client has given up.
        is_over = partial(long_poll.client_is_gone, request.META)
        jobs: list[str] = []
        if not is_over():
            jobs = long_poll.until(claim_and_render, wait / 1000, is_over=is_over)
        return text_response(f'{{"jobs":[{",".join(jobs)}]}}')

    def queues_of(self, data: dict[str, Any], pool: str | None) -> list[str]:
        """Return the queues of a FETCH; by default, its pool's queues that the caller may use."""
        if pool:
            check_pool(pool)
        known = settings().pool(pool) if pool else None
        if data.get("queues") is None and known is not None and ALL not in known.queues:
            return _queues_of_pool(known, self.access)
        fields.required(data, "queues")
        return fields.strings(data, "queues") or []


class OutcomeView(JobView):
    """The base of ACK and FAIL, which name the job in the body or the path."""

    needs = {"POST": Scope.WORKER}

    def read(self, key: str | None) -> tuple[dict[str, Any], UUID, Claim]:
        data = self.body(required=key is None)
        wanted = (
            ids.parse_id(fields.required(data, "job_id", "id"), "job_id")
            if key is None
            else job_id(key)
        )
        claim = self.claim_in(data)
        check_worker_id(claim.worker_id)
        self.check_queue_of(wanted)
        return data, wanted, claim


class Ack(OutcomeView):
    """ACK (ojs-core §7.3)."""

    def post(self, request: HttpRequest, key: str | None = None) -> dict[str, Any]:
        data, wanted, claim = self.read(key)
        job = ack(wanted, claim=claim, result=data.get("result"))
        hooks.call_served(hooks.registry.request_ended, job)
        shown = job.envelope()
        return {
            "acknowledged": True,
            **_identity(job),
            "completed_at": shown.get("completed_at"),
            "job": shown_to(self.access, job, shown),
        }


class Nack(OutcomeView):
    """FAIL (ojs-core §7.4)."""

    def post(self, request: HttpRequest, key: str | None = None) -> dict[str, Any]:
        """Record a failed run, or with `requeue` release the job."""
        data, wanted, claim = self.read(key)
        again = fields.boolean(data, "requeue")
        error = data.get("error")
        if again:
            failure = None if error is None else Failure.parse(error)
            job = requeue(wanted, failure, claim=claim)
        else:
            job = fail(wanted, Failure.parse(fields.required(data, "error")), claim=claim)
        hooks.call_served(hooks.registry.request_ended, job)
        shown = job.envelope()
        out = {
            **_identity(job),
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
        }
        if job.state == State.RETRYABLE:
            _add_delay(shown)
        out["job"] = shown_to(self.access, job, shown)
        for name in ("next_attempt_at", "retry_delay_ms", "discarded_at", "completed_at"):
            if name in shown:
                out[name] = shown[name]
        return out


class Beat(OJSView):
    """BEAT (ojs-core §7.5)."""

    needs = {"POST": Scope.WORKER}

    def post(self, request: HttpRequest) -> dict[str, Any]:
        """Record the heartbeat, extend the leases, and return the directive for the worker."""
        data = self.body()
        fields.required(data, "worker_id")
        holding = _jobs(data)
        self.check_queues_of(holding)
        registration = _registration(data)
        for queue in registration.queues if registration is not None else ():
            self.access.check_queue(queue)
        if registration is not None and registration.pool:
            _check_member(registration.pool, self.access)
        number = data.get("active_jobs")
        found = beat(
            fields.string(data, "worker_id") or "",
            state=fields.choice(data, "state", list(Directive), Directive.RUNNING),
            holding=holding,
            active_jobs=None if isinstance(number, list) else fields.integer(data, "active_jobs"),
            visibility_timeout=fields.milliseconds(data, "visibility_timeout_ms"),
            interval=fields.milliseconds(data, "heartbeat_interval_ms"),
            registration=registration,
            principal=self.access.principal,
        )
        return {
            "state": found.state.value,
            "jobs_extended": [str(key) for key in holding if key not in found.lost | found.locked],
            "jobs_lost": sorted(str(key) for key in found.lost),
            "server_time": times.format_timestamp(datetime.now(UTC)),
        }

    def check_queues_of(self, holding: Collection[UUID]) -> None:
        """Raise PermissionDenied unless the caller may use the queue of each of these jobs."""
        if self.access.queues is not None and holding:
            for queue in _queues_of(holding):
                self.access.check_queue(queue)


def _queues_of(holding: Collection[UUID]) -> set[str]:
    """Return the queues of these jobs; the ids of deleted jobs are ignored."""
    return set(Job.primary.filter(pk__in=holding).values_list("queue", flat=True))


def _queues_of_pool(pool: Pool, access: Access) -> list[str]:
    """Return the queues of a pool that a caller may use. Raises PermissionDenied if it has none."""
    queues = [name for name in pool.queues if access.queues is None or name in access.queues]
    if not queues:
        raise PermissionDenied.of("pool", "has no queue that these credentials are for.")
    return queues


def _check_member(name: str, access: Access) -> None:
    """Raise InvalidRequest or PermissionDenied unless the caller's workers may be in a pool."""
    check_pool(name)
    pool = settings().pool(name)
    if pool is not None and ALL not in pool.queues:
        _queues_of_pool(pool, access)


def _queue_order(data: dict[str, Any], queues: Sequence[str]) -> QueueOrder:
    """Return the order of the queues that a worker prefers (fair-scheduling §5.2)."""
    weights = scheduling.parse_weights(fields.object_(data, "weights") or {}, queues, "weights")
    strategy = fields.string(data, "strategy")
    return scheduling.parse_order(weights, strategy, default=scheduling.STRICT)


def _render_claimed(claimed: Sequence[Claimed]) -> list[str]:
    """Return the JSON text of each job in the response, with its run and its effective timeout."""
    default = settings().default_timeout
    for job in claimed:
        job.timeout_ms = limit_of(job, default) // timedelta(milliseconds=1)
    # Only jobs with an earlier run have errors, and most have none.
    errors = Attempt.errors_of([job.id for job in claimed if job.run > 1])

    def render(job: Claimed) -> dict[str, Any]:
        shown = envelope.render(job, errors=errors.get(job.id), more=job.more)
        _add_delay(shown)
        shown["run"] = job.run
        return shown

    try:
        return texts_of(claimed, render)
    except InvalidPayload as error:
        raise unwritable() from error


def _identity(job: Job) -> dict[str, Any]:
    return {"id": str(job.pk), "job_id": str(job.pk), "state": job.state}


def _add_delay(shown: dict[str, Any]) -> None:
    """Add the delay between the last run and its retry, if there was one."""
    errors = shown.get("errors") or [{}]
    if "retry_delay_ms" in errors[-1]:
        shown["retry_delay_ms"] = errors[-1]["retry_delay_ms"]


def _jobs(data: dict[str, Any]) -> Collection[UUID]:
    # In the HTTP binding, `active_jobs` has the ids. In the worker protocol, it has the number of
    # jobs, and `active_job_ids` has the ids.
    name = "active_jobs" if isinstance(data.get("active_jobs"), list) else "active_job_ids"
    given = fields.strings(data, name) or []
    if len(given) > _MAX_JOBS:
        raise InvalidRequest.of(name, f"must hold at most {_MAX_JOBS} ids")
    return list(dict.fromkeys(ids.parse_id(key, name) for key in given))


def _registration(data: dict[str, Any]) -> Registration | None:
    names = {"hostname", "pid", "queues", "pool", "labels", "concurrency", "version", "started_at"}
    if not any(data.get(name) is not None for name in names):
        return None
    return Registration(
        hostname=fields.text(data, "hostname"),
        pid=fields.integer(data, "pid"),
        queues=fields.texts(data, "queues", _MAX_NAMES),
        pool=None if data.get("pool") is None else fields.text(data, "pool", scheduling.MAX_NAME),
        labels=fields.texts(data, "labels", _MAX_NAMES),
        concurrency=fields.integer(data, "concurrency"),
        version=fields.text(data, "version", 64),
        started_at=fields.timestamp(data, "started_at"),
    )
