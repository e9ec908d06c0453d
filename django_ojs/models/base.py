"""The base of the models, and the manager that reads the database which holds the jobs."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self, TypeVar

from django.apps import apps
from django.db import connections, models

from django_ojs.storage import database

M = TypeVar("M", bound=models.Model)


class PrimaryQuerySet(models.QuerySet[M]):
    """Rows whose locks and upserts use the options that the database supports."""

    def select_for_update(
        self,
        nowait: bool = False,
        skip_locked: bool = False,
        of: Sequence[str] = (),
        no_key: bool = False,
    ) -> Self:
        """Lock the rows.

        If the database has no weaker lock, or cannot lock only one table, take a stronger lock.
        """
        features = connections[self.db].features
        if features.has_select_for_update:
            no_key = no_key and features.has_select_for_no_key_update
            of = of if features.has_select_for_update_of else ()
        return super().select_for_update(nowait, skip_locked, of, no_key)

    def bulk_create(self, objs: Iterable[M], *args: Any, **kwargs: Any) -> list[M]:
        """Insert rows. An upsert of MariaDB cannot name the key that decides."""
        if not connections[self.db].features.supports_update_conflicts_with_target:
            kwargs.pop("unique_fields", None)
        return super().bulk_create(objs, *args, **kwargs)


class PrimaryManager(models.Manager[M]):
    """Rows on the alias that holds the jobs, never on a replica that a router names for reading.

    Every operation reads what it is about to change, and a replica may be behind.
    """

    def get_queryset(self) -> models.QuerySet[M]:
        """Return all rows, on the alias that holds the jobs."""
        return PrimaryQuerySet(self.model, using=database.alias())


class StoredModel(models.Model):
    """A table of this package: `objects` follows the routers, `primary` does not."""

    objects: ClassVar[models.Manager[Self]] = models.Manager()
    primary: ClassVar[PrimaryManager[Self]] = PrimaryManager()

    class Meta:
        abstract = True


def stored_models() -> list[type[StoredModel]]:
    """Return the models of this package, and of its extensions that are installed."""
    return [model for model in apps.get_models() if issubclass(model, StoredModel)]


def model_named(name: str) -> type[StoredModel] | None:
    """Return the model of this name, of any installed app, or None."""
    return next((model for model in stored_models() if model._meta.model_name == name), None)
