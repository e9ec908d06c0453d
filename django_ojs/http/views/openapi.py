"""The OpenAPI document. It has no stored data, so it needs no credentials."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml
from django.http import HttpRequest

from django_ojs.hooks import registry
from django_ojs.http.views.base import PublicView

#: What the core serves.
_CORE: Final = Path(__file__).parents[1] / "openapi.yaml"
#: Headers that each request may have, and that each response has.
_HEADERS: Final = ("OJS-Version", "X-Request-Id")


class Document:
    """The content of `openapi.yaml`, with the parts of the extensions.

    Parsing takes 0.1 s, so it waits for the first request.
    """

    def __init__(self) -> None:
        self._content: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """Return the document; the same object each time, which nothing may change."""
        if self._content is None:
            content = _read(_CORE)
            for extension in registry.extensions():
                found = extension.openapi or {}
                part = _read(found) if isinstance(found, Path) else deepcopy(dict(found))
                content["tags"] += part.get("tags", ())
                content["paths"] |= part.get("paths", {})
                for kind, components in part.get("components", {}).items():
                    for name, own in components.items():
                        known = content["components"][kind].setdefault(name, own)
                        if known is not own:
                            # The extension adds members to an object of the core.
                            known["properties"] |= own["properties"]
            _complete(content)
            self._content = content
        return self._content

    def reset(self) -> None:
        """Read the files again at the next request."""
        self._content = None


DOCUMENT: Final = Document()


def _read(file: Path) -> dict[str, Any]:
    # The parser in C is ten times as fast, but not every build of PyYAML has it.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(file.read_bytes(), Loader=loader)
    return found


def _complete(content: dict[str, Any]) -> None:
    """Add what every path, operation and response has; the head of `openapi.yaml` lists it."""
    responses = list(content["components"]["responses"].values())
    for path, item in content["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                own = operation["responses"]
                responses += [each for each in own.values() if "$ref" not in each]
                usual = {code: _ref("responses", name) for code, name in _errors(path, operation)}
                operation["responses"] = dict(sorted((usual | own).items()))
        item["parameters"] = [
            *item.get("parameters", ()),
            *(_ref("parameters", name) for name in _HEADERS),
        ]
    for response in responses:
        usual = {name: _ref("headers", name) for name in _HEADERS}
        response["headers"] = usual | response.get("headers", {})


def _errors(path: str, operation: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the errors with which the operation may end, unless it describes them itself."""
    yield "400", "BadRequest"
    if operation.get("security") != []:
        yield "401", "Unauthorized"
        yield "403", "Forbidden"
    if "{" in path:
        yield "404", "NotFound"
    if "requestBody" in operation:
        yield "413", "ContentTooLarge"
        yield "415", "UnsupportedMediaType"
    yield "422", "UnprocessableContent"
    yield "500", "InternalServerError"
    yield "503", "ServiceUnavailable"


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


class OpenAPI(PublicView):
    """The document; its `servers` has the prefix under which the project includes the URLs."""

    def get(self, request: HttpRequest) -> dict[str, Any]:
        base = request.path.removesuffix("/ojs/v1/openapi.json") or "/"
        return {**DOCUMENT.read(), "servers": [{"url": base}]}
