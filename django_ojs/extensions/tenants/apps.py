"""The app of tenants: `"django_ojs.extensions.tenants"` in INSTALLED_APPS."""

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _


class TenantsConfig(AppConfig):
    """Bounds and turns of the tenants of queues."""

    name = "django_ojs.extensions.tenants"
    label = "ojs_tenants"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("tenants"))
    ojs_extensions = ("django_ojs.extensions.tenants.extension.TenantsExtension",)
