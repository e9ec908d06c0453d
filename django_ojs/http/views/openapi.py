"""The OpenAPI document. It needs no credentials: it describes routes, and holds no stored data."""

from pathlib import Path
from typing import Any, Final

import yaml
from rest_framework.request import Request

from django_ojs.hooks import registry
from django_ojs.http.views.base import PublicView

#: What the core serves.
_CORE: Final = Path(__file__).parents[1] / "openapi.yaml"


class Document:
    """The content of `openapi.yaml`, with the parts of the extensions.

    It is parsed at the first request and not before, because that takes 0.1 s.
    """

    def __init__(self) -> None:
        self._content: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """Return the document; the same object each time, which nothing may change."""
        if self._content is None:
            content = _read(_CORE)
            for extension in registry.extensions():
                found = extension.openapi or {}
                part = _read(found) if isinstance(found, Path) else found
                content["tags"] += part.get("tags", ())
                content["paths"] |= part.get("paths", {})
                for kind, components in part.get("components", {}).items():
                    for name, own in components.items():
                        known = content["components"][kind].setdefault(name, own)
                        if known is not own:
                            # The extension adds members to an object of the core.
                            known["properties"] |= own["properties"]
            self._content = content
        return self._content

    def reset(self) -> None:
        """Read the files again at the next request."""
        self._content = None


DOCUMENT: Final = Document()


def _read(file: Path) -> dict[str, Any]:
    # The parser in C is ten times as fast, and not in every build of PyYAML.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(file.read_bytes(), Loader=loader)
    return found


class OpenAPI(PublicView):
    """The document, whose `servers` has the prefix of these URLs in the project."""

    def get(self, request: Request) -> dict[str, Any]:
        base = request.path.removesuffix("/ojs/v1/openapi.json") or "/"
        return {**DOCUMENT.read(), "servers": [{"url": base}]}
