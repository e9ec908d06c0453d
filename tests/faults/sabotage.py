"""Break things inside a worker, as the setting `OJS_SABOTAGE` says.

`{"die": "claimed" | "acknowledging" | "acknowledged", "flag": PATH}`: the first process that comes
to this point kills itself; the file at PATH says that one has.
`{"die": "storing step" | "stored step", "flag": PATH, "step": N}`: the same at the step of a job
with this number, before its INSERT or between that and the commit or what follows.
`{"fail": 0.02}`: this share of the statements on jobs fails with a lock or statement timeout.
`{"fail_once": True}`: each of them fails with a statement timeout when a process first runs it.
`{"clock": SECONDS, "after": SECONDS}`: the clock of the application jumps.
`{"deaf": True}`: it does not listen for notifications.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_ojs import signals

_ACK = re.compile(r"""SET (j\.)?state = 'completed'|^UPDATE.*["`]result["`] = """, re.DOTALL)
_RAISE = "DO $$ BEGIN RAISE EXCEPTION 'sabotage' USING ERRCODE = '{}'; END $$"
_SIGNAL = "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {}, MESSAGE_TEXT = 'sabotage'"
#: Lock not available, and query cancelled (what a statement timeout says).
_CODES = ("55P03", "57014")
_MARIADB_CODES = (1205, 1969)
#: After a deadlock MariaDB has rolled the transaction back.
_MARIADB_DEADLOCK = 1213


class Sabotage(AppConfig):
    """Does what the setting says, once the process is ready."""

    name = "tests.faults.sabotage"
    label = "sabotage"

    def ready(self) -> None:
        plan: dict[str, Any] = getattr(settings, "OJS_SABOTAGE", {})
        if "die" in plan:
            _die(plan["die"], plan["flag"], plan.get("step"))
        if "fail" in plan:
            _on_each_connection(_failing(plan["fail"]))
        if "fail_once" in plan:
            _on_each_connection(_failing_once())
        if "clock" in plan:
            _turn_clock(plan["clock"], plan["after"])
        if "deaf" in plan:
            from django_ojs.storage.dialects.postgresql import PostgreSQL

            setattr(PostgreSQL, "listen", lambda *_: None)  # noqa: B010 - no assignment to a method


Wrapper = Callable[[Callable[..., Any], str, Any, bool, dict[str, Any]], Any]


def _on_each_connection(wrapper: Wrapper) -> None:
    def created(sender: object, connection: BaseDatabaseWrapper, **kwargs: object) -> None:
        if connection.alias == "default" and wrapper not in connection.execute_wrappers:
            connection.execute_wrappers.append(wrapper)

    connection_created.connect(created, weak=False)


def _die(where: str, flag: str, step: int | None) -> None:
    def once(*args: object, **kwargs: object) -> None:
        try:
            os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        with open(flag, "w") as noted:
            noted.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)

    def wrapper(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        acknowledges = _ACK.search(sql) is not None
        if acknowledges and where == "acknowledging":
            once()
        # The second parameter is the number of the step.
        stores = sql.startswith("INSERT INTO ojs_step ") and params[1] == step
        if stores and where == "storing step":
            once()
        result = execute(sql, params, many, context)
        if acknowledges and where == "acknowledged":
            once()
        if stores and where == "stored step":
            once()
        return result

    if where == "claimed":
        # It is sent between the claim's commit and the handler.
        signals.job_started.connect(once, weak=False)
    else:
        _on_each_connection(wrapper)


def _failing(share: float) -> Wrapper:
    dice = random.Random(os.getpid())

    def wrapper(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        if "ojs_" in sql and dice.random() < share:
            _fail(execute, dice.random() < 0.5, context)
        return execute(sql, params, many, context)

    return wrapper


def _failing_once() -> Wrapper:
    seen: set[tuple[int, str]] = set()

    def wrapper(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        # Each combination of the steps of the maintenance that are due is another text: with every
        # one failing once, the jobs that are due would wait for minutes.
        kind = "the conditions of the maintenance" if sql.startswith("SELECT ((") else sql
        if "ojs_" in sql and (os.getpid(), kind) not in seen:
            seen.add((os.getpid(), kind))
            _fail(execute, False, context)
        return execute(sql, params, many, context)

    return wrapper


def _fail(execute: Callable[..., Any], is_lock: bool, context: dict[str, Any]) -> None:
    vendor = context["connection"].vendor
    if vendor == "sqlite":
        raise OperationalError("database is locked")
    # A real error of the server: it breaks the transaction as a timeout does.
    if vendor == "postgresql":
        execute(_RAISE.format(_CODES[not is_lock]), None, False, context)
    if is_lock and random.random() < 0.5:
        execute("ROLLBACK", None, False, context)
        execute(_SIGNAL.format(_MARIADB_DEADLOCK), None, False, context)
    execute(_SIGNAL.format(_MARIADB_CODES[not is_lock]), None, False, context)


def _turn_clock(seconds: float, after: float) -> None:
    """Let the clock jump in all modules of the package, those that copied `datetime` included."""
    # The command would load it later, and copy the real clock.
    import_module("django_ojs.worker.supervisor")
    jump_at = time.monotonic() + after
    real_time, real_ns = time.time, time.time_ns

    def shift() -> float:
        return seconds if time.monotonic() >= jump_at else 0.0

    class AnyDatetime(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class Turned(datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            moved = datetime.now(UTC) + timedelta(seconds=shift())
            return moved.astimezone(tz) if tz is not None else moved.replace(tzinfo=None)

    time.time = lambda: real_time() + shift()
    time.time_ns = lambda: real_ns() + int(shift() * 1e9)
    for name, module in list(sys.modules.items()):
        if name.startswith("django_ojs.") and getattr(module, "datetime", None) is datetime:
            module.__dict__["datetime"] = Turned
