"""The package has four layers, `operations` and `storage` have layers of their own, and a module
imports only downwards. No modules import each other in a circle.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.architecture.imports import PACKAGE, Import, imports, modules

# A part of the package and its floor. One that is not named here fails the test: decide first.
FLOORS = {
    "spec": 1,
    "annotations": 1,
    "async_twins": 1,
    "version": 1,
    "conf": 2,
    "setting": 1,
    "claim_rules": 2,
    "extension": 2,
    "finding": 1,
    "hooks": 2,
    "extensions": 5,
    "signals": 2,
    "models": 2,
    "storage": 2,
    "expressions": 2,
    "migrations": 2,
    "operations": 3,
    "formatting": 1,
    "not_installed": 1,
    "reports": 4,
    "client": 5,
    "command_line": 5,
    "context": 5,
    "contrib": 5,
    "examples": 5,
    "handlers": 5,
    "logging": 5,
    "handler_registry": 5,
    "job_type": 5,
    "keyword_handlers": 5,
    "enqueue_options": 5,
    "tasks": 5,
    "unique_arguments": 5,
    "middleware": 3,
    "worker": 5,
    "testing": 5,
    "pytest_plugin": 5,
    "management": 5,
    "http": 5,
    "admin": 5,
    "templatetags": 5,
}
# The same inside of a package: its modules and folders, lowest layer first. A part imports those of
# its own layer and of lower ones.
LAYERS: dict[str, tuple[set[str], ...]] = {
    "operations": (
        {"operator_texts", "access", "draining", "histories", "keyset", "queue_rows"},
        {
            *("push", "fetch", "ack", "fail", "beat", "cancel", "cancel_locked", "info"),
            *("activate", "retry", "run_now", "run_again", "delete", "progress"),
            *("operator_push", "promotion", "expiry", "due_jobs", "enqueue", "worker_activity"),
            "dead_letter_queue",
        },
        {"queues", "jobs", "maintenance"},
        {"workers"},
    ),
    "storage": (
        {
            *("background_writer", "backoff", "dialects", "limit_then_filter", "in_memory_state"),
        },
        {"database"},
        {
            "connection_watch",
            "raw_queries",
            "schema",
            "lock_holders",
            "statements",
            "notify",
            "queue_configs",
            "claimed_job",
            "claim_floors",
        },
        {"next_starts", "queue_turns", "holds"},
        {"transitions", "unique", "api_keys", "figures"},
        {"ruled_claims", "remains"},
    ),
}
# The parts of an extension that stand lower than the others.
EXTENSION_FLOORS = {
    "spec": 1,
    "destinations": 1,
    "models": 2,
    "settings": 2,
    "storage": 2,
    "mariadb": 2,
    "expressions": 2,
    "commit_order": 2,
    "queue_fields": 2,
    "rate_limit": 1,
    "tenant_statements": 2,
}
# Django calls these, or they only name what others provide: they may see the whole house.
ROOF = {"", "apps", "checks"}


#: Subjects that hang on `extension` alone: the core tells what happens, and they write.
EXTENSIONS = (
    *("django_ojs.extensions", "django_ojs.signals"),
    "django_ojs.operations.jobs.bulk_execution",
)
#: What the core is not: the doors, what they show, what others connect to, the Python API and the
#: handlers of subjects.
REPORTS = "django_ojs.reports"
NOT_CORE = (
    *EXTENSIONS,
    REPORTS,
    *(f"django_ojs.{name}" for name in ("admin", "http", "command_line", "management", "contrib")),
    *("django_ojs.apps", "django_ojs.logging", "django_ojs.testing", "django_ojs.tasks"),
)
#: What the core still imports. An import that is gone is to be taken out.
LEFT = frozenset(
    {
        "django_ojs imports extensions.cron.schedules",
        "django_ojs imports extensions.limits.rate_limit_policy",
        "django_ojs imports extensions.payloads.parameter_kinds",
        "django_ojs imports extensions.payloads.reference",
        "django_ojs imports extensions.workflows.api",
        "django_ojs imports extensions.workflows.models",
        "enqueue_options imports extensions.limits.rate_limit_policy",
    }
)


def within(module: str, names: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def test_the_core_imports_no_extension_and_no_report() -> None:
    found = modules()
    known = frozenset(found)
    core = {module: path for module, path in found.items() if not within(module, NOT_CORE)}
    assert {"django_ojs.operations.ack", "django_ojs.storage.transitions"} <= core.keys()
    assert {"django_ojs.worker.completer", "django_ojs.worker.maintenance"} <= core.keys()
    said = {
        f"{_short(module)} imports {_short(i.target)}"
        for module, path in core.items()
        for i in imports(module, path, known, for_types=True)
        if within(i.target, (*EXTENSIONS, REPORTS))
    }
    assert said == LEFT, "\n" + "\n".join(sorted(said ^ LEFT))


def _short(module: str) -> str:
    return module.removeprefix("django_ojs.")


def part(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def floor(module: str) -> int:
    here = part(module)
    inner = module.removeprefix(f"{PACKAGE}.extensions.").split(".")
    if here == "extensions" and len(inner) > 1:
        return EXTENSION_FLOORS.get(inner[1], FLOORS[here])
    return FLOORS[here]


def layer(module: str) -> int | None:
    """Return the layer of a module in its package; 0: it is in none. None: the package has none."""
    package, _, rest = module.removeprefix(f"{PACKAGE}.").partition(".")
    if package not in LAYERS or not rest:
        return None
    name = rest.partition(".")[0]
    return next((n for n, parts in enumerate(LAYERS[package], 1) if name in parts), 0)


def complaints(root: Path | None = None) -> list[str]:
    found = modules() if root is None else modules(root)
    known = frozenset(found)
    said = []
    for module, path in found.items():
        if part(module) not in FLOORS and part(module) not in ROOF:
            said.append(f"{module} stands on no floor: add {part(module)!r} to FLOORS")
            continue
        if layer(module) == 0:
            said.append(f"{module} is in no layer of {part(module)}: add it to LAYERS")
        said += [text for i in imports(module, path, known) if (text := judge(i))]
    return said


def judge(found: Import) -> str | None:
    where = f"{found.module}:{found.line} imports {found.target}"
    here = part(found.module)
    if found.target.split(".")[0] != PACKAGE:
        if here == "spec" and found.target.split(".")[0] not in sys.stdlib_module_names:
            return f"{where}: spec/ uses the standard library only"
        return None
    there = part(found.target)
    if here in ROOF:
        return None
    if there in ROOF:
        return f"{where}: a floor does not import the roof above it"
    if there == "extensions" != here:
        return (
            None  # Of these, there are lists, which become shorter: LEFT, and those of the house.
        )
    if there in FLOORS and floor(found.target) > floor(found.module):
        return f"{where}: floor {floor(found.module)} does not import floor {floor(found.target)}"
    mine, its = layer(found.module), layer(found.target)
    if here == there and mine and its and its > mine:
        return f"{where}: layer {mine} of {here} does not import layer {its}"
    return None


def circles(root: Path | None = None) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others.

    An import inside a function or for types counts, and so do the packages around its target.
    """
    found = modules() if root is None else modules(root)
    known = frozenset(found)
    edges: dict[str, set[str]] = {}
    for module, path in found.items():
        targets = {i.target for i in imports(module, path, known, for_types=True)}
        # Importing a module runs the packages around it; those around the importer run already.
        around = {
            package
            for target in targets
            for package in _packages(target)
            if not module.startswith(f"{package}.")
            # Django imports the pages of an extension through the admin of the core.
            and not (package == f"{PACKAGE}.admin" and part(module) == "extensions")
        }
        edges[module] = {target for target in (targets | around) & known if target != module}
    reachable = {module: _reachable(module, edges) for module in edges}
    groups = {
        tuple(sorted({module, *(to for to in reachable[module] if module in reachable[to])}))
        for module in edges
        if module in reachable[module]
    }
    return [list(group) for group in sorted(groups)]


