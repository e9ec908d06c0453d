"""The app of cron jobs: `INSTALLED_APPS = ["django_ojs", "django_ojs.extensions.cron"]`."""

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class CronConfig(AppConfig):
    """Cron jobs."""

    name = "django_ojs.extensions.cron"
    label = "ojs_cron"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("cron jobs"))
    default_auto_field = "django.db.models.BigAutoField"
    ojs_extensions = ("django_ojs.extensions.cron.extension.CronExtension",)
