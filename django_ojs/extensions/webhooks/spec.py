"""The vocabulary of webhooks: queue, retries, addresses (ojs-webhooks §5 to §8)."""

import re
from datetime import timedelta
from typing import Final

from django_ojs.spec.retry_policy import RetryPolicy
from django_ojs.spec.urls import locate

#: The reserved queue of deliveries, and the type of their jobs. Events of this queue are delivered
#: to no webhook: a delivery would cause the next one.
QUEUE: Final = "ojs-webhooks"
JOB_TYPE: Final = "ojs.webhooks.deliver"

SUBSCRIPTION_PREFIX: Final = "sub_"
DELIVERY_PREFIX: Final = "del_"
SECRET_PREFIX: Final = "whsec_"

#: The delays before the second and each later attempt (§7.2).
DELAYS: Final = tuple(
    timedelta(seconds=seconds) for seconds in (30, 120, 600, 3600, 14_400, 43_200, 86_400)
)
MAX_ATTEMPTS: Final = len(DELAYS) + 1
#: The policy for runs that fail in another way than a request does, such as by a timeout.
RETRY: Final = RetryPolicy(
    max_attempts=MAX_ATTEMPTS,
    initial_interval=DELAYS[0],
    backoff_coefficient=4.0,
    max_interval=DELAYS[-1],
)
#: Seconds within which the response has to arrive (§7.3).
TIMEOUT: Final = 30.0
#: Deliveries in a row without a success, after which a webhook is disabled.
DISABLED_AFTER: Final = 10
#: How long deliveries are also signed with the former secret (§8.3).
ROTATION: Final = timedelta(hours=24)

TEST_EVENT: Final = "webhook.test"

_URL: Final = re.compile(r"https?://[!-~]+").fullmatch
MAX_URL: Final = 2000


def is_url(text: object) -> bool:
    """Return whether a text can be the URL of a webhook; sending checks its addresses."""
    if not isinstance(text, str) or len(text) > MAX_URL or not _URL(text):
        return False
    return locate(text) is not None
