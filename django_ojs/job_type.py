"""The job type of a task, made of the path of its function (`django.tasks`) or its name (Celery).

Most paths, such as `shop.tasks.send_receipt`, are job types as they are. Others have characters
that a job type cannot have: a capital letter becomes "-" and the small one, any other character
"-" and six hexadecimal digits, and a segment that would not begin with a letter begins with "x--".
No identifier has a hyphen, so two paths never have the same type. The registry of handlers finds
the function of a type: a path made of the type would let a producer choose what is imported.
"""

import re
from typing import Final

_PLAIN: Final = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*").fullmatch
_OTHER: Final = re.compile(r"[^a-z0-9_]")


def job_type_of(path: str) -> str:
    """Return the job type of a task, given its `module_path` or its name."""
    if _PLAIN(path):
        return path
    return ".".join(map(_encode, path.split(".")))


def _encode(segment: str) -> str:
    text = _OTHER.sub(_escape, segment)
    return text if "a" <= text[:1] <= "z" else f"x--{text}"


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return f"-{character.lower()}" if "A" <= character <= "Z" else f"-{ord(character):06x}"
