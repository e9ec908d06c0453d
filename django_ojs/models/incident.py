"""The incidents: findings of something wrong that lasts, or ended lately."""

from django.db import models

from django_ojs.models.base import StoredModel


class Incident(StoredModel):
    """A finding, and since when it lasts. Any process that looks for findings writes it."""

    #: What stays the same while it lasts (`Finding.identity`).
    identity = models.CharField(primary_key=True, max_length=600)
    severity = models.CharField(max_length=16)
    text = models.TextField()
    #: What probably caused it (`Finding.cause`), as far as was known when it began.
    cause = models.TextField(blank=True)
    #: The queue and the type that it is about, if it is about one.
    queue = models.CharField(max_length=255, blank=True)
    type = models.CharField(max_length=255, blank=True)
    jobs = models.PositiveBigIntegerField(default=0)
    since = models.DateTimeField()
    updated_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "ojs_incident"
        default_permissions = ()

    def __str__(self) -> str:
        return self.identity
