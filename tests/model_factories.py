"""The rows of tests, and the envelopes of their jobs, by factory-boy.

What an operation makes, such as a worker or an API key, its factory has made by that operation.
Jobs in a state are in `tests/factories.py`: their transitions make them.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, TypeVar

from django.contrib.auth.models import Permission, User
from django.db.models import Manager
from django.db.models.functions import Now
from django.utils import timezone
from factory import Factory, LazyAttribute, LazyFunction, PostGeneration
from factory.django import DjangoModelFactory

from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.extensions.cron.models import CronRun
from django_ojs.extensions.events.models import Event
from django_ojs.extensions.limits.models import LimitCheck, LimitKey
from django_ojs.extensions.outbox.models import OutboxEntry
from django_ojs.extensions.statistics import rollups
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.webhooks.models import Webhook, WebhookDelivery
from django_ojs.extensions.webhooks.operations import subscriptions
from django_ojs.extensions.workflows.models import EndedWorkflowJob, Workflow, WorkflowStep
from django_ojs.models import ApiKey, Attempt, BulkOperation, Queue
from django_ojs.models.base import StoredModel, stored_models
from django_ojs.operations.access import api_keys
from django_ojs.spec import ids

M = TypeVar("M", bound=StoredModel)


class RowFactory(DjangoModelFactory[M]):
    """A row of this package's tables, on the alias that holds the jobs."""

    class Meta:
        abstract = True

    @classmethod
    def _get_manager(cls, model_class: type[M]) -> Manager[M]:
        return model_class.primary


def _permit(user: User, _create: bool, names: Collection[str] | None) -> None:
    if names:
        names = {name.rpartition(".")[2] for name in names}
        labels = {model._meta.app_label for model in stored_models()}
        found = Permission.objects.filter(content_type__app_label__in=labels, codename__in=names)
        user.user_permissions.set(found)
        assert user.user_permissions.count() == len(names)


class UserFactory(DjangoModelFactory[User]):
    """A user of the admin. `permissions` are names of permissions of this package's models."""

    class Meta:
        model = User
        skip_postgeneration_save = True

    username = "ann"
    is_staff = True

    @classmethod
    def _create(cls, model_class: type[User], **values: Any) -> User:
        return model_class.objects.create_user(**values)

    permissions = PostGeneration(_permit)


class ApiKeyFactory(Factory[tuple[ApiKey, str]]):
    """An API key, with its text."""

    class Meta:
        model = api_keys.create

    name = "shop"
    scopes = ("read",)


class SubscriptionFactory(Factory[tuple[Webhook, str]]):
    """A webhook as its client asks for it, with its secret."""

    class Meta:
        model = subscriptions.Subscription

    url = "https://hooks.test"
    events = ("*",)

    @classmethod
    def _create(cls, model_class: Any, **values: Any) -> tuple[Webhook, str]:
        return subscriptions.create(model_class(**values))


class AttemptFactory(RowFactory[Attempt]):
    class Meta:
        model = Attempt

    attempt = 1
    run = 1
    outcome = "failed"


class WebhookDeliveryFactory(RowFactory[WebhookDelivery]):
    class Meta:
        model = WebhookDelivery

    id = LazyFunction(ids.uuid7)
    event_id = LazyFunction(ids.uuid7)
    event_type = "queue.paused"


class QueueFactory(RowFactory[Queue]):
    class Meta:
        model = Queue


class EventFactory(RowFactory[Event]):
    class Meta:
        model = Event

    event_id = LazyFunction(ids.uuid7)
    type = "queue.paused"
    subject = "alpha"


def histogram(seconds: float = 0, number: int = 0) -> list[int]:
    """Return the histogram of so many runs that took so long."""
    found = [0] * rollups.BUCKETS
    found[rollups.bucket(seconds)] = number
    return found


class RollupFactory(RowFactory[Rollup]):
    """The figures of a minute, which is `ago`; no time was measured in it."""

    class Meta:
        model = Rollup

    class Params:
        ago = timedelta(0)

    minute = LazyAttribute(lambda row: (timezone.now() - row.ago).replace(second=0, microsecond=0))
    queue = "email"
    type = "t"
    waited = LazyFunction(histogram)
    ran = LazyFunction(histogram)


class AuditEntryFactory(RowFactory[AuditEntry]):
    class Meta:
        model = AuditEntry

    actor_kind = "user"
    actor = "ann"
    action = "queue.paused"
    object_type = "queue"


class OutboxEntryFactory(RowFactory[OutboxEntry]):
    class Meta:
        model = OutboxEntry

    job_id = LazyFunction(ids.uuid7)
    destination = "local"
    type = "test.job"
    queue = "q"
    envelope = "{}"


class BulkOperationFactory(RowFactory[BulkOperation]):
    class Meta:
        model = BulkOperation

    action = "retry"
    ordered_by = "ann"


class CronRunFactory(RowFactory[CronRun]):
    class Meta:
        model = CronRun

    job_id = LazyFunction(ids.uuid7)
    scheduled_at = LazyFunction(timezone.now)


class WorkflowFactory(RowFactory[Workflow]):
    """The row of a workflow alone; `scenes.create` makes a workflow with its steps and jobs."""

    class Meta:
        model = Workflow

    type = "group"
    jobs_total = 1
    steps_left = 1


class WorkflowStepFactory(RowFactory[WorkflowStep]):
    class Meta:
        model = WorkflowStep

    workflow_id = LazyFunction(ids.uuid7)
    position = 0
    key = "a"
    condition = "all"


class EndedWorkflowJobFactory(RowFactory[EndedWorkflowJob]):
    class Meta:
        model = EndedWorkflowJob

    workflow_id = LazyFunction(ids.uuid7)
    job_id = LazyFunction(ids.uuid7)
    state = "completed"


class LimitCheckFactory(RowFactory[LimitCheck]):
    class Meta:
        model = LimitCheck

    limit_key = "k"
    due_at = LazyFunction(Now)


class LimitKeyFactory(RowFactory[LimitKey]):
    class Meta:
        model = LimitKey

    expires_at = LazyFunction(timezone.now)
