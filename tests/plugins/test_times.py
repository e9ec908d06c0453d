"""What a run says of its time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.plugins import times


def test_a_test_is_counted_with_its_fixtures_and_in_its_folder() -> None:
    reports = [
        SimpleNamespace(nodeid="tests/worker/a/test_x.py::test_one[1]", duration=1.0),
        SimpleNamespace(nodeid="tests/worker/a/test_x.py::test_one[1]", duration=0.5),
        SimpleNamespace(nodeid="tests/worker/test_y.py::test_two", duration=2.0),
        SimpleNamespace(nodeid="tests/test_conf.py::test_three", duration=4.0),
        SimpleNamespace(nodeid="tests/worker/broken.py"),
    ]
    tests, folders = times.seconds(reports)
    assert tests["tests/worker/a/test_x.py::test_one[1]"] == 1.5
    assert folders == {"tests/worker": 3.5, "tests": 4.0}


@pytest.mark.parametrize(("taken", "is_said"), [(59.0, False), (61.0, True)])
def test_a_run_of_a_minute_or_more_says_where_it_went(taken: float, is_said: bool) -> None:
    lines: list[str] = []
    reporter = SimpleNamespace(
        stats={"": [], "passed": [SimpleNamespace(nodeid="tests/http/t.py::x", duration=taken)]},
        section=lines.append,
        write_line=lines.append,
    )
    times.pytest_terminal_summary(reporter)
    assert any("tests/http/t.py::x" in line for line in lines) == is_said
