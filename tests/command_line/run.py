"""Run a subcommand in this process, as a shell would."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

from django.core.management import CommandError, call_command


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Run:
    out: str
    err: str
    code: int

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def ojs(*arguments: object, out: io.StringIO | None = None, err: io.StringIO | None = None) -> Run:
    """Run `manage.py ojs` with these arguments; `err` has the message that ends it as well."""
    out, err, code = out or io.StringIO(), err or io.StringIO(), 0
    try:
        call_command("ojs", *map(str, arguments), stdout=out, stderr=err)
    except CommandError as error:
        code = error.returncode
        err.write(f"{error}\n")
    except SystemExit as end:
        code = int(end.code or 0)
    return Run(out.getvalue(), err.getvalue(), code)
