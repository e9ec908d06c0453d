"""The models: jobs, unsuccessful runs, queues, workers and their figures.

Those that only extensions, HTTP or the admin need are named by `apps.py`, which loads them, and are
found here once it has.
"""

from typing import TYPE_CHECKING, Any

from django.apps import apps

from django_ojs.models.actor_kind import ActorKind
from django_ojs.models.attempt import Attempt
from django_ojs.models.job import Job
from django_ojs.models.known_name import KnownName
from django_ojs.models.lease import Lease
from django_ojs.models.queue import Queue
from django_ojs.models.worker import Worker

if TYPE_CHECKING:
    from django_ojs.extensions.audit.models import AuditEntry
    from django_ojs.extensions.backpressure.models import Bound
    from django_ojs.extensions.checkpoints.models import Checkpoint
    from django_ojs.extensions.cron.models import CronJob, CronRun
    from django_ojs.extensions.events.models import Event
    from django_ojs.extensions.limits.models import LimitCheck, LimitedQueue, LimitKey
    from django_ojs.extensions.outbox.models import OutboxEntry
    from django_ojs.extensions.statistics.models import Rollup
    from django_ojs.extensions.webhooks.models import Webhook, WebhookDelivery
    from django_ojs.extensions.workflows.models import EndedWorkflowJob, Workflow, WorkflowStep
    from django_ojs.models.api_key import ApiKey
    from django_ojs.models.bulk_operation import BulkOperation, BulkOperationJob
    from django_ojs.models.dead_letter import DeadLetterJob
    from django_ojs.models.overview import Overview

__all__ = [
    "ActorKind",
    "ApiKey",
    "Attempt",
    "AuditEntry",
    "Bound",
    "BulkOperation",
    "BulkOperationJob",
    "Checkpoint",
    "CronJob",
    "CronRun",
    "DeadLetterJob",
    "EndedWorkflowJob",
    "Event",
    "Job",
    "KnownName",
    "Lease",
    "LimitCheck",
    "LimitKey",
    "LimitedQueue",
    "OutboxEntry",
    "Overview",
    "Queue",
    "Rollup",
    "Webhook",
    "WebhookDelivery",
    "Worker",
    "Workflow",
    "WorkflowStep",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    models = apps.all_models["django_ojs"]
    if name.lower() not in models:
        # The models of an app that stands before this one in INSTALLED_APPS ask for it.
        apps.get_app_config("django_ojs").import_models()
    return models[name.lower()]
