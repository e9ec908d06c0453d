"""manage.py ojs_apikey: create, list, replace and revoke the keys of the HTTP API."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand

from django_ojs.command_line.console import Console
from django_ojs.command_line.database_check import errors_in_words
from django_ojs.command_line.lists import ListColumn, column, write_table
from django_ojs.command_line.operator import operator
from django_ojs.command_line.subcommand import check_texts, duration
from django_ojs.extension import Actor
from django_ojs.models import ActorKind, ApiKey
from django_ojs.operations.access import api_keys, key_expiry
from django_ojs.operations.access.operator import acting
from django_ojs.spec import times
from django_ojs.spec.scopes import Scope

DESCRIPTION = """\
Create, list, replace and revoke the keys with which programs use the HTTP API.

  manage.py ojs_apikey create --name "billing service" --scope producer --queue invoices
  manage.py ojs_apikey create --name "mail workers" --scope worker --queue email --expires 90d
  manage.py ojs_apikey list
  manage.py ojs_apikey replace 4f0zk2m9qa --grace 24h   a new key; the old one is valid for 24 h
  manage.py ojs_apikey revoke 4f0zk2m9qa                invalid from the next request on

A key is ojs_<prefix>_<secret>. The prefix identifies it, here and in logs. The key is printed once
and its secret is not stored: replace a key that is lost. A program sends the key as

  Authorization: Bearer ojs_4f0zk2m9qa_...

Scopes: read (read jobs and queues), producer (enqueue), worker (fetch jobs, report their outcome),
operator (read, enqueue, cancel, retry), admin (everything). Use different keys for producers and
workers.
"""

EPILOG = """\
The key is written to the standard output, everything else to the standard error, so that
KEY=$(manage.py ojs_apikey create ...) works. Exit codes: 0 success, 1 failure, 2 wrong arguments.
"""


class Command(BaseCommand):
    help: Any = DESCRIPTION

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Keep the layout of the help."""
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        kwargs.setdefault("epilog", EPILOG)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

        create = actions.add_parser("create", help="create a key and print it, once")
        create.add_argument(
            "--name", required=True, help="the program that uses the key, and its purpose"
        )
        create.add_argument(
            "--scope",
            dest="scopes",
            action="append",
            required=True,
            choices=[scope.value for scope in Scope],
            help="what the key may do; may be repeated",
        )
        create.add_argument(
            "--queue",
            dest="queues",
            action="append",
            default=[],
            metavar="NAME",
            help="a queue that the key may use; may be repeated (default: all)",
        )
        _add_expires(create)

        actions.add_parser("list", help="show all keys, without their secrets")

        replace = actions.add_parser(
            "replace", help="create a key with the rights of another one, which then expires"
        )
        replace.add_argument("prefix", help="the prefix of the old key")
        replace.add_argument(
            "--grace",
            type=duration,
            default=api_keys.GRACE,
            metavar="DURATION",
            help="how long the old key stays valid (default: 24h)",
        )
        _add_expires(replace)

        revoke = actions.add_parser("revoke", help="make a key invalid")
        revoke.add_argument("prefix", help="the prefix of the key")

    def handle(self, *, action: str, **options: Any) -> None:
        check_texts(options)
        actor = Actor(kind=ActorKind.COMMAND, name=operator("ojs_apikey"))
        with errors_in_words(), acting(actor):
            getattr(self, f"_{action}")(options)

    def _create(self, options: dict[str, Any]) -> None:
        self._show(
            *api_keys.create(
                name=options["name"],
                scopes=options["scopes"],
                queues=options["queues"],
                expires=options["expires"],
            )
        )

    def _replace(self, options: dict[str, Any]) -> None:
        prefix, grace = options["prefix"], options["grace"]
        self._show(*api_keys.replace(prefix, grace=grace, expires=options["expires"]))
        old = api_keys.keys().get(prefix=prefix)
        self.stderr.write(f"The old key is valid until {_moment(old.expires_at)}.")

    def _revoke(self, options: dict[str, Any]) -> None:
        key = api_keys.revoke(options["prefix"])
        self.stderr.write(f"{key} is revoked.")

    def _list(self, options: dict[str, Any]) -> None:
        keys = key_expiry.with_replacement(api_keys.keys()).order_by("name", "pk")
        if keys:
            write_table(Console(self), _COLUMNS, keys)
        else:
            self.stderr.write("There are no API keys.")

    def _show(self, key: ApiKey, text: str) -> None:
        self.stdout.write(text)
        self.stderr.write(f"This is the key of {key}. Store it now: it is not shown again.")
        if key.expires_at is not None:
            self.stderr.write(f"It expires on {_moment(key.expires_at)}.")


def _add_expires(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--expires",
        type=duration,
        metavar="DURATION",
        help="how long the key is valid, such as 90d or P1Y (default: until it is revoked)",
    )


_COLUMNS = [
    column("prefix"),
    column("name"),
    ListColumn(name="status", value=key_expiry.status_text, kind="state"),
    column("scopes"),
    column("queues", words=lambda key: ", ".join(key.queues) or "all"),
    column("expires_at", words=lambda key: _moment(key.expires_at)),
    column("last_used_at", words=lambda key: _moment(key.last_used_at)),
]


def _moment(moment: datetime | None) -> str:
    return times.format_timestamp(moment) if moment else "never"
