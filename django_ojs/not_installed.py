"""The paths, names and settings of extensions that are not installed, and the line to add.

`apps` names the extensions of every site. Only these two files know the extensions by name.
"""

from collections.abc import Container, Mapping
from importlib import import_module
from typing import Any, Final

#: Extensions that are apps of their own.
APPS: Final = (
    "checkpoints",
    "cron",
    "limits",
    "outbox",
    "steps",
    "tenants",
    "webhooks",
    "workflows",
)

#: Paths below `ojs/v1/`, by the name of the extension.
PATHS: Final = {
    "checkpoints": r"jobs/[^/]+/checkpoint",
    "cron": r"cron(?:/[^/]+)?",
    "limits by key": r"rate-limits(?:/[^/]+)?",
    "limits of queues": r"admin/queues/[^/]+/rate-limit",
    "steps": r"jobs/[^/]+/steps(?:/suspend)?|signals",
    "webhooks": r"webhooks/(?:subscriptions|deliveries)(?:/[^/]+){0,2}",
    "workflows": r"workflows(?:/[^/]+(?:/(?:progress|history))?)?",
}

#: The public names of `django_ojs` that extensions bring, by their modules.
NAMES: Final = {
    "django_ojs.extensions.cron.schedules": "cron",
    "django_ojs.extensions.limits.rate_limit_policy": "RateLimitPolicy",
    "django_ojs.extensions.payloads.parameter_kinds": """
        PayloadFile PayloadStream UnverifiedPayloadStream""",
    "django_ojs.extensions.payloads.reference": "payload_reference",
    "django_ojs.extensions.workflows.api": """
        EnqueuedWorkflow WorkflowRequest chain group batch graph step
        get_workflow cancel_workflow aget_workflow acancel_workflow""",
    "django_ojs.extensions.workflows.models": "Workflow",
}

#: The settings in `OJS` of extensions that are apps of their own.
SETTINGS: Final = {
    "outbox": "OUTBOX KEEP_SENT",
    "steps": "MAX_STEPS MAX_STEP_RESULT_BYTES LONGEST_WAIT KEEP_SIGNALS",
    "webhooks": "WEBHOOK_HTTP WEBHOOK_PRIVATE_NETWORKS",
    "workflows": "MAX_WORKFLOW_JOBS KEEP_WORKFLOWS",
}

#: The fields in the configuration of a queue of extensions that are apps of their own.
QUEUE_FIELDS: Final = {
    "limits": "concurrency rate_limit",
    "tenants": "tenant_fairness tenant_limits",
}

#: The apps of extensions that are not named like their apps.
_APPS: Final = {"limits by key": "limits", "limits of queues": "limits"}


def check_module(module: str, name: str) -> None:
    """Raise ImproperlyConfigured where a public name comes from an app that is not installed."""
    # This is imported here, because importing the package must import nothing of Django.
    from django.core.exceptions import ImproperlyConfigured

    if (extension := _missing(module)) is not None:
        raise ImproperlyConfigured(
            f"ojs.{name} needs an extension of django_ojs. {line_to_add(extension)}"
        )


def _missing(module: str) -> str | None:
    """Return the extension that has this module, if its app is not installed."""
    from django.apps import apps

    for extension in APPS:
        app = f"django_ojs.extensions.{extension}"
        if module.startswith(f"{app}.") and not apps.is_installed(app):
            return extension
    return None


def missing_names() -> set[str]:
    """Return the public names of apps that are not installed, once Django knows the apps."""
    from django.apps import apps

    if not apps.apps_ready:
        return set()
    return {name for module, names in NAMES.items() if _missing(module) for name in names.split()}


def left_out(labels: Container[str]) -> list[str]:
    """Return the extensions with these labels of apps that are not installed."""
    from django.apps import apps

    return [
        name
        for name in APPS
        if f"ojs_{name}" in labels and not apps.is_installed(f"django_ojs.extensions.{name}")
    ]


def brought(name: str) -> Any:
    """Return the object with this public name, which an extension brings."""
    home = next(module for module, names in NAMES.items() if name in names.split())
    check_module(home, name)
    return getattr(import_module(home), name)


def line_to_add(extension: str) -> str:
    """Return what a project does to install an extension."""
    app = f"django_ojs.extensions.{_APPS.get(extension, extension)}"
    return f'Add "{app}" to INSTALLED_APPS, and run migrate.'


def line_for_setting(key: str) -> str | None:
    """Return what a project does to install the extension that has a setting, if there is one."""
    return _line_for(key, SETTINGS)


def line_for_queue_field(name: str) -> str | None:
    """Return the same as `line_for_setting`, for a field in the configuration of a queue."""
    return _line_for(name, QUEUE_FIELDS)


def _line_for(name: str, owned: Mapping[str, str]) -> str | None:
    owners = (extension for extension, names in owned.items() if name in names.split())
    return next(map(line_to_add, owners), None)


#: The apps of this package that bring a database, by Django's vendor.
DATABASES: Final = {"mysql": "django_ojs.contrib.mariadb"}


def line_for_database(vendor: str) -> str | None:
    """Return what a project does to keep jobs in a database that is not PostgreSQL or SQLite."""
    app = DATABASES.get(vendor)
    return f'Add "{app}" to INSTALLED_APPS, and run migrate.' if app else None


#: Extensions that may leave bits or values behind in the tables of the core, by number.
NUMBERS: Final = {
    10: "tenants",
    12: "limits of queues",
    14: "limits by key",
    16: "workflows",
    18: "checkpoints",
}


def name_of(number: int) -> str:
    """Return the name of the extension that has this number, or had it, or else the number."""
    return NUMBERS.get(number, f"number {number}")
