"""manage.py ojs_worker: parse the arguments and start django_ojs.worker."""

import logging
import os
import subprocess
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import Tags
from django.core.checks.registry import registry
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.db.backends.signals import connection_created
from django.utils.autoreload import get_child_arguments

from django_ojs import hooks
from django_ojs.command_line.database_check import (
    require_database,
    with_retries,
)
from django_ojs.conf import settings
from django_ojs.logging import component
from django_ojs.operations.maintenance import lease
from django_ojs.operations.queues.unbounded import BOUND_HINT, CHECK_ID, message, unbounded
from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import OJSError
from django_ojs.spec.scheduling import ALL, STRATEGIES, STRICT, check_weight, parse_order
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.storage import database
from django_ojs.worker.code_watch import CodeWatch
from django_ojs.worker.config import WorkerConfig
from django_ojs.worker.health import HealthFile
from django_ojs.worker.process import WorkerProcess
from django_ojs.worker.queue_selection import handler_queues, mismatch, own_queues
from django_ojs.worker.supervisor import Supervisor, run_process

logger = logging.getLogger("django_ojs")

#: An argument that the command passes to itself: do all that a start does, then exit.
_CHECK_START: Final = "--check-start"
DEFAULT_QUEUES: dict[str, int | None] = {"default": None}

DESCRIPTION = """\
Run background jobs until a signal stops it.

  manage.py ojs_worker                             jobs of the queue "default", 10 at a time
  manage.py ojs_worker --queues critical,default   jobs of "default" only when "critical" has none
  manage.py ojs_worker --queues 'critical,*'       jobs of all queues, those of "critical" first
  manage.py ojs_worker --queues payments:5,email:1 five jobs of "payments" for each of "email"
  manage.py ojs_worker --pool critical             jobs of the queues of a pool in OJS["POOLS"]
  manage.py ojs_worker --processes 2 --threads 8   16 jobs at a time; use more processes for jobs
                                                   that keep the CPU busy
  manage.py ojs_worker --once                      run the jobs that are available now, then exit
                                                   (tests, cron)

Signals: TERM or INT stops the worker. It claims no more jobs and waits for the running ones, for
the grace period at most; then they become available again, without spending an attempt. A second
TERM or INT ends the grace period at once. TSTP stops claiming, running jobs continue; CONT resumes.
A worker process that dies is replaced, and its jobs become available again.
"""

EPILOG = """\
The setting OJS has the defaults (GRACE_PERIOD, POLL_INTERVAL, HEARTBEAT_INTERVAL). In a
container, use the exec form of CMD, so that the worker receives the signals, and a stop timeout
longer than the grace period.
"""


def _queues(text: str) -> dict[str, int | None]:
    """Return the weights of queues in their order, for a text such as `payments:5,email`."""
    queues: dict[str, int | None] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, weight = part.partition(":")
        try:
            if name != ALL:
                check_queue(name, settings().limits)
            queues[name] = None
            if colon:
                queues[name] = int(weight) if weight.isdecimal() else 0
                check_weight(queues[name], f"the weight of {name}")
        except (OJSError, ValueError) as error:
            message = error.message if isinstance(error, OJSError) else "a weight is a number"
            raise ArgumentTypeError(message) from None
    if not queues:
        raise ArgumentTypeError("name at least one queue, such as default")
    return queues


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise ArgumentTypeError("must be a whole number from 1 to 100000")
    return int(text)


def _threads(text: str) -> tuple[int, int]:
    """Parse `8` or `8:32`: how many jobs run at a time, and up to how many may be set (or 0)."""
    first, colon, last = text.partition(":")
    least, most = _count(first), _count(last) if colon else 0
    if colon and most < least:
        raise ArgumentTypeError("must be a number, or two such as 8:32, the smaller first")
    return least, most


def _seconds(text: str) -> timedelta:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86_400:
        raise ArgumentTypeError("must be a number of seconds")
    return timedelta(seconds=value)


def _pause(text: str) -> timedelta:
    pause = _seconds(text)
    if not pause:
        raise ArgumentTypeError("must be longer than zero")
    return pause


