"""manage.py ojs_relay: parse the arguments and run the relays of the outbox."""

import signal
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import Error, connections

from django_ojs.command_line.database_check import errors_in_words, schema_problem
from django_ojs.conf import of
from django_ojs.extensions.outbox import local
from django_ojs.extensions.outbox import operations as outbox
from django_ojs.extensions.outbox.relay import POLL_INTERVAL, Relay
from django_ojs.extensions.outbox.relay_threads import Relays, relays
from django_ojs.extensions.outbox.settings import OutboxSettings
from django_ojs.management.commands.ojs_worker import log_to_console
from django_ojs.spec import ids
from django_ojs.spec.full_policy import LOCAL
from django_ojs.storage import database
from django_ojs.storage.backoff import Backoff
from django_ojs.worker.signal_handlers import signal_handlers
from django_ojs.worker.wakes import WakeEvent

DESCRIPTION = """\
Send the jobs of the outbox to their servers until a signal stops it.

  manage.py ojs_relay                        to all destinations of OJS["OUTBOX"]
  manage.py ojs_relay --destination billing  to one destination; may be repeated
  manage.py ojs_relay --once                 send the jobs that can be sent now, then exit
                                             (cron, tests)

A worker does the same: ojs_worker needs no ojs_relay beside it. Run ojs_relay where there is no
worker, or where sending should not share a process with jobs. Any number may run: one of them at a
time sends to a destination, another one takes over two seconds after it died.

Jobs are sent in the order of their commits. While a server is unreachable or full, its jobs wait:
1, 2, 4, 8 seconds, then 10 seconds between two tries; Retry-After is honoured. A job that the
server rejects for good stays in the outbox; the admin shows it with the reason.
"""


class Command(BaseCommand):
    help: Any = DESCRIPTION

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Keep the line breaks of the help."""
        return super().create_parser(
            prog_name, subcommand, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="send the jobs that can be sent now, then exit"
        )
        parser.add_argument(
            "--destination",
            action="append",
            metavar="NAME",
            help="send to this destination only; may be repeated (default: all)",
        )

    def handle(self, **options: Any) -> None:
        """Send the jobs of the outbox."""
        with log_to_console(options["verbosity"]), errors_in_words():
            self._relay(**options)

    def _relay(self, **options: Any) -> None:
        names = options["destination"]
        known = {each.name for each in of(OutboxSettings).outbox} | {LOCAL}
        for name in names or ():
            if name not in known:
                raise CommandError(
                    f"There is no destination {name!r}; there are {', '.join(sorted(known))}."
                )
        try:
            found = relays(f"relay_{ids.uuid7()}", names)
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from None
        here = names is None or LOCAL in names
        if options["once"]:
            self._once(found, here)
        else:
            self._work(found, here)

    def _once(self, found: list[Relay], here: bool) -> None:
        for relay in found:
            try:
                # This ends when the relay must wait, has no jobs, or another relay holds its lease.
                while not relay.send_next():
                    pass
            finally:
                relay.close()
            self.stdout.write(
                f"{relay.destination.name}: {relay.sent_count} sent, {relay.rejected_count} "
                "rejected"
            )
        if here:
            self.stdout.write(f"{LOCAL}: {local.deliver_all()} stored")
        outbox.prune()

    def _work(self, found: list[Relay], here: bool) -> None:
        stop = WakeEvent()
        with signal_handlers(dict.fromkeys((signal.SIGTERM, signal.SIGINT), partial(_stop, stop))):
            self._work_until(stop, found, here)

    def _work_until(self, stop: WakeEvent, found: list[Relay], here: bool) -> None:
        running = Relays(found)
        is_away, pause, backoff = False, POLL_INTERVAL, Backoff()
        try:
            while not stop.wait(pause):
                try:
                    if here:
                        local.deliver_all()
                    outbox.prune()
                    is_away, pause = False, POLL_INTERVAL
                    backoff.reset()
                except Error as error:
                    if not is_away:
                        self.stderr.write(_problem(error))
                    is_away, pause = True, backoff.pause()
                    connections.close_all()
        finally:
            running.close()


def _problem(error: Error) -> str:
    """Return why the relay cannot work: the tables are missing, or the database is away."""
    with suppress(Error):
        connections.close_all()  # The transaction may be broken.
        if (problem := schema_problem()) is not None:
            return problem
    reason = database.unavailable_reason(error)
    return f"The database does not respond ({reason}); trying again."


def _stop(stop: WakeEvent, number: int, frame: FrameType | None) -> None:
    stop.set()
