"""The app of webhooks: `INSTALLED_APPS = ["django_ojs", "django_ojs.extensions.webhooks"]`."""

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class WebhooksConfig(AppConfig):
    """Webhooks."""

    name = "django_ojs.extensions.webhooks"
    label = "ojs_webhooks"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("webhooks"))
    default_auto_field = "django.db.models.BigAutoField"
    ojs_extensions = ("django_ojs.extensions.webhooks.extension.WebhooksExtension",)
