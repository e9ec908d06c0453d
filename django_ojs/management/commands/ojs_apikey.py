"""manage.py ojs_apikey: make, list, replace and revoke the keys of the HTTP API."""

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from django_ojs.models import ApiKey
from django_ojs.operations.access import api_keys
from django_ojs.spec import times
from django_ojs.spec.errors import OJSError
from django_ojs.spec.scopes import Scope

BY = "manage.py ojs_apikey"

DESCRIPTION = """\
Make, list, replace and revoke the keys with which programs use the HTTP API.

  manage.py ojs_apikey create --name "billing service" --scope producer --queue invoices
  manage.py ojs_apikey create --name "mail workers" --scope worker --queue email --expires 90d
  manage.py ojs_apikey list
  manage.py ojs_apikey replace 4f0zk2m9qa --grace 24h   a new key; the old one works 24 h more
  manage.py ojs_apikey revoke 4f0zk2m9qa                works no more, from the next request on

A key is ojs_<prefix>_<secret>. The prefix names it, here and in logs. The secret is printed once
and not stored: what is lost is replaced. A program sends the key as

  Authorization: Bearer ojs_4f0zk2m9qa_...

Scopes: read (look at jobs), producer (enqueue), worker (fetch, finish), operator (read, enqueue,
cancel, retry), admin (everything). Give a producer and a worker keys of their own.
"""

EPILOG = """\
The key goes to the standard output, all else to the standard error: KEY=$(manage.py ojs_apikey
create ...) works. Ends with 0, with 1 when it cannot be done, with 2 for wrong arguments.
"""


def _duration(text: str) -> timedelta:
    try:
        found = times.parse_duration(text, "it")
    except OJSError:
        found = timedelta(0)
    if not found:
        raise ArgumentTypeError("must be a duration such as 90d, 12h or P30D")
    return found


class Command(BaseCommand):
    """Make, list, replace and revoke API keys."""

    help = DESCRIPTION

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        """Keep the layout of the help."""
        kwargs.setdefault("formatter_class", RawDescriptionHelpFormatter)
        kwargs.setdefault("epilog", EPILOG)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        does = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

        create = does.add_parser("create", help="make a key and print it, once")
        create.add_argument("--name", required=True, help="who uses it, and for what")
        create.add_argument(
            "--scope",
            dest="scopes",
            action="append",
            required=True,
            choices=[scope.value for scope in Scope],
            help="what it may do; more than once for more",
        )
        create.add_argument(
            "--queue",
            dest="queues",
            action="append",
            default=[],
            metavar="NAME",
            help="a queue it may use; more than once for more, left out for all",
        )
        _add_expires(create)

        does.add_parser("list", help="show all keys, without their secrets")

        replace = does.add_parser("replace", help="make a key like another one, which soon expires")
        replace.add_argument("prefix", help="the prefix of the old key")
        replace.add_argument(
            "--grace",
            type=_duration,
            default=api_keys.GRACE,
            metavar="DURATION",
            help="how long the old key goes on working (24h)",
        )
        _add_expires(replace)

        revoke = does.add_parser("revoke", help="let a key work no more")
        revoke.add_argument("prefix", help="the prefix of the key")

    def handle(self, *, action: str, **options: Any) -> None:
        """Do what was asked."""
        try:
            getattr(self, f"_{action}")(options)
        except OJSError as error:
            raise CommandError(error.message) from error

    def _create(self, options: dict[str, Any]) -> None:
        self._show(
            *api_keys.create(
                name=options["name"],
                scopes=options["scopes"],
                queues=options["queues"],
                expires=options["expires"],
                by=BY,
            )
        )

    def _replace(self, options: dict[str, Any]) -> None:
        prefix, grace = options["prefix"], options["grace"]
        self._show(*api_keys.replace(prefix, grace=grace, expires=options["expires"], by=BY))
        old = api_keys.keys().get(prefix=prefix)
        self.stderr.write(f"The old key works until {_moment(old.expires_at)}.")

    def _revoke(self, options: dict[str, Any]) -> None:
        key = api_keys.revoke(options["prefix"], by=BY)
        self.stderr.write(f"{key} is revoked.")

    def _list(self, options: dict[str, Any]) -> None:
        head = ("PREFIX", "NAME", "STATUS", "SCOPES", "QUEUES", "EXPIRES", "LAST USED")
        rows = [head, *(_row(key) for key in api_keys.keys().order_by("name", "pk"))]
        if len(rows) == 1:
            self.stderr.write("There are no API keys.")
            return
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            self.stdout.write("  ".join(cells).rstrip())

    def _show(self, key: ApiKey, text: str) -> None:
        self.stdout.write(text)
        self.stderr.write(f"This is the key of {key}. Keep it now: it is not shown again.")
        if key.expires_at is not None:
            self.stderr.write(f"It expires on {_moment(key.expires_at)}.")


def _add_expires(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--expires",
        type=_duration,
        metavar="DURATION",
        help="how long it works, such as 90d or P1Y; left out: until it is revoked",
    )


def _row(key: ApiKey) -> tuple[str, ...]:
    return (
        key.prefix,
        key.name,
        api_keys.status(key),
        ",".join(key.scopes),
        ",".join(key.queues) or "all",
        _moment(key.expires_at),
        _moment(key.last_used_at),
    )


def _moment(moment: datetime | None) -> str:
    return times.format_timestamp(moment) if moment else "never"
