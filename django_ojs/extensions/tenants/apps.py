"""The app of tenants: `"django_ojs.extensions.tenants"` in INSTALLED_APPS."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from django_ojs.extension import Extension


class TenantsConfig(AppConfig):
    """Bounds and turns of the tenants of queues."""

    name = "django_ojs.extensions.tenants"
    label = "ojs_tenants"
    verbose_name = format_lazy("{}: {}", _("Background jobs"), _("tenants"))

    def ojs_extensions(self) -> "Sequence[Extension]":
        """Return the extension."""
        from django_ojs.extensions.tenants.extension import TenantsExtension

        return (TenantsExtension(),)
