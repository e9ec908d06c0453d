"""The app that finds the Celery tasks of a project."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

from django_ojs.contrib.celery import app, registration


class CeleryConfig(AppConfig):
    """Celery's interface over django_ojs."""

    name = "django_ojs.contrib.celery"
    label = "django_ojs_celery"
    verbose_name = "Celery tasks as background jobs"

    def ready(self) -> None:
        """Import `tasks.py` of every installed app, and register the tasks and schedules."""
        from django_ojs.contrib.celery import beat

        autodiscover_modules(*sorted(app.task_modules))
        registration.register_waiting()
        app.configured()
        beat.declare_all()
