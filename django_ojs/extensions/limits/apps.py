"""The app of limits: `"django_ojs.extensions.limits"` in INSTALLED_APPS."""

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class LimitsConfig(AppConfig):
    """Limits of queues, and by key."""

    name = "django_ojs.extensions.limits"
    label = "ojs_limits"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("limits"))
    default_auto_field = "django.db.models.BigAutoField"
    ojs_extensions = (
        "django_ojs.extensions.limits.extension.QueueLimitsExtension",
        "django_ojs.extensions.limits.extension.KeyLimitsExtension",
    )
