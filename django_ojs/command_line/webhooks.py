"""`webhooks`: the subscriptions and their deliveries; enable, disable, test, send again."""

from argparse import ArgumentParser
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext, pgettext_lazy

from django_ojs.command_line.console import NONE, Cell, Console, TableColumn
from django_ojs.command_line.subcommand import (
    FAILED,
    OK,
    Options,
    Subcommand,
    add_limit,
    usage_error,
)
from django_ojs.formatting import StrOrPromise, absolute_time, error_message, grouped
from django_ojs.models import Webhook
from django_ojs.operations.webhooks import deliveries, subscriptions
from django_ojs.operations.webhooks.deliveries import DeliveryStatus, DeliveryWithJob
from django_ojs.operations.webhooks.subscriptions import Subscription
from django_ojs.spec.errors import NotFound, OJSError
from django_ojs.spec.ids import parse_id
from django_ojs.spec.times import format_timestamp
from django_ojs.spec.webhooks import DELIVERY_PREFIX, SUBSCRIPTION_PREFIX
from django_ojs.webhooks import sending

T = TypeVar("T")

_COLUMNS: Final = (
    TableColumn(gettext_lazy("ID")),
    TableColumn(gettext_lazy("RECEIVER"), shrinks=True),
    TableColumn(gettext_lazy("STATE")),
    TableColumn(gettext_lazy("FAILED IN A ROW"), right=True),
    TableColumn(gettext_lazy("LAST DELIVERY")),
    TableColumn(gettext_lazy("EVENTS"), shrinks=True),
)
_DELIVERY_COLUMNS: Final = (
    TableColumn(gettext_lazy("DELIVERY")),
    TableColumn(gettext_lazy("CREATED")),
    TableColumn(gettext_lazy("EVENT")),
    TableColumn(gettext_lazy("STATUS")),
    TableColumn(gettext_lazy("ATTEMPTS"), right=True),
    TableColumn(gettext_lazy("ERROR"), shrinks=True),
)
_STATUS_WORDS: Final = {
    DeliveryStatus.PENDING: pgettext_lazy("delivery", "pending"),
    DeliveryStatus.FAILED: pgettext_lazy("delivery", "failed, tried again"),
    DeliveryStatus.DELIVERED: pgettext_lazy("delivery", "delivered"),
    DeliveryStatus.DEAD: pgettext_lazy("delivery", "dead"),
    DeliveryStatus.DELETED: pgettext_lazy("delivery", "job deleted"),
}
_STYLES: Final = {
    DeliveryStatus.FAILED: "yellow",
    DeliveryStatus.DEAD: "red",
    DeliveryStatus.DELIVERED: "green",
}


def _keys(options: Options, prefix: str, unnamed: str) -> list[UUID]:
    if not options["targets"]:
        raise usage_error(unnamed)
    try:
        texts = (text.removeprefix(prefix) for text in options["targets"])
        return list(dict.fromkeys(parse_id(text) for text in texts))
    except OJSError as error:
        raise usage_error(error_message(error)) from None


def _named(options: Options) -> list[Webhook]:
    """Return the webhooks that are named by id."""
    unnamed = _("Name the webhook by its id; `manage.py ojs webhooks list` has them.")
    return [_known(subscriptions.get, key) for key in _keys(options, SUBSCRIPTION_PREFIX, unnamed)]


def _known(get: Callable[[UUID], T], key: UUID) -> T:
    try:
        return get(key)
    except NotFound as error:
        raise usage_error(f"{key}: {error_message(error)}") from None


def _find(options: Options, target: str) -> object:
    """Return the webhook with this id; with `retry` the delivery."""
    one = {**options, "targets": [target]}
    if options["action"] != "retry":
        return _named(one)
    return [_known(deliveries.get, key) for key in _keys(one, DELIVERY_PREFIX, "")]


