"""The app of the outbox: `"django_ojs.extensions.outbox"` in INSTALLED_APPS."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_ojs.extension import Extension


class OutboxConfig(AppConfig):
    """The outbox."""

    name = "django_ojs.extensions.outbox"
    label = "ojs_outbox"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("outbox"))
    default_auto_field = "django.db.models.BigAutoField"

    def ojs_extensions(self) -> "Sequence[Extension]":
        """Return the extension."""
        from django_ojs.extensions.outbox import checks  # noqa: F401  # it registers
        from django_ojs.extensions.outbox.extension import OutboxExtension

        return (OutboxExtension(),)
