"""Timeouts of jobs whose worker does not enforce them (ojs-core §5.2)."""

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import Coalesce, Now

from django_ojs.conf import settings
from django_ojs.models import Job, Worker
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import liveness
from django_ojs.operations.fail import fail
from django_ojs.spec.errors import Conflict, JobNotFound, RowLocked
from django_ojs.spec.failure import Failure
from django_ojs.spec.states import State
from django_ojs.storage import raw_queries
from django_ojs.storage.dialects.expressions import Milliseconds
from django_ojs.storage.transitions import Claim

#: A worker of django_ojs enforces the timeouts of its jobs, with a traceback. Maintenance fails
#: such a job only after this, when the worker is silent.
TIMEOUT_GRACE = timedelta(seconds=5)

#: The same for any other worker, whose own report may be on its way.
REMOTE_TIMEOUT_GRACE = timedelta(milliseconds=250)

#: Jobs that one step fails, each in its own transaction.
BATCH = 100

#: Seconds that a step of maintenance takes, so that it does not delay the others.
STEP: Final = 0.25


def active_condition() -> str:
    """Whether any job is active, in SQL."""
    return raw_queries.condition(Job, f"state = '{State.ACTIVE.value}'")


def enforce_for_a_moment() -> int:
    """Do it as a step of maintenance. Return how many; at least `BATCH` when there may be more.

    After the database stored nothing for a while, the outcomes of the workers come first.
    """
    return enforce(seconds=STEP, when=liveness.may_judge)


def enforce(
    limit: int = BATCH, *, seconds: float = math.inf, when: Callable[[], bool] | None = None
) -> int:
    """Fail active jobs whose worker did not enforce their timeout. Return how many.

    Stop after so many seconds, and return at least `limit` then. `when` is asked where there are
    such jobs.
    """
    until = time.monotonic() + seconds
    if not raw_queries.holds(active_condition()):
        return 0
    default = int(settings().default_timeout / timedelta(milliseconds=1))
    timeout = Milliseconds(Coalesce(F("timeout_ms"), Value(default)))
    enforcing = Worker.primary.filter(pk=OuterRef("worker_id"), enforces_timeouts=True)
    enforced = Exists(enforcing)
    # While it sends heartbeats it stops its runs by a clock of its own: that of the database may
    # have been set on, and then they are not late.
    silence = Milliseconds(F("dead_after_ms"))
    late = Job.primary.filter(
        ~Exists(enforcing.filter(seen_at__gt=Now() - silence)),
        Q(started_at__lte=Now() - timeout - TIMEOUT_GRACE) | ~enforced,
        state=State.ACTIVE,
        started_at__lte=Now() - timeout - REMOTE_TIMEOUT_GRACE,
    )
    failed = 0
    found = list(late.values_list("pk", "run")[:limit])
    if found and when is not None and not when():
        return 0
    for key, run in found:
        try:
            fail(key, timeout_failure(), claim=Claim(run=run), outcome=AttemptOutcome.TIMEOUT)
        except (Conflict, JobNotFound):
            continue  # It ended in the meantime.
        except RowLocked:
            continue  # The next step tries it again.
        failed += 1
        if time.monotonic() >= until:
            return max(failed, limit)
    return failed


def timeout_failure() -> Failure:
    """The error of a job that ran longer than its timeout (ojs-core §5.2)."""
    return Failure(type="timeout", message="The job ran longer than its timeout.")
