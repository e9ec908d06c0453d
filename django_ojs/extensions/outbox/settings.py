"""The settings of the outbox."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django_ojs.extensions.outbox import destinations
from django_ojs.setting import DURATION, duration, setting

DESTINATIONS: Final = (
    "a dictionary by name, each with url and some of api_key, queues, types, batch_size (1 to "
    "1000) and timeout"
)


@dataclass(frozen=True, kw_only=True)
class OutboxSettings:
    """Settings in `OJS`; names are the keys in lower case."""

    outbox: tuple[destinations.Destination, ...] = setting((), destinations.read, DESTINATIONS)
    keep_sent: timedelta = setting(timedelta(days=1), duration, DURATION)
