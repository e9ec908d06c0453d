"""The app of workflows: `"django_ojs.extensions.workflows"` in INSTALLED_APPS."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_ojs.extension import Extension


class WorkflowsConfig(AppConfig):
    """Workflows."""

    name = "django_ojs.extensions.workflows"
    label = "ojs_workflows"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("workflows"))
    default_auto_field = "django.db.models.BigAutoField"

    def ojs_extensions(self) -> "Sequence[Extension]":
        """Return the extension."""
        from django_ojs.extensions.workflows.extension import WorkflowsExtension

        return (WorkflowsExtension(),)
