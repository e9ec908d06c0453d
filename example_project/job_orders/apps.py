"""The app, which brings the extension."""

from django.apps import AppConfig


class JobOrdersConfig(AppConfig):
    """The orders of jobs."""

    name = "example_project.job_orders"
    #: django_ojs registers it.
    ojs_extensions = ("example_project.job_orders.extension.OrdersExtension",)
