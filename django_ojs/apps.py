"""The Django app: checks, and discovery of the project's handlers."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar, Final

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
    *(
        f"models.{name}"
        for name in ("api_key", "bulk_operation", "dead_letter", "incident", "overview")
    ),
    *(f"extensions.{name}.models" for name in ("audit", "backpressure", "events", "statistics")),
)


class DjangoOJSConfig(AppConfig):
    """Open Job Spec for Django."""

    name = "django_ojs"
    label = "django_ojs"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    #: The databases that an app brings: the class of a dialect, by Django's vendor.
    ojs_dialects: ClassVar[Mapping[str, str]] = {
        "postgresql": "django_ojs.storage.dialects.postgresql.PostgreSQL",
        "sqlite": "django_ojs.storage.dialects.sqlite.SQLite",
    }

    def import_models(self) -> None:
        """Load the models, including those of the extensions."""
        super().import_models()
        for name in _OTHER_MODELS:
            import_module(f"{self.name}.{name}")

    def ready(self) -> None:
        """Register the checks, and the handlers: import `jobs.py` of every installed app.

        With a backend in `TASKS`, import `tasks.py` too.

        After `migrate`, functions and triggers that are missing are created.

        A process also keeps state about the database in memory; see `storage.in_memory_state`.
        """
        # They register on import, which needs the apps loaded.
        from django_ojs import checks  # noqa: F401
        from django_ojs.extensions.audit.extension import AuditExtension
        from django_ojs.extensions.backpressure.extension import BackpressureExtension
        from django_ojs.extensions.bulk_operations.extension import BulkOperationsExtension
        from django_ojs.extensions.events.extension import EventsExtension
        from django_ojs.extensions.incidents.extension import IncidentsExtension
        from django_ojs.extensions.payloads.extension import OffloadExtension
        from django_ojs.extensions.signals.extension import SignalsExtension
        from django_ojs.extensions.statistics import rollups
        from django_ojs.extensions.statistics.extension import StatisticsExtension
        from django_ojs.hooks import registry
        from django_ojs.storage import database, schema

        registry.register(
            EventsExtension(),
            StatisticsExtension(),
            SignalsExtension(),
            AuditExtension(),
            OffloadExtension(),
            BackpressureExtension(),
            BulkOperationsExtension(),
            IncidentsExtension(),
            # They are registered before the settings are read, some of which are theirs, and before
            # any module `jobs` is imported.
            *(each for config in apps.get_app_configs() for each in _extensions_of(config)),
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


def _extensions_of(config: AppConfig) -> Sequence[Any]:
    """Return the extensions of an app: its config may have a method `ojs_extensions`."""
    found: Sequence[Any] = getattr(config, "ojs_extensions", tuple)()
    return found


def _instrument() -> None:
    try:
        from django_ojs.contrib.opentelemetry import instrument
    except ImportError as error:
        raise ImproperlyConfigured(
            "OJS['OPENTELEMETRY'] needs the package opentelemetry-api: install django-ojs[otel]."
        ) from error
    instrument()


def _has_tasks() -> bool:
    """Whether `TASKS` has a backend of ours. One that cannot be imported is reported by Django."""
    for params in getattr(django_settings, "TASKS", {}).values():
        with suppress(ImportError, TypeError, KeyError, AttributeError):
            backend = import_string(params["BACKEND"])
            if any(each.__module__.startswith("django_ojs.tasks") for each in backend.__mro__):
                return True
    return False
