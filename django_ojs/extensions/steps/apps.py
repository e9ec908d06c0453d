"""The Django app of durable steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_ojs.extension import Extension


class StepsConfig(AppConfig):
    """Durable steps of jobs."""

    name = "django_ojs.extensions.steps"
    label = "ojs_steps"
    verbose_name = _("Steps of jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ojs_extensions(self) -> "Sequence[Extension]":
        """Return the extension."""
        from django_ojs.extensions.steps.extension import StepsExtension

        return (StepsExtension(),)
