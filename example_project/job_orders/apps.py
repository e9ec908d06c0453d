"""The app, which brings the extension."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from django_ojs.extension import Extension


class JobOrdersConfig(AppConfig):
    """The orders of jobs."""

    name = "example_project.job_orders"

    def ojs_extensions(self) -> "Sequence[Extension]":
        """Return the extension: django_ojs registers it."""
        from example_project.job_orders.extension import OrdersExtension

        return (OrdersExtension(),)
