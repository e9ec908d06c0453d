"""The findings about tenants."""

from datetime import timedelta

from django.db.models import Sum
from django.db.models.functions import Now

from django_ojs.conf import settings
from django_ojs.extensions.backpressure.storage import is_bounded
from django_ojs.extensions.statistics.models import Rollup
from django_ojs.extensions.tenants.spec import TenantLimits
from django_ojs.finding import AdminPage, Finding
from django_ojs.formatting import number_of
from django_ojs.models import Queue
from django_ojs.spec.queue_config import DEFAULT_POLICY, QueueConfig
from django_ojs.storage import queue_configs
from django_ojs.storage.figures import known_queues


def found() -> list[Finding]:
    """Find queues whose tenants were at their bounds in the last hour."""
    configs = queue_configs.current()
    if configs is None or not any(
        _is_told(configs.of(name)) for name in {*configs.stored, *settings().queues, DEFAULT_POLICY}
    ):
        return []  # This avoids reading the names of all queues.
    names = [name for name in known_queues.by_name().names if _is_told(configs.of(name))]
    if not names:
        return []
    rows = Rollup.primary.filter(queue__in=names, minute__gt=Now() - timedelta(hours=1))
    rejected = rows.values("queue").annotate(jobs=Sum("rejected")).filter(jobs__gt=0)
    return [
        Finding(
            kind="tenants_rejected",
            queue=queue,
            text=f"Tenants of queue {queue} were at their bounds in the last hour: "
            f"{number_of(jobs, 'job')} rejected.",
            why="Those jobs did not run.",
            cure="The page of the queue shows the waiting jobs of each tenant. Start more workers "
            "for it, or raise the bounds in its tenant_limits.",
            jobs=jobs,
            pages=(
                AdminPage(model=Queue, key=queue, action="configure"),
                AdminPage(model=Queue, key=queue),
            ),
        )
        for queue, jobs in rejected.order_by("queue").values_list("queue", "jobs")
    ]


def _is_told(config: QueueConfig) -> bool:
    # If a queue has a bound of its own, the finding about that bound reports its rejections.
    return config.part(TenantLimits) is not None and not is_bounded(config.backpressure)
