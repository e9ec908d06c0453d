"""What needs attention of webhooks."""

from django.db.models import Count, Min

from django_ojs.extension import Problem
from django_ojs.extensions.webhooks.models import Webhook


def found() -> list[Problem]:
    """Find webhooks that are disabled because of their failures. There are few webhooks."""
    disabled = Webhook.primary.filter(active=False, disabled_at__isnull=False)
    figures = disabled.aggregate(number=Count("pk"), since=Min("disabled_at"))
    if not figures["number"]:
        return []
    return [
        Problem(
            found=f"Webhooks that are disabled because their deliveries failed: "
            f"{figures['number']}.",
            why="Their receivers get no events.",
            cure="`manage.py ojs webhooks list` has them, and `webhooks show ID` the errors; when "
            "the receiver works again, `webhooks enable ID`.",
            since=figures["since"],
            model=Webhook,
        )
    ]
