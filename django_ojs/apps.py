"""The Django app: checks, and discovery of the project's handlers."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class DjangoOJSConfig(AppConfig):
    """Open Job Spec for Django."""

    name = "django_ojs"
    label = "django_ojs"
    verbose_name = "Background jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and the handlers: import `jobs.py` of every installed app.

        A process also keeps state about the database in memory; see `storage.process_state`.
        """
        # They register on import, which needs the apps loaded.
        from django_ojs import checks  # noqa: F401
        from django_ojs.payloads import offload  # noqa: F401

        autodiscover_modules("jobs")
