"""Charts, numbers and times: what is drawn is what is meant, in every locale."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.template.loader import render_to_string
from django.test import override_settings
from django.utils import timezone

from django_ojs.admin import formatting, template_tags
from django_ojs.extensions.statistics import admin_svg as svg
from django_ojs.extensions.statistics.admin_svg import Series
from tests.admin.markup import structure
from tests.cases import together


def drawn() -> svg.Chart:
    done = Series(name="done", kind="done", values=[1, 2, 4])
    failed = Series(name="failed", kind="failed", values=[0, 1, 4])
    came = Series(name="came", kind="in", values=[3, 3, None], line=True)
    return svg.bars("Jobs", ["10:00", "10:01", "10:02"], [done, failed, came])


def test_bars_are_stacked_and_as_high_as_their_values() -> None:
    chart = drawn()
    assert chart.y_labels == ("8", "4", "0")
    done, failed = chart.bars
    # The last of three: 4 of 8 is half of the height, and the failed half stands on it.
    assert done.path.endswith("M416 120v-60h168v60z")
    assert failed.path.endswith("M416 60v-60h168v60z")
    assert failed.path.count("M") == 2


def test_what_happened_is_marked_in_its_column() -> None:
    done = Series(name="done", kind="done", values=[1, 2, 4])
    chart = svg.bars("Jobs", ["a", "b", "c"], [done], unit="per minute", markers={1: "paused"})
    (marker,) = chart.markers
    assert (marker.x, marker.title) == ("300", "paused")
    assert chart.columns[1].title == "b\ndone: 2\npaused"
    text = render_to_string("django_ojs/admin/chart.html", {"chart": chart})
    assert '<line class="ojs-marker" x1="300" x2="300"' in text
    assert "<small>per minute</small>" in text


def test_a_line_ends_where_nothing_is_known() -> None:
    (line,) = drawn().lines
    assert line.path == "M100 75L300 75"


def test_a_single_value_between_gaps_is_seen() -> None:
    series = [Series(name="p50", kind="in", values=[None, 4, None, 2], line=True)]
    (line,) = svg.bars("Waited", list("abcd"), series).lines
    assert line.path == "M150 0H300M450 60H600"


def test_the_table_behind_a_chart_says_what_the_bars_say() -> None:
    chart = drawn()
    assert list(chart.head) == ["time", "done", "failed", "came"]
    assert list(chart.rows[2]) == ["10:02", "4", "4", formatting.DASH]
    assert "done: 4\nfailed: 4" in chart.columns[2].title


def test_a_chart_of_nothing_says_so() -> None:
    chart = svg.bars("Jobs", [], [Series(name="done", kind="done", values=[])])
    text = render_to_string("django_ojs/admin/chart.html", {"chart": chart, "empty": "Nothing."})
    assert "Nothing." in text
    assert "<svg" not in text


def test_a_histogram_shows_the_buckets_that_were_used() -> None:
    chart = svg.histogram("Waited", [0, 0, 3, 0, 1] + [0] * 19)
    assert [row[0] for row in chart.rows] == [
        "2\u202fms to 4\u202fms",
        "4\u202fms to 8\u202fms",
        "8\u202fms to 16\u202fms",
    ]
    assert [row[1] for row in chart.rows] == ["3", "0", "1"]


@override_settings(LANGUAGE_CODE="de", USE_THOUSAND_SEPARATOR=True)
def test_no_locale_changes_the_geometry() -> None:
    long = Series(name="n", kind="done", values=[12345.5] * 70)
    chart = svg.bars("Jobs", [str(n) for n in range(70)], [long])
    for template, name in (("chart", "chart"), ("sparkline", "cell")):
        text = render_to_string(f"django_ojs/admin/{template}.html", {name: chart})
        assert 'viewBox="0 0 600 120"' in text
        assert structure(text).forbidden == []


@together(
    ("value", "text"),
    [
        (None, "—"),
        (0, "0"),
        (1234567, "1\u202f234\u202f567"),
        (0.04, "0"),
        (2.5, "2.5"),
        (10.4, "10"),
        (-1234, "-1\u202f234"),
    ],
)
def test_numbers_have_thin_separators(value: float | None, text: str) -> None:
    assert formatting.number(value) == text


@together(
    ("value", "text"),
    [
        (None, "—"),
        (0.0123, "12\u202fms"),
        (3.21, "3.2\u202fs"),
        (59.7, "1\u202fmin"),
        (185, "3\u202fmin 5\u202fs"),
        (timedelta(hours=2), "2\u202fh"),
        (timedelta(days=3, minutes=5), "3\u202fd"),
        (timedelta(days=400, hours=5), "400\u202fd 5\u202fh"),
    ],
)
def test_durations_have_two_units_at_most(value: float | None, text: str) -> None:
    assert formatting.duration(value) == text


def test_a_time_says_how_far_away_it_is_and_when_it_was() -> None:
    ago = template_tags.ojs_time(timezone.now() - timedelta(minutes=3))
    assert "3\u202fmin ago</time>" in ago
    assert "in 59\u202fmin" in template_tags.ojs_time(
        timezone.now() + timedelta(minutes=59, seconds=59)
    )
    exact = template_tags.ojs_time(datetime(2026, 3, 1, 14, 5, 9, tzinfo=UTC), "clock")
    assert 'title="2026-03-01 14:05:09 UTC"' in exact
    assert ">14:05:09 UTC<" in exact
    assert template_tags.ojs_time(None) == formatting.DASH
