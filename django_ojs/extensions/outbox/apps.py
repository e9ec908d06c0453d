"""The app of the outbox: `"django_ojs.extensions.outbox"` in INSTALLED_APPS."""

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class OutboxConfig(AppConfig):
    """The outbox."""

    name = "django_ojs.extensions.outbox"
    label = "ojs_outbox"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("outbox"))
    default_auto_field = "django.db.models.BigAutoField"
    ojs_extensions = ("django_ojs.extensions.outbox.extension.OutboxExtension",)

    def ready(self) -> None:
        """Register the checks."""
        from django_ojs.extensions.outbox import checks  # noqa: F401
