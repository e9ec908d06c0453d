"""Start Python programs for tests as forks of a process that has imported them already.

Imports take most of the processor time of a short-lived process: Django, the models, the commands.
A fork server imports them once for each process of the test run and each settings module, and forks
for each program that is started. The child gets the arguments, environment, folder and files that
were asked for, forgets the settings that the server has read, and runs the program from its first
line: it reads the settings, and calls `django.setup()` and with it each `ready()`. It is a real
process, with an id, signals and an exit code of its own.

A fork does not show what happens at import, nor after the last `atexit` function: see `_End`. So
the tests that use the fixture `new_interpreters` start interpreters, and so do those that coverage
measures: in CI most that are marked `smoke`, on PostgreSQL. So does what is not `python SCRIPT`,
`python -m MODULE` or `python -c CODE` with settings of Django.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = "DJANGO_SETTINGS_MODULE"
#: What programs import after `django.setup()`, as checks and commands do; a server does it before.
IMPORTED_LATER = (
    "django.conf.urls",
    "django.contrib.auth.backends",
    "django.contrib.auth.middleware",
    "django.contrib.auth.views",
    "django.contrib.contenttypes.fields",
    "django.contrib.messages.middleware",
    "django.contrib.sessions.middleware",
    "django.core.cache.backends.locmem",
    "django.core.mail.backends.base",
    "django.core.management.commands.makemigrations",
    "django.core.management.commands.migrate",
    "django.core.management.commands.shell",
    "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base",
    "django.middleware.cache",
    "django.template.defaultfilters",
    "django.template.loader_tags",
    "django.templatetags.cache",
    "django.templatetags.i18n",
    "django.templatetags.l10n",
    "django.templatetags.tz",
    "django.views.csrf",
    "django.views.debug",
    "django.views.defaults",
    "django_ojs.checks",
    "django_ojs.management.commands.ojs_worker",
    "django_ojs.operations.access.key_expiry",
    "django_ojs.operations.maintenance.mode",
    "django_ojs.operations.workers.registry",
    "django_ojs.reports.incidents",
    "django_ojs.reports.queue_overview",
    "django_ojs.storage.dialects.postgresql",
    "django_ojs.storage.dialects.postgresql_inserts",
    "django_ojs.storage.schema",
    "django_ojs.extensions.statistics.rollups",
    "django_ojs.worker.supervisor",
    "gunicorn.app.wsgiapp",
    "gunicorn.workers.gthread",
    "rest_framework.views",
)
#: Of every installed app; its packages with the modules in them. Not `jobs`: declaring a handler
#: reads the settings.
IMPORTED_OF_APPS = ("admin", "migrations", "templatetags")


class Start:
    """How the tests of this process start programs."""

    #: Whether each one is a new interpreter.
    always_new = False
    #: By settings module and the variables that Python reads at its start.
    servers: dict[tuple[str, ...], Server] = {}


def pytest_unconfigure() -> None:
    while Start.servers:
        Start.servers.popitem()[1].stop()


def popen(
    arguments: list[str], *, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a program as `subprocess.Popen` does, in a fork where that is the same."""
    variables = dict(os.environ if env is None else env)
    if Start.always_new or not _can_fork(arguments, variables):
        return subprocess.Popen(arguments, env=env, **options)
    return _Forked(arguments, env=variables, **options)


