"""`webhooks`: the subscriptions and their deliveries; enable, disable, test, send again."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from django.utils import timezone

from django_ojs.command_line.console import NONE, Console
from django_ojs.command_line.lists import (
    ListColumn,
    act_on_each,
    ago,
    as_json,
    column,
    members,
    write_details,
    write_list,
    write_table,
)
from django_ojs.command_line.subcommand import (
    FAILED,
    OK,
    Options,
    Subcommand,
    add_limit,
    parsed_ids,
    usage_error,
)
from django_ojs.extensions.webhooks import sending
from django_ojs.extensions.webhooks.models import Webhook
from django_ojs.extensions.webhooks.operations import deliveries, subscriptions
from django_ojs.extensions.webhooks.operations.deliveries import DeliveryStatus, DeliveryWithJob
from django_ojs.extensions.webhooks.operations.subscriptions import Subscription
from django_ojs.extensions.webhooks.spec import DELIVERY_PREFIX, SUBSCRIPTION_PREFIX
from django_ojs.formatting import absolute_time, grouped
from django_ojs.spec.errors import NotFound

T = TypeVar("T")


class _Listed(NamedTuple):
    webhook: Webhook
    last: DeliveryWithJob | None


def _state(webhook: Webhook) -> str:
    if webhook.active:
        return "active"
    if webhook.disabled_at is None:
        return "disabled"
    return f"disabled by failures at {absolute_time(webhook.disabled_at)}"


def _delivery_id(delivery: DeliveryWithJob) -> str:
    return f"{DELIVERY_PREFIX}{delivery.row.pk}"


def _error(delivery: DeliveryWithJob) -> str | None:
    return (delivery.error or {}).get("message") or None


_DELIVERY_COLUMNS: Final[list[ListColumn[DeliveryWithJob]]] = [
    ListColumn(name="id", value=_delivery_id),
    column("event_type", path="row.event_type"),
    column("status", "state"),
    column("created_at", "time", "row.created_at"),
    ListColumn(name="attempts", value=lambda each: each.job and each.job.attempt, kind="number"),
    ListColumn(name="error", value=_error, kind="text"),
]


def _last_delivery(listed: _Listed) -> dict[str, Any] | None:
    return None if listed.last is None else as_json(_DELIVERY_COLUMNS, listed.last)


def _last_in_words(listed: _Listed) -> str:
    if listed.last is None:
        return NONE
    return f"{listed.last.status} {ago(listed.last.row.created_at, timezone.now())}"


_COLUMNS: Final[list[ListColumn[_Listed]]] = [
    ListColumn(name="id", value=lambda each: f"{SUBSCRIPTION_PREFIX}{each.webhook.pk}"),
    # The path and the query are left out, because they may hold a token.
    ListColumn(name="receiver", value=lambda each: str(each.webhook), kind="text"),
    ListColumn(name="state", value=lambda each: _state(each.webhook), kind="state", only="table"),
    column("failures", "number", "webhook.failures"),
    ListColumn(name="last_delivery", value=_last_delivery, words=_last_in_words),
    column("events", "names", "webhook.events", drops=1),
    *members("queues job_types active disabled_at created_at", of="webhook"),
]


def _named(options: Options) -> list[Webhook]:
    """Return the webhooks that are named by id."""
    unnamed = "Name the webhook by its id; `manage.py ojs webhooks list` has them."
    keys = parsed_ids(options["targets"], unnamed=unnamed, prefix=SUBSCRIPTION_PREFIX)
    return [_known(subscriptions.get, key) for key in keys]


def _known(get: Callable[[UUID], T], key: UUID) -> T:
    try:
        return get(key)
    except NotFound as error:
        raise usage_error(f"{key}: {error.message}") from None


def _deliveries(options: Options) -> list[DeliveryWithJob]:
    unnamed = "Name the delivery by its id; `manage.py ojs webhooks show ID` has the latest."
    keys = parsed_ids(options["targets"], unnamed=unnamed, prefix=DELIVERY_PREFIX)
    return [_known(deliveries.get, key) for key in keys]


def _list(console: Console, options: Options) -> int:
    if options["targets"]:
        raise usage_error("`list` has no ids: `manage.py ojs webhooks show ID` shows one.")
    found = [_with_last(each) for each in subscriptions.all_webhooks()]
    write_list(console, "webhooks", _COLUMNS, found, none="There are no webhooks.")
    return OK


def _with_last(webhook: Webhook) -> _Listed:
    return _Listed(webhook, next(iter(deliveries.latest(webhook.pk, limit=1)), None))


def _show(console: Console, options: Options) -> int:
    found = _named(options)
    if len(found) > 1:
        raise usage_error("Name one webhook: its deliveries are shown.")
    (webhook,) = found
    latest = deliveries.latest(webhook.pk, limit=options["limit"])
    if console.as_json:
        shown = as_json(_COLUMNS, _Listed(webhook, latest[0] if latest else None))
        each_delivery = [as_json(_DELIVERY_COLUMNS, each) for each in latest]
        console.json({**shown, "deliveries": each_delivery})
        return OK
    console.line(f"{webhook} {webhook.pk}", "bold")
    lines = (
        ("state", _state(webhook)),
        ("failed in a row", grouped(webhook.failures)),
        ("events", ", ".join(webhook.events)),
        ("queues", ", ".join(webhook.queues)),
        ("job types", ", ".join(webhook.job_types)),
    )
    write_details(console, lines)
    console.line()
    if not latest:
        console.line("No delivery yet.")
    else:
        write_table(console, _DELIVERY_COLUMNS, latest)
    for hint in _hints(webhook, latest):
        console.line(hint, "yellow")
    return OK


def _hints(webhook: Webhook, latest: list[DeliveryWithJob]) -> list[str]:
    """Return what to do about a disabled webhook, or a dead delivery."""
    hints = []
    if not webhook.active:
        hints.append(
            "It gets no events. When the receiver works again (manage.py ojs webhooks test "
            f"{webhook.pk}): manage.py ojs webhooks enable {webhook.pk}"
        )
    dead = [each for each in latest if each.status is DeliveryStatus.DEAD]
    if dead:
        hints.append(
            f"To send a dead delivery again: manage.py ojs webhooks retry {dead[0].row.pk}"
        )
    return hints


def _set_active(active: bool, text: str) -> Callable[[Console, Options], int]:
    def run(console: Console, options: Options) -> int:
        # All ids are checked before the first webhook changes.
        changed = [
            subscriptions.update(each.pk, Subscription(active=active)) for each in _named(options)
        ]
        if console.as_json:
            found = [as_json(_COLUMNS, _with_last(each)) for each in changed]
            console.json({"webhooks": found})
            return OK
        for webhook in changed:
            console.line(text % {"receiver": webhook, "id": webhook.pk})
        return OK

    return run


def _test(console: Console, options: Options) -> int:
    code, results = OK, {}
    for webhook in _named(options):
        outcome = sending.send_test(webhook)
        code = code if outcome.success else FAILED
        results[f"{SUBSCRIPTION_PREFIX}{webhook.pk}"] = {
            "success": outcome.success,
            "status_code": outcome.status or None,
            "error": outcome.reason or None,
            "response_time_ms": outcome.milliseconds,
        }
        text = (
            f"{webhook} took the test event: status {outcome.status} ({outcome.milliseconds} ms)."
            if outcome.success
            else (
                f"{webhook} did not take the test event: {outcome.reason} ({outcome.milliseconds} "
                "ms)."
            )
        )
        if not console.as_json:
            console.line(text)
    if console.as_json:
        console.json({"webhooks": results})
    return code


def _retry(console: Console, options: Options) -> int:
    # All ids are checked before the first delivery is sent.
    found = _deliveries(options)
    return act_on_each(console, "deliveries", {_delivery_id(each): each for each in found}, _send)


def _send(delivery: DeliveryWithJob) -> tuple[dict[str, Any], str]:
    status = deliveries.retry(delivery.row.pk).status
    text = f"{_delivery_id(delivery)} is sent again, by a worker of the queue ojs-webhooks."
    return {"status": status}, text


_ACTIONS: Final = {
    "list": _list,
    "show": _show,
    "enable": _set_active(
        True,
        "%(receiver)s is enabled: it gets the events from now on.",
    ),
    "disable": _set_active(
        False,
        "%(receiver)s is disabled: it gets no events, and events from before it is enabled "
        "are not sent later.",
    ),
    "test": _test,
    "retry": _retry,
}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help="what to do")
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="ID",
        help="the id of a webhook; with retry, of a delivery",
    )
    add_limit(parser, 20, "with show: the number of deliveries (default: %(default)d)")


SUBCOMMANDS: Final = (
    Subcommand(
        name="webhooks",
        help="list webhooks and their deliveries, enable, disable and test them",
        description=(
            "list: the webhooks, whether each is active, how many deliveries in a row have failed, "
            "and the last one. show: one webhook with its latest deliveries and their errors. "
            "enable, disable: a disabled webhook gets no events; once it is enabled, it gets the "
            "events from then on. test: send the event webhook.test now, from this machine. retry: "
            "send dead deliveries again; all of them with `manage.py ojs retry is:dead "
            "queue:ojs-webhooks`."
        ),
        examples="  manage.py ojs webhooks list\n"
        "  manage.py ojs webhooks show 019539a4-b68c-7def-8000-1a2b3c4d5e6f\n"
        "  manage.py ojs webhooks test 019539a4-b68c-7def-8000-1a2b3c4d5e6f\n"
        "  manage.py ojs webhooks enable 019539a4-b68c-7def-8000-1a2b3c4d5e6f\n"
        "  manage.py ojs webhooks retry 01953a00-b68c-7def-8000-1a2b3c4d5e6f",
        add_arguments=_arguments,
        run=lambda console, options: _ACTIONS[options["action"]](console, options),
    ),
)
