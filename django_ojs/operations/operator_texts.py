"""Validation of operators' texts, which are compared or stored."""

from django_ojs.spec.errors import InvalidRequest


def check_text(value: object, field: str, *, longest: int = 255) -> str:
    """Return the text. Raises InvalidRequest unless it is 1 to `longest` printable characters.

    NUL and lone surrogates are not printable; no database could store or compare them.
    """
    if not isinstance(value, str) or not 1 <= len(value) <= longest or not value.isprintable():
        raise InvalidRequest.of(field, f"must be a string of 1 to {longest} printable characters.")
    return value
