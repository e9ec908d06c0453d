"""The base of the models, and the manager that reads the database which holds the jobs."""

from typing import ClassVar, Self, TypeVar

from django.db import models

from django_ojs.storage import database

M = TypeVar("M", bound=models.Model)


class PrimaryManager(models.Manager[M]):
    """Rows on the alias that holds the jobs, never on a replica that a router names for reading.

    Every operation reads what it is about to change, so a replica would be too old. Only within
    `storage.replica.read`, where nothing is changed, the rows are those of READ_DATABASE.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        """Return all rows, on the alias that holds the jobs."""
        return super().get_queryset().using(database.alias())


class StoredModel(models.Model):
    """A table of this package: `objects` follows the routers, `primary` does not."""

    objects: ClassVar[models.Manager[Self]] = models.Manager()
    primary: ClassVar[PrimaryManager[Self]] = PrimaryManager()

    class Meta:
        abstract = True
