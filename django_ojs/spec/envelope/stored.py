"""The `options` column of a job: the attributes that have no column of their own."""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from django_ojs.spec.envelope.fields import FIELDS, INTERNAL, plain
from django_ojs.spec.envelope.model import Envelope

#: What extensions store besides the attributes that they know: see `extension.Attribute`.
_stored_with: Final[dict[str, Callable[[Any, str], Mapping[str, Any]]]] = {}


def store_with(functions: Mapping[str, Callable[[Any, str], Mapping[str, Any]]]) -> None:
    """Set what extensions store besides attributes, by the names of the attributes."""
    _stored_with.clear()
    _stored_with.update(functions)


def with_stored(options: dict[str, Any], queue: str) -> dict[str, Any]:
    """Return the options of a job in a queue with what extensions store besides them."""
    for name, function in _stored_with.items():
        value = options.get(name) or options.get("extra", {}).get(name)
        if value:
            options = {**options, **function(value, queue)}
    return options


def _compile() -> Callable[[Envelope], dict[str, Any]]:
    """Generate `options_of` from the table, as a dataclass generates `__init__` from its fields.

    A loop over the table takes three times as long, and every enqueue calls it.
    """
    lines = ["def options_of(envelope):", "    options = {}"]
    names: dict[str, Any] = {}
    for field in (*FIELDS, *INTERNAL):
        if field.stored is None:
            continue
        default, render = f"{field.name}_default", f"{field.name}_render"
        names |= {default: field.default, render: field.render}
        lines += [
            f"    value = envelope.{field.stored}",
            f"    if value {'is not None' if field.default is None else f'!= {default}'}:",
        ]
        if field.render is plain:
            lines += [f"        options[{field.name!r}] = value"]
        else:
            lines += [
                f"        rendered = {render}(value)",
                "        if rendered is not None:",
                f"            options[{field.name!r}] = rendered",
            ]
    # Without such an extension, no job pays for a call.
    names |= {"stored_with": _stored_with, "with_stored": with_stored}
    lines += ["    if stored_with:", "        return with_stored(options, envelope.queue)"]
    exec("\n".join([*lines, "    return options"]), names)
    return cast("Callable[[Envelope], dict[str, Any]]", names["options_of"])


#: Returns the JSON object to store; empty for a job with the defaults.
options_of: Final = _compile()
