"""The Django app: checks, and discovery of the project's handlers."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules


class DjangoOJSConfig(AppConfig):
    """Open Job Spec for Django."""

    name = "django_ojs"
    label = "django_ojs"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and the handlers: import `jobs.py` of every installed app.

        After `migrate`, functions and triggers that are missing are created.

        A process also keeps state about the database in memory; see `storage.process_state`.
        """
        # They register on import, which needs the apps loaded.
        from django_ojs import checks  # noqa: F401
        from django_ojs.migrations._run_sql_files import create_missing
        from django_ojs.payloads import offload  # noqa: F401

        post_migrate.connect(create_missing, sender=self, dispatch_uid="django_ojs.create_missing")
        autodiscover_modules("jobs")
