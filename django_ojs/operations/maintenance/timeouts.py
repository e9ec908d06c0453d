"""Timeouts of jobs whose worker does not enforce them (ojs-core §5.2, ojs-timeouts §5.2)."""

import math
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from django.db.models import BigIntegerField, Exists, F, OuterRef, Q, Value
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Now

from django_ojs.conf import settings
from django_ojs.models import Job, Worker
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations import worker_activity
from django_ojs.operations.fail import fail
from django_ojs.spec.errors import Conflict, JobNotFound, RowLocked
from django_ojs.spec.states import State
from django_ojs.spec.timeouts import failure_of
from django_ojs.storage import raw_queries, transitions
from django_ojs.storage.dialects.expressions import Milliseconds
from django_ojs.storage.transitions import Claim

#: A worker of django_ojs enforces the timeouts of its jobs, with a traceback. Maintenance fails
#: such a job only this long after its timeout, if the worker is silent.
TIMEOUT_GRACE = timedelta(seconds=5)

#: The same for jobs of any other worker, whose own report may be on its way.
REMOTE_TIMEOUT_GRACE = timedelta(milliseconds=250)

#: The most jobs that one step fails, each in its own transaction.
BATCH = 100

#: Seconds that a step of maintenance takes, so that it does not delay the others.
STEP: Final = 0.25

_READ: Final = ("run", "options", "timeout_ms", "created_at", "started_at", "expires_at")


def active_condition() -> str:
    """Return the SQL condition that a job is active."""
    return raw_queries.condition(Job, f"state = '{State.ACTIVE.value}'")


def enforce_for_a_moment() -> int:
    """Enforce timeouts for a moment, as a step of maintenance.

    Return how many jobs failed; at least `BATCH` when there may be more. If the database could not
    store anything for a while, nothing is enforced until workers have stored their outcomes.
    """
    return enforce(seconds=STEP, when=worker_activity.may_judge)


def enforce(
    limit: int = BATCH, *, seconds: float = math.inf, when: Callable[[], bool] | None = None
) -> int:
    """Fail active jobs whose worker did not enforce their timeout. Return how many.

    It stops after `seconds`, and then returns at least `limit`. `when` is called only if there are
    such jobs, and none of them fails if it returns False.
    """
    until = time.monotonic() + seconds
    if not raw_queries.holds(active_condition()):
        return 0
    default = int(settings().default_timeout / timedelta(milliseconds=1))
    timeout = Milliseconds(Coalesce(F("timeout_ms"), Value(default)))
    enforcing = Worker.primary.filter(pk=OuterRef("worker_id"), enforces_timeouts=True)
    enforced = Exists(enforcing)
    # A worker that sends heartbeats stops its runs by its own clock. The clock of the database may
    # have been moved forward, and then these runs are not late.
    silence = Milliseconds(F("dead_after_ms"))
    total = Milliseconds(
        Cast(KeyTextTransform("total_timeout", "options"), BigIntegerField()) * Value(1000)
    )
    # `expires_at` is checked first, so that the JSON of jobs without a deadline is not read.
    ends = Q(expires_at__lte=Now())
    late = Job.primary.filter(
        ~Exists(enforcing.filter(seen_at__gt=Now() - silence)),
        ~enforced
        | Q(started_at__lte=Now() - timeout - TIMEOUT_GRACE)
        | (ends & Q(created_at__lte=Now() - total - TIMEOUT_GRACE)),
        Q(started_at__lte=Now() - timeout - REMOTE_TIMEOUT_GRACE)
        | (ends & Q(created_at__lte=Now() - total - REMOTE_TIMEOUT_GRACE)),
        state=State.ACTIVE,
    )
    failed = 0
    found = list(late.only(*_READ)[:limit])
    if found and when is not None and not when():
        return 0
    for job in found:
        failure = failure_of(job, settings().default_timeout)
        try:
            fail(job.pk, failure, claim=Claim(run=job.run), outcome=AttemptOutcome.TIMEOUT)
        except (Conflict, JobNotFound):
            continue  # It ended in the meantime.
        except RowLocked:
            continue  # The next step tries it again.
        except Exception as error:
            transitions.leave_out(error)
            continue
        failed += 1
        if time.monotonic() >= until:
            return max(failed, limit)
    return failed
