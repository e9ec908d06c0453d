"""Leases on tasks that one process does for all."""

from typing import Final

from django.db import models

from django_ojs.models.base import StoredModel


class Lease(StoredModel):
    """A task and the process that holds it at present.

    A lease expires, so a dead holder delays the task only briefly.
    """

    #: The lease of the worker that does the maintenance for all.
    MAINTENANCE: Final = "maintenance"

    name = models.CharField(primary_key=True, max_length=64)
    holder = models.CharField(max_length=255)
    until = models.DateTimeField()

    class Meta:
        db_table = "ojs_lease"
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
