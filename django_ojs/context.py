"""The context of a run, as its handler and its middleware get it (ojs-middleware §4.4)."""

import logging
import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured

from django_ojs.async_twins import has_twin
from django_ojs.not_installed import line_to_add
from django_ojs.spec.errors import Conflict, InvalidRequest, JobNotFound, OJSError
from django_ojs.spec.json import JSON
from django_ojs.spec.progress import Report
from django_ojs.spec.times import parse_seconds
from django_ojs.storage.claimed_job import Claimed, running

logger = logging.getLogger("django_ojs.job")

#: Seconds between two writes; reports in between are merged, so that a loop may report each round.
REPORT_EVERY = 1.0

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

_UNSET: Any = object()


class JobContext:
    """The run of one job.

    A handler gets it as its first argument when that is annotated `JobContext`.
    """

    def __init__(
        self,
        job: Claimed,
        *,
        is_async: bool = False,
        heartbeat: Callable[[Claimed, timedelta | None], bool] | None = None,
        report: Callable[[Claimed, Report], bool] | None = None,
        extensions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._job = job
        self._is_async = is_async
        self._metadata: dict[str, Any] | None = None
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._heartbeat = heartbeat
        self._report = report
        self._extensions = extensions
        self._unsent: dict[str, Any] | None = None
        self._sent_at: float | None = None
        self._cancelled = False
        self._result: Any = _UNSET
        self._args: list[Any] | None = None

    if not TYPE_CHECKING:  # A type checker would otherwise accept every name.

        def __getattr__(self, name: str) -> Any:
            from django_ojs.spec.other_queues import no_attribute  # which only an error needs

            raise no_attribute(name, "context", "The context of a job")

    # These are properties and not attributes, so that `Mock(spec=JobContext)` has them.
    @property
    def job(self) -> Claimed:
        """The claimed job."""
        return self._job

    @property
    def is_async(self) -> bool:
        """Whether the handler is an `async def`."""
        return self._is_async

    @property
    def metadata(self) -> dict[str, Any]:
        """Values that middleware and handler share during the run; they are not stored."""
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records have the id, type, queue and attempt of the job."""
        if self._log is None:  # Made on demand: most handlers log nothing.
            job = self.job
            fields = {"job_id": str(job.id), "job_type": job.type, "queue": job.queue}
            self._log = logging.LoggerAdapter(logger, {**fields, "attempt": job.attempt})
        return self._log

    @property
    def args(self) -> list[Any]:
        """The arguments of the handler: the job's, with payload references resolved."""
        return self.job.args if self._args is None else self._args

    def resolved(self, args: list[Any]) -> None:
        """Set the resolved arguments, as the worker does. The job's own do not change."""
        self._args = args

    @property
    def attempt(self) -> int:
        """The number of this claim, from 1 (ojs-core §5.3).

        Claims that were given back count too.
        """
        return self.job.attempt

    @property
    def spent(self) -> int:
        """The number of this attempt among those that count against `max_attempts`, from 1.

        A claim that was given back, such as by a worker that stopped, does not count.
        """
        return self.job.spent

    @property
    def workflow_id(self) -> UUID | None:
        """The workflow that the job is a step of, or None."""
        return self.job.workflow_id

    @property
    def parent_results(self) -> list[JSON]:
        """The results of the steps before it in its workflow, in order (ojs-workflows §7).

        None stands for a missing result, and an object with `result_ref` for one over 64 KiB.
        """
        return self.job.parent_results

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def cancelled(self) -> bool:
        """Whether the result of this run is no longer needed.

        The job was cancelled or timed out, or another worker has it. A long-running handler should
        check this regularly, and return.
        """
        return self._cancelled

    def cancel(self) -> None:
        """Set `cancelled`. The worker calls this."""
        self._cancelled = True

    @has_twin
    def heartbeat(self, extend: timedelta | str | float | None = None) -> bool:
        """Extend the job's lease from now (worker-protocol §5.4).

        It is extended by the visibility timeout of the job, or by `extend`: a timedelta, a number
        of seconds, "PT5M" or "5m". Raises InvalidRequest when that is not longer than zero.

        A worker that is alive does so by itself. Return False when the job is no longer this
        run's; `cancelled` is then set. In an `async def` handler, call `await aheartbeat()`.
        """
        by = None if extend is None else parse_seconds(extend, "extend")
        if by is not None and not by:
            raise InvalidRequest.of("extend", "must be longer than zero")
        held = True if self._heartbeat is None else self._heartbeat(self.job, by)
        if not held:
            self.cancel()
        return held

    async def aheartbeat(self, extend: timedelta | str | float | None = None) -> bool:
        """Extend the job's lease; see `heartbeat`."""
        return await sync_to_async(self.heartbeat)(extend)

    def progress(
        self,
        progress: float | None = None,
        message: str | None = None,
        *,
        data: Mapping[str, JSON] | None = None,
        checkpoint: Mapping[str, JSON] | None = None,
    ) -> bool:
        """Report progress: a fraction from 0 to 1, data, or both (ojs-progress §6).

        `message` becomes the member `message` of the data. Use `checkpoint()` for a checkpoint that
        must not be lost. A report extends the lease too. Reports are merged, and written at most
        once a second and when the run ends. A failure to write one is logged and harms nothing.
        Return False when the job is no longer this run's; `cancelled` is then set. In an
        `async def` handler, call `await aprogress()`.
        """
        if message is not None and (data is None or isinstance(data, Mapping)):
            data = {**(data or {}), "message": message}
        given = {"progress": progress, "data": data, "checkpoint": checkpoint}
        given = {name: value for name, value in given.items() if value is not None}
        self._unsent = {**(self._unsent or {}), **given}
        if self._is_due():
            self.flush()
        return not self.cancelled

    def _is_due(self) -> bool:
        return self._sent_at is None or time.monotonic() - self._sent_at >= REPORT_EVERY

    async def aprogress(
        self,
        progress: float | None = None,
        message: str | None = None,
        *,
        data: Mapping[str, JSON] | None = None,
        checkpoint: Mapping[str, JSON] | None = None,
    ) -> bool:
        """Report progress; see `progress`."""
        if self._is_due():
            return await sync_to_async(self.progress)(
                progress, message, data=data, checkpoint=checkpoint
            )
        return self.progress(progress, message, data=data, checkpoint=checkpoint)

    @has_twin
    def checkpoint(self, state: JSON) -> None:
        """Save where another run of the job can continue (ojs-durable-execution §4).

        `state` is any JSON value of at most 1 MiB. It is stored when this returns; in an open
        transaction, with the commit. The next run gets it as `last_checkpoint`, after a crash, a
        failure or a shutdown; when the job completes, it is deleted. In an `async def` handler,
        call `await acheckpoint(state)`.

        Raises Conflict when the job is no longer this run's; `cancelled` is then set.
        """
        if self._extensions is None:
            return
        if (save := self._extensions.get("checkpoint")) is None:
            raise ImproperlyConfigured(f"ctx.checkpoint is missing. {line_to_add('checkpoints')}")
        try:
            save(self.job, state)
        except (Conflict, JobNotFound):
            self.cancel()
            raise

    async def acheckpoint(self, state: JSON) -> None:
        """Save where another run of the job can continue; see `checkpoint`."""
        await sync_to_async(self.checkpoint)(state)

    @property
    def last_checkpoint(self) -> Any:
        """The state of the last checkpoint that an earlier run of the job saved, or None."""
        return self.job.more.get("last_checkpoint")

    @property
    def has_unsent(self) -> bool:
        """Whether a report waits to be written."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Write the reports that are not written yet. The worker calls this when a run ends."""
        unsent, self._unsent = self._unsent, None
        if not unsent or self.cancelled:
            return
        self._sent_at = time.monotonic()
        is_missing = self._extensions is not None and "checkpoint" not in self._extensions
        if is_missing and unsent.pop("checkpoint", None) is not None:
            hint = line_to_add("checkpoints")
            self.log.warning("The checkpoint of a report was not kept. %s", hint)
        try:
            reported = Report(**unsent)
            if self._report is not None and not self._report(self.job, reported):
                self.cancel()
        except OJSError as error:
            self.log.warning("Progress was not kept: %s", error)
        except Exception as error:
            self.log.warning("Progress was not kept (%s)", type(error).__name__)

    def set_result(self, value: JSON) -> None:
        """Set the job's result; it replaces what the handler returns."""
        self._result = value

    def result(self, returned: Any) -> Any:
        """Return the result to store, given what the handler returned."""
        return returned if self._result is _UNSET else self._result


_current: ContextVar[JobContext | None] = ContextVar("django_ojs_job", default=None)


def current_context() -> JobContext | None:
    """Return the context of the job that is running here, or None outside of one."""
    return _current.get()


def log_fields(context: JobContext) -> dict[str, Any]:
    """Return what the log says about a run: names and ids, and no other values of the job."""
    job = context.job
    fields: dict[str, Any] = {
        "job_id": str(job.id),
        "job_type": job.type,
        "queue": job.queue,
        "attempt": job.attempt,
        "worker_id": job.worker_id,
    }
    request = job.meta.get("correlation_id") or job.meta.get("ojs.context.request_id")
    if isinstance(request, str):
        fields["correlation_id"] = request
    # The span of this run, or else the span of the enqueue.
    trace = context.metadata.get("traceparent") or job.meta.get("traceparent")
    if isinstance(trace, str) and (found := _TRACEPARENT.fullmatch(trace)):
        fields["trace_id"], fields["span_id"] = found[1], found[2]
    return fields


def enter(context: JobContext | None) -> None:
    """Make a context the current one. The worker calls this at the beginning of each run."""
    _current.set(context)
    running.set(None if context is None else context.job)
