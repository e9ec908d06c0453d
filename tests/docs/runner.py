"""Run a page's blocks in their order, as its reader would.

A Python block whose first line names a file (`# shop/jobs.py`) becomes that module, which later
blocks import; one that names `settings.py` sets `OJS` for the rest of the page as well; one that names
tests is run by unittest, and one whose name begins with `test_` as pytest would. What names no file
shares the page's namespace, which `manage.py shell` empties. Commands of `manage.py` are parsed,
and run where they end by themselves (`--once`); for `curl`, see that module.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import shlex
import signal
import sys
import threading
import time
import unittest
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import django
from asgiref.sync import async_to_sync
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import BaseCommand
from django.core.management.commands.shell import Command as Shell
from django.db import connections
from django.db.models import signals as model_signals
from django.dispatch import Signal
from django.test import TestCase, override_settings
from django.utils.module_loading import import_string

from django_ojs import handlers, middleware, testing
from tests.docs import curl
from tests.docs.pages import ROOT, Block

#: What stands for `django.tasks` where Django has none.
BACKPORT = (
    import_module("django_tasks")
    if django.VERSION < (6, 0) and find_spec("django_tasks") is not None
    else None
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class PageRun:
    """One reading of one page. Leaves nothing behind: modules, handlers, settings, signals."""

    def __init__(self, shell: curl.Shell | None = None) -> None:
        self.namespace: dict[str, Any] = {"__name__": "docs_page"}
        self._shell = shell
        self._cleanup = ExitStack()

    def __enter__(self) -> PageRun:
        known = set(handlers.job_types())
        modules = set(sys.modules)
        if BACKPORT is not None:
            # Not `patch.dict`: it would drop the modules that are imported meanwhile, which then
            # exist twice.
            sys.modules["django.tasks"] = BACKPORT
            self._cleanup.callback(sys.modules.pop, "django.tasks", None)
        if find_spec("sentry_sdk") is not None:
            # It would patch Django, for the tests after this one too.
            self._cleanup.enter_context(patch("sentry_sdk.init"))
        self._cleanup.callback(_forget_handlers, known)
        self._cleanup.callback(_forget_modules, modules)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT):
            self._cleanup.callback(signal.signal, number, signal.getsignal(number))
        for sent in (model_signals.post_save, model_signals.post_delete):
            self._cleanup.callback(_restore_receivers, sent, list(sent.receivers))
        for alias in connections:
            values = connections.settings[alias]
            self._cleanup.callback(values.update, dict(values))
        return self

    def __exit__(self, *failure: object) -> None:
        self._cleanup.close()

    def run(self, block: Block) -> None:
        if block.language == "python":
            self._python(block)
        elif block.language == "pycon":
            self._transcript(block)
        elif block.language == "console":
            for command in curl.commands(block):
                self._console(block, command)
        else:
            for line in commands(block):
                self._command(line)

    def _console(self, block: Block, command: curl.Command) -> None:
        if command.is_for_us:
            assert self._shell is not None, f"{block.where} needs a shell"
            self._shell.run(command)
        else:
            for line in commands(replace(block, text=f"$ {command.text}")):
                self._command(line)

    def _python(self, block: Block) -> None:
        if block.module is not None and block.module.endswith("settings"):
            self._settings(block)
        elif block.module is not None:
            module = _module(block.module)
            _execute(block, module.__dict__)
            if block.module.endswith("tests"):
                _run_tests(module)
            elif block.module.rpartition(".")[2].startswith("test_"):
                _run_functions(module)
        else:
            _execute(block, self.namespace)

    def _settings(self, block: Block) -> None:
        values: dict[str, Any] = {"__name__": "settings", "BASE_DIR": Path()}
        _execute(block, values)
        assert block.module is not None
        vars(_module(block.module)).update(values)
        for path in values.get("MIDDLEWARE", ()):
            assert path is ... or import_string(path)
        for app in values.get("INSTALLED_APPS", ()):
            assert app is ... or app == "shop" or find_spec(app), app
        if "TASKS" in values:
            self._cleanup.enter_context(override_settings(TASKS=values["TASKS"]))
        if "OJS" in values:
            self._cleanup.enter_context(override_settings(OJS=values["OJS"]))
            # Reading them is the check: a wrong key, value or path raises.
            middleware.enqueue_chain()
            middleware.execution_chain()

    def _transcript(self, block: Block) -> None:
        parsed = doctest.DocTestParser().get_doctest(
            block.text, self.namespace, block.where, block.where, block.line
        )
        parsed.globs = self.namespace
        said: list[str] = []
        found = doctest.DocTestRunner(optionflags=OPTIONS).run(
            parsed, out=said.append, clear_globs=False
        )
        assert not found.failed, "".join(said)
        assert found.attempted, f"{block.where} has no prompt"

    def _command(self, words: list[str]) -> None:
        name, *arguments = words
        parse(name, arguments)
        if name == "shell":
            # As Django's own: a new shell knows the models, and nothing of the one before.
            self.namespace.clear()
            self.namespace.update(Shell().get_namespace(verbosity=0), __name__="docs_page")
        if name == "ojs_worker" and "--once" in arguments:
            call_command(name, *arguments)
            _wait_for_threads()


def commands(block: Block) -> list[list[str]]:
    """Return the `manage.py` commands of a block: name and arguments of each."""
    found = []
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if "[" in line and "manage.py" in line:  # the exec form of a container file
            words = ast.literal_eval(line[line.index("[") :])
        elif line.startswith(("$ ", "ExecStart=", "ExecStartPre=")):
            words = shlex.split(line.removeprefix("$ "), comments=True)
        else:
            continue
        for index, word in enumerate(words):
            if word.endswith("manage.py"):
                found.append(words[index + 1 :])
    return found


def parse(name: str, arguments: list[str]) -> Any:
    """Parse a command line; an argument that does not exist is an error."""
    parser = command(name).create_parser("manage.py", name)
    # Django then raises CommandError in place of leaving the process.
    parser.called_from_command_line = False
    return parser.parse_args(arguments)


def command(name: str) -> BaseCommand:
    app = get_commands()[name]
    return app if isinstance(app, BaseCommand) else load_command_class(app, name)


def _execute(block: Block, namespace: dict[str, Any]) -> None:
    code = compile(
        "\n" * (block.line - 1) + block.text,
        str(block.page.relative_to(ROOT)),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    if code.co_flags & inspect.CO_COROUTINE:
        async_to_sync(_awaited)(eval(code, namespace))
    else:
        exec(code, namespace)


async def _awaited(block: Awaitable[None]) -> None:
    await block


def _module(name: str) -> ModuleType:
    parent, _, last = name.rpartition(".")
    if parent and parent not in sys.modules:
        _module(parent).__path__ = []
    module = sys.modules.get(name)
    if module is None:
        module = sys.modules[name] = ModuleType(name)
    if parent:
        setattr(importlib.import_module(parent), last, module)
    return module


def _run_functions(module: ModuleType) -> None:
    """Run the test functions of a module for pytest, each in a TestCase, with their fixtures."""
    for name, function in list(vars(module).items()):
        if name.startswith("test_"):
            case = type(name, (TestCase,), {"runTest": _with_fixtures(function)})
            setattr(module, f"{name}_", case)
    _run_tests(module)


def _with_fixtures(function: Callable[..., None]) -> Callable[[TestCase], None]:
    marks = {mark.name: mark.args[0] for mark in getattr(function, "pytestmark", ())}
    capture = "django_capture_on_commit_callbacks"
    fixtures: dict[str, Callable[[], Any]] = {
        "ojs": {"real": testing.real, "fake": testing.fake, "inline": testing.inline}[
            marks.get("ojs", "real")
        ],
        "ojs_fake": testing.fake,
        "ojs_inline": testing.inline,
        capture: lambda: nullcontext(TestCase.captureOnCommitCallbacks),
    }

    def run(case: TestCase) -> None:
        with ExitStack() as stack:
            names = list(inspect.signature(function).parameters)
            used = dict.fromkeys([*names, *("ojs" for _ in marks)])
            values = {name: stack.enter_context(fixtures[name]()) for name in used}
            function(**{name: values[name] for name in names})

    return run


def _run_tests(module: ModuleType) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TestResult()
    suite.run(result)
    assert result.testsRun
    assert result.wasSuccessful(), [text for _, text in result.errors + result.failures]


def _forget_handlers(known: set[str]) -> None:
    for type in handlers.job_types():
        if type not in known:
            handlers.registry.remove(type)


def _forget_modules(known: set[str]) -> None:
    # Only what pages declared: Django's own late imports stay.
    for name in set(sys.modules) - known:
        if getattr(sys.modules[name], "__spec__", None) is None:
            del sys.modules[name]


def _restore_receivers(sent: Signal, receivers: list[Any]) -> None:
    sent.receivers = receivers
    sent.sender_receivers_cache.clear()


def _wait_for_threads() -> None:
    deadline = time.monotonic() + 240
    while any(thread.name.startswith("ojs-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a thread of the worker does not end"
        time.sleep(0.01)
