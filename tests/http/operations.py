"""The operations of the OpenAPI document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from django_ojs.http.views.openapi import DOCUMENT

_SCOPE = re.compile(r"Needs the scope `(\w+)`\.$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """A method of a path. `parameters` are those of the path, too."""

    method: str
    path: str
    content: dict[str, Any]
    parameters: list[dict[str, Any]]

    @property
    def id(self) -> str:
        return str(self.content["operationId"])

    @property
    def scope(self) -> str | None:
        """Return the scope that the description names."""
        found = _SCOPE.search(self.content.get("description", ""))
        return found[1] if found else None

    @property
    def responses(self) -> dict[int, dict[str, Any]]:
        return {int(status): found for status, found in self.content["responses"].items()}

    def is_error(self, status: int) -> bool:
        """Whether a response is an error; a health check that fails is a report."""
        return status >= 400 and resolve(self.responses[status])["content"] == _ERROR


_ERROR_SCHEMA = "#/components/schemas/ErrorResponse"
_ERROR = {"application/openjobspec+json": {"schema": {"$ref": _ERROR_SCHEMA}}}


def resolve(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference means, or the object itself."""
    if "$ref" not in found:
        return found
    target: Any = DOCUMENT.read()
    for name in found["$ref"].removeprefix("#/").split("/"):
        target = target[name]
    return dict(target)


def operations() -> list[Operation]:
    """Return them in the order of the document."""
    return [
        Operation(
            method=method.upper(),
            path=path,
            content=content,
            parameters=[*map(resolve, item["parameters"] + content.get("parameters", []))],
        )
        for path, item in DOCUMENT.read()["paths"].items()
        for method, content in item.items()
        if method != "parameters"
    ]


def tags() -> list[str]:
    return [tag["name"] for tag in DOCUMENT.read()["tags"]]
