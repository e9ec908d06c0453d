"""The app of limits: `"django_ojs.extensions.limits"` in INSTALLED_APPS."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_ojs.extension import Extension


class LimitsConfig(AppConfig):
    """Limits of queues, and by key."""

    name = "django_ojs.extensions.limits"
    label = "ojs_limits"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("limits"))
    default_auto_field = "django.db.models.BigAutoField"

    def ojs_extensions(self) -> "Sequence[Extension]":
        """Return the extensions."""
        from django_ojs.extensions.limits.extension import KeyLimitsExtension, QueueLimitsExtension

        return (QueueLimitsExtension(), KeyLimitsExtension())
