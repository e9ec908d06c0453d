"""The app of workflows: `"django_ojs.extensions.workflows"` in INSTALLED_APPS."""

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class WorkflowsConfig(AppConfig):
    """Workflows."""

    name = "django_ojs.extensions.workflows"
    label = "ojs_workflows"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("workflows"))
    default_auto_field = "django.db.models.BigAutoField"
    ojs_extensions = ("django_ojs.extensions.workflows.extension.WorkflowsExtension",)
