"""PUSH, INFO, CANCEL and ACTIVATE (http-binding §9)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from django_ojs.conf import settings
from django_ojs.hooks import failed, registry
from django_ojs.http import fields
from django_ojs.http.access import Access
from django_ojs.http.manifest import MAX_BATCH
from django_ojs.http.responses import json_response, text_response
from django_ojs.http.views.base import OJSView
from django_ojs.models import Job
from django_ojs.operations.activate import activate
from django_ojs.operations.cancel import cancel
from django_ojs.operations.enqueue import parents
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome, alike
from django_ojs.operations.info import info
from django_ojs.operations.push import PushOptions, push, push_batch
from django_ojs.spec import envelope, ids
from django_ojs.spec.envelope import Envelope, Limits, distinct
from django_ojs.spec.errors import (
    InvalidRequest,
    JobNotFound,
    OJSError,
    PayloadTooLarge,
    PermissionDenied,
)
from django_ojs.spec.full_policy import LOCAL
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, transitions
from django_ojs.storage.transitions import Claim

#: The options of most requests, made once: one job, without an id.
_PLAIN: Final = PushOptions(generated_ids=True, checks_bound=True, has_transaction=False)


def job_id(text: str, resource: str = "job") -> UUID:
    """Return the id in a path. Raises JobNotFound for text that is no id."""
    try:
        return ids.parse_id(text)
    except InvalidRequest:
        # The response repeats the text as `resource_id` only if it is a plain name.
        details = {"resource_type": resource}
        raise JobNotFound("There is no job with this id.", details=details) from None


def shown_to(access: Access, job: Job, shown: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a job that was stored before, as far as the caller may read it.

    A producer or a worker also needs the scope `read`, because the job may be another caller's.
    """
    return shown if access.may_read(job.queues) else envelope.outline(shown)


class JobView(OJSView):
    def check_queue_of(self, key: UUID) -> None:
        """Reject a caller that may not use all queues of the job: where it is, and where it ran.

        For a caller that may use all queues, this takes no query. Raises PermissionDenied,
        JobNotFound.
        """
        if self.access.queues is not None:
            for queue in transitions.get(key).queues:
                self.access.check_queue(queue)

    def claim_in(self, data: Mapping[str, Any]) -> Claim:
        """Return the claim that a worker names. What it leaves out is not checked."""
        return Claim(
            worker_id=fields.string(data, "worker_id"),
            attempt=fields.integer(data, "attempt"),
            run=fields.integer(data, "run"),
        )

    def info(self, key: UUID) -> Job:
        """INFO: return a job if the caller may use its queue, or the queue where it ran."""
        job = info(key)
        self.access.check_any_queue(job.queues)
        return job

    def cancel(self, key: UUID) -> tuple[Job, State]:
        """CANCEL a job, and return it with its previous state.

        Over HTTP, a cancelled job is a conflict, as is a job in another terminal state.
        """
        self.check_queue_of(key)
        job, before = cancel(key)
        if before is State.CANCELLED:
            transitions.reject(Trigger.CANCEL, State.CANCELLED, job)
        return job, before


class Jobs(OJSView):
    """PUSH (ojs-core §7.1)."""

    needs = {"POST": Scope.PRODUCER}

    def post(self, request: HttpRequest) -> HttpResponse:
        data = self.body()
        wanted = _read(data, _limits(self))
        check_access(wanted, self.access)
        self.make_known(queues=[wanted.queue], types=[wanted.type])
        parents.find_roots([wanted], self.access.queues)
        options = _options(request, [wanted.type], generated_ids=data.get("id") is None)
        job = push(wanted, options)
        if job.outcome is Outcome.DROPPED:  # It is no error (ojs-middleware §3.4).
            return json_response({"job": None, "dropped": True})
        body: dict[str, Any] = {"job": _rendered(job, self.access)}
        headers = _warning([job])
        if job.outcome is Outcome.DUPLICATE:
            return json_response({**body, "deduplicated": True}, 200, headers)
        if job.outcome is Outcome.STORED:
            headers["Location"] = f"{request.path}/{job.id}"
        return json_response(body, 201, headers)


