"""What an extension brings to the command line, and to the worker that starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_ojs.command_line.console import Console
from django_ojs.command_line.subcommand import Options, Subcommand
from django_ojs.extension import Hooks
from django_ojs.extensions.cron import CronExtension
from django_ojs.hooks import registry
from tests.command_line.run import ojs
from tests.test_extension import Other, installed

pytestmark = pytest.mark.django_db(transaction=True)


def _greet(console: Console, options: Options) -> int:
    console.line(f"Hello, {options['name']}.")
    return 0


class Greeting(Other):
    """An extension that greets on each door."""

    def subcommands(self) -> Sequence[Any]:
        return (
            Subcommand(
                name="greet",
                help="greet somebody",
                description="Greet somebody.",
                examples="  manage.py ojs greet Ada",
                add_arguments=lambda parser: parser.add_argument("name") and None,
                run=_greet,
            ),
        )


def test_an_extension_brings_subcommands_while_it_is_installed() -> None:
    assert "invalid choice: 'greet'" in ojs("greet", "Ada").err
    with installed(Greeting(Hooks())):
        assert ojs("greet", "Ada").out == "Hello, Ada.\n"


def test_without_cron_there_is_no_cron_subcommand() -> None:
    cron = next(each for each in registry.extensions() if isinstance(each, CronExtension))
    registry.remove(cron)
    try:
        assert "invalid choice: 'cron'" in ojs("cron", "list").err
    finally:
        registry.register(cron)
    assert ojs("cron", "list").code == 0


def test_an_extension_is_told_that_workers_start_and_may_end_the_command() -> None:
    def refuse() -> None:
        raise CommandError("not today")

    with (
        installed(Other(Hooks(workers_start=refuse))),
        pytest.raises(CommandError, match="not today"),
    ):
        call_command("ojs_worker", "--once")