def _packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(2, len(parts))]


def _reachable(module: str, edges: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    left = list(edges[module])
    while left:
        if (target := left.pop()) not in seen:
            seen.add(target)
            left += edges[target]
    return seen


def test_the_command_line_needs_neither_the_http_api_nor_the_admin() -> None:
    found = modules()
    edges = {
        module: {i.target for i in imports(module, path, frozenset(found))}
        for module, path in found.items()
    }
    edges |= {
        target: set() for targets in list(edges.values()) for target in targets - edges.keys()
    }
    reachable = _reachable("django_ojs.management.commands.ojs", edges)
    assert "django_ojs.command_line.doctor" in reachable
    others = ("django_ojs.http", "django_ojs.admin", "rest_framework", "django.contrib.admin")
    assert [module for module in reachable if module.startswith(others)] == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert not circles(), circles()


def test_a_circle_is_found(tmp_path: Path) -> None:
    files = {
        "__init__": "",
        "a": "from django_ojs import b",
        "b": "def f():\n    from django_ojs.c import d",
        "c/__init__": "import django_ojs.a",
        "c/d": "",
        "e": "from django_ojs import a",
        "c/f": "from django_ojs.c import d",
    }
    for name, text in files.items():
        path = tmp_path / PACKAGE / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert circles(tmp_path) == [[f"{PACKAGE}.{name}" for name in ("a", "b", "c")]]


def test_the_layers_name_what_there_is() -> None:
    there = {tuple(name.split(".")[1:3]) for name in modules() if name.count(".") >= 2}
    named = {(package, name) for package in LAYERS for layers in LAYERS[package] for name in layers}
    assert named == {each for each in there if each[0] in LAYERS}


def test_every_module_imports_only_downwards() -> None:
    assert not complaints(), "\n" + "\n".join(complaints())


@pytest.mark.parametrize(
    ("module", "line", "words"),
    [
        ("spec/envelope.py", "import django", "standard library only"),
        ("spec/envelope.py", "from ..models import Job", "floor 1 does not import floor 2"),
        (
            "storage/claimed_job.py",
            "from django_ojs import operations",
            "floor 2 does not import floor 3",
        ),
        ("operations/ack.py", "def f():\n    import django_ojs.client", "floor 3 does not import"),
        ("client.py", "from django_ojs import enqueue", "does not import the roof"),
        (
            "operations/keyset.py",
            "from .maintenance import pruning",
            "layer 1 of operations does not import layer 3",
        ),
        (
            "storage/database.py",
            "import django_ojs.storage.notify",
            "layer 2 of storage does not import layer 3",
        ),
        ("storage/cellar.py", "", "is in no layer of storage"),
        ("attic.py", "", "stands on no floor"),
    ],
)
def test_an_import_upwards_is_named(tmp_path: Path, module: str, line: str, words: str) -> None:
    for name in (module, "__init__.py", "models/__init__.py", "operations/__init__.py"):
        path = tmp_path / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line if name == module else "")
    said = complaints(tmp_path)
    assert len(said) == 1
    assert words in said[0]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("operations/push.py", "from ..spec.ids import new_id"),
        ("operations/push.py", "from .enqueue import unique"),
        ("operations/queues/status.py", "from django_ojs.operations.fail import fail"),
        ("worker/loop.py", "import django_ojs.operations.fetch"),
        ("apps.py", "from django_ojs import handlers"),
        ("spec/ids.py", "from . import times"),
    ],
)
def test_an_import_downwards_or_on_the_same_floor_is_fine(
    tmp_path: Path, module: str, line: str
) -> None:
    path = tmp_path / PACKAGE / module
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert complaints(tmp_path) == []