def _list(console: Console, options: Options) -> int:
    if options["targets"]:
        raise usage_error(_("`list` has no ids: `manage.py ojs webhooks show ID` shows one."))
    found = [(each, _last(each)) for each in subscriptions.all_webhooks()]
    if console.as_json:
        console.json({"webhooks": [_as_json(webhook, last) for webhook, last in found]})
    elif not found:
        console.line(_("There are no webhooks."))
    else:
        console.table(_COLUMNS, [_row(webhook, last) for webhook, last in found])
    return OK


def _last(webhook: Webhook) -> DeliveryWithJob | None:
    return next(iter(deliveries.latest(webhook.pk, limit=1)), None)


def _row(webhook: Webhook, last: DeliveryWithJob | None) -> list[Cell | str]:
    return [
        str(webhook.pk),
        str(webhook),
        _state(webhook),
        grouped(webhook.failures),
        NONE if last is None else f"{absolute_time(last.row.created_at)} {_words(last)}",
        ", ".join(webhook.events),
    ]


def _state(webhook: Webhook) -> Cell:
    if webhook.active:
        return Cell(pgettext("webhook", "active"))
    if webhook.disabled_at is None:
        return Cell(pgettext("webhook", "disabled"), "yellow")
    text = _("disabled by failures at %(time)s")
    return Cell(text % {"time": absolute_time(webhook.disabled_at)}, "red")


def _words(delivery: DeliveryWithJob) -> str:
    return str(_STATUS_WORDS[delivery.status])


def _timestamp(at: datetime | None) -> str | None:
    return None if at is None else format_timestamp(at)


def _as_json(webhook: Webhook, last: DeliveryWithJob | None) -> dict[str, Any]:
    return {
        "id": f"{SUBSCRIPTION_PREFIX}{webhook.pk}",
        # Its path and query may hold a token.
        "receiver": str(webhook),
        "events": webhook.events,
        "queues": webhook.queues,
        "job_types": webhook.job_types,
        "active": webhook.active,
        "failures": webhook.failures,
        "disabled_at": _timestamp(webhook.disabled_at),
        "created_at": _timestamp(webhook.created_at),
        "last_delivery": None if last is None else _delivery_as_json(last),
    }


def _delivery_as_json(delivery: DeliveryWithJob) -> dict[str, Any]:
    row, job = delivery.row, delivery.job
    return {
        "id": f"{DELIVERY_PREFIX}{row.pk}",
        "event_type": row.event_type,
        "status": delivery.status,
        "created_at": _timestamp(row.created_at),
        "attempts": None if job is None else job.attempt,
        "error": _error(delivery) or None,
    }


def _error(delivery: DeliveryWithJob) -> str:
    return str((delivery.error or {}).get("message", ""))


def _show(console: Console, options: Options) -> int:
    found = _named(options)
    if len(found) > 1:
        raise usage_error(_("Name one webhook: its deliveries are shown."))
    (webhook,) = found
    latest = deliveries.latest(webhook.pk, limit=options["limit"])
    if console.as_json:
        shown = _as_json(webhook, latest[0] if latest else None)
        console.json({**shown, "deliveries": [_delivery_as_json(each) for each in latest]})
        return OK
    console.line(f"{webhook} {webhook.pk}", "bold")
    state = _state(webhook)
    lines = (
        (_("state"), state.text),
        (_("failed in a row"), grouped(webhook.failures)),
        (_("events"), ", ".join(webhook.events)),
        (_("queues"), ", ".join(webhook.queues)),
        (_("job types"), ", ".join(webhook.job_types)),
    )
    width = max(len(name) for name, text in lines if text)
    for name, text in lines:
        if text:
            console.line(f"  {name:<{width}}  {text}")
    console.line()
    if not latest:
        console.line(_("No delivery yet."))
    else:
        console.table(_DELIVERY_COLUMNS, [_delivery_row(each) for each in latest])
    for hint in _hints(webhook, latest):
        console.line(hint, "yellow")
    return OK


def _delivery_row(delivery: DeliveryWithJob) -> list[Cell | str]:
    return [
        str(delivery.row.pk),
        absolute_time(delivery.row.created_at),
        delivery.row.event_type,
        Cell(_words(delivery), _STYLES.get(delivery.status, "")),
        NONE if delivery.job is None else grouped(delivery.job.attempt),
        _error(delivery) or NONE,
    ]


