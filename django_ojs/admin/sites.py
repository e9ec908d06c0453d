"""The ModelAdmin of each model, and their registration on an admin site."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin
from django.db import models

from django_ojs.admin.api_keys import ApiKeyAdmin
from django_ojs.admin.bulk_operations import BulkOperationAdmin
from django_ojs.admin.dead_letters import DeadLetterAdmin
from django_ojs.admin.jobs import JobAdmin
from django_ojs.admin.overview import OverviewAdmin
from django_ojs.admin.queues import QueueAdmin
from django_ojs.admin.workers import WorkerAdmin
from django_ojs.hooks import registry
from django_ojs.models import ApiKey, BulkOperation, DeadLetterJob, Job, Overview, Queue, Worker

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin

#: The core's pages, beside those of extensions. Some are mixins, built on a theme's ModelAdmin.
_CORE: Final[dict[type[models.Model], type[Any]]] = {
    Overview: OverviewAdmin,
    Queue: QueueAdmin,
    Job: JobAdmin,
    DeadLetterJob: DeadLetterAdmin,
    BulkOperation: BulkOperationAdmin,
    Worker: WorkerAdmin,
    ApiKey: ApiKeyAdmin,
}


def register(site: admin.AdminSite = admin.site, base: type[_Admin] = admin.ModelAdmin) -> None:
    """Register the operator's pages on an admin site; a second call replaces the first.

    `base` is the ModelAdmin of a theme, such as Unfold's.
    """

    def add(pages: Iterable[tuple[type[models.Model], type[Any]]]) -> None:
        for model, page in pages:
            if site.is_registered(model):
                if not isinstance(site.get_model_admin(model), page):
                    continue  # That of the project.
                site.unregister(model)
            site.register(model, type(f"{model.__name__}Admin", (page, base), {}))

    add(_CORE.items())
    registry.for_each(lambda extension: add(extension.pages(site)))
