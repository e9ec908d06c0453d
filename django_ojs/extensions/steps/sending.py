"""Send signals to the jobs that wait for them, now or later."""

from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.extensions.steps import store
from django_ojs.extensions.steps.models import MAX_NAME, Step, StepSignal, StepStatus
from django_ojs.models import Job
from django_ojs.spec import json
from django_ojs.spec.envelope import check_bytes
from django_ojs.spec.errors import InvalidRequest, PayloadTooLarge
from django_ojs.spec.states import State, Trigger
from django_ojs.storage import database, notify, transitions


def signal(name: str, key: str, payload: json.JSON = None) -> None:
    """Send a signal, in the current transaction: it commits with the caller's rows.

    Each job that waits for it (`steps.wait`) gets it once. So does a job that waits later, until
    the signal is pruned. `payload` is any JSON value. Raises InvalidRequest and PayloadTooLarge.
    """
    for field, value in (("name", name), ("key", key)):
        if not is_name(value):
            raise InvalidRequest.of(field, f"must be a text of 1 to {MAX_NAME} characters")
    values = settings()
    json.check(payload, "payload", exact_integers=values.exact_integers, error=InvalidRequest)
    check_bytes(payload, values.max_result_bytes, "payload", PayloadTooLarge)
    _send(name, key, json.dumps(payload))


async def asignal(name: str, key: str, payload: json.JSON = None) -> None:
    """Send a signal; see `signal`."""
    await sync_to_async(signal)(name, key, payload)


def is_name(value: object) -> bool:
    """Whether a value may be the name or the key of a signal."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and "\0" not in value


@database.write_transaction
def _send(name: str, key: str, payload: str) -> None:
    store.lock_signal(name, key)
    StepSignal.primary.create(name=name, key=key, payload=payload, sent_at=Now())
    waiting = Step.primary.filter(signal=name, key=key, outcome=StepStatus.WAITING)
    wake(set(waiting.values_list("job_id", flat=True)))


def wake(keys: set[UUID]) -> None:
    """Make jobs available if they are scheduled, in the caller's transaction."""
    if not keys:
        return
    # A job that runs, or is about to, looks for its signal itself.
    asleep = Job.primary.filter(pk__in=keys, state=State.SCHEDULED).only("pk", "queue")
    held = transitions.lock_all(asleep)
    states = {job.pk: State.SCHEDULED for job in held}
    # The due time is set too, so that the row is the same as after a timer.
    transitions.apply(Trigger.TIMER, State.AVAILABLE, states, due_at=Now(), enqueued_at=Now())
    notify.workers_of({job.queue for job in held})
