"""JSON responses: compact, under the specification's own media type (http-binding §4)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.http import HttpResponse

from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload
from django_ojs.spec.times import format_timestamp

#: It has no charset, because JSON is always UTF-8.
MEDIA_TYPE: Final = "application/openjobspec+json"


def json_response(
    data: dict[str, Any] | None, status: int = 200, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Return a response with this object, or without a body for None.

    DRF's Response is not used: it takes three more steps, and no content type is negotiated.
    """
    try:
        text = "" if data is None else json.dumps(data)
    except InvalidPayload as error:
        raise unwritable() from error
    return text_response(text, status, headers)


def text_response(
    text: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Return a response with the text of an object."""
    return HttpResponse(text.encode(), status=status, content_type=MEDIA_TYPE, headers=headers)


def unwritable() -> RuntimeError:
    """Return the error for stored data that cannot be JSON, which is no fault of the client."""
    return RuntimeError("the response cannot be written as JSON")


def timestamps(**moments: datetime | None) -> dict[str, str]:
    """Return these times as responses show them, without those that are None."""
    return {
        name: format_timestamp(moment) for name, moment in moments.items() if moment is not None
    }
