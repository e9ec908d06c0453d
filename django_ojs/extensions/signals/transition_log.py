"""Receives the signals, and logs each change of state of a job (ojs-logging §6.1)."""

import logging
from functools import partial
from typing import Any, Final

from django_ojs import signals
from django_ojs.logging import TRANSITIONS, is_worker

#: The level and the message of each change of state (§6.1), by its signal. The last three are the
#: ends of runs: a worker logs those of its own runs itself, with more than a signal knows.
_TRANSITIONS: Final = {
    "job_enqueued": (logging.INFO, "%s %s: enqueued"),
    "job_started": (logging.DEBUG, "%s %s: fetched by a worker"),
    "job_cancelled": (logging.INFO, "%s %s: cancelled"),
    "job_returned": (logging.WARNING, "%s %s: returned, as its claim lapsed or was given back"),
    "job_activated": (logging.INFO, "%s %s: activated"),
    "job_retried": (logging.INFO, "%s %s: retried by hand"),
    "job_completed": (logging.INFO, "%s %s: completed"),
    "job_retrying": (logging.WARNING, "%s %s: failed, it will be retried"),
    "job_discarded": (logging.ERROR, "%s %s: discarded"),
}
_OF_RUNS: Final = frozenset({"job_completed", "job_retrying", "job_discarded"})
_logger = logging.getLogger(TRANSITIONS)


def connect() -> None:
    """Log each change of state from now on, after its commit (§6.1)."""
    for name in _TRANSITIONS:
        receiver = partial(_log_transition, name)
        getattr(signals, name).connect(
            receiver, weak=False, dispatch_uid=f"django_ojs.transition_log.{name}"
        )


def _log_transition(name: str, job: Any, failure: Any = None, **_: Any) -> None:
    if name in _OF_RUNS and is_worker() and (failure or name == "job_completed"):
        return
    level, message = _TRANSITIONS[name]
    if not _logger.isEnabledFor(level):
        return
    fields = {
        "job_id": str(job.pk),
        "job_type": job.type,
        "queue": job.queue,
        "attempt": job.attempt,
        "state": str(job.state),
    }
    correlation = (job.meta or {}).get("correlation_id")
    if isinstance(correlation, str):
        fields["correlation_id"] = correlation
    if failure is not None:
        fields["error"] = failure.type
    _logger.log(level, message, job.type, job.pk, extra=fields)
