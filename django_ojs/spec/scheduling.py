"""Pools of workers, and the order in which a worker claims from its queues (ojs-fair-scheduling).

Only the workers of an exclusive pool get the jobs of its queues. The document calls this isolation;
in this package, an isolated job is one that runs alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Self

from django_ojs.spec.envelope import check_queue
from django_ojs.spec.errors import InvalidRequest
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.spec.times import parse_seconds

STRICT: Final = "strict"
ROUND_ROBIN: Final = "round-robin"
WEIGHTED: Final = "weighted"
STRATEGIES: Final = (STRICT, ROUND_ROBIN, WEIGHTED)

#: The most jobs in one turn of a queue, for which the other queues wait.
MAX_WEIGHT: Final = 1000
MAX_NAME: Final = 63

#: The name that stands for every queue that is not named.
ALL: Final = "*"
#: In the shares, this stands for a turn of the first queue that has jobs. No queue can have this
#: name.
FIRST_WITH_JOBS: Final = ""

#: The sum of the shares with starvation prevention, where each queue has a part of all claims.
_WHOLE: Final = 1_000_000

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*").fullmatch


@dataclass(frozen=True, kw_only=True, slots=True)
class StarvationPrevention:
    """What each queue gets, whatever the strategy is (§8).

    It gets a part of the jobs that are claimed, and at least one job in each interval.
    """

    rotation_interval: timedelta = timedelta(seconds=30)
    min_dispatch_ratio: float = 0.05

    @classmethod
    def parse(cls, value: object, field: str, queues: int) -> Self | None:
        """Return the value of a setting, or None if it is not enabled. Raises InvalidRequest."""
        if isinstance(value, bool):
            value = {"enabled": value}
        if not isinstance(value, Mapping):
            raise InvalidRequest.of(field, "must be True, False or a dictionary")
        _check_keys(value, ("enabled", "rotation_interval", "min_dispatch_ratio"), field)
        values = {name: given for name, given in value.items() if name != "enabled"}
        if not _boolean(value.get("enabled", True), f"{field}.enabled"):
            return None
        if "rotation_interval" in values:
            name = f"{field}.rotation_interval"
            values["rotation_interval"] = parse_seconds(values["rotation_interval"], name)
            if values["rotation_interval"] <= timedelta(0):
                raise InvalidRequest.of(name, "must be longer than zero")
        found = cls(**values)
        ratio, name = found.min_dispatch_ratio, f"{field}.min_dispatch_ratio"
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
            raise InvalidRequest.of(name, "must be a number from 0 to 1")
        if ratio * queues > 1:
            raise InvalidRequest.of(
                name, f"must be at most {1 / queues:.2g}: each of {queues} queues gets this part"
            )
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueOrder:
    """The order in which a worker claims from its queues. By default, earlier queues come first."""

    strategy: str = STRICT
    weights: tuple[tuple[str, int], ...] = ()
    prevention: StarvationPrevention | None = None

    @property
    def is_strict(self) -> bool:
        """Whether a queue never waits for one after it."""
        return self.strategy == STRICT and self.prevention is None

    def weight_of(self, queue: str) -> int:
        """Return the weight of a queue. One without a weight has the weight of `*`, or 1."""
        if self.strategy != WEIGHTED:
            return 1
        weights = dict(self.weights)
        return weights.get(queue, weights.get(ALL, 1))

    def shares(self, queues: Sequence[str]) -> dict[str, int]:
        """Return which share of the turns each of these queues has, in their order.

        `FIRST_WITH_JOBS` has the turns that the order of the queues decides.
        """
        if self.strategy == STRICT:
            shares = {FIRST_WITH_JOBS: 1}
        else:
            weights = dict(self.weights) if self.strategy == WEIGHTED else {}
            others = weights.get(ALL, 1)
            shares = {name: weights.get(name, others) for name in queues}
        if self.prevention is None:
            return shares
        least = int(min(self.prevention.min_dispatch_ratio, 1 / len(queues)) * _WHOLE)
        rest, total = _WHOLE - least * len(queues), sum(shares.values())
        # A queue with a part of zero would never get a turn.
        parts = {name: least + rest * shares.get(name, 0) // total for name in queues}
        if self.strategy == STRICT:
            return {name: part for name, part in parts.items() if part} | {FIRST_WITH_JOBS: rest}
        return {name: max(1, part) for name, part in parts.items()}

    def ratios(self, queues: Sequence[str]) -> dict[str, float | None]:
        """Return the part of the jobs that each queue gets while all have jobs; None if strict."""
        if self.strategy == STRICT:
            return dict.fromkeys(queues)
        shares = self.shares(queues)
        total = sum(shares.values())
        return {name: shares[name] / total for name in queues}


#: A worker claims from a queue only when those before it have no jobs.
STRICT_ORDER: Final = QueueOrder()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """A named group of workers with their queues (§6)."""

    name: str
    queues: tuple[str, ...]
    order: QueueOrder = QueueOrder(strategy=ROUND_ROBIN)
    exclusive: bool = False

    def takes(self, queue: str) -> bool:
        """Whether this is a queue of the pool."""
        return queue in self.queues or ALL in self.queues


def parse_queues(value: object, field: str) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """Return the queues and their weights, from a list of names or a mapping of names to weights.

    Raises InvalidRequest, InvalidQueue.
    """
    if isinstance(value, str) or not isinstance(value, Sequence | Mapping) or not value:
        raise InvalidRequest.of(
            field, "must be a list of at least one queue, or a dictionary of queues and weights"
        )
    names = tuple(value)
    for name in names:
        if name != ALL:
            check_queue(name, field=field)
    if len(set(names)) != len(names):
        raise InvalidRequest.of(field, "must name each queue once")
    if not isinstance(value, Mapping):
        return names, ()
    for name, weight in value.items():
        check_weight(weight, f"{field}.{name}")
    return names, tuple(value.items())


def check_weight(value: object, field: str) -> None:
    """Check a weight. Raises InvalidRequest."""
    if not (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_WEIGHT):
        raise InvalidRequest.of(field, f"must be an integer from 1 to {MAX_WEIGHT}")


def parse_order(
    weights: tuple[tuple[str, int], ...],
    strategy: object,
    *,
    default: str,
    field: str = "strategy",
) -> QueueOrder:
    """Return the order of queues by a strategy; without one, weights make it `weighted`.

    Raises InvalidRequest.
    """
    if strategy is None:
        strategy = WEIGHTED if weights else default
    if strategy == "least-loaded":
        raise InvalidRequest.of(
            field,
            f"least-loaded is not supported; it must be one of {', '.join(STRATEGIES)}",
        )
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise InvalidRequest.of(field, f"must be one of {', '.join(STRATEGIES)}")
    if weights and strategy != WEIGHTED:
        raise InvalidRequest.of(
            field,
            f"{strategy} has no weights: leave the weights out, or use {WEIGHTED}",
        )
    if strategy == WEIGHTED and not weights:
        raise InvalidRequest.of(field, f"{WEIGHTED} needs weights of the queues")
    return QueueOrder(strategy=strategy, weights=weights)


_FIELDS: Final = ("queues", "weights", "strategy", "exclusive", "starvation_prevention")


def read(value: object) -> tuple[Pool, ...]:
    """Return the pools of the setting POOLS. Raises ValueError, InvalidRequest, InvalidQueue."""
    if isinstance(value, tuple) and all(isinstance(each, Pool) for each in value):
        return value
    if not isinstance(value, Mapping):
        raise ValueError
    pools = tuple(_pool(name, given) for name, given in value.items())
    _check_exclusive(pools)
    return pools


def _pool(name: object, given: object) -> Pool:
    if not isinstance(name, str) or not _NAME(name) or len(name) > MAX_NAME:
        raise InvalidRequest.of(
            "The name of a pool",
            f"must be at most {MAX_NAME} letters, digits, dots, hyphens and underscores",
        )
    path = f"POOLS.{name}"
    if not isinstance(given, Mapping):
        raise InvalidRequest.of(path, "must be a dictionary")
    _check_keys(given, _FIELDS, path)
    queues, weights = parse_queues(given.get("queues"), f"{path}.queues")
    if "weights" in given:
        weights = _weights(given["weights"], weights, queues, f"{path}.weights")
    order = parse_order(
        weights, given.get("strategy"), default=ROUND_ROBIN, field=f"{path}.strategy"
    )
    prevention = StarvationPrevention.parse(
        given.get("starvation_prevention", False), f"{path}.starvation_prevention", len(queues)
    )
    return Pool(
        name=name,
        queues=queues,
        order=replace(order, prevention=prevention),
        exclusive=_boolean(given.get("exclusive", False), f"{path}.exclusive"),
    )


def _weights(
    value: object, inline: tuple[tuple[str, int], ...], queues: Sequence[str], field: str
) -> tuple[tuple[str, int], ...]:
    if inline:
        raise InvalidRequest.of(field, "is given in queues already: leave one of them out")
    if not isinstance(value, Mapping):
        raise InvalidRequest.of(field, "must be a dictionary of queues and weights")
    return parse_weights(value, queues, field)


def parse_weights(
    value: Mapping[str, Any], queues: Sequence[str], field: str
) -> tuple[tuple[str, int], ...]:
    """Return the weights of some of these queues. Raises InvalidRequest."""
    for name, weight in value.items():
        if name not in queues:
            raise InvalidRequest.of(field, "must name only queues of the list")
        check_weight(weight, field)
    return tuple(value.items())


def _check_exclusive(pools: Iterable[Pool]) -> None:
    kept: dict[str, str] = {}
    for pool in pools:
        if pool.exclusive and ALL in pool.queues:
            raise InvalidRequest.of(
                f"POOLS.{pool.name}.exclusive",
                f"must be False with the queue {ALL}: name the queues",
            )
        if pool.exclusive:
            for queue in pool.queues:
                if queue in kept:
                    raise InvalidRequest.of(
                        f"POOLS.{pool.name}.queues",
                        f"has {queue}, which the pool {kept[queue]} keeps already: a queue is "
                        "exclusive to one pool",
                    )
                kept[queue] = pool.name
    for pool in pools:
        for queue in pool.queues:
            if kept.get(queue, pool.name) != pool.name:
                raise InvalidRequest.of(
                    f"POOLS.{pool.name}.queues",
                    f"has {queue}, whose jobs only workers of the pool {kept[queue]} get: remove "
                    "it here, or remove exclusive there",
                )


def _check_keys(given: Mapping[Any, Any], known: Sequence[str], field: str) -> None:
    for key in given:
        if key not in known:
            raise InvalidRequest.of(
                f"{field}.{key}", f"is not a known field. {did_you_mean(key, known)}"
            )


def _boolean(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest.of(field, "must be True or False")
    return value
