"""Delete old signals."""

from datetime import timedelta
from typing import Final

from django.db.models.functions import Now

from django_ojs.extensions.steps.models import StepSignal
from django_ojs.storage import database
from django_ojs.storage.database import BATCH

#: How long a signal is kept for jobs that wait for it later.
KEPT: Final = timedelta(days=30)


@database.retry_contention
def prune_signals() -> int:
    """Delete a batch of signals that are old. What a job has received is in its steps."""
    old = StepSignal.primary.filter(sent_at__lt=Now() - KEPT).order_by("sent_at")
    keys = list(old.values_list("pk", flat=True)[:BATCH])
    StepSignal.primary.filter(pk__in=keys).delete()
    return len(keys)
