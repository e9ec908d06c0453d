"""The Django app: it registers checks and extensions, and discovers the project's handlers."""

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import ClassVar, Final

from django.apps import AppConfig, apps
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules, import_string
from django.utils.translation import gettext_lazy as _

from django_ojs.conf import are_wrong_and_reported, settings

#: Modules with models that only extensions, HTTP or the admin need.
_OTHER_MODELS: Final = (
    *(f"models.{name}" for name in ("api_key", "bulk_operation", "incident")),
    *(f"extensions.{name}.models" for name in ("audit", "backpressure", "events", "statistics")),
)


class DjangoOJSConfig(AppConfig):
    """Open Job Spec for Django."""

    name = "django_ojs"
    label = "django_ojs"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    #: The databases that an app supports: the path of a dialect's class, by Django's vendor.
    ojs_dialects: ClassVar[Mapping[str, str]] = {
        "postgresql": "django_ojs.storage.dialects.postgresql.PostgreSQL",
        "sqlite": "django_ojs.storage.dialects.sqlite.SQLite",
    }

    #: The extensions that an app brings: the paths of their classes. Every site has these.
    ojs_extensions = (
        "django_ojs.extensions.events.extension.EventsExtension",
        "django_ojs.extensions.statistics.extension.StatisticsExtension",
        "django_ojs.extensions.signals.extension.SignalsExtension",
        "django_ojs.extensions.audit.extension.AuditExtension",
        "django_ojs.extensions.payloads.extension.OffloadExtension",
        "django_ojs.extensions.backpressure.extension.BackpressureExtension",
        "django_ojs.extensions.bulk_operations.extension.BulkOperationsExtension",
        "django_ojs.extensions.incidents.extension.IncidentsExtension",
    )

    def import_models(self) -> None:
        """Load the models, including those of the extensions."""
        super().import_models()
        for name in _OTHER_MODELS:
            import_module(f"{self.name}.{name}")

    def ready(self) -> None:
        """Register the checks, the extensions, and the handlers: import `jobs.py` of every app.

        With a backend in `TASKS`, import `tasks.py` too.

        After `migrate`, functions and triggers that are missing are created.

        A process also keeps state about the database in memory; see `storage.in_memory_state`.
        """
        # The checks register on import, which needs the apps loaded.
        from django_ojs import checks  # noqa: F401
        from django_ojs.extensions.statistics import rollups
        from django_ojs.hooks import registry
        from django_ojs.storage import database, schema

        # Extensions declare some of the settings, so they are registered before these are read, and
        # before any module `jobs` is imported.
        registry.register(
            *(
                import_string(path)()
                for config in apps.get_app_configs()
                for path in getattr(config, "ojs_extensions", ())
            )
        )
        request_finished.connect(rollups.flush_after_request, dispatch_uid="django_ojs.figures")
        post_migrate.connect(schema.create_missing, sender=self, dispatch_uid="django_ojs.schema")
        connection_created.connect(database.watch, dispatch_uid="django_ojs.watch")
        if are_wrong_and_reported():
            return  # Without settings no handler can be used.
        if settings().opentelemetry:
            _instrument()
        if settings().log_transitions:
            from django_ojs.extensions.signals import transition_log

            transition_log.connect()
        autodiscover_modules("jobs")
        if _has_tasks():
            from django_ojs.tasks import discovery

            discovery.start()


def _instrument() -> None:
    try:
        from django_ojs.contrib.opentelemetry import instrument
    except ImportError as error:
        raise ImproperlyConfigured(
            "OJS['OPENTELEMETRY'] needs the package opentelemetry-api: install django-ojs[otel]."
        ) from error
    instrument()


def _has_tasks() -> bool:
    """Whether `TASKS` has a backend of this package. Django reports one that cannot be imported."""
    for params in getattr(django_settings, "TASKS", {}).values():
        with suppress(ImportError, TypeError, KeyError, AttributeError):
            backend = import_string(params["BACKEND"])
            if any(each.__module__.startswith("django_ojs.tasks") for each in backend.__mro__):
                return True
    return False
