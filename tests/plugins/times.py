"""Where the seconds of a run went: the longest tests, and each folder."""

from __future__ import annotations

from collections import Counter
from typing import Any

#: How many of the longest tests are named.
LONGEST = 10


def seconds(reports: list[Any]) -> tuple[Counter[str], Counter[str]]:
    """Return the seconds of each test, with its fixtures, and those of each folder."""
    tests: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for report in reports:
        # A collection that failed has a report too, which has taken no time.
        if taken := getattr(report, "duration", None):
            tests[report.nodeid] += taken
            path = report.nodeid.partition("::")[0]
            folders["/".join(path.split("/")[:2]) if path.count("/") > 1 else "tests"] += taken
    return tests, folders


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [each for found in terminalreporter.stats.values() for each in found]
    tests, folders = seconds(reports)
    # A run of a few tests is no question of minutes.
    if sum(folders.values()) < 60:
        return
    terminalreporter.section(f"the {LONGEST} longest tests, and each folder, in seconds")
    for counted in (tests.most_common(LONGEST), folders.most_common()):
        for name, taken in counted:
            terminalreporter.write_line(f"{taken:7.1f}  {name}")
        terminalreporter.write_line("")
