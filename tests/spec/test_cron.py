"""Cron expressions: the syntax, when they fire, what they are in words (ojs-cron §3-§5)."""

from __future__ import annotations

import shutil
import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_ojs.extensions.cron.operations.description import describe
from django_ojs.extensions.cron.spec import (
    CronExpression,
    CronExpressionError,
    check_timezone,
    timezone_names,
)
from tests.cases import together

PARIS = ZoneInfo("Europe/Paris")
NEW_YORK = ZoneInfo("America/New_York")
UTC_ZONE = ZoneInfo("UTC")
#: A Thursday.
START = datetime(2026, 1, 1, tzinfo=UTC)


def fires_after(expression: CronExpression, after: datetime, zone: ZoneInfo) -> datetime | None:
    """The first moment after this one at which an expression fires."""
    found = expression.occurrences(after, zone)
    return next((each.at for each in found if each.skipped is None), None)


def times(text: str, count: int, after: datetime = START, zone: ZoneInfo = UTC_ZONE) -> list[str]:
    """The first wall-clock times at which an expression fires."""
    found = CronExpression.parse(text).occurrences(after, zone)
    return [f"{o.wall:%Y-%m-%d %H:%M:%S}" for o in islice(found, count)]


@pytest.mark.requirement("CRON-08", "CRON-09", "CRON-10", "CRON-12", "CRON-S01")
@together(
    ("text", "expected"),
    [
        ("*/15 * * * *", ["2026-01-01 00:15:00", "2026-01-01 00:30:00"]),
        ("1,15 * * * *", ["2026-01-01 00:01:00", "2026-01-01 00:15:00"]),
        ("58-59 * * * *", ["2026-01-01 00:58:00", "2026-01-01 00:59:00", "2026-01-01 01:58:00"]),
        ("10-30/10 5 * * *", ["2026-01-01 05:10:00", "2026-01-01 05:20:00", "2026-01-01 05:30:00"]),
        ("40/15 * * * *", ["2026-01-01 00:40:00", "2026-01-01 00:55:00", "2026-01-01 01:40:00"]),
        ("0 9 * * mon-Fri", ["2026-01-01 09:00:00", "2026-01-02 09:00:00", "2026-01-05 09:00:00"]),
        ("0 0 1 jan,JUL *", ["2026-07-01 00:00:00", "2027-01-01 00:00:00"]),
        ("0 0 * * 0", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("0 0 * * FRI-SUN", ["2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-04 00:00:00"]),
        ("0 0 * * 5-7", ["2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-04 00:00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00:00", "2026-02-28 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00:00", "2026-02-27 00:00:00", "2026-03-31 00:00:00"]),
        # The 15th is a Sunday in February and March.
        ("0 0 15W 2,3 *", ["2026-02-16 00:00:00", "2026-03-16 00:00:00"]),
        # The 1st is a Sunday, the 31st of May a Sunday: not into the month beside it.
        ("0 0 1W 2,8 *", ["2026-02-02 00:00:00", "2026-08-03 00:00:00"]),
        ("0 0 31W 1,5 *", ["2026-01-30 00:00:00", "2026-05-29 00:00:00"]),
        ("0 0 * * 5#3", ["2026-01-16 00:00:00", "2026-02-20 00:00:00"]),
        ("0 0 * * FRI#5", ["2026-01-30 00:00:00", "2026-05-29 00:00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 31 * *", ["2026-01-31 00:00:00", "2026-03-31 00:00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("*/30 * * * * *", ["2026-01-01 00:00:30", "2026-01-01 00:01:00"]),
        ("5 0 12 * * *", ["2026-01-01 12:00:05", "2026-01-02 12:00:05"]),
        ("@yearly", ["2027-01-01 00:00:00"]),
        ("@annually", ["2027-01-01 00:00:00"]),
        ("@monthly", ["2026-02-01 00:00:00"]),
        ("@weekly", ["2026-01-04 00:00:00"]),
        ("@daily", ["2026-01-02 00:00:00"]),
        ("@midnight", ["2026-01-02 00:00:00"]),
        ("@Hourly", ["2026-01-01 01:00:00"]),
        ("  0   9 * * *  ", ["2026-01-01 09:00:00"]),
    ],
)
def test_an_expression_fires_at(text: str, expected: list[str]) -> None:
    assert times(text, len(expected)) == expected


def test_when_both_day_fields_are_restricted_one_of_them_is_enough() -> None:
    assert times("0 0 13 * FRI", 4) == [
        "2026-01-02 00:00:00",
        "2026-01-09 00:00:00",
        "2026-01-13 00:00:00",
        "2026-01-16 00:00:00",
    ]


def test_a_day_field_that_begins_with_a_star_is_not_restricted() -> None:
    assert times("0 0 */2 * MON", 2) == ["2026-01-05 00:00:00", "2026-01-19 00:00:00"]


@pytest.mark.requirement("CRON-24", "CRON-S02")
@together(
    ("text", "interval"),
    [
        ("@every 30m", timedelta(minutes=30)),
        ("@every 2h", timedelta(hours=2)),
        ("@every 1h30m", timedelta(hours=1, minutes=30)),
        ("@every 2h45m30s", timedelta(hours=2, minutes=45, seconds=30)),
        ("@every 1.5h", timedelta(minutes=90)),
        ("@EVERY 1500ms", timedelta(milliseconds=1500)),
        ("@every 500ms", timedelta(seconds=1)),
    ],
)
def test_an_interval_counts_from_the_occurrence_before(text: str, interval: timedelta) -> None:
    expression = CronExpression.parse(text)
    after = datetime(2026, 3, 29, 0, 59, 7, 500, tzinfo=UTC)

    assert expression.interval == interval
    assert fires_after(expression, after, PARIS) == after + interval
    assert [o.at for o in islice(expression.occurrences(after, PARIS), 3)] == [
        after + interval,
        after + 2 * interval,
        after + 3 * interval,
    ]


@pytest.mark.requirement("CRON-03", "CRON-11")
@together(
    ("text", "field", "message"),
    [
        ("", "expression", "missing"),
        ("   ", "expression", "missing"),
        ("* * * *", "expression", "number of fields is 4. Write five"),
        ("* * * * * * *", "expression", "number of fields is 7"),
        ("1" * 300 + " * * * *", "expression", "at most 255 characters"),
        ("60 * * * * *", "second", "'60' is out of range. Use 0 to 59"),
        ("60 * * * *", "minute", "'60' is out of range. Use 0 to 59"),
        ("* 24 * * *", "hour", "'24' is out of range. Use 0 to 23"),
        ("* * 0 * *", "day_of_month", "'0' is out of range. Use 1 to 31"),
        ("* * 32 * *", "day_of_month", "'32' is out of range"),
        ("* * * 13 *", "month", "Use 1 to 12, or JAN to DEC"),
        ("* * * * 8", "day_of_week", "Use 0 to 7, or SUN to SAT"),
        ("* * * JANUARY *", "month", "'JANUARY' is no value"),
        ("* * * MON *", "month", "'MON' is no value"),
        ("a * * * *", "minute", "'a' is no value"),
        ("-1 * * * *", "minute", "'' is no value"),
        ("\N{ARABIC-INDIC DIGIT ONE} * * * *", "minute", "is no value"),
        ("? * * * *", "minute", "'?' is no value"),
        ("1, * * * *", "minute", "a value of the list is missing"),
        ("5- * * * *", "minute", "'' is no value"),
        ("30-10 * * * *", "minute", "ends before it begins.*write 30-59,0-10"),
        ("* * * * SAT-MON", "day_of_week", "ends before it begins.*write 6-6,0-1"),
        ("*/0 * * * *", "minute", "the step '0' is out of range"),
        ("*/90 * * * *", "minute", "the step '90' is out of range.*@every"),
        ("*/ * * * *", "minute", "'' is not a step"),
        ("*/5/5 * * * *", "minute", "'5/5' is not a step"),
        ("*/-5 * * * *", "minute", "'-5' is not a step"),
        ("L * * * *", "minute", "'L' is no value"),
        ("* * 32W * *", "day_of_month", "'32' is out of range"),
        ("* * W * *", "day_of_month", "'' is no value"),
        ("* * 1-5W * *", "day_of_month", "'1-5' is no value"),
        ("* * * * L", "day_of_week", "Write 5L for the last Friday"),
        ("* * * * 5#6", "day_of_week", "Use #1 to #5"),
        ("* * * * 5#", "day_of_week", "Use #1 to #5"),
        ("* * * * #1", "day_of_week", "'' is no value"),
        ("0 0 31 2 *", "day_of_month", "never fire"),
        ("0 0 30,31 FEB *", "day_of_month", "never fire"),
        ("0 0 31W 4,6,9,11 *", "day_of_month", "never fire"),
        ("@fortnightly", "expression", "is no alias"),
        ("@dayly", "expression", "Did you mean @daily"),
        ("@daily 5", "expression", "is no alias"),
        ("@reboot", "expression", "is no alias"),
        ("@every", "interval", "write a duration"),
        ("@every 5", "interval", "write a duration"),
        ("@every PT5M", "interval", "write a duration"),
        ("@every -5m", "interval", "write a duration"),
        ("@every 0s", "interval", "above zero"),
        ("@every 999999999h", "interval", "at most 1000 years"),
    ],
)
def test_what_is_invalid_or_can_never_fire_is_rejected_with_its_field(
    text: str, field: str, message: str
) -> None:
    with pytest.raises(CronExpressionError, match=message) as rejected:
        CronExpression.parse(text)

    assert rejected.value.field == field
    assert str(rejected.value) == f"{field.replace('_', ' ')}: {rejected.value.message}"


@given(st.text(max_size=40) | st.text("0123456789*,-/LW#@ FRIJANevrymsh.", max_size=40))
def test_any_text_is_an_expression_or_a_rejection(text: str) -> None:
    try:
        expression = CronExpression.parse(text)
    except CronExpressionError:
        return
    assert next(expression.occurrences(START, PARIS)).at > START
    assert describe(expression)


@pytest.mark.requirement("CRON-16")
def test_a_time_that_daylight_saving_time_skips_does_not_fire() -> None:
    # Clocks in New York go from 2:00 to 3:00 on 2026-03-08.
    expression = CronExpression.parse("30 2 * * *")
    after = datetime(2026, 3, 7, 12, tzinfo=UTC)

    skipped, next_day = islice(expression.occurrences(after, NEW_YORK), 2)

    assert skipped.skipped == "dst_skip"
    assert skipped.at == datetime(2026, 3, 8, 7, tzinfo=UTC)
    assert f"{skipped.wall:%d %H:%M}" == "08 02:30"
    assert next_day.skipped is None
    assert fires_after(expression, after, NEW_YORK) == datetime(2026, 3, 9, 6, 30, tzinfo=UTC)


def test_all_that_lies_in_the_skipped_hour_is_skipped_at_its_beginning() -> None:
    expression = CronExpression.parse("*/20 * * * *")

    found = list(islice(expression.occurrences(datetime(2026, 3, 29, 0, 40, tzinfo=UTC), PARIS), 4))

    assert [(f"{o.wall:%H:%M}", o.skipped) for o in found] == [
        ("02:00", "dst_skip"),
        ("02:20", "dst_skip"),
        ("02:40", "dst_skip"),
        ("03:00", None),
    ]
    assert {o.at for o in found} == {datetime(2026, 3, 29, 1, tzinfo=UTC)}


@pytest.mark.requirement("CRON-17")
def test_a_time_that_clocks_show_twice_fires_once_at_the_first() -> None:
    # Clocks in New York go from 2:00 to 1:00 on 2026-11-01.
    expression = CronExpression.parse("30 1 * * *")
    first = fires_after(expression, datetime(2026, 11, 1, tzinfo=UTC), NEW_YORK)

    assert first == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert fires_after(expression, first, NEW_YORK) == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)


@pytest.mark.parametrize("minute", [0, 1, 30, 59])
def test_nothing_fires_in_the_second_of_the_two_hours(minute: int) -> None:
    after = datetime(2026, 10, 25, 1, minute, 0, 1, tzinfo=UTC)

    found = fires_after(CronExpression.parse("* * * * *"), after, PARIS)

    assert found == datetime(2026, 10, 25, 2, tzinfo=UTC)


def test_an_expression_whose_every_match_is_skipped_has_no_next() -> None:
    # Clocks in Paris skip 2:30 on each last Sunday of March.
    expression = CronExpression.parse("30 2 * 3 SUNL")

    assert fires_after(expression, START, PARIS) is None
    assert next(expression.occurrences(START, PARIS)).skipped == "dst_skip"
    assert fires_after(expression, START, NEW_YORK) is not None


def test_the_rarest_expression_is_found() -> None:
    # Five Saturdays in February; 2100 is no leap year.
    expression = CronExpression.parse("0 0 * 2 SAT#5")

    found = fires_after(expression, datetime(2076, 3, 1, tzinfo=UTC), UTC_ZONE)

    assert found == datetime(2116, 2, 29, tzinfo=UTC)


def test_the_end_of_the_calendar_is_no_error() -> None:
    after = datetime(9998, 12, 31, 23, tzinfo=UTC)

    assert fires_after(CronExpression.parse("0 0 1 1 *"), after, PARIS) is None
    assert fires_after(CronExpression.parse("@every 999999h"), after, PARIS) is None


def test_a_moment_without_a_timezone_is_rejected() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - what is tested

    with pytest.raises(ValueError, match="aware"):
        fires_after(CronExpression.parse("@daily"), naive, PARIS)


@pytest.mark.requirement("CRON-13")
@together(
    "name",
    ["UTC", "Etc/UTC", "America/New_York", "America/Argentina/Ushuaia", "Asia/Kolkata", "Japan"],
)
def test_a_timezone_has_a_name_of_the_iana_database(name: str) -> None:
    assert check_timezone(name).key == name


@pytest.mark.requirement("CRON-S03")
def test_the_timezone_database_is_that_of_the_machine(tmp_path: Path) -> None:
    (path,) = [p for p in (Path(d) / "Europe/Paris" for d in zoneinfo.TZPATH) if p.exists()][:1]
    (tmp_path / "Europe").mkdir()
    shutil.copy(path, tmp_path / "Europe/Newtown")
    before = zoneinfo.TZPATH
    try:
        zoneinfo.reset_tzpath([tmp_path])
        assert check_timezone("Europe/Newtown").key == "Europe/Newtown"
    finally:
        zoneinfo.reset_tzpath(before)


@pytest.mark.requirement("CRON-S08")
def test_an_update_of_the_timezone_database_needs_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = next(Path(d) for d in zoneinfo.TZPATH if (Path(d) / "Asia/Tokyo").exists())
    (tmp_path / "Europe").mkdir()
    before, now = zoneinfo.TZPATH, 1_000_000.0
    monkeypatch.setattr(timezone_names.time, "monotonic", lambda: now)
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def hour() -> int:
        return noon.astimezone(check_timezone("Europe/Oldtown")).hour

    try:
        zoneinfo.reset_tzpath([tmp_path])
        shutil.copy(folder / "Asia/Tokyo", tmp_path / "Europe/Oldtown")
        assert hour() == 21
        shutil.copy(folder / "America/New_York", tmp_path / "Europe/Oldtown")
        now += timezone_names.RELOADED_EVERY
        assert hour() == 7
    finally:
        zoneinfo.reset_tzpath(before)


@pytest.mark.requirement("CRON-13", "CRON-14")
@together(
    ("name", "message"),
    [
        ("+05:00", "an offset has no daylight saving time"),
        ("-08:00", "an offset"),
        ("UTC+5", "an offset"),
        ("GMT-3", "an offset"),
        ("Etc/GMT+5", "an offset"),
        ("EST", "an abbreviation can mean several"),
        ("PST", "an abbreviation"),
        ("CET", "an abbreviation"),
        ("EST5EDT", "an abbreviation"),
        ("Europe/Pari", "not in the IANA database. Did you mean Europe/Paris?"),
        ("europe/paris", "Did you mean Europe/Paris?"),
        ("Europe", "not in the IANA database"),
        ("Europe/", "not in the IANA database"),
        ("Mars/Olympus_Mons", "not in the IANA database"),
        ("../../etc/passwd", "not in the IANA database"),
        ("Europe/../Europe/Paris", "not in the IANA database"),
        ("posix/Europe/Paris", "not in the IANA database"),
        ("Factory", "not in the IANA database"),
        ("localtime", "not in the IANA database"),
        ("", "not in the IANA database"),
        ("\0", "not in the IANA database"),
        ("Z" * 5000 + "z", "not in the IANA database"),
    ],
)
def test_any_other_name_is_rejected(name: str, message: str) -> None:
    with pytest.raises(CronExpressionError, match=message) as rejected:
        check_timezone(name)

    assert rejected.value.field == "timezone"


def test_the_text_stays_as_it_was_written() -> None:
    assert str(CronExpression.parse(" @Daily ")) == "@Daily"
    assert CronExpression.parse("@daily") == CronExpression.parse("@daily")
