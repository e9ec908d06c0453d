"""The app of checkpoints: `"django_ojs.extensions.checkpoints"` in INSTALLED_APPS."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_ojs.extension import Extension


class CheckpointsConfig(AppConfig):
    """Checkpoints of long runs."""

    name = "django_ojs.extensions.checkpoints"
    label = "ojs_checkpoints"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("checkpoints"))
    default_auto_field = "django.db.models.BigAutoField"

    def ojs_extensions(self) -> "Sequence[Extension]":
        """Return the extension."""
        from django_ojs.extensions.checkpoints.extension import CheckpointsExtension

        return (CheckpointsExtension(),)
