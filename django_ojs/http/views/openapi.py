"""The OpenAPI document, for everybody: it says how to ask, and nothing of what is stored."""

from typing import Any

from rest_framework.request import Request

from django_ojs.http.views.base import PublicView


class OpenAPI(PublicView):
    """This API, described."""

    def get(self, request: Request) -> dict[str, Any]:
        """Return the document."""
        # Reads all routes, and these read this module.
        from django_ojs.http.schema.generator import document

        base = request.path.removesuffix("/ojs/v1/openapi.json") or "/"
        return {**document(), "servers": [{"url": base}]}