def run(
    arguments: list[str], *, timeout: float | None = None, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a program as `subprocess.run` does, in a fork where that is the same."""
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    given = options.pop("input", None)
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with popen(arguments, **options) as process:
        try:
            output, errors = process.communicate(given, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(arguments, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def _can_fork(arguments: list[str], variables: Mapping[str, str]) -> bool:
    return (
        sys.platform == "linux"
        and hasattr(os, "pidfd_open")
        and len(arguments) > 1
        and arguments[0] == sys.executable
        and (arguments[1] in ("-m", "-c") or arguments[1].endswith(".py"))
        and SETTINGS in variables
        and not any(name.startswith("COVERAGE_") for name in variables)
    )


def _server_for(variables: Mapping[str, str]) -> Server:
    # What Python reads when it starts is as it was when the server was started.
    read = sorted(f"{name}={value}" for name, value in variables.items() if _is_pythons(name))
    key = (variables[SETTINGS], *read)
    server = Start.servers.get(key)
    if server is None:
        server = Start.servers[key] = Server(variables)
    return server


def _is_pythons(name: str) -> bool:
    return name.startswith("PYTHON") or name in ("TZ", "PATH", "LANG", "LD_LIBRARY_PATH")


class Server:
    """A process that has imported the programs, and forks."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        # One request at a time: tests start programs from threads too.
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def stop(self) -> None:
        """End it; what it has started goes on."""
        self._socket.close()
        self._process.wait()

    def start(self, request: dict[str, Any], files: list[int]) -> int:
        """Fork a child with these standard files, and return its id."""
        with self._lock:
            _send(self._socket, request, files)
            return int(_receive(self._socket)[0]["pid"])

    def status(self, pid: int) -> int | None:
        """Return the wait status of a child, once: None while it runs."""
        with self._lock:
            _send(self._socket, {"ended": pid})
            found: int | None = _receive(self._socket)[0]["status"]
            return found


class _Forked(subprocess.Popen[Any]):
    """A child of a fork server. It does not ask the system how a child ended, but the server."""

    def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:
        # The parameters of the standard library, of which the tests use these.
        (preexec_fn, _, pass_fds, cwd, env, _, _, shell, *rest) = rest
        (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *rest) = rest
        (_, _, _, _, _, start_new_session, _) = rest
        if preexec_fn or pass_fds or shell:
            raise NotImplementedError("a fork server cannot do that")
        files = [p2cread, c2pwrite, errwrite]
        request = {
            "arguments": list(map(os.fspath, args[1:])),
            "folder": os.fspath(cwd or Path.cwd()),
            "variables": env,
            "new_session": start_new_session,
        }
        try:
            self._server = _server_for(env)
            self.pid = self._server.start(
                request, [own if own != -1 else number for number, own in enumerate(files)]
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not wait_flags & os.WNOHANG:
            with suppress(ProcessLookupError):
                process = os.pidfd_open(self.pid)
                try:
                    poll = select.poll()
                    poll.register(process, select.POLLIN)
                    poll.poll()
                finally:
                    os.close(process)
        status = self._server.status(self.pid)
        return (0, 0) if status is None else (self.pid, status)

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def _send(link: socket.socket, message: Any, files: Iterable[int] = ()) -> None:
    data = json.dumps(message).encode()
    socket.send_fds(link, [len(data).to_bytes(8, "big")], [*files])
    link.sendall(data)


def _receive(link: socket.socket) -> tuple[Any, list[int]]:
    head, files, _, _ = socket.recv_fds(link, 8, 3)
    if not head:
        raise EOFError
    data = b""
    while len(data) < int.from_bytes(head, "big"):
        data += link.recv(1 << 16)
    return json.loads(data), files


# What follows runs in the server.


class _ImportedAllModels(Exception):
    """Django's registry has imported the models, and would call `ready()` now."""


def _import_programs() -> list[str]:
    """Import what programs import, and return the modules that read the settings."""
    from django.apps import apps
    from django.conf import settings
    from django.core import management

    before = set(sys.modules)
    installed = list(settings.INSTALLED_APPS)
    of_settings = [name for name in set(sys.modules) - before if _is_ours(name)]
    _populate_without_ready(apps, installed)
    of_apps = [
        f"{app.name}.{name}"
        for app in apps.get_app_configs()
        for name in IMPORTED_OF_APPS
        if name != "admin" or apps.is_installed("django.contrib.admin")
    ]
    for name in (*IMPORTED_LATER, *of_apps):
        with suppress(ImportError):
            module = importlib.import_module(name)
            for inner in pkgutil.iter_modules(getattr(module, "__path__", ())):
                importlib.import_module(f"{name}.{inner.name}")
    for name in _imported_by_setup(of_settings):
        # Some libraries raise an error of their own where what they need is not installed.
        with suppress(Exception):
            importlib.import_module(name)
    management.get_commands()
    return of_settings


def _imported_by_setup(of_settings: list[str]) -> list[str]:
    """Return the modules that a setup with these settings imports, which a child finds out.

    Without those of the apps of tests and examples, and without `jobs`: see above. Where the setup
    fails, as a test may want, there are none.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        known = set(sys.modules)
        with suppress(BaseException), open(writer, "w") as pipe, open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            _forget_settings(of_settings)
            importlib.import_module("django").setup()
            if "django_ojs.hooks" in sys.modules:
                sys.modules["django_ojs.hooks"].registry.brought("due_steps")  # As workers do.
            pipe.write("\n".join(name for name in sys.modules if name not in known))
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        names = pipe.read().split()
    os.waitpid(pid, 0)
    return [name for name in names if not _is_ours(name) and not name.endswith(".jobs")]


def _is_ours(name: str) -> bool:
    return name.startswith(("tests.", "example_project.")) or name == os.environ[SETTINGS]


def _populate_without_ready(apps: Any, installed: list[str]) -> None:
    def configs() -> Any:
        if apps.models_ready:
            raise _ImportedAllModels
        return type(apps).get_app_configs(apps)

    apps.get_app_configs = configs
    with suppress(_ImportedAllModels):
        apps.populate(installed)
    del apps.get_app_configs


def _forget_settings(of_settings: list[str]) -> None:
    """Let the program read its settings, and fill the registry of apps, as a new one does."""
    from asgiref.local import Local
    from django.apps import apps
    from django.conf import empty, settings
    from django.core import management
    from django.core.cache import caches
    from django.core.signals import setting_changed
    from django.db import connections, router
    from django.utils import timezone

    from django_ojs.storage import in_memory_state

    for name in of_settings:
        sys.modules.pop(name, None)
    settings._wrapped = empty
    for handler in (connections, caches):
        handler.__dict__.pop("settings", None)
        handler._settings = None
        # Some module has looked at a connection while it was imported.
        handler._connections = Local(handler.thread_critical)
    router.__dict__.pop("routers", None)
    # The package keeps what it has checked.
    setting_changed.send(sender=None, setting="OJS", value=None, enter=False)
    in_memory_state.reset()
    timezone.get_default_timezone.cache_clear()
    management.get_commands.cache_clear()
    apps.app_configs.clear()
    apps.apps_ready = apps.models_ready = apps.ready = apps.loading = False
    apps.ready_event.clear()
    apps.clear_cache()


def _serve(link: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Serve requests. Return in each child, with what it must run; in the server, at the end."""
    while True:
        try:
            request, files = _receive(link)
        except (EOFError, ConnectionError):
            return None
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            _send(link, {"status": status if pid else None})
            continue
        assert threading.active_count() == 1, "a thread would be lost in the child"
        pid = os.fork()
        if not pid:
            return request, files
        for file in files:
            os.close(file)
        _send(link, {"pid": pid})


def _become(request: dict[str, Any], files: list[int]) -> Callable[[], object]:
    """Make this process the one that was asked for. Return its program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["new_session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["variables"])
    time.tzset()
    os.chdir(request["folder"])
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = sys.__stdout__ = _text(1, unbuffered, sys.stdout.errors)
    sys.stderr = sys.__stderr__ = _text(2, unbuffered, "backslashreplace", line_buffering=True)
    first, *arguments = request["arguments"]
    sys.orig_argv = [sys.executable, first, *arguments]
    if first == "-c":
        code = compile(arguments[0], "<string>", "exec")
        sys.argv, sys.path[0] = ["-c", *arguments[1:]], ""
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        return lambda: exec(code, main.__dict__)
    if first == "-m":
        sys.argv, sys.path[0] = arguments, request["folder"]
        return lambda: runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    sys.argv, sys.path[0] = [first, *arguments], os.path.dirname(os.path.abspath(first))
    return lambda: runpy.run_path(first, run_name="__main__")


def _text(
    file: int, unbuffered: bool, errors: str | None, line_buffering: bool = False
) -> io.TextIOWrapper:
    raw = io.FileIO(file, "w", closefd=False)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        errors=errors,
        line_buffering=line_buffering or os.isatty(file),
        write_through=unbuffered,
    )


class _End:
    """Ends a program as Python does, without the destruction of its modules.

    That writes to every page of what was imported, so each child would copy all of them, which
    takes a twentieth of a second. Threads have ended before, and so have the other `atexit`
    functions: this one is registered first, and so called last.
    """

    def __init__(self) -> None:
        self._code: int | None = None
        atexit.register(self._now)

    def run(self, program: Callable[[], object]) -> None:
        """Run a program to its end, in a child."""
        try:
            program()
        except SystemExit as ended:
            # Python prints what is no number.
            self._code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
            raise
        except Exception:
            self._code = 1
            raise
        # An interrupted program ends as Python has it: by the signal.
        self._code = 0

    def _now(self) -> None:
        if self._code is not None:
            # What cannot be written is said as Python says it, after this function.
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(self._code & 0xFF)


def main() -> None:
    end = _End()
    link = socket.socket(fileno=int(sys.argv[1]))
    # Ctrl-C in the terminal ends the tests, and with them this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    of_settings = _import_programs()
    # A collection in a child would copy every page.
    gc.collect()
    gc.freeze()
    child = _serve(link)
    if child is None:
        return
    link.close()
    program = _become(*child)
    _forget_settings(of_settings)
    end.run(program)


if __name__ == "__main__":
    main()
