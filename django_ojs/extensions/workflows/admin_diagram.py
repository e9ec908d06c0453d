"""The graph of a workflow as a picture, from top to bottom. A wide group is one node.

Any number of steps makes at most MAX_ROWS + 1 rows of MAX_WIDTH nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext_lazy

from django_ojs.admin.job_list import STATE_BADGES, Badge
from django_ojs.extensions.workflows.models import StepState
from django_ojs.spec.states import State

#: More steps than this that are alike become one box.
MAX_ALIKE: Final = 4
MAX_WIDTH: Final = 5
MAX_ROWS: Final = 30

BOX_WIDTH: Final = 176
BOX_HEIGHT: Final = 48
_GAP_X: Final = 24
_GAP_Y: Final = 36
_MARGIN: Final = 8
#: Characters that fit in a box.
_LABEL: Final = 25

#: The badges of steps. An enqueued step has the badge of its job, if that is known.
_STEP_BADGES: Final[Mapping[str, Badge]] = {
    StepState.WAITING: Badge(
        value="waiting", symbol="○", word=pgettext_lazy("state of a step", "waiting"), level=""
    ),
    StepState.READY: Badge(
        value="ready",
        symbol="○",
        word=pgettext_lazy("state of a step", "cannot be enqueued yet"),
        level="fair",
    ),
    StepState.ENQUEUED: Badge(
        value="enqueued", symbol="●", word=pgettext_lazy("state of a step", "enqueued"), level=""
    ),
    StepState.COMPLETED: STATE_BADGES[State.COMPLETED],
    StepState.FAILED: Badge(
        value="failed", symbol="✕", word=pgettext_lazy("state of a step", "failed"), level="bad"
    ),
    StepState.CANCELLED: STATE_BADGES[State.CANCELLED],
    StepState.SKIPPED: Badge(
        value="skipped", symbol="∅", word=pgettext_lazy("state of a step", "skipped"), level=""
    ),
}
#: A node that stands for several steps has the first of these levels that any of the steps has.
_LEVELS: Final = ("bad", "blue", "fair", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRow:
    """A step as the picture and the list show it; `type` is None for a join."""

    id: Any
    position: int
    key: str
    name: str | None
    type: str | None
    callback: str | None
    state: str
    dependents: Sequence[int]
    #: The state of its job, while it is enqueued.
    job_state: str | None = None

    @property
    def badge(self) -> Badge:
        if self.job_state is not None and self.state == StepState.ENQUEUED:
            return STATE_BADGES[State(self.job_state)]
        return _STEP_BADGES[self.state]

    @property
    def label(self) -> str:
        return self.name or self.type or self.key


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A box for one step, or for several; then `step` is None."""

    label: str
    text: str
    title: str
    level: str
    x: int
    y: int
    step: StepRow | None = None

    @property
    def middle(self) -> int:
        return self.x + BOX_WIDTH // 2

    @property
    def label_y(self) -> int:
        return self.y + 20

    @property
    def text_y(self) -> int:
        return self.y + 37


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagram:
    """The picture. `description` describes it in words, for screen readers."""

    nodes: Sequence[Node]
    edges: Sequence[str]
    width: int
    height: int
    description: str
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


@dataclass(slots=True, kw_only=True)
class _Cluster:
    """Steps that become one box."""

    steps: list[StepRow] = field(default_factory=list)
    row: int = 0


def diagram(steps: Sequence[StepRow]) -> Diagram:
    """Draw steps, which are in topological order, joins included."""
    clusters = _clusters(steps)
    rows = _rows(clusters.values())
    replaced = {id(old): new for new, olds in _merged_rows(rows) for old in olds}
    # A box that stands for several rows is drawn in the first of them.
    boxes = _without_repeats([replaced.get(id(each), each) for each in row] for row in rows)
    final = {key: replaced.get(id(each), each) for key, each in clusters.items()}
    width = max((len(row) for row in boxes), default=1)
    places: dict[int, Node] = {}
    for number, row in enumerate(boxes):
        indent = (width - len(row)) * (BOX_WIDTH + _GAP_X) // 2
        for column, cluster in enumerate(row):
            places[id(cluster)] = _node(
                cluster.steps,
                x=_MARGIN + indent + column * (BOX_WIDTH + _GAP_X),
                y=_MARGIN + number * (BOX_HEIGHT + _GAP_Y),
            )
    lines = _edges(steps, final)
    nodes = list(places.values())
    # A line is left out if two lines by way of a third box connect the same boxes.
    after: defaultdict[int, set[int]] = defaultdict(set)
    for start, end in lines:
        after[start].add(end)
    direct = [(s, e) for s, e in lines if not any(e in after[each] for each in after[s])]
    return Diagram(
        nodes=nodes,
        edges=[_line(places[start], places[end]) for start, end in direct],
        width=2 * _MARGIN + width * BOX_WIDTH + (width - 1) * _GAP_X,
        height=2 * _MARGIN + len(boxes) * BOX_HEIGHT + (len(boxes) - 1) * _GAP_Y,
        description="; ".join(f"{node.label}: {node.text}" for node in nodes),
    )


def state_counts(steps: Iterable[StepRow]) -> list[tuple[Badge, int]]:
    """Return how many steps are in each state, the most frequent state first."""
    return Counter(step.badge for step in steps if step.type is not None).most_common()


