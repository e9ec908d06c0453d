"""Timeouts of jobs whose worker does not enforce them (ojs-core §5.2)."""

from datetime import timedelta

from django.db.models import F, Value
from django.db.models.functions import Coalesce, Now

from django_ojs.conf import settings
from django_ojs.models import Job
from django_ojs.models.attempt import AttemptOutcome
from django_ojs.operations.fail import fail
from django_ojs.spec.errors import Conflict, JobNotFound
from django_ojs.spec.failure import Failure
from django_ojs.spec.states import State
from django_ojs.storage import raw_queries
from django_ojs.storage.dialects.expressions import Milliseconds
from django_ojs.storage.transitions import Claim

#: The worker that runs a job enforces its timeout, with a traceback; maintenance fails the job only
#: after this.
TIMEOUT_GRACE = timedelta(seconds=5)

#: Jobs that one step fails, each in its own transaction.
BATCH = 100


def enforce(limit: int = BATCH) -> int:
    """Fail active jobs whose worker did not enforce their timeout. Return how many."""
    if not raw_queries.exists(Job, f"state = '{State.ACTIVE.value}'"):
        return 0
    default = int(settings().default_timeout / timedelta(milliseconds=1))
    timeout = Milliseconds(Coalesce(F("timeout_ms"), Value(default)))
    late = Job.primary.filter(state=State.ACTIVE, started_at__lte=Now() - timeout - TIMEOUT_GRACE)
    failed = 0
    for key, run in late.values_list("pk", "run")[:limit]:
        try:
            fail(key, timeout_failure(), claim=Claim(run=run), outcome=AttemptOutcome.TIMEOUT)
        except (Conflict, JobNotFound):
            continue  # It ended in the meantime.
        failed += 1
    return failed


def timeout_failure() -> Failure:
    """The error of a job that ran longer than its timeout (ojs-core §5.2)."""
    return Failure(type="timeout", message="The job ran longer than its timeout.")
