"""The body of an answer: compact JSON under the specification's own media type (§4.1, §4.3)."""

from typing import Any, Final

from django.http import HttpResponse
from rest_framework.renderers import BaseRenderer

from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload

#: Exactly this, without a charset: JSON is UTF-8.
MEDIA_TYPE: Final = "application/openjobspec+json"


class OJSRenderer(BaseRenderer):
    """Renders what a view returns; `Accept` decides nothing."""

    media_type = MEDIA_TYPE
    format = "json"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """Return the bytes of an answer."""
        return json.dumps(data).encode()


def respond(data: dict[str, Any] | None, status: int = 200) -> HttpResponse:
    """Return the answer with this object, or without a body for None.

    A plain response, because nothing is negotiated: DRF's own is rendered in three more steps.
    """
    try:
        content = b"" if data is None else json.dumps(data).encode()
    except InvalidPayload as error:
        # What is answered is ours: that it cannot be written is no fault of the client's.
        raise RuntimeError("the answer cannot be written as JSON") from error
    return HttpResponse(content, status=status, content_type=MEDIA_TYPE)
