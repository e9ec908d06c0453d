"""The findings about webhooks."""

from django.db.models import Count, Min

from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.finding import AdminPage, Finding
from django_ojs.storage import raw_queries


def condition() -> str:
    """Return the SQL condition that there is something to find."""
    return raw_queries.condition(Webhook, "NOT active AND disabled_at IS NOT NULL")


def found() -> list[Finding]:
    """Find webhooks that are disabled because of their failures. There are few webhooks."""
    disabled = Webhook.primary.filter(active=False, disabled_at__isnull=False)
    figures = disabled.aggregate(number=Count("pk"), since=Min("disabled_at"))
    if not figures["number"]:
        return []
    return [
        Finding(
            kind="webhooks_disabled",
            text=f"Webhooks that are disabled because their deliveries failed: "
            f"{figures['number']}.",
            why="Their receivers get no events.",
            cure="See their errors, and enable them when their receivers work again: "
            "`manage.py ojs webhooks enable ID`.",
            command="ojs webhooks list",
            since=figures["since"],
            pages=(AdminPage(model=Webhook),),
        )
    ]
