"""Let `import celery` import this package, for modules whose imports stay as they are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from django_ojs.contrib.celery.exceptions import NoEquivalent

_PACKAGE: Final = "django_ojs.contrib.celery"
#: Celery's modules, each with the module of this package that takes its place.
_MODULES: Final = {
    "celery": _PACKAGE,
    "celery.app": f"{_PACKAGE}.app",
    "celery.app.base": f"{_PACKAGE}.app",
    "celery.app.task": f"{_PACKAGE}.task",
    "celery.canvas": f"{_PACKAGE}.canvas",
    "celery.exceptions": f"{_PACKAGE}.exceptions",
    "celery.result": f"{_PACKAGE}.result",
    "celery.signals": f"{_PACKAGE}.signals",
    "celery.states": f"{_PACKAGE}.states",
    "celery.schedules": f"{_PACKAGE}.schedules",
    "celery.task": f"{_PACKAGE}.task",
    "celery.utils": f"{_PACKAGE}.utils",
    "celery.utils.log": f"{_PACKAGE}.utils.log",
}


def install_as_celery() -> None:
    """Let `import celery` import `django_ojs.contrib.celery` in this process.

    Call it in the `__init__.py` beside the settings, before `celery` is imported there. Raises
    NoEquivalent when Celery itself is imported already.
    """
    known = sys.modules.get("celery")
    if known is not None and known.__name__ != _PACKAGE:
        raise NoEquivalent(
            "Celery is imported already: call install_as_celery() before, as the first thing in "
            "the __init__.py beside the settings."
        )
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder, Loader):
    """Finds `celery` and its modules in this package."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "celery":
            return None
        if name not in _MODULES:
            raise ModuleNotFoundError(
                f"{name} has no equivalent in django_ojs.contrib.celery.", name=name
            )
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        # The import system replaces the module's spec by the spec of the alias, but not its name.
        return import_module(_MODULES[spec.name])

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was executed when it was imported under its own name."""
