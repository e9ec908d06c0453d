"""Delete old signals."""

from django.db.models.functions import Now

from django_ojs.conf import of
from django_ojs.extensions.steps.models import StepSignal
from django_ojs.extensions.steps.settings import StepsSettings
from django_ojs.storage import database


def prune_signals() -> int:
    """Delete a batch of old signals. A step keeps the payload that it has received."""
    old = StepSignal.primary.filter(sent_at__lt=Now() - of(StepsSettings).keep_signals)
    return database.delete_free(old.order_by("sent_at"))
