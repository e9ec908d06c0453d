"""Tasks, as a project of Celery declares them; only the imports are ours."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from django_ojs.contrib.celery import Celery, Task, current_task, shared_task
from django_ojs.contrib.celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded
from django_ojs.contrib.celery.utils.log import get_task_logger
from tests.testapp.models import Thing

app = Celery("shop", broker="redis://localhost")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

logger = get_task_logger(__name__)
#: What the hooks of `Recorded` were called with.
calls: list[Any] = []


@shared_task
def add(a: int, b: int = 10) -> int:
    return a + b


@shared_task
def gather(results: list[Any], last: bool = False) -> list[Any]:
    return [*results, last]


@shared_task(queue="low_priority", priority=3, expires=3600, ignore_result=True)
def mail(to: str, *copies: str, subject: str = "Hello", **headers: str) -> str:
    logger.info("mail to %s", to)
    return to


@shared_task(name="shop.orderTotal")
def total(price: Decimal, day: date) -> list[Any]:
    assert isinstance(price, Decimal)
    return [price * 2, day]


@shared_task(bind=True, max_retries=2, default_retry_delay=5)
def call(self: Task, error: str | None = None) -> list[Any]:
    try:
        if error:
            raise ConnectionError(error)
    except ConnectionError as exc:
        raise self.retry(exc=exc, countdown=30) from exc
    return [self.request.id, self.request.retries, self.request.headers, current_task.name]


@app.task(autoretry_for=(ConnectionError,), retry_backoff=2, retry_jitter=False, max_retries=1)
def fetch(error: str) -> None:
    raise ConnectionError(error)


@app.task(autoretry_for=(ConnectionError,), retry_kwargs={"max_retries": 5, "countdown": 60})
def fetch_once(number: int) -> int:
    if "fetched" not in calls:
        calls.append("fetched")
        raise ConnectionError
    return number


class Unknown(LookupError):
    """An error that can hardly be changed."""

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("__"):
            raise AttributeError(name)
        super().__setattr__(name, value)


@app.task(autoretry_for=(Exception,), dont_autoretry_for=(LookupError,))
def look_up(name: str) -> None:
    raise Unknown(name)


@shared_task(bind=True)
def stop(self: Task, how: str) -> None:
    if how == "retry":
        self.retry(max_retries=9)
    if how == "same":
        self.retry(args=["same"], kwargs={}, countdown=0)
    if how == "arguments":
        self.retry(args=["ignore"])
    raise {"ignore": Ignore(), "reject": Reject("bad"), "requeue": Reject("later", requeue=True)}[
        how
    ]


@shared_task(bind=True, max_retries=2, default_retry_delay=60)
def mail_all(self: Task, addresses: list[str], *, sender: str = "") -> list[Any]:
    """Send what can be sent, and try the rest again, as django-celery-email does."""
    sent = []
    for address in addresses:
        try:
            if address == "down":
                raise ConnectionError(address)
            sent.append(address)
        except ConnectionError as exc:
            mail_all.retry([[address]], {"sender": "again"}, exc=exc, throw=False)
    calls.append((sender, self.request.retries, self.request.headers))
    return sent


@shared_task(soft_time_limit=20, time_limit=30, acks_late=True)
def work() -> None:
    try:
        Thing.objects.create(name="worked")
    except SoftTimeLimitExceeded:
        raise AssertionError from None


@shared_task(bind=True)
def import_file(self: Task) -> list[Any]:
    self.update_state(state="PROGRESS", meta={"line": 3})
    result = self.AsyncResult(self.request.id or "")
    return [result.state, result.info]


class Recorded(Task):
    """A base class with hooks."""

    abstract = True

    def before_start(self, task_id: str | None, args: Any, kwargs: Any) -> None:
        calls.append(("before_start", args, kwargs))

    def on_success(self, retval: Any, task_id: str | None, args: Any, kwargs: Any) -> None:
        calls.append(("on_success", retval))

    def on_failure(
        self, exc: BaseException, task_id: str | None, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        calls.append(("on_failure", str(exc), "ValueError" in einfo.traceback))

    def after_return(
        self, status: str, retval: Any, task_id: str | None, args: Any, kwargs: Any, einfo: Any
    ) -> None:
        calls.append(("after_return", status))


@shared_task(base=Recorded)
def recorded(text: str) -> str:
    if text == "interrupt":
        raise KeyboardInterrupt
    if text == "bad":
        raise ValueError(text)
    return text


@shared_task(bind=True)
def given(self: Task, a: int, b: int = 0, c: int = 0) -> list[Any]:
    return [self.request.args, self.request.kwargs]


class Counted(app.Task):
    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) + 1


@app.task(base=Counted)
def counted(number: int) -> int:
    return number + 1


class Counter(Task):
    name = "shop.counter"

    def run(self, number: int) -> int:
        return number + 1


counter = app.register_task(Counter())
