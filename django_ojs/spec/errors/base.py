"""The class every error of this package derives from (error-catalog §6)."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self


class OJSError(Exception):
    """Say what went wrong, with the code, number and status under which the catalogue lists it.

    `code` is what the wire emits, `canonical` the SCREAMING_SNAKE_CASE name of the errors document
    (None where it has none), `number` the catalogue's OJS-NNNN ("" for our own client-side
    errors), `status` the HTTP status (None: never leaves the process), `type` the seed documents'
    own name for the condition. `details` and `hint` belong to one occurrence. Messages name the
    field and the rule, never a value.
    """

    code: ClassVar[str] = "backend_error"
    canonical: ClassVar[str | None] = None
    number: ClassVar[str] = ""
    status: ClassVar[int | None] = None
    retryable: ClassVar[bool] = False
    type: ClassVar[str | None] = None

    message: str
    details: dict[str, Any]
    hint: str | None

    def __init__(
        self, message: str, /, *, details: Mapping[str, Any] | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details) if details else {}
        self.hint = hint

    @classmethod
    def of(cls, field: str, rule: str) -> Self:
        """Make the error for a field that breaks a rule: `of("args", "must be an array")`."""
        return cls(f"{field} {rule}", details={"field": field})

    def __str__(self) -> str:
        return self.message

    # Exception's own __reduce__ calls cls(*args) and would lose what is keyword-only.
    def __reduce__(self) -> tuple[Callable[..., "OJSError"], tuple[Any, ...]]:
        return _rebuild, (self.__class__, self.message, self.details, self.hint)

    def with_details(self, **details: Any) -> Self:
        """Add to the details (a batch adds `index`) and return the error."""
        self.details.update(details)
        return self


def _rebuild(
    cls: Callable[..., OJSError], message: str, details: dict[str, Any], hint: str | None
) -> OJSError:
    return cls(message, details=details, hint=hint)
