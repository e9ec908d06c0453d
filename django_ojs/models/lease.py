"""Who does the work that one worker does for all."""

from django.db import models

from django_ojs.models.base import StoredModel


class Lease(StoredModel):
    """A task and the worker that has it for now.

    It ends by itself, so a dead holder stops nobody for long.
    """

    name = models.CharField(primary_key=True, max_length=64)
    holder = models.CharField(max_length=255)
    until = models.DateTimeField()

    class Meta:
        db_table = "ojs_lease"

    def __str__(self) -> str:
        return self.name
