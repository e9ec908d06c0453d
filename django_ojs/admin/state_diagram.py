"""The state machine of a job (ojs-core §6) as a diagram, with the path that the job took."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from django_ojs.models import Attempt, Job
from django_ojs.spec.states import TERMINAL, State

WIDTH: Final = 740
HEIGHT: Final = 216
_BOX_WIDTH: Final = 104
_BOX_HEIGHT: Final = 30

#: The centre of each state's box.
_CENTRES: Final[dict[State, tuple[int, int]]] = {
    State.SCHEDULED: (60, 48),
    State.PENDING: (60, 148),
    State.AVAILABLE: (238, 98),
    State.ACTIVE: (446, 98),
    State.RETRYABLE: (342, 178),
    State.COMPLETED: (676, 30),
    State.DISCARDED: (676, 98),
    State.CANCELLED: (676, 178),
}

#: The paths of the usual transitions; a rare one is drawn only if the job took it.
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

#: Where a transition shows how often the job took it.
_LABELS: Final[dict[tuple[State, State], tuple[int, int]]] = {
    (State.AVAILABLE, State.ACTIVE): (341, 90),
    (State.ACTIVE, State.RETRYABLE): (452, 160),
    (State.RETRYABLE, State.AVAILABLE): (230, 160),
    (State.ACTIVE, State.AVAILABLE): (341, 46),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class StateBox:
    """A state. `kind`: `current`, `visited` or `other`."""

    name: str
    x: int
    y: int
    text_x: int
    text_y: int
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrow:
    """A transition, and how many times the job took it."""

    path: str
    title: str
    times: int
    label: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StateDiagram:
    """The diagram; `description` is the path in words, for screen readers."""

    boxes: Sequence[StateBox]
    arrows: Sequence[Arrow]
    description: str
    width: int = WIDTH
    height: int = HEIGHT
    box_width: int = _BOX_WIDTH
    box_height: int = _BOX_HEIGHT


def visited_states(job: Job, attempts: Sequence[Attempt]) -> list[State]:
    """Return the states that a job has been in, in order, as far as its rows show them."""
    visited: list[State] = []
    if job.activated_at is not None or job.state == State.PENDING:
        visited.append(State.PENDING)
    elif "scheduled_at" in job.options or job.state == State.SCHEDULED:
        visited.append(State.SCHEDULED)
    for attempt in attempts:
        visited += [State.AVAILABLE, State.ACTIVE]
        if attempt.retry_delay_ms is not None:
            visited.append(State.RETRYABLE)
    current = State(job.state)
    last_run_is_stored = bool(attempts) and attempts[-1].run == job.run
    if current in TERMINAL and not last_run_is_stored and job.run and job.started_at is not None:
        visited += [State.AVAILABLE, State.ACTIVE]
    elif current is State.ACTIVE or (
        current in TERMINAL and not job.run and job.enqueued_at is not None
    ):
        visited.append(State.AVAILABLE)
    if not visited or visited[-1] is not current:
        visited.append(current)
    return visited


def state_diagram(job: Job, attempts: Sequence[Attempt]) -> StateDiagram:
    visited = visited_states(job, attempts)
    times = Counter(pairwise(visited))
    current = State(job.state)
    arrows = [
        Arrow(
            path=line,
            title=f"{states[0]} to {states[1]}",
            times=times[states],
            label=_LABELS.get(states) if times[states] > 1 else None,
        )
        for states, line in (_USUAL | _RARE).items()
        if states in _USUAL or times[states]
    ]
    return StateDiagram(
        boxes=[
            StateBox(
                name=state.value,
                x=x - _BOX_WIDTH // 2,
                y=y - _BOX_HEIGHT // 2,
                text_x=x,
                text_y=y + 4,
                kind="current" if state is current else "visited" if state in visited else "other",
            )
            for state, (x, y) in _CENTRES.items()
        ],
        # Transitions that the job took are drawn over the others.
        arrows=sorted(arrows, key=lambda arrow: arrow.times > 0),
        description=" → ".join(visited),
    )
