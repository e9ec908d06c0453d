"""Parse the `manage.py` commands of files and pages that are not typed."""

from __future__ import annotations

import ast
import shlex
from typing import Any

from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

from tests.docs.pages import Block


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
