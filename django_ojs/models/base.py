"""The database that holds the jobs, and the base of the models that are stored there."""

from typing import ClassVar, Self, TypeVar

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, models, router

M = TypeVar("M", bound=models.Model)


def primary_alias() -> str:
    """Return the alias that the routers name for writing a Job."""
    # Called ten times per enqueue; most sites have no router.
    if not router.routers:
        return DEFAULT_DB_ALIAS
    return router.db_for_write(apps.get_model("django_ojs", "Job"))


class PrimaryManager(models.Manager[M]):
    """Rows on the alias that holds the jobs, never on a replica that a router names for reading.

    Every operation reads what it is about to change, so a replica would be too old.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        """Return all rows, on the alias that holds the jobs."""
        return super().get_queryset().using(primary_alias())


class StoredModel(models.Model):
    """A table of this package: `objects` follows the routers, `primary` never reads a replica."""

    objects: ClassVar[models.Manager[Self]] = models.Manager()
    primary: ClassVar[PrimaryManager[Self]] = PrimaryManager()

    class Meta:
        abstract = True
