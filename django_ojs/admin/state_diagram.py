"""The state machine of a job (ojs-core §6) as a drawing, with the path the job took through it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from django_ojs.models import Attempt, Job
from django_ojs.models.attempt import Outcome
from django_ojs.spec.states import TERMINAL, State

WIDTH: Final = 740
HEIGHT: Final = 216
_WIDE: Final = 104
_HIGH: Final = 30

#: The middle of each state's box.
_PLACES: Final[dict[State, tuple[int, int]]] = {
    State.SCHEDULED: (60, 48),
    State.PENDING: (60, 148),
    State.AVAILABLE: (238, 98),
    State.ACTIVE: (446, 98),
    State.RETRYABLE: (342, 178),
    State.COMPLETED: (676, 30),
    State.DISCARDED: (676, 98),
    State.CANCELLED: (676, 178),
}

#: The usual ways, and how each is drawn; those that are rare are drawn where a job took them.
_USUAL: Final[dict[tuple[State, State], str]] = {
    (State.SCHEDULED, State.AVAILABLE): "M112 48C150 48 150 90 184 94",
    (State.PENDING, State.AVAILABLE): "M112 148C150 148 150 106 184 102",
    (State.AVAILABLE, State.ACTIVE): "M290 98H392",
    (State.ACTIVE, State.COMPLETED): "M498 90C560 86 560 30 622 30",
    (State.ACTIVE, State.DISCARDED): "M498 98H622",
    (State.ACTIVE, State.CANCELLED): "M498 106C560 110 560 178 622 178",
    (State.ACTIVE, State.RETRYABLE): "M446 113C446 165 430 178 396 178",
    (State.RETRYABLE, State.AVAILABLE): "M290 178C250 178 238 165 238 115",
}
_RARE: Final[dict[tuple[State, State], str]] = {
    (State.ACTIVE, State.AVAILABLE): "M430 83C410 50 274 50 254 81",
    (State.AVAILABLE, State.CANCELLED): "M222 113C190 212 520 214 622 186",
    (State.SCHEDULED, State.CANCELLED): "M52 63C30 215 440 222 622 188",
    (State.PENDING, State.CANCELLED): "M60 163C100 216 450 220 622 188",
    (State.RETRYABLE, State.CANCELLED): "M394 184C470 196 540 190 622 182",
    (State.AVAILABLE, State.DISCARDED): "M238 83C250 18 560 20 626 86",
    (State.SCHEDULED, State.DISCARDED): "M112 42C250 4 560 8 630 86",
    (State.PENDING, State.DISCARDED): "M112 142C300 40 540 40 624 90",
    (State.RETRYABLE, State.DISCARDED): "M394 172C470 160 540 120 622 106",
}


#: Where it is said how often a way was taken.
_LABELS: Final[dict[tuple[State, State], tuple[int, int]]] = {
    (State.AVAILABLE, State.ACTIVE): (341, 90),
    (State.ACTIVE, State.RETRYABLE): (452, 160),
    (State.RETRYABLE, State.AVAILABLE): (230, 160),
    (State.ACTIVE, State.AVAILABLE): (341, 46),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """A state: where its box begins, and how the job stands to it: here, been or not."""

    name: str
    x: int
    y: int
    text_x: int
    text_y: int
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """A way between two states, and how often the job took it."""

    path: str
    title: str
    times: int
    label: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The drawing. `told` is the path in words, for those who do not see it."""

    boxes: Sequence[Box]
    edges: Sequence[Edge]
    told: str
    width: int = WIDTH
    height: int = HEIGHT
    box_width: int = _WIDE
    box_height: int = _HIGH


def path(job: Job, attempts: Sequence[Attempt]) -> list[State]:
    """Return the states that a job has been in, in order, as far as its rows tell."""
    gone: list[State] = []
    if job.activated_at is not None or job.state == State.PENDING:
        gone.append(State.PENDING)
    elif "scheduled_at" in job.options or job.state == State.SCHEDULED:
        gone.append(State.SCHEDULED)
    for attempt in attempts:
        gone += [State.AVAILABLE, State.ACTIVE]
        if attempt.retry_delay_ms is not None:
            gone.append(State.RETRYABLE)
    here = State(job.state)
    ran_last = bool(attempts) and attempts[-1].run == job.run
    if here in TERMINAL and not ran_last and job.run and job.started_at is not None:
        gone += [State.AVAILABLE, State.ACTIVE]
    elif here is State.ACTIVE or (here in TERMINAL and not job.run and job.enqueued_at is not None):
        gone += [State.AVAILABLE]
    if not gone or gone[-1] is not here:
        gone.append(here)
    return gone


def draw(job: Job, attempts: Sequence[Attempt]) -> Machine:
    """Draw it."""
    gone = path(job, attempts)
    taken = Counter(pairwise(gone))
    here = State(job.state)
    edges = [
        Edge(
            path=line,
            title=f"{way[0]} to {way[1]}",
            times=taken[way],
            label=_LABELS.get(way) if taken[way] > 1 else None,
        )
        for way, line in (_USUAL | _RARE).items()
        if way in _USUAL or taken[way]
    ]
    return Machine(
        boxes=[
            Box(
                name=state.value,
                x=x - _WIDE // 2,
                y=y - _HIGH // 2,
                text_x=x,
                text_y=y + 4,
                kind="here" if state is here else "been" if state in gone else "not",
            )
            for state, (x, y) in _PLACES.items()
        ],
        # Those that were taken lie above the others.
        edges=sorted(edges, key=lambda edge: edge.times > 0),
        told=" → ".join(gone),
    )


#: What ends a run and is nobody's mistake.
HARMLESS: Final = frozenset({Outcome.RETURNED, Outcome.SHUTDOWN, Outcome.CANCELLED})

__all__ = ["HARMLESS", "Box", "Edge", "Machine", "draw", "path"]
