"""Reject changes above the largest message that MariaDB takes (`max_allowed_packet`).

The server ends the connection when it gets a larger message, as if it were away, and the client
would send it again for ever. So it is rejected before it is sent: the connection, and the
caller's transaction, stay usable.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper

from django_ojs.contrib.mariadb import wrappers
from django_ojs.spec.errors import PayloadTooLarge, size_details

#: From this many characters on, the server is asked for its limit: no default is lower, and such a
#: statement takes longer than the question.
_LARGE: Final = 2**16
#: The most bytes of a parameter that is no text, and of the quotes around a text.
_OTHER: Final = 40
#: The characters that the driver escapes with a backslash.
_ESCAPED: Final = "\"'\\\n\r\0\x1a"


def install(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Let a new connection reject what its server would (signal connection_created)."""
    wrappers.install(connection, _run)


def size_in_statement(text: str | None) -> int:
    """Return the bytes of a text as a parameter, which the driver writes into the statement."""
    if text is None:
        return 0
    return len(text.encode(errors="replace")) + sum(map(text.count, _ESCAPED))


def _run(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    # The driver splits a list of rows, and not a row.
    if many:
        params = list(params)  # It may be an iterator.
    for given in params if many else (params or (),):
        values = list(given.values() if isinstance(given, Mapping) else given)
        texts = [value for value in values if isinstance(value, str)]
        if sum(map(len, texts)) >= _LARGE and wrappers.is_change(sql):
            size = len(sql.encode()) + sum(map(size_in_statement, texts)) + _OTHER * len(values)
            _check(size, execute, context)
    return execute(sql, params, many, context)


def _check(size: int, execute: Callable[..., Any], context: dict[str, Any]) -> None:
    execute("SELECT @@max_allowed_packet", None, False, context)
    most = int(context["cursor"].fetchone()[0])
    if size > most:
        raise PayloadTooLarge(
            f"the job or its result makes a statement of {size} bytes, and the database takes "
            f"{most} at most",
            details=size_details(size, most),
            hint="max_allowed_packet of the database server sets the limit.",
        )
