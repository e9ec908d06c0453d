"""The app of checkpoints: `"django_ojs.extensions.checkpoints"` in INSTALLED_APPS."""

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class CheckpointsConfig(AppConfig):
    """Checkpoints of long runs."""

    name = "django_ojs.extensions.checkpoints"
    label = "ojs_checkpoints"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("checkpoints"))
    default_auto_field = "django.db.models.BigAutoField"
    ojs_extensions = ("django_ojs.extensions.checkpoints.extension.CheckpointsExtension",)
