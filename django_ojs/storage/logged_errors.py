"""Errors as they may be logged: without the values that the database writes into its messages."""

from django.db import Error

from django_ojs.storage import database


def without_values(error: BaseException) -> BaseException:
    """Return an error for `exc_info`: itself, or a copy if the database has rejected a statement.

    The text of the database may have the values of a row, such as arguments and results. The copy
    has in its place the reason, the SQLSTATE and the constraint. It keeps the traceback.
    """
    found = next((each for each in _chain(error) if isinstance(each, Error)), None)
    if found is None:
        return error
    known = getattr(found.__cause__, "diag", None)
    details = [getattr(known, name, None) for name in ("sqlstate", "constraint_name")]
    text = ", ".join([database.unavailable_reason(found), *filter(None, details)])
    if found is not error:
        text = f"{type(error).__qualname__}, after {text}"
    return Error(text).with_traceback(error.__traceback__)


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return found
