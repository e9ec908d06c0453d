"""Which model has which pages, and how a site gets them."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import models

from django_ojs.admin.api_keys import ApiKeyAdmin
from django_ojs.admin.base import Pages
from django_ojs.admin.bulk_operations import BulkOperationPages
from django_ojs.admin.dead_letters import DeadLetterPages
from django_ojs.admin.events import EventPages
from django_ojs.admin.jobs import JobPages
from django_ojs.admin.outbox import OutboxEntryAdmin
from django_ojs.admin.overview import OverviewPages
from django_ojs.admin.queues import QueuePages
from django_ojs.admin.workers import WorkerPages
from django_ojs.models import (
    ApiKey,
    BulkOperation,
    DeadLetter,
    Event,
    Job,
    OutboxEntry,
    Overview,
    Queue,
    Worker,
)

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin

PAGES: dict[type[models.Model], type[Pages]] = {
    Overview: OverviewPages,
    Queue: QueuePages,
    Job: JobPages,
    DeadLetter: DeadLetterPages,
    BulkOperation: BulkOperationPages,
    Worker: WorkerPages,
    Event: EventPages,
}

#: Plain tables and forms of Django's.
FORMS: dict[type[models.Model], type[_Admin]] = {
    ApiKey: ApiKeyAdmin,
    OutboxEntry: OutboxEntryAdmin,
}


def register(site: admin.AdminSite = admin.site, base: type[_Admin] = admin.ModelAdmin) -> None:
    """Put the operator's pages on an admin site, in place of what is there for these models.

    `base` is the ModelAdmin of a theme, such as Unfold's.
    """
    for model, pages in PAGES.items():
        if site.is_registered(model):
            site.unregister(model)
        site.register(model, type(f"{model.__name__}Admin", (pages, base), {}))
    for model, form in FORMS.items():
        if not site.is_registered(model):
            site.register(model, form)


__all__ = ["PAGES", "register"]
