"""The app that finds the Celery tasks of a project."""

from importlib import import_module

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from django_ojs.conf import are_wrong_and_reported
from django_ojs.contrib.celery import app, registration
from django_ojs.contrib.celery.configuration import configuration


class CeleryConfig(AppConfig):
    """Celery's interface over django_ojs."""

    name = "django_ojs.contrib.celery"
    label = "django_ojs_celery"
    verbose_name = "Celery tasks as background jobs"

    def ready(self) -> None:
        """Import `tasks.py` of every installed app, and register the tasks and schedules."""
        from django_ojs.contrib.celery import beat

        if are_wrong_and_reported():
            return  # Without settings no task can be registered.
        autodiscover_modules(*sorted(app.task_modules))
        for module in (
            *app.included,
            *(configuration.imports or ()),
            *(configuration.include or ()),
        ):
            import_module(module)
        registration.register_waiting()
        app.configured()
        beat.declare_all()