class JobBatch(OJSView):
    """PUSH of many jobs, all or none."""

    needs = {"POST": Scope.PRODUCER}

    def post(self, request: HttpRequest) -> HttpResponse:
        """Store the jobs in order."""
        items = fields.required(self.body(), "jobs")
        if not isinstance(items, list) or not items:
            raise InvalidRequest.of("jobs", "must be an array of at least one job")
        if len(items) > MAX_BATCH:
            raise PayloadTooLarge(
                f"jobs must have at most {MAX_BATCH} jobs",
                details={"field": "jobs", "max_batch_size": MAX_BATCH},
                hint=f"Send them in several requests of at most {MAX_BATCH} jobs.",
            )
        limits = _limits(self)
        wanted = self._read_all(items, limits)
        first = distinct(wanted)
        self.make_known(queues=[each.queue for each in first], types=[each.type for each in first])
        parents.find_roots(first, self.access.queues)
        options = _options(
            request,
            [each.type for each in first],
            generated_ids=all(item.get("id") is None for item in items),
            batch=True,
        )
        results = push_batch(wanted, options)
        if (rows := alike(results)) is not None:
            text = f'{{"jobs":[{",".join(rows.texts())}],"count":{len(rows)}}}'
            return text_response(text, 201, _warning(results[:1]))
        jobs = [
            None if job.outcome is Outcome.DROPPED else _rendered(job, self.access)
            for job in results
        ]
        body = {"jobs": jobs, "count": len(jobs) - jobs.count(None)}
        return json_response(body, 201, _warning(results))

    def _read_all(self, items: list[Any], limits: Limits | None) -> Sequence[Envelope]:
        """Read the jobs of a body, and check that the caller may enqueue them."""
        found = envelope.parse_alike(items, default_retry=settings().default_retry, limits=limits)
        if found is not None:
            with _index(0):
                check_access(found.common, self.access)
            return found
        wanted = []
        for index, item in enumerate(items):
            with _index(index):
                wanted.append(_read(item, limits))
                check_access(wanted[-1], self.access)
        return wanted


class JobDetail(JobView):
    """INFO (ojs-core §7.7) and CANCEL (§7.6)."""

    needs = {"GET": Scope.READ, "DELETE": Scope.OPERATOR}

    def get(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return {"job": self.info(job_id(key)).envelope()}

    def delete(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return _cancelled(*self.cancel(job_id(key)))


class JobCancel(JobView):
    """CANCEL under the path that some clients use."""

    needs = {"POST": Scope.OPERATOR}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        return _cancelled(*self.cancel(job_id(key)))


class JobActivate(JobView):
    """ACTIVATE (http-binding §7.8)."""

    needs = {"POST": Scope.PRODUCER}

    def post(self, request: HttpRequest, key: str) -> dict[str, Any]:
        self.check_queue_of(job_id(key))
        job = activate(job_id(key))
        shown = shown_to(self.access, job, envelope.render(job))
        return {"job": {**shown, "previous_state": "pending"}}


def _options(
    request: HttpRequest, types: Collection[str], *, generated_ids: bool, batch: bool = False
) -> PushOptions:
    """Return how a request pushes jobs of these types. Raises InvalidRequest."""
    notes = []
    for hook in registry.request_note:
        if (note := hook(request, types)) is not None:
            notes.append(note)
    if generated_ids and not batch and not notes:
        return _PLAIN
    return replace(_PLAIN, notes=tuple(notes), generated_ids=generated_ids, batch=batch)


@contextmanager
def _index(index: int) -> Iterator[None]:
    """Name the index of the job in the details of an error."""
    try:
        yield
    except OJSError as error:
        raise error.with_details(index=index) from None


def _cancelled(job: Job, before: State) -> dict[str, Any]:
    return {"job": {**job.envelope(), "previous_state": before.value}}


def _rendered(job: EnqueuedJob, access: Access) -> dict[str, Any]:
    """Return the JSON object of a new job, or of the stored job that it duplicates."""
    if job.outcome is Outcome.DUPLICATE and isinstance(job.row, Job):
        return shown_to(access, job.row, job.render())
    return job.render()


def _warning(results: Iterable[EnqueuedJob]) -> dict[str, str]:
    """Return the headers about the queues of this site that the jobs enter."""
    queues: set[str] = set()
    headers: dict[str, str] = {}
    for job in results:
        if job.outcome is not Outcome.DROPPED and job.destination in (None, LOCAL):
            queues.add(job.queue)
    for name, hook in registry.push_headers:
        try:
            headers.update(hook(queues))
        except Exception as error:
            if database.connection().in_atomic_block:
                raise  # The transaction of the request ends by a rollback, and stores no job.
            # The jobs are stored, and a client that gets an error would send them again.
            failed(name, "has no headers for a response", error)
    return headers


def check_access(wanted: Envelope, access: Access) -> None:
    """Reject a job that the caller may not enqueue, or that may affect jobs of other queues.

    Without the queue among its keys, a unique policy finds and replaces the jobs of every queue.
    """
    queue: object = wanted.queue
    if not isinstance(queue, str):
        return  # PUSH rejects it, by the rules of the envelope.
    access.check_queue(wanted.queue)
    access.check_producer(wanted.queue)
    policy = wanted.unique
    if access.queues is not None and policy is not None and "queue" not in policy.keys:
        raise PermissionDenied.of(
            "unique.keys", "must have queue: these credentials are for some queues only."
        )
    if access.queues is None:
        return
    for known in registry.attributes:
        value = getattr(wanted, known.name, None) or wanted.extra.get(known.name)
        if known.beyond_queue is not None and value is not None:
            member = known.beyond_queue(value, wanted.queue)
            if member is not None:
                rule = "must be left out: these credentials are for some queues only."
                raise PermissionDenied.of(member, rule)


def _read(data: Any, limits: Limits | None) -> Envelope:
    return envelope.parse(data, default_retry=settings().default_retry, limits=limits)


def _limits(view: OJSView) -> Limits | None:
    """Return the limits of the jobs; None if the body is so small that each job is within them."""
    limits = settings().limits
    return None if view.body_fits(limits.envelope_bytes) else limits