def _clusters(steps: Sequence[StepRow]) -> dict[int, _Cluster]:
    """Return the cluster of each step that has a job, by position.

    Steps are alike if they have the same type, and wait for steps that are alike.
    """
    before = _before(steps)
    kinds: dict[int, frozenset[int]] = {}
    numbers: dict[tuple[Any, ...], int] = {}
    depths: dict[int, int] = {}
    alike: defaultdict[int, list[StepRow]] = defaultdict(list)
    for step in steps:
        sources: frozenset[int] = frozenset().union(
            *(kinds[each] for each in before[step.position])
        )
        if step.type is None:
            kinds[step.position] = sources
            continue
        kind = numbers.setdefault((step.type, step.callback, sources), len(numbers))
        depths[kind] = 1 + max((depths[each] for each in sources), default=-1)
        kinds[step.position] = frozenset({kind})
        alike[kind].append(step)
    found: dict[int, _Cluster] = {}
    for kind, members in alike.items():
        if len(members) > MAX_ALIKE:
            whole = _Cluster(steps=members, row=depths[kind])
            found |= {step.position: whole for step in members}
        else:
            found |= {s.position: _Cluster(steps=[s], row=depths[kind]) for s in members}
    return found


def _before(steps: Sequence[StepRow]) -> dict[int, list[int]]:
    before: dict[int, list[int]] = {step.position: [] for step in steps}
    for step in steps:
        for each in step.dependents:
            before[each].append(step.position)
    return before


def _edges(steps: Sequence[StepRow], clusters: Mapping[int, _Cluster]) -> list[tuple[int, int]]:
    """Return the lines as pairs of clusters' `id()`; a join stands for its sources."""
    before = _before(steps)
    sources: dict[int, set[int]] = {}
    found: dict[tuple[int, int], None] = {}
    for step in steps:
        reached: set[int] = set()
        for each in before[step.position]:
            reached |= sources[each]
        if step.type is None:
            sources[step.position] = reached
            continue
        own = id(clusters[step.position])
        sources[step.position] = {own}
        found |= {(each, own): None for each in sorted(reached) if each != own}
    return list(found)


def _rows(clusters: Iterable[_Cluster]) -> list[list[_Cluster]]:
    distinct = _distinct(clusters)
    rows: list[list[_Cluster]] = [[] for _ in range(1 + max((c.row for c in distinct), default=0))]
    for cluster in distinct:
        rows[cluster.row].append(cluster)
    return rows


def _merged_rows(
    rows: Sequence[Sequence[_Cluster]],
) -> list[tuple[_Cluster, Sequence[_Cluster]]]:
    """Return each box that stands for several clusters, with these clusters."""
    if len(rows) <= MAX_ROWS:
        return [(_merged(row), row) for row in rows if len(row) > MAX_WIDTH]
    shown = MAX_ROWS // 2
    middle = [cluster for row in rows[shown:-shown] for cluster in row]
    return [
        (_merged(middle), middle),
        *_merged_rows(rows[:shown]),
        *_merged_rows(rows[-shown:]),
    ]


def _merged(clusters: Sequence[_Cluster]) -> _Cluster:
    steps = [step for cluster in clusters for step in cluster.steps]
    return _Cluster(steps=sorted(steps, key=lambda step: step.position))


def _distinct(clusters: Iterable[_Cluster]) -> list[_Cluster]:
    return list({id(cluster): cluster for cluster in clusters}.values())


def _without_repeats(rows: Iterable[Collection[_Cluster]]) -> list[list[_Cluster]]:
    """Return the rows with each cluster only once, without the rows that become empty."""
    seen: set[int] = set()
    found = []
    for row in rows:
        found.append([each for each in _distinct(row) if id(each) not in seen])
        seen.update(map(id, row))
    return [row for row in found if row]


def _node(steps: Sequence[StepRow], *, x: int, y: int) -> Node:
    if len(steps) == 1:
        (step,) = steps
        text = f"{step.badge.symbol} {step.badge.word}"
        if step.callback is not None:
            text += f" · {step.callback}"
        title = f"{step.label} ({step.type}): {step.badge.word}"
        return Node(
            label=_short(step.label),
            text=text,
            title=title,
            level=step.badge.level,
            x=x,
            y=y,
            step=step,
        )
    counts = state_counts(steps)
    types = {step.type for step in steps}
    if len(types) == 1:
        label = _("%(count)d of %(type)s") % {"count": len(steps), "type": min(map(str, types))}
    else:
        text = ngettext("%(count)d step", "%(count)d steps", len(steps))
        label = text % {"count": len(steps)}
    words = ", ".join(f"{number} {badge.word}" for badge, number in counts)
    levels = {badge.level for badge, _number in counts}
    return Node(
        label=_short(label),
        text=" ".join(f"{badge.symbol}{number}" for badge, number in counts),
        title=f"{label}: {words}",
        level=_first(_LEVELS, levels.__contains__) if levels != {"good"} else "good",
        x=x,
        y=y,
    )


def _first(levels: Sequence[str], is_there: Callable[[str], bool]) -> str:
    return next(filter(is_there, levels), "")


def _line(start: Node, end: Node) -> str:
    top, bottom = start.y + BOX_HEIGHT, end.y
    bend = (bottom - top) // 2
    return (
        f"M{start.middle} {top}C{start.middle} {top + bend} {end.middle} {bottom - bend} "
        f"{end.middle} {bottom}"
    )


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
