"""Charts as inline SVG: the geometry is computed here, the markup is in chart.html.

Geometry is text, so that no locale adds a decimal comma. Colours are classes of the stylesheet, so
that no page needs an inline style.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from django.utils.html import format_html_join
from django.utils.translation import gettext as _

from django_ojs.admin.formatting import duration, number, short

#: The view box of a chart; the page stretches it.
WIDTH: Final = 600
HEIGHT: Final = 120

_ROUND: Final = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A series of values. `kind` is a class of the stylesheet; with `line`, it is a line, not bars.

    `total` is the sum for the legend, if it includes a value that is not drawn.
    """

    name: str
    kind: str
    values: Sequence[float | None]
    line: bool = False
    total: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """An SVG path. `kind` is a class of the stylesheet."""

    kind: str
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """The area of a column, with its tooltip."""

    x: str
    width: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Marker:
    """A vertical line at a column, such as for a pause; its tooltip says what happened."""

    x: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A chart, and the same values as a table."""

    title: str
    width: int = WIDTH
    height: int = HEIGHT
    bars: Sequence[Shape] = ()
    lines: Sequence[Shape] = ()
    columns: Sequence[Column] = ()
    markers: Sequence[Marker] = ()
    #: The labels of the axes: the largest value, half of it and zero; the first, middle and last
    #: column.
    y_labels: Sequence[str] = ()
    unit: str = ""
    x_labels: Sequence[str] = ()
    legend: Sequence[tuple[str, str, str]] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default=(), repr=False)
    empty: bool = False
    #: Whether its values could not be read.
    is_unknown: bool = False

    def areas(self) -> str:
        """Return the areas of all columns; a template would take three times as long."""
        return format_html_join(
            "",
            '<rect class="ojs-hit" x="{}" width="{}" height="{}"><title>{}</title></rect>',
            ((each.x, each.width, self.height, each.title) for each in self.columns),
        )

    def table_rows(self) -> str:
        """Return the rows of the table."""
        cells = "<td>{}</td>" * (len(self.head) - 1)
        return format_html_join("", f'<tr><th scope="row">{{}}</th>{cells}</tr>', self.rows)


def bars(
    title: str,
    columns: Sequence[str],
    series: Sequence[Series],
    *,
    first: str = "",
    seconds: bool = False,
    unit: str = "",
    markers: Mapping[int, str] = MappingProxyType({}),
) -> Chart:
    """Return a chart of stacked bars, in the order of the series, with lines over them.

    `columns` are the names of the columns. With `seconds`, values are durations, whose labels have
    their own unit; `unit` is what other values count. `markers` says what happened in a column.
    """
    render = duration if seconds else number
    stacked = [one for one in series if not one.line]
    highest = max(
        (
            *(sum(_or_zero(one.values[index]) for one in stacked) for index in range(len(columns))),
            *(_or_zero(value) for one in series if one.line for value in one.values),
            0.0,
        ),
        default=0.0,
    )
    top = highest if seconds else _round_up(highest)
    step = WIDTH / max(1, len(columns))
    below = [0.0] * len(columns)
    shapes = []
    for one in stacked:
        path = []
        for index, value in enumerate(map(_or_zero, one.values)):
            if value and top:
                start, end = below[index] / top * HEIGHT, (below[index] + value) / top * HEIGHT
                path.append(
                    f"M{_text(index * step + step * 0.08)} {_text(HEIGHT - start)}"
                    f"v{_text(start - end)}h{_text(step * 0.84)}v{_text(end - start)}z"
                )
                below[index] += value
        shapes.append(Shape(kind=one.kind, path="".join(path)))
    rows = [
        (name, *(render(one.values[index]) for one in series)) for index, name in enumerate(columns)
    ]
    return Chart(
        title=title,
        height=HEIGHT,
        bars=shapes,
        lines=[
            Shape(kind=one.kind, path=_line(one.values, top, step, HEIGHT, middle=True))
            for one in series
            if one.line
        ],
        columns=[
            Column(
                x=_text(index * step),
                width=_text(step),
                title="\n".join(
                    [
                        row[0],
                        *(f"{one.name}: {text}" for one, text in zip(series, row[1:], strict=True)),
                        *([markers[index]] if index in markers else ()),
                    ]
                ),
            )
            for index, row in enumerate(rows)
        ],
        markers=[
            Marker(x=_text(index * step + step / 2), title=text) for index, text in markers.items()
        ],
        y_labels=_y_labels(top, seconds=seconds) if highest else (),
        unit=unit,
        x_labels=(columns[0], columns[len(columns) // 2], columns[-1])
        if len(columns) > 2
        else columns,
        legend=[(one.name, one.kind, "" if seconds else number(_total(one))) for one in series],
        head=(first or _("time"), *(one.name for one in series)),
        rows=rows,
        empty=not highest,
    )


def _y_labels(top: float, *, seconds: bool) -> Sequence[str]:
    render = duration if seconds else short
    return (render(top), render(top / 2), "0")


def sparkline(title: str, values: Sequence[float], *, came: Sequence[float] = ()) -> Chart:
    """Return a line without axes, as high as a line of text; `came` is a second line."""
    width, height, top = 90, 24, max((*values, *came, 0))
    step = width / max(1, len(values) - 1)
    line = _line(values, top, step, height - 2, middle=False, down=1)
    area = f"{line}V{height}H0z" if line else ""
    return Chart(
        title=title,
        width=width,
        height=height,
        bars=[Shape(kind="done", path=area)],
        lines=[
            Shape(kind="in", path=_line(came, top, step, height - 2, middle=False, down=1)),
            Shape(kind="done", path=line),
        ],
        empty=not top,
    )


def histogram(title: str, buckets: Sequence[int], *, kind: str = "done") -> Chart:
    """Return a chart of a histogram by powers of two milliseconds (see `Rollup`)."""
    used = [index for index, count in enumerate(buckets) if count]
    shown = range(min(used, default=0), max(used, default=0) + 1)
    names = [_range(index, len(buckets)) for index in shown]
    series = [Series(name=_("jobs"), kind=kind, values=[buckets[index] for index in shown])]
    return bars(title, names, series, first=_("duration"), unit=_("number of jobs"))


def _range(index: int, number_of_buckets: int) -> str:
    if index == 0:
        return _("under %(duration)s") % {"duration": duration(0.001)}
    low = duration(2 ** (index - 1) / 1000)
    if index == number_of_buckets - 1:
        return _("over %(duration)s") % {"duration": low}
    return _("%(low)s to %(high)s") % {"low": low, "high": duration(2**index / 1000)}


def _line(
    values: Sequence[float | None],
    top: float,
    step: float,
    height: float,
    *,
    middle: bool,
    down: float = 0,
) -> str:
    if not top:
        return ""
    path, shift, pen = [], step / 2 if middle else 0.0, "M"
    for index, value in enumerate(values):
        if value is None:  # An unknown value is a gap in the line.
            pen = "M"
            continue
        x, y = index * step + shift, height - value / top * height + down
        if pen == "M" and (index + 1 == len(values) or values[index + 1] is None):
            # A single value between gaps is drawn as a short line, because a point would not be
            # seen.
            path.append(f"M{_text(x - step / 2)} {_text(y)}H{_text(x + step / 2)}")
            continue
        path.append(f"{pen}{_text(x)} {_text(y)}")
        pen = "L"
    return "".join(path)


def _round_up(value: float) -> float:
    if value <= 0:
        return 0.0
    size = 1.0
    while size * 10 < value:
        size *= 10
    return max(1.0, next(size * step for step in _ROUND if size * step >= value))


def _total(series: Series) -> float:
    return sum(map(_or_zero, series.values)) if series.total is None else series.total


def _or_zero(value: float | None) -> float:
    return 0.0 if value is None else float(value)


def _text(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
