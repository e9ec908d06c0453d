"""JSON responses: compact, under the specification's own media type (§4.1, §4.3)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from django.http import HttpResponse

from django_ojs.spec import json
from django_ojs.spec.errors import InvalidPayload
from django_ojs.spec.times import format_timestamp

#: Exactly this, without a charset: JSON is UTF-8.
MEDIA_TYPE: Final = "application/openjobspec+json"


def json_response(
    data: dict[str, Any] | None, status: int = 200, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    """Return a response with this object, or without a body for None.

    Not DRF's Response: nothing is negotiated, and that class is rendered in three more steps.
    """
    try:
        content = b"" if data is None else json.dumps(data).encode()
    except InvalidPayload as error:
        # The server made this data: the client must not get a 400 for it.
        raise RuntimeError("the response cannot be written as JSON") from error
    return HttpResponse(content, status=status, content_type=MEDIA_TYPE, headers=headers)


def timestamps(**moments: datetime | None) -> dict[str, str]:
    """Return these fields as the wire has them, without those that are None."""
    return {
        name: format_timestamp(moment) for name, moment in moments.items() if moment is not None
    }
