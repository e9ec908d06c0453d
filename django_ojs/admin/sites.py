"""The ModelAdmin of each model, and their registration on an admin site."""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db import models

from django_ojs.admin.api_keys import ApiKeyAdmin
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.bulk_operations import BulkOperationAdmin
from django_ojs.admin.dead_letters import DeadLetterAdmin
from django_ojs.admin.jobs import JobAdmin
from django_ojs.admin.overview import OverviewAdmin
from django_ojs.admin.queues import QueueAdmin
from django_ojs.admin.workers import WorkerAdmin
from django_ojs.extensions.audit.admin import AuditEntryAdmin
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.cron.admin import CronJobAdmin
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.events.admin import EventAdmin
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.limits.admin import LimitKeyAdmin
from django_ojs.extensions.limits.models import LimitKey
from django_ojs.extensions.outbox.admin import OutboxEntryAdmin
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.webhooks.admin import WebhookAdmin
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.workflows.admin import WorkflowAdmin
from django_ojs.extensions.workflows.models import Workflow
from django_ojs.models import ApiKey, BulkOperation, DeadLetterJob, Job, Overview, Queue, Worker

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
