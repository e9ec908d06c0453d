"""Durable steps: a handler is ordinary Python, and each of its steps is done once.

from django_ojs.extensions import steps

@ojs.job("order.fulfil", queue="orders")
def fulfil(order_id: int) -> str:
    payment = steps.run("charge", charge_card, order_id)
    steps.sleep("cool-off", timedelta(days=2))
    parcel = steps.wait("packed", f"order-{order_id}", timeout=timedelta(days=14))
    ...

It is a separate app: add "django_ojs.extensions.steps" to INSTALLED_APPS.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.apps import apps as installed  # `apps` is a module of this package
from django.core.exceptions import ImproperlyConfigured

from django_ojs.not_installed import line_to_add

if TYPE_CHECKING:
    from django_ojs.extensions.steps.api import (
        agather,
        arun,
        asleep,
        atomic,
        aversion,
        await_signal,
        gather,
        idempotency_key,
        run,
        sleep,
        version,
        wait,
    )
    from django_ojs.extensions.steps.errors import (
        ProgramChanged,
        StepError,
        StepFailed,
        WaitTimedOut,
    )
    from django_ojs.extensions.steps.sending import asignal, signal

# These are imported when they are first used, because Django imports this package before models can
# be imported.
_HOME = {
    "api": """
        agather arun asleep atomic aversion await_signal gather idempotency_key run sleep version
        wait""",
    "errors": "ProgramChanged StepError StepFailed WaitTimedOut",
    "sending": "asignal signal",
}
_MODULES = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "ProgramChanged",
    "StepError",
    "StepFailed",
    "WaitTimedOut",
    "agather",
    "arun",
    "asignal",
    "asleep",
    "atomic",
    "aversion",
    "await_signal",
    "gather",
    "idempotency_key",
    "run",
    "signal",
    "sleep",
    "version",
    "wait",
]


if not TYPE_CHECKING:  # A type checker would otherwise accept every name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if not installed.is_installed(__name__):
            raise ImproperlyConfigured(
                f"Steps need an extension of django_ojs. {line_to_add('steps')}"
            )
        home = f"{__name__}.{_MODULES[name]}"
        value = globals()[name] = getattr(import_module(home), name)
        return value
