"""Texts that are English for programs, and can be translated for a reader."""

from collections.abc import Callable
from typing import Any, Self


class Translatable(str):
    """An English text that keeps its template and values.

    Imported as `_`, by which the texts for translation are collected. The string itself is English:
    responses of the HTTP API, logs and stored errors have it. `formatting.localized` translates the
    template for a reader. A value may be a Translatable too.
    """

    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, /, **values: Any) -> Self:
        self = super().__new__(cls, template % values if values else template)
        self.template = template
        # An exception would keep the frames of its traceback.
        self.values = {
            name: value if isinstance(value, int | float | str) else str(value)
            for name, value in values.items()
        }
        return self

    # str.__reduce_ex__ would make the text of the string alone.
    def __reduce__(self) -> tuple[Callable[..., str], tuple[Any, ...]]:
        return _rebuild, (self.__class__, self.template, self.values)

    # Without it, copy.deepcopy and pickle take the method of object.
    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., str], tuple[Any, ...]]:
        return self.__reduce__()


def _rebuild(cls: type[Translatable], template: str, values: dict[str, Any]) -> Translatable:
    return cls(template, **values)
