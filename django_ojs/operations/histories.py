"""The histories of jobs (ojs-execution-history): how their runs ended."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final
from uuid import UUID

from django_ojs.extension import Count
from django_ojs.hooks import count
from django_ojs.models import Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.spec import json
from django_ojs.storage import database, in_memory_state

logger = logging.getLogger("django_ojs.worker")

#: Seconds between warnings that histories cannot be stored.
LOG_EVERY: Final = 60.0


def record(
    keys: Collection[UUID],
    outcome: AttemptOutcome,
    error: dict[str, object] | None,
    delay: timedelta | None = None,
    *,
    is_known: Callable[[], bool] | None = None,
) -> None:
    """Store that the runs of these jobs ended.

    The caller has locked the jobs, and changes them next. `is_known` returns whether the histories
    have the runs already. If a history cannot be stored, the transaction begins again without it,
    because the outcome of a run is more important (ojs-execution-history §9.5).
    """
    if not keys:
        return

    def add_runs() -> None:
        if is_known is not None and is_known():
            return
        delay_us = None if delay is None else delay // timedelta(microseconds=1)
        run = {"outcome": outcome.value, "error": error, "delay_us": delay_us}
        link = database.connection()
        rows = json.dumps([{"id": str(key), **run} for key in keys])
        database.dialect_of(link).end_runs(link, "add_attempts", rows)

    add(keys, add_runs)


def add(keys: Collection[UUID], statement: Callable[[], None]) -> None:
    """Execute a statement that adds to the histories of these jobs. It may fail (see `record`)."""
    try:
        stored = database.run_optional(statement)
    except database.OptionalError as failed:
        _failures.log(failed)
        raise
    if not stored:
        missed = Counter(Job.primary.filter(pk__in=keys).values_list("queue", "type"))
        database.after_commit(lambda: count(Count.HISTORY_FAILURES, missed))


class _HistoryFailures:
    """Logs that histories cannot be stored, once a minute at most."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Log the next failure."""
        self._logged_at = -math.inf

    def log(self, error: database.OptionalError) -> None:
        """Log the class of the error only, because its text may contain values."""
        now = time.monotonic()
        if now - self._logged_at < LOG_EVERY:
            return
        self._logged_at = now
        logger.warning(
            "The histories of jobs lack runs that could not be stored (%s). The jobs go on. Check "
            "the table ojs_attempt.",
            type(error.__cause__).__name__,
        )


_failures: Final = in_memory_state.register(_HistoryFailures())
