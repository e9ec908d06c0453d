"""Nothing is negotiated: there is one format (http-binding §4.3)."""

from collections.abc import Iterable

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class NoNegotiation(BaseContentNegotiation):
    """Takes the only parser and the only renderer, whatever the request says."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        """Return the parser."""
        return next(iter(parsers))

    def select_renderer(
        self,
        request: Request,
        renderers: Iterable[BaseRenderer],
        format_suffix: str | None = None,
    ) -> tuple[BaseRenderer, str]:
        """Return the renderer and its media type."""
        renderer = next(iter(renderers))
        return renderer, renderer.media_type or ""
