"""A cron expression in words."""

from __future__ import annotations

from django_ojs.extensions.cron.operations.description import describe
from django_ojs.extensions.cron.spec import CronExpression
from tests.cases import together


@together(
    ("text", "words"),
    [
        ("0 9 * * MON-FRI", "every weekday at 09:00"),
        ("0 9,17 * * *", "every day at 09:00 and 17:00"),
        ("30 0 9 * * *", "every day at 09:00:30"),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0,30 8-20 * * *", "every 30 minutes from 08:00 to 20:30"),
        ("*/10 9-17 * * 1-5", "every 10 minutes from 09:00 to 17:50, every weekday"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("1/20 1,3 * * MON", "every Monday at 01:01, 01:21, 01:41, 03:01, 03:21 and 03:41"),
        ("0 * * * *", "every hour"),
        ("5 * * * *", "every hour at minute 5"),
        ("0 */3 * * *", "every 3 hours"),
        ("5 */3 * * *", "every 3 hours at minute 5"),
        ("0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00"),
        ("0 9-17 * * *", "every hour from 09:00 to 17:00"),
        ("0 1,2,3,5,8,13,21 * * *", "every day at minute 0 of hours 1, 2, 3, 5, 8, 13 and 21"),
        ("0 0 * * FRI-SUN", "every Friday, Saturday and Sunday at 00:00"),
        ("0 0 * * 5#3", "on the third Friday of the month at 00:00"),
        ("0 0 * JAN 5L", "on the last Friday of the month in January at 00:00"),
        ("0 0 1,15 * *", "on days 1 and 15 of the month at 00:00"),
        ("0 0 1-3 1,7 *", "on days 1 to 3 in January and July at 00:00"),
        ("0 0 L * *", "on the last day of the month at 00:00"),
        ("0 0 LW * *", "on the last weekday of the month at 00:00"),
        ("0 0 15W * *", "on the weekday nearest to day 15 of the month at 00:00"),
        ("0 0 13 * FRI", "on day 13 of the month and every Friday at 00:00"),
        ("0 0 */10 * 1", "every Monday that falls on days 1, 11, 21 and 31 of the month at 00:00"),
        ("0 0 * 12 *", "every day in December at 00:00"),
        ("@yearly", "every year on 1 January at 00:00"),
        ("* * * * * *", "every second"),
        ("30 * * * * *", "at second 30 of every minute"),
        ("10,40 * * * * *", "at seconds 10 and 40 of every minute"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("*/30 0 9 * * *", "every day at 09:00:00 and 09:00:30"),
        ("*/5 0 9-17 * * *", "every 5 seconds of minute 0 of hours 9 to 17"),
        ("@every 5m", "every 5 minutes"),
        ("@every 1h", "every hour"),
        ("@every 1h30m", "every 1 hour and 30 minutes"),
        ("@every 1500ms", "every 1.5 seconds"),
    ],
)  # fmt: skip
def test_an_expression_in_words(text: str, words: str) -> None:
    assert describe(CronExpression.parse(text)) == words
    assert describe(CronExpression.parse(text), "Europe/Paris") == f"{words} (Europe/Paris)"
