"""The models of the core, and of subjects. Those of extensions are imported by `apps`."""

from django_ojs.models.actor_kind import ActorKind
from django_ojs.models.api_key import ApiKey
from django_ojs.models.attempt import Attempt
from django_ojs.models.bulk_operation import BulkOperation, BulkOperationJob
from django_ojs.models.checkpoint import Checkpoint
from django_ojs.models.cron import CronJob, CronRun
from django_ojs.models.dead_letter import DeadLetterJob
from django_ojs.models.job import Job
from django_ojs.models.known_name import KnownName
from django_ojs.models.lease import Lease
from django_ojs.models.limit import LimitCheck, LimitedQueue, LimitKey
from django_ojs.models.outbox import OutboxEntry
from django_ojs.models.overview import Overview
from django_ojs.models.queue import Queue
from django_ojs.models.webhook import Webhook, WebhookDelivery
from django_ojs.models.worker import Worker
from django_ojs.models.workflow import EndedWorkflowJob, Workflow, WorkflowStep

__all__ = [
    "ActorKind",
    "ApiKey",
    "Attempt",
    "BulkOperation",
    "BulkOperationJob",
    "Checkpoint",
    "CronJob",
    "CronRun",
    "DeadLetterJob",
    "EndedWorkflowJob",
    "Job",
    "KnownName",
    "Lease",
    "LimitCheck",
    "LimitKey",
    "LimitedQueue",
    "OutboxEntry",
    "Overview",
    "Queue",
    "Webhook",
    "WebhookDelivery",
    "Worker",
    "Workflow",
    "WorkflowStep",
]
