"""The Django app of durable steps."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class StepsConfig(AppConfig):
    """Durable steps of jobs."""

    name = "django_ojs.extensions.steps"
    label = "ojs_steps"
    verbose_name = _("Steps of jobs")
    default_auto_field = "django.db.models.BigAutoField"
    ojs_extensions = ("django_ojs.extensions.steps.extension.StepsExtension",)
