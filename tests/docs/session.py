"""The `manage.py shell` of a page's reader: it takes blocks on stdin, and says what went wrong.

A block is a line of JSON: `{"text": …, "is_transcript": …, "where": …}`. The response is a line on
the file descriptor that the first argument names: JSON, and the failure or null.
"""

from __future__ import annotations

import doctest
import json
import os
import sys
import traceback
from typing import Any

from django.core.management.commands.shell import Command

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def transcript(text: str, where: str, names: dict[str, Any]) -> str | None:
    session = doctest.DocTestParser().get_doctest(text, names, where, where, 0)
    session.globs = names
    said: list[str] = []
    found = doctest.DocTestRunner(optionflags=OPTIONS).run(
        session, out=said.append, clear_globs=False
    )
    if not found.attempted:
        return "there is no prompt"
    return "".join(said) if found.failed else None


def code(text: str, where: str, names: dict[str, Any]) -> str | None:
    try:
        exec(compile(text, where, "exec", dont_inherit=True), names)
    except Exception:
        return traceback.format_exc()
    return None


def main(responses: int) -> None:
    # A new shell knows the models, and nothing else.
    names = {**Command().get_namespace(verbosity=0), "__name__": "__console__"}
    for line in sys.stdin:
        block = json.loads(line)
        run = transcript if block["is_transcript"] else code
        failure = run(block["text"], block["where"], names)
        os.write(responses, json.dumps(failure).encode() + b"\n")
