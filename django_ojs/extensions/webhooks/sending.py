"""Send one event to a webhook: signed, and to addresses that are allowed (ojs-webhooks §5.3, §8).

The connection is guarded like one for a payload: a name is resolved once, its addresses are
checked, and the connection goes to a checked one. Redirects are not followed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from django_ojs.conf import of, settings
from django_ojs.extensions.events.spec import SPECVERSION
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.webhooks.operations import subscriptions
from django_ojs.extensions.webhooks.settings import WebhookSettings
from django_ojs.extensions.webhooks.signature import signature
from django_ojs.spec import ids, json
from django_ojs.spec.errors import PayloadRejected, PayloadUnavailable
from django_ojs.spec.retry_after_reader import read_retry_after
from django_ojs.spec.times import format_timestamp
from django_ojs.version import VERSION

#: The most bytes of a response that are read, for the test of a webhook.
MAX_RESPONSE: Final = 1000

#: Seconds that a test may take. The caller waits for it, and occupies a thread of the server.
TEST_TIMEOUT: Final = 10.0

TOO_MANY: Final = 429


@dataclass(frozen=True, kw_only=True, slots=True)
class SendingResult:
    """The result of an attempt. `status` is 0 without a response. `reason` is why it failed."""

    status: int = 0
    reason: str = ""
    #: The attempt was not made, or must not be repeated.
    is_final: bool = False
    milliseconds: int = 0
    body: str = ""
    #: Seconds that the receiver asks to wait.
    retry_after: float | None = None

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300


def send(
    webhook: Webhook, event: Mapping[str, Any], delivery: UUID, timeout: float = webhooks.TIMEOUT
) -> SendingResult:
    """Make one attempt to deliver an event."""
    body = json.dumps(dict(event)).encode()
    timestamp = str(int(timezone.now().timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"OJS-Webhook/1.0 django-ojs/{VERSION}",
        "X-OJS-Event-Type": str(event["type"]),
        "X-OJS-Delivery-ID": f"{webhooks.DELIVERY_PREFIX}{delivery}",
        "X-OJS-Subscription-ID": f"{webhooks.SUBSCRIPTION_PREFIX}{webhook.pk}",
        "X-OJS-Timestamp": timestamp,
        "X-OJS-Signature": signature(subscriptions.secrets_of(webhook), timestamp, body),
    }
    began = time.monotonic()
    try:
        return _post(webhook.url, headers, body, timeout, began)
    except PayloadRejected as error:
        return SendingResult(reason=error.message, is_final=True, milliseconds=_since(began))
    except PayloadUnavailable as error:
        cause = error.details.get("cause")
        reason = f"no response: {cause}" if cause else "no response"
        return SendingResult(reason=reason, milliseconds=_since(began))
    except ImportError:
        return SendingResult(reason="webhooks need a library: install django-ojs[payloads]")


def event_of_test(webhook: Webhook) -> dict[str, Any]:
    """Return the event that a test sends (§6.6)."""
    return {
        "specversion": SPECVERSION,
        "id": f"evt_{ids.uuid7()}",
        "type": webhooks.TEST_EVENT,
        "source": f"ojs://{settings().service_name}/api",
        "time": format_timestamp(timezone.now()),
        "subject": f"{webhooks.SUBSCRIPTION_PREFIX}{webhook.pk}",
        "data": {},
    }


def _post(
    url: str, headers: Mapping[str, str], body: bytes, timeout: float, began: float
) -> SendingResult:
    # It is imported here, because a site without webhooks does not need the library.
    from django_ojs.extensions.payloads.schemes import https

    values = of(WebhookSettings)
    if not url.startswith("https://") and not values.webhook_http:
        raise PayloadRejected("the URL is not https, and OJS['WEBHOOK_HTTP'] is not set")
    response = https.post(
        url,
        headers,
        body,
        timeout=timeout,
        allowed=values.webhook_private_networks,
        setting="WEBHOOK_PRIVATE_NETWORKS",
        max_bytes=MAX_RESPONSE,
    )
    status = response.status
    return SendingResult(
        status=status,
        reason="" if 200 <= status < 300 else f"status {status}",
        is_final=300 <= status < 500 and status != TOO_MANY,
        milliseconds=_since(began),
        body=response.body.decode(errors="replace"),
        retry_after=read_retry_after(response.headers),
    )


def _since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)


def send_test(webhook: Webhook) -> SendingResult:
    """Send the event of a test, once."""
    return send(webhook, event_of_test(webhook), ids.uuid7(), TEST_TIMEOUT)
