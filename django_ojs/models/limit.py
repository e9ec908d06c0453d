"""When jobs of a limited queue started, as far as its rates need it."""

from django.db import models

from django_ojs.models.base import StoredModel
from django_ojs.models.fields import StoredJSONField


class LimitedQueue(StoredModel):
    """The starts of a queue with a rate (see `spec.rate_limit.Starts`)."""

    queue = models.CharField(primary_key=True, max_length=255)
    starts = StoredJSONField(default=dict)

    class Meta:
        db_table = "ojs_limited_queue"
        default_permissions = ()

    def __str__(self) -> str:
        return self.queue