def _hints(webhook: Webhook, latest: list[DeliveryWithJob]) -> list[str]:
    """Return what to do about a webhook that gets nothing."""
    hints = []
    if not webhook.active:
        hints.append(
            _(
                "It gets no events. When the receiver works again (manage.py ojs webhooks test "
                "%(id)s): manage.py ojs webhooks enable %(id)s"
            )
            % {"id": webhook.pk}
        )
    dead = [each for each in latest if each.status is DeliveryStatus.DEAD]
    if dead:
        hints.append(
            _("To send a dead delivery again: manage.py ojs webhooks retry %(id)s")
            % {"id": dead[0].row.pk}
        )
    return hints


def _set_active(active: bool, text: StrOrPromise) -> Callable[[Console, Options], int]:
    def run(console: Console, options: Options) -> int:
        # All ids are checked before the first webhook changes.
        changed = [
            subscriptions.update(each.pk, Subscription(active=active)) for each in _named(options)
        ]
        if console.as_json:
            console.json({"webhooks": [_as_json(each, _last(each)) for each in changed]})
            return OK
        for webhook in changed:
            console.line(str(text) % {"receiver": webhook, "id": webhook.pk})
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
            _("%(receiver)s took the test event: status %(status)s (%(milliseconds)s ms).")
            if outcome.success
            else _("%(receiver)s did not take the test event: %(reason)s (%(milliseconds)s ms).")
        )
        if not console.as_json:
            values = {
                "receiver": webhook,
                "status": outcome.status,
                "reason": outcome.reason,
                "milliseconds": outcome.milliseconds,
            }
            console.line(text % values)
    if console.as_json:
        console.json({"webhooks": results})
    return code


def _retry(console: Console, options: Options) -> int:
    unnamed = _("Name the delivery by its id; `manage.py ojs webhooks show ID` has the latest.")
    results: dict[str, dict[str, Any]] = {}
    sent = 0
    keys = _keys(options, DELIVERY_PREFIX, unnamed)
    # All ids are checked before the first delivery is sent.
    for key in keys:
        _known(deliveries.get, key)
    for key in keys:
        name = f"{DELIVERY_PREFIX}{key}"
        try:
            found = deliveries.retry(key)
        except OJSError as error:
            results[name] = {"error": error_message(error)}
            console.note(f"{key}: {error_message(error)}")
            continue
        sent += 1
        results[name] = {"status": found.status}
    if console.as_json:
        console.json({"deliveries": results})
    elif sent:
        text = ngettext(
            "%(number)s delivery is sent again, by a worker of the queue ojs-webhooks.",
            "%(number)s deliveries are sent again, by a worker of the queue ojs-webhooks.",
            sent,
        )
        console.line(text % {"number": grouped(sent)})
    return OK if sent == len(results) else FAILED


_ACTIONS: Final = {
    "list": _list,
    "show": _show,
    "enable": _set_active(
        True,
        gettext_lazy("%(receiver)s is enabled: it gets the events from now on."),
    ),
    "disable": _set_active(
        False,
        gettext_lazy(
            "%(receiver)s is disabled: it gets no events, and those until it is enabled are not "
            "sent later."
        ),
    ),
    "test": _test,
    "retry": _retry,
}


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=_ACTIONS, help=_("what to do"))
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="ID",
        help=_("the id of a webhook; with retry, of a delivery"),
    )
    add_limit(parser, 20, _("with show: the number of deliveries (default: %(default)d)"))


SUBCOMMANDS: Final = (
    Subcommand(
        name="webhooks",
        help=gettext_lazy("list webhooks and their deliveries, enable, disable and test them"),
        description=gettext_lazy(
            "list: the webhooks, whether each is active, how many deliveries in a row have failed, "
            "and the last one. show: one webhook with its latest deliveries and their errors. "
            "enable, disable: a webhook that is disabled gets no events, and after it is enabled "
            "those from then on. test: send the event webhook.test now, from this machine. retry: "
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
        names="targets",
        find=_find,
    ),
)
