"""List what is public: `python -m tests.release.public` writes public.txt beside this file.

docs/reference/versions.md says what public means. With --release, as a release does, the list is
kept as released.txt too. From then on a test wants the changelog to name each line that is new or
gone since.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parent
NOW, RELEASED = FOLDER / "public.txt", FOLDER / "released.txt"
COMMAND = "python -m tests.release.public"

#: What docs/how-to/write-an-extension.md imports beside the modules that are public whole.
FOR_EXTENSIONS = {
    "django_ojs.admin.panels": "AdminColumn Panel",
    "django_ojs.command_line.subcommand": "Subcommand",
    "django_ojs.conf": "of",
    "django_ojs.http.routing": "route",
    "django_ojs.http.views.base": "OJSView",
    "django_ojs.models": "Job",
    "django_ojs.setting": "boolean count duration setting share strings",
    "django_ojs.spec.ids": "parse_id",
    "django_ojs.spec.queue_config": "QueueFields",
    "django_ojs.spec.scopes": "Scope",
    "django_ojs.spec.states": "State Trigger",
    "django_ojs.storage.holds": "held_by hold release",
}

HEAD = f"# What is public, a name a line. `{COMMAND}` writes this file.\n"
#: A default that is an object without a name of its own: its address differs from run to run.
_OBJECT = re.compile(r"<([\w.]+) object at 0x[0-9a-f]+>")


def text() -> str:
    """Return the list, in sections."""
    sections = {
        "django_ojs": _module_lines("django_ojs"),
        "django_ojs.claim_rules": _module_lines("django_ojs.claim_rules"),
        "django_ojs.extension": _module_lines("django_ojs.extension"),
        "django_ojs.middleware": _module_lines("django_ojs.middleware"),
        "django_ojs.spec.errors": _module_lines("django_ojs.spec.errors"),
        "django_ojs.testing": _module_lines("django_ojs.testing"),
        "For extensions": _lines_for_extensions(),
        "Signals": _signal_lines(),
        "Settings": _setting_lines(),
        "HTTP routes": _route_lines(),
        "Tables": _table_lines(),
    }
    return HEAD + "".join(
        f"\n## {title}\n\n" + "".join(f"{line}\n" for line in sorted(set(lines)))
        for title, lines in sections.items()
    )


def _module_lines(name: str) -> Iterator[str]:
    module = __import__(name, fromlist=["*"])
    for each in _names(module):
        yield from _object_lines(each, getattr(module, each))


def _lines_for_extensions() -> Iterator[str]:
    for name, names in FOR_EXTENSIONS.items():
        module = __import__(name, fromlist=["*"])
        for each in names.split():
            value = getattr(module, each)
            yield f"{name}.{each}{_signature(value) if callable(value) else ''}"


def _names(module: ModuleType) -> list[str]:
    """Return `__all__`; of a module without it, the classes, functions and constants of its own."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]


def _object_lines(name: str, value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        yield f"{name}{_signature(value)}" if callable(value) else name
        return
    yield name
    if issubclass(value, Enum):
        yield from (f"{name}.{member.name} = {member.value!r}" for member in value)
        return
    if hasattr(value, "_meta"):
        yield from (f"{name}.{field.name}" for field in value._meta.get_fields())
        return
    if not issubclass(value, Exception):
        yield f"{name}{_signature(value)}"
    for attribute, member in vars(value).items():
        if attribute.startswith("_"):
            continue
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        yield f"{name}.{attribute}{_signature(plain) if inspect.isfunction(plain) else ''}"
    for attribute in inspect.get_annotations(value):
        if not attribute.startswith("_"):
            yield f"{name}.{attribute}"


def _signature(value: Any) -> str:
    """Return the parameters with their defaults, without annotations: names are what one writes."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    bare = found.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return _OBJECT.sub(r"<\1>", str(bare))


def _signal_lines() -> Iterator[str]:
    from django.dispatch import Signal

    from django_ojs import signals

    return (name for name, value in vars(signals).items() if isinstance(value, Signal))


def _setting_lines() -> Iterator[str]:
    from django_ojs.conf import Settings

    return (f"OJS[{each.name.upper()!r}]" for each in fields(Settings))


def _route_lines() -> Iterator[str]:
    from tests.http.operations import operations

    return (f"{each.method} {each.path}" for each in operations())


def _table_lines() -> Iterator[str]:
    from django.apps import apps

    for model in apps.get_app_config("django_ojs").get_models():
        if model._meta.managed:
            yield from (
                f"{model._meta.db_table}.{field.column}" for field in model._meta.concrete_fields
            )


def unsaid(released: str, now: str, changelog: str) -> list[str]:
    """Return the lines that are new or gone, and that the text of the changelog does not name.

    A line is named by the last of its words: `OJS['POLL_INTERVAL']` by POLL_INTERVAL.
    """
    before, after = (set(each.splitlines()) for each in (released, now))
    missing = []
    for line in sorted(before ^ after):
        name = re.findall(r"[\w-]+", line.partition("(")[0].partition(" = ")[0])[-1]
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", changelog):
            missing.append(f"{'+' if line in after else '-'} {line}")
    return missing


def main() -> None:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings_sqlite"
    django.setup()
    NOW.write_text(text())
    if "--release" in sys.argv[1:]:
        RELEASED.write_text(NOW.read_text())


if __name__ == "__main__":
    main()
