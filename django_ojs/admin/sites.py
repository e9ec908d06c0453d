"""The ModelAdmin of each model, and their registration on an admin site."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import models

from django_ojs.admin.api_keys import ApiKeyAdmin
from django_ojs.admin.audit import AuditEntryAdmin
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.bulk_operations import BulkOperationAdmin
from django_ojs.admin.cron_jobs import CronJobAdmin
from django_ojs.admin.dead_letters import DeadLetterAdmin
from django_ojs.admin.events import EventAdmin
from django_ojs.admin.jobs import JobAdmin
from django_ojs.admin.limit_keys import LimitKeyAdmin
from django_ojs.admin.outbox import OutboxEntryAdmin
from django_ojs.admin.overview import OverviewAdmin
from django_ojs.admin.queues import QueueAdmin
from django_ojs.admin.webhooks import WebhookAdmin
from django_ojs.admin.workers import WorkerAdmin
from django_ojs.admin.workflows import WorkflowAdmin
from django_ojs.models import (
    ApiKey,
    BulkOperation,
    CronJob,
    DeadLetterJob,
    Job,
    LimitKey,
    OutboxEntry,
    Overview,
    Queue,
    Webhook,
    Worker,
    Workflow,
)
from django_ojs.models.audit_entry import AuditEntry
from django_ojs.models.event import Event

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
else:
    _Admin = admin.ModelAdmin

#: Built on a theme's ModelAdmin when they are registered.
OPERATOR_ADMINS: dict[type[models.Model], type[OperatorModelAdmin]] = {
    Overview: OverviewAdmin,
    Queue: QueueAdmin,
    Job: JobAdmin,
    DeadLetterJob: DeadLetterAdmin,
    BulkOperation: BulkOperationAdmin,
    CronJob: CronJobAdmin,
    Workflow: WorkflowAdmin,
    Worker: WorkerAdmin,
    Event: EventAdmin,
    AuditEntry: AuditEntryAdmin,
}

#: Django's own lists and forms.
FORM_ADMINS: dict[type[models.Model], type[_Admin]] = {
    ApiKey: ApiKeyAdmin,
    LimitKey: LimitKeyAdmin,
    OutboxEntry: OutboxEntryAdmin,
    Webhook: WebhookAdmin,
}


def register(site: admin.AdminSite = admin.site, base: type[_Admin] = admin.ModelAdmin) -> None:
    """Register the operator's pages on an admin site; a second call replaces the first.

    `base` is the ModelAdmin of a theme, such as Unfold's.
    """
    for model, operator_admin in OPERATOR_ADMINS.items():
        if site.is_registered(model):
            site.unregister(model)
        site.register(model, type(f"{model.__name__}Admin", (operator_admin, base), {}))
    for model, form_admin in FORM_ADMINS.items():
        if site.is_registered(model):
            if not isinstance(site.get_model_admin(model), form_admin):
                continue  # That of the project.
            site.unregister(model)
        site.register(model, type(f"{model.__name__}Admin", (form_admin, base), {}))
