"""`pause`, `drain` and `resume`: whether a queue accepts jobs, and whether workers fetch them."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, Final

from django_ojs.command_line.console import Console
from django_ojs.command_line.subcommand import OK, Options, Subcommand, unknown_name, usage_error
from django_ojs.operations import queues
from django_ojs.spec.errors import NotFound, OJSError
from django_ojs.storage.figures import known_queues

#: How many names of queues are compared with an unknown name.
_COMPARED: Final = 10_000


def known_queue(name: str) -> queues.QueueStatus:
    """Return a queue. A name that is not known is an error: it is probably misspelt."""
    try:
        return queues.get(name)
    except NotFound:
        found = known_queues.by_load(limit=_COMPARED)
        raise unknown_name(
            name,
            found.names,
            none="There is no queue %(name)r. No queue has had a job yet.",
            nothing_like_it="There is no queue %(name)r. The names are %(known)s.",
            of_many=(
                "There is no queue %(name)r, nor one with a similar name. There are %(number)s "
                "queues, such as %(known)s."
            ),
            near="There is no queue %(name)r. Did you mean %(near)s?",
            total=found.total,
        ) from None
    except OJSError as error:
        raise usage_error(error.message) from None


def _each(change: Callable[..., Any], text: str) -> Callable[[Console, Options], int]:
    def run(console: Console, options: Options) -> int:
        # All names are checked before the first queue changes.
        for name in options["queues"]:
            known_queue(name)
        for name in options["queues"]:
            change(name)
            if not console.as_json:
                console.line(text % {"queue": name})
        if console.as_json:
            states = {name: queues.get(name).state.value for name in options["queues"]}
            console.json({"queues": states})
        return OK

    return run


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queues", nargs="+", metavar="QUEUE", help="the name of a queue")


SUBCOMMANDS: Final = (
    Subcommand(
        name="pause",
        help="stop workers from fetching the jobs of a queue",
        description=(
            "Pause queues: they accept jobs, and workers fetch none. Running "
            "jobs continue. Pausing a paused queue changes nothing."
        ),
        examples="  manage.py ojs pause email reports",
        add_arguments=_arguments,
        run=_each(
            queues.pause,
            "Queue %(queue)s is paused: it accepts jobs, and workers fetch none.",
        ),
    ),
    Subcommand(
        name="drain",
        help="let a queue accept no jobs",
        description=(
            "Drain queues: they accept no jobs, and workers finish those that are in them. "
            "`resume` ends the draining."
        ),
        examples="  manage.py ojs drain legacy",
        add_arguments=_arguments,
        run=_each(
            queues.drain,
            "Queue %(queue)s is draining: within a second it accepts no jobs, and workers "
            "finish those in it.",
        ),
    ),
    Subcommand(
        name="resume",
        help="end the pause and the draining of a queue",
        description=(
            "Resume queues that are paused or draining: they accept jobs, and workers fetch them."
        ),
        examples="  manage.py ojs resume email",
        add_arguments=_arguments,
        run=_each(
            queues.resume,
            "Queue %(queue)s is resumed: it accepts jobs, and workers fetch them.",
        ),
    ),
)
