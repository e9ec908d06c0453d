"""What the figures cost an enqueue: each is noted in memory, and written every ten seconds.

One call notes its figures and the next does not, so that both see the same load.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING
from unittest import mock

from tests.benchmarks.contenders.base import Contender
from tests.benchmarks.scale import Scale

if TYPE_CHECKING:
    from tests.benchmarks.field import Field

FIGURES = "enqueue, figures"
NOTED, LEFT_OUT = "with figures", "without figures"


def measure(field: Field, scale: Scale) -> None:
    """Enqueue with and without figures, in every round."""
    from tests.benchmarks import contenders

    producer = field.producer(contenders.OURS)
    for round_ in range(scale.rounds):
        for name, rate in producer.do("figures", calls=scale.singles).items():
            field.results.add(FIGURES, name, round_, rate)


# The rest runs in a producer's process.


def figures(contender: Contender, *, calls: int) -> dict[str, float]:
    """Return jobs a second, each in a transaction of its own, with figures and without."""
    from django_ojs.extensions.statistics import rollups

    contender.reset()
    left_out = mock.patch.object(rollups, "add", return_value=None)
    took = dict.fromkeys((NOTED, LEFT_OUT), 0.0)
    for number in range(-3, calls):
        # Each is first in every other round of calls: the second one finds warmer caches.
        for name in sorted(took, reverse=number % 2 == 0):
            with left_out if name == LEFT_OUT else nullcontext():
                began = time.perf_counter()
                contender.enqueue(number)
                if number >= 0:
                    took[name] += time.perf_counter() - began
    return {name: calls / seconds for name, seconds in took.items()}
