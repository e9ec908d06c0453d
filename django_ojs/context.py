"""What a handler may know of its own run, and ask for (ojs-middleware §4.4)."""

import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async

from django_ojs.spec.json import JSON
from django_ojs.storage.claims import Claimed

logger = logging.getLogger("django_ojs.job")

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
    ) -> None:
        self.job = job
        self.is_async = is_async
        self.metadata: dict[str, Any] = {}
        self.log = logging.LoggerAdapter(
            logger,
            {
                "job_id": str(job.id),
                "job_type": job.type,
                "queue": job.queue,
                "attempt": job.attempt,
            },
        )
        self._heartbeat = heartbeat
        self._cancelled = threading.Event()
        self._result: Any = _UNSET

    @property
    def attempt(self) -> int:
        """The attempt this is, from 1."""
        return self.job.attempt

    @property
    def queue(self) -> str:
        """The queue the job came from."""
        return self.job.queue

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this run any more.

        The job was cancelled or timed out, or another worker has it.

        A handler that runs long looks here now and then, and returns.
        """
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Tell the handler that nobody waits for it. The worker calls this."""
        self._cancelled.set()

    def heartbeat(self, extend: timedelta | None = None) -> bool:
        """Extend the job's reservation, from now (worker-protocol §5.4).

        By its visibility timeout, or by `extend`.

        The worker does so on its own while it lives. Return False when the job is no longer this
        run's; `cancelled` is then set. In an `async def` handler, call `await aheartbeat()`.
        """
        held = True if self._heartbeat is None else self._heartbeat(self.job, extend)
        if not held:
            self.cancel()
        return held

    async def aheartbeat(self, extend: timedelta | None = None) -> bool:
        """Extend the job's reservation; see `heartbeat`."""
        return await sync_to_async(self.heartbeat)(extend)

    def set_result(self, value: JSON) -> None:
        """Set the job's result; it goes before what the handler returns."""
        self._result = value

    def result(self, returned: Any) -> Any:
        """Return the result to keep, given what the handler returned."""
        return returned if self._result is _UNSET else self._result


_current: ContextVar[JobContext | None] = ContextVar("django_ojs_job", default=None)


def current_context() -> JobContext | None:
    """Return the context of the job that is running here, or None outside of one."""
    return _current.get()


def enter(context: JobContext | None) -> None:
    """Make a context the current one. The worker calls this round each run."""
    _current.set(context)