class Command(BaseCommand):
    help: Any = DESCRIPTION
    requires_migrations_checks = False

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Keep the line breaks of the help."""
        return super().create_parser(
            prog_name,
            subcommand,
            formatter_class=RawDescriptionHelpFormatter,
            epilog=EPILOG,
            **kwargs,
        )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "-q",
            "--queues",
            type=_queues,
            default=DEFAULT_QUEUES,
            metavar="A,B",
            help=(
                "queues in order of precedence, or with weights (A:5,B:1); * is every other queue "
                "(default: default)"
            ),
        )
        add(
            "--strategy",
            choices=STRATEGIES,
            help=(
                "how queues share the worker: strict claims from a queue only when those before "
                "it have no jobs (default: strict, with weights: weighted)"
            ),
        )
        add(
            "--pool",
            metavar="NAME",
            help="run jobs for this pool of OJS['POOLS'], which sets the queues and the strategy",
        )
        add(
            "-p",
            "--processes",
            type=_count,
            default=1,
            metavar="N",
            help="number of worker processes (default: 1)",
        )
        add(
            "-t",
            "--threads",
            type=_threads,
            default=(10, 0),
            metavar="N",
            help="jobs that a process runs at a time, async ones included (default: 10); with "
            "8:32 it is 8, and can be changed up to 32 on the page of the worker",
        )
        add(
            "--grace",
            type=_seconds,
            metavar="SECONDS",
            help="time for running jobs to end after a stop signal (default: GRACE_PERIOD, 25)",
        )
        add(
            "--poll-interval",
            type=_pause,
            metavar="SECONDS",
            help="time between two polls when no notification comes (default: POLL_INTERVAL, 0.5)",
        )
        add(
            "--label",
            action="append",
            default=[],
            metavar="TEXT",
            help="a label shown with this worker in the admin and the API; may be repeated",
        )
        add("--once", action="store_true", help="run the jobs that are available now, then exit")
        add("--max-jobs", type=_count, metavar="N", help="replace a process after N jobs")
        add(
            "--max-rss",
            type=_count,
            metavar="MB",
            help="replace a process whose memory has exceeded this size",
        )
        add(
            "--health-file",
            metavar="FILE",
            help=(
                "a file that the worker keeps up to date, for a probe: python -m "
                "django_ojs.worker.health FILE"
            ),
        )
        add(
            "--no-reload",
            action="store_true",
            help="with DEBUG, do not restart when the code changes",
        )
        # A worker passes this to find out whether it could restart.
        add(_CHECK_START, action="store_true", help=SUPPRESS)

    def check(self, *args: Any, **kwargs: Any) -> None:
        """Run the system checks, except those of URLs.

        Those import all views of the site, which costs every worker memory and time at its start:
        13 MB for the HTTP API alone.
        """
        checks = registry.registered_checks
        of_urls = {check for check in checks if Tags.urls in check.tags}
        checks -= of_urls
        try:
            super().check(*args, **kwargs)
        finally:
            checks |= of_urls

    def handle(self, **options: Any) -> None:
        """Check the database and the handlers, then run the worker."""
        _check_no_transaction()
        with component("worker"), log_to_console(options["verbosity"]), _kept_connections():
            self._work(**options)

    def _work(self, **options: Any) -> None:
        _check_database()
        config = WorkerConfig.from_settings(
            **_which_jobs(**options),
            processes=options["processes"],
            threads=options["threads"][0],
            most_threads=options["threads"][1],
            grace=options["grace"],
            poll_interval=options["poll_interval"],
            labels=tuple(options["label"]),
            once=options["once"],
            max_jobs=options["max_jobs"],
            max_rss_mb=options["max_rss"],
            health_file=options["health_file"],
        )
        _check_health_file(config)
        if not handler_queues().keys() - own_queues():
            self.stderr.write(
                "No handlers were found: is the app with your jobs.py or tasks.py "
                "in INSTALLED_APPS? Until handlers are found, all jobs are held back."
            )
        self._log_start(config)
        self._warn_of_unbounded(config)
        _warn_of_left_out()
        _tell_extensions()
        if options["check_start"]:
            return
        if config.once:
            run_process(WorkerProcess(config))
            return
        watch = CodeWatch() if django_settings.DEBUG and not options["no_reload"] else None
        changed = None if watch is None else lambda: watch() and _can_start()
        if Supervisor(config, code_changed=changed).run():
            os.execv(sys.executable, get_child_arguments())

    def _log_start(self, config: WorkerConfig) -> None:
        link = database.connection()
        values = link.settings_dict
        logger.info(
            "Database %s: %s %s%s",
            link.alias,
            link.display_name,
            values["NAME"],
            f" on {values['HOST']}" if values.get("HOST") else "",
        )
        handlers, own = handler_queues(), own_queues()
        for queue, types in handlers.items():
            # The queue of webhooks, for example, does not concern a worker that delivers none.
            if queue in own and not {queue, ALL}.intersection(config.queues):
                continue
            logger.info("Handlers of the queue %s: %s", queue, ", ".join(types))
        warning = mismatch(config.queues, handlers, config.pool)
        if warning is not None:
            logger.warning("%s", warning)

    def _warn_of_unbounded(self, config: WorkerConfig) -> None:
        if CHECK_ID in django_settings.SILENCED_SYSTEM_CHECKS:
            return
        try:
            named = [name for name in config.queues if name != ALL]
            names = with_retries(lambda: unbounded(named))
        finally:
            connections.close_all()  # As in _check_database.
        if names:
            logger.warning("%s %s (%s)", message(names), BOUND_HINT, CHECK_ID)


def _check_database() -> None:
    """Raise CommandError unless the database responds and is migrated."""
    try:
        require_database()
    finally:
        # The supervisor forks, and a connection must not be shared.
        connections.close_all()


def _which_jobs(
    *,
    pool: str | None,
    queues: dict[str, int | None],
    strategy: str | None,
    **options: Any,
) -> dict[str, Any]:
    """Return the pool, the queues and their order."""
    if pool is not None:
        if queues is not DEFAULT_QUEUES or strategy is not None:
            raise CommandError(
                "--pool sets the queues and the strategy: leave --queues and --strategy out, "
                "or change the pool in OJS['POOLS']."
            )
        found = settings().pool(pool)
        if found is None:
            known = [each.name for each in settings().pools]
            hint = did_you_mean(pool, known) if known else "OJS['POOLS'] is empty."
            raise CommandError(f"There is no pool {pool!r} in OJS['POOLS']. {hint}")
        return {"pool": found.name, "queues": found.queues, "order": found.order}
    for name in queues:
        if (owner := settings().pool_of_queue.get(name)) is not None:
            raise CommandError(
                f"Only workers of the pool {owner} get jobs of the queue {name}: use --pool "
                f"{owner}, or leave out exclusive in OJS['POOLS'][{owner!r}]."
            )
    weights = tuple((name, weight) for name, weight in queues.items() if weight is not None)
    try:
        order = parse_order(weights, strategy, default=STRICT, field="--strategy")
    except OJSError as error:
        raise CommandError(error.message) from None
    return {"queues": tuple(queues), "order": order}


def _warn_of_left_out() -> None:
    try:
        names = with_retries(lease.left_out)
    finally:
        connections.close_all()  # As in _check_database.
    if names:
        logger.warning(
            "The database has extensions that are not installed here: %s. What they have stored "
            "waits for a worker that has them: see `manage.py ojs doctor --only remains`.",
            ", ".join(names),
        )


def _tell_extensions() -> None:
    try:
        with_retries(hooks.workers_start)
    finally:
        connections.close_all()  # As in _check_database.


def _check_health_file(config: WorkerConfig) -> None:
    if config.health_file is None or config.once:
        return
    try:
        HealthFile(config.health_file).write(is_ready=False)
    except OSError as error:
        raise CommandError(
            f"The health file {config.health_file} cannot be written ({type(error).__name__})."
        ) from None


def _can_start() -> bool:
    # A worker that stopped for new code could not start again if the code had an error. So a start
    # is tried first.
    attempt = subprocess.run(
        [*get_child_arguments(), _CHECK_START], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    if attempt.returncode:
        logger.error(
            "The code changed, and no worker can start with it. This one continues with the old "
            "code.\n%s",
            attempt.stderr.decode(errors="replace").rstrip(),
        )
    return not attempt.returncode


def _check_no_transaction() -> None:
    # The worker's threads have their own connections, which do not see the jobs of this
    # transaction; on SQLite they would wait for its lock.
    if any(connection.in_atomic_block for connection in connections.all(initialized_only=True)):
        raise CommandError(
            "ojs_worker cannot run inside a transaction: its threads have "
            "their own connections and see only rows that are committed. In a "
            "test, run the jobs by drain() of django_ojs.testing: OJSTestMixin "
            "for TestCase, the fixture ojs for pytest. For the command itself "
            "use TransactionTestCase (pytest: django_db(transaction=True))."
        )


@contextmanager
def _kept_connections() -> Iterator[None]:
    """Keep connections from job to job, and notice a server that is gone.

    With Django's default, one connection per request, each job would open a connection. A
    connection to a machine that is off would block its thread for a quarter of an hour.

    A pool of the driver is not used: Django cannot combine it with connections that are kept, each
    thread has a connection anyway, and processes must not share the pool of their supervisor.
    """
    previous = {alias: dict(connections.settings[alias]) for alias in connections}
    for alias in connections:
        values = connections.settings[alias]
        if values.get("CONN_MAX_AGE") == 0:
            values["CONN_MAX_AGE"] = settings().worker_conn_max_age.total_seconds()
        values["CONN_HEALTH_CHECKS"] = True
        options = dict(values.get("OPTIONS") or {})
        if options.pop("pool", None):
            _close_pool(alias)
        values["OPTIONS"] = {**database.client_options(alias), **options}
    connection_created.connect(database.notice_dead_server)
    try:
        yield
    finally:
        connection_created.disconnect(database.notice_dead_server)
        for alias, values in previous.items():
            connections.settings[alias].update(values)


def _close_pool(alias: str) -> None:
    """Close the connections that this process has opened so far, and their pool."""
    link = connections[alias]
    link.close()
    close = getattr(link, "close_pool", None)
    if close is not None:
        with suppress(ImproperlyConfigured):  # psycopg_pool may not be installed.
            close()


@contextmanager
def log_to_console(verbosity: int) -> Iterator[None]:
    """Log to the console, unless the project's LOGGING has a handler."""
    logger = logging.getLogger("django_ojs")
    if logger.hasHandlers():
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
