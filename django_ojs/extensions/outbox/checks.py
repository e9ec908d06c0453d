"""The system check of the outbox."""

from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import ImproperlyConfigured

from django_ojs.conf import of
from django_ojs.extensions.outbox.settings import OutboxSettings


@register("django_ojs")
def check_outbox(**kwargs: Any) -> list[CheckMessage]:
    """Check that the HTTP client of the outbox is installed."""
    try:
        wanted = of(OutboxSettings).outbox
    except ImproperlyConfigured:
        return []  # check_settings reports it.
    if not wanted or find_spec("httpx") is not None:
        return []
    return [
        Error(
            "OJS['OUTBOX'] has destinations, and httpx is not installed.",
            hint="Install django-ojs[outbox].",
            id="django_ojs.E006",
        )
    ]
