"""What the execute wrappers of connections to MariaDB share."""

import re
from collections.abc import Callable
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper

_CHANGE: Final = re.compile(
    r"\s*(?:(?:(?:INSERT|REPLACE)\s+(?:IGNORE\s+)?INTO|DELETE\s+(?:j\s+)?FROM|UPDATE)\s+`?ojs_"
    r"|UPDATE\s+\(.*JOIN\s+ojs_)",
    re.DOTALL,
)


def install(connection: BaseDatabaseWrapper, wrapper: Callable[..., Any]) -> None:
    """Let all statements of a connection to MariaDB or MySQL go through a wrapper."""
    # The first wrapper is the outermost. Code that adds one for a while removes the last one.
    if connection.vendor == "mysql" and wrapper not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, wrapper)


def is_change(sql: str) -> bool:
    """Whether a statement changes a table of django_ojs."""
    return bool(_CHANGE.match(sql))
