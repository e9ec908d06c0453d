"""The transaction of an atomic handler, which nothing but the worker ends."""

import re
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from django_ojs.storage import database
from django_ojs.storage.dialects import execute_wrappers

_START: Final = r"(?:^|;)(?:\s+|--[^\n]*\n|/\*.*?\*/)*"
#: A statement that ends the transaction, but not one that ends a savepoint.
_ENDS: Final = re.compile(
    _START
    + r"(COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!(?:\s+(?:WORK|TRANSACTION))?\s+TO))\b",
    re.IGNORECASE | re.DOTALL,
)
#: Statements before which MariaDB commits.
_COMMITS: Final = re.compile(
    _START + r"((?:CREATE|DROP)(?!\s+TEMPORARY)|ALTER|TRUNCATE|RENAME|LOCK\s+TABLES?|GRANT|REVOKE"
    r"|BEGIN|START\s+TRANSACTION|SET\s+(?:SESSION\s+)?AUTOCOMMIT)\b",
    re.IGNORECASE | re.DOTALL,
)
_LITERALS: Final = re.compile(r"'[^']*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)
#: A statement whose body may have statements of its own, with an END.
_HAS_BODY: Final = re.compile(r"\s*CREATE\b", re.IGNORECASE)


class OwnTransaction:
    """A block in which statements that would end the transaction are rejected.

    Otherwise the completion of the job could commit without the handler's rows, or the rows without
    it. The completion is the last statement of this block, so it is checked as well.
    """

    def __init__(self, link: BaseDatabaseWrapper) -> None:
        self._link = link
        # Not every driver begins a transaction before its first statement.
        self._has_begun = self._is_open()

    def __enter__(self) -> None:
        self._link.execute_wrappers.append(self._execute)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._link.execute_wrappers.remove(self._execute)

    def _check(self) -> None:
        """Raise if the transaction has ended, by whatever the handler has called."""
        if self._has_begun and not self._is_open():
            error = TransactionManagementError(
                "The handler ended the transaction that is to complete its job: what it wrote "
                "before that is committed or rolled back already. The worker alone ends it."
            )
            # A retry would write again what was committed.
            error.ojs_retryable = False  # type: ignore[attr-defined]
            raise error

    # An enqueue bypasses the cursor, and so this check, only while the transaction is open.
    @execute_wrappers.for_others
    def _execute(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,
        context: dict[str, Any],
    ) -> Any:
        self._check()
        self._reject_end(sql)
        result = execute(sql, params, many, context)
        self._has_begun = self._has_begun or self._is_open()
        self._check()
        return result

    def _is_open(self) -> bool:
        raw: Any = self._link.connection
        if raw is None or getattr(raw, "closed", False):
            return True  # The connection broke, or was closed: the next statement raises.
        return database.dialect_of(self._link).is_transaction_open(self._link)

    def _reject_end(self, sql: str) -> None:
        text = str(sql)
        if ";" in text:
            text = _LITERALS.sub("", text)
            if _HAS_BODY.match(text):
                text = text.partition(";")[0]
        found = _ENDS.search(text)
        if found is None and not self._link.features.can_rollback_ddl:
            found = _COMMITS.search(text)
        if found is not None:
            raise TransactionManagementError(
                f"An atomic handler cannot execute {found[1].upper()}: it would end the "
                "transaction that is to complete its job. Use a savepoint, which is atomic() in "
                "the handler, or a handler without atomic=True."
            )
