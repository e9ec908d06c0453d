"""Create, change, find and remove webhooks, and their secrets (ojs-webhooks §6)."""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings as django_settings
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from django_ojs.conf import of, settings
from django_ojs.extensions.events.operations import log
from django_ojs.extensions.events.settings import EventSettings
from django_ojs.extensions.webhooks import spec as webhooks
from django_ojs.extensions.webhooks.models import Webhook, WebhookDelivery
from django_ojs.extensions.webhooks.settings import WebhookSettings
from django_ojs.operations.access import operator
from django_ojs.spec import addresses, times
from django_ojs.spec.envelope import check_queue, check_type
from django_ojs.spec.errors import InvalidRequest, NotFound, UnsupportedFeature
from django_ojs.spec.urls import locate, without_path
from django_ojs.storage import database

_SALT_BYTES = 32
#: The most former secrets with which a delivery is signed; the latest ones are kept.
_MAX_FORMER = 10
#: The most names in each list of a subscription.
MAX_NAMES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscription:
    """What a client says about a webhook. A field that the client left out is None."""

    url: str | None = None
    events: Collection[str] | None = None
    queues: Collection[str] | None = None
    job_types: Collection[str] | None = None
    metadata: Mapping[str, Any] | None = None
    active: bool | None = None


def all_webhooks(within: Collection[str] | None = None) -> list[Webhook]:
    """Return the webhooks that a caller limited to these queues may see, oldest first."""
    return [each for each in _rows().order_by("id") if _is_within(each, within)]


def get(key: UUID, within: Collection[str] | None = None) -> Webhook:
    """Return a webhook. Raises NotFound, also for one that the caller may not see."""
    found = _rows().filter(pk=key).first()
    if found is None or not _is_within(found, within):
        raise NotFound("There is no webhook with this id.", details={"resource_type": "webhook"})
    return found


def create(given: Subscription) -> tuple[Webhook, str]:
    """Store a webhook, which gets the events from now on; return it with its secret.

    Raises InvalidRequest, and UnsupportedFeature for events that are not recorded.
    """
    if given.url is None or given.events is None:
        name = "url" if given.url is None else "events"
        raise InvalidRequest.of(name, "is required")
    values = _checked(given)
    webhook = Webhook(salt=_new_salt(), cursor=log.latest(), **values)
    with database.atomic():
        webhook.save(using=database.alias(), force_insert=True)
        changes = operator.changed({}, _shown(values))
        operator.acted("webhook.created", webhook.pk, changes=changes)
    return get(webhook.pk), secret_of(webhook)


def check(given: Subscription) -> None:
    """Raise the error of `create` or `update` for an ill-formed value."""
    _checked(given)


def update(key: UUID, given: Subscription) -> Webhook:
    """Change a webhook. One that becomes active gets the events from now on.

    Raises NotFound, and the errors of `create`.
    """
    values = _checked(given)
    if given.active is not None:
        values |= {"failures": 0, "disabled_at": None}
    latest = log.latest()
    _change(key, values, latest)
    return get(key)


@database.write_transaction
def _change(key: UUID, values: dict[str, Any], latest: int) -> None:
    found = _rows().select_for_update().filter(pk=key)
    webhook = found.first()
    if webhook is None:
        get(key)
    elif values.get("active") and not webhook.active:
        values = {**values, "cursor": latest}
    found.update(**values)
    if webhook is not None:
        before = {name: getattr(webhook, name) for name in values}
        changes = operator.changed(_shown(before), _shown(values))
        replaced = [name for name in ("url", "metadata") if before.get(name) != values.get(name)]
        replaced = [name for name in replaced if name not in changes]
        if changes or replaced:
            operator.acted("webhook.changed", key, changes=changes, replaced=replaced)


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audit trail shows of a webhook.

    Its URL is shown without the path, which may be secret.
    """
    names = ("events", "queues", "job_types", "active")
    shown = {name: values[name] for name in names if name in values}
    return shown | ({"url": without_path(values["url"])} if values.get("url") else {})


def remove(key: UUID) -> None:
    """Remove a webhook. Its waiting deliveries are not sent any more."""
    while not _remove_batch(key):
        pass


@database.write_transaction
def _remove_batch(key: UUID) -> bool:
    """Delete a batch of a webhook's deliveries.

    With the last batch, delete the webhook as well, and return True.
    """
    # The lock keeps dispatch from storing deliveries, which would refer to the deleted row.
    webhook = _rows().select_for_update().filter(pk=key).first()
    if webhook is None:
        get(key)
        return True
    found = WebhookDelivery.primary.filter(webhook=key)
    keys = list(found.values_list("pk", flat=True)[: database.BATCH])
    WebhookDelivery.primary.filter(pk__in=keys)._raw_delete(database.alias())
    if len(keys) == database.BATCH:
        _rows().filter(pk=key).update(active=False)
        return False
    operator.acted("webhook.removed", key, url=without_path(webhook.url))
    webhook.delete(using=database.alias())
    return True


def rotate_secret(key: UUID) -> tuple[Webhook, str]:
    """Give a webhook a new secret. Deliveries are signed with the former one too for a day (§8.3).

    They are also signed with a secret that was replaced earlier within the day, because the
    receiver may still have it, as when a request was repeated because its response was lost.
    """
    webhook = _rotate(key)
    return webhook, secret_of(webhook)


@database.write_transaction
def _rotate(key: UUID) -> Webhook:
    rows = _rows().filter(pk=key)
    found = rows.select_for_update().annotate(now=Now()).first()
    if found is None:
        return get(key)
    until = times.format_timestamp(found.now + webhooks.ROTATION)
    former = [(found.salt, until), *_valid(found, found.now)]
    rows.update(salt=_new_salt(), former_salts=former[:_MAX_FORMER])
    operator.acted("webhook.secret_rotated", key, old_secret_until=until)
    return get(key)


def secret_of(webhook: Webhook) -> str:
    """Return the secret of a webhook."""
    return _derive(django_settings.SECRET_KEY, webhook.salt)


def secrets_of(webhook: Webhook) -> list[str]:
    """Return the secrets with which deliveries are signed now, the current one first."""
    salts = [webhook.salt, *(salt for salt, _until in _valid(webhook, timezone.now()))]
    keys = [django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS]
    return [_derive(key, salt) for salt in salts for key in keys]


def _valid(webhook: Webhook, now: datetime) -> list[tuple[str, str]]:
    """Return the former salts that are still in use, with their ends."""
    former = webhook.former_salts
    return [(salt, end) for salt, end in former if times.parse_timestamp(end, "end") > now]


def _derive(key: str | bytes, salt: str) -> str:
    # The secret is derived, so that a copy of the database alone does not reveal it, and it need
    # not be stored.
    given = key if isinstance(key, bytes) else key.encode()
    digest = hmac.new(given, f"django_ojs.webhook:{salt}".encode(), hashlib.sha256).digest()
    return webhooks.SECRET_PREFIX + urlsafe_b64encode(digest).decode().rstrip("=")


def _new_salt() -> str:
    return secrets.token_hex(_SALT_BYTES)


def _rows() -> QuerySet[Webhook]:
    return Webhook.primary.all()


def _is_within(webhook: Webhook, within: Collection[str] | None) -> bool:
    return within is None or (bool(webhook.queues) and set(webhook.queues) <= set(within))


def _checked(given: Subscription) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if given.url is not None:
        values["url"] = _checked_url(given.url)
    if given.events is not None:
        values["events"] = _checked_events(_names(given.events, "events"))
    limits = settings().limits
    if given.queues is not None:
        values["queues"] = _names(given.queues, "filter.queues")
        for queue in values["queues"]:
            check_queue(queue, limits, field="filter.queues")
    if given.job_types is not None:
        values["job_types"] = _names(given.job_types, "filter.job_types")
        for type in values["job_types"]:
            check_type(type, limits)
    if given.metadata is not None:
        values["metadata"] = dict(given.metadata)
    if given.active is not None:
        values["active"] = given.active
    return values


def _checked_url(url: str) -> str:
    if not webhooks.is_url(url):
        raise InvalidRequest.of(
            "url",
            f"must be a URL with a host and no user, of at most {webhooks.MAX_URL} characters",
        )
    if not url.startswith("https://") and not of(WebhookSettings).webhook_http:
        raise InvalidRequest.of(
            "url",
            "must begin with https://",
            hint="The setting WEBHOOK_HTTP allows http://, for development and private networks.",
        )
    location = locate(url)
    address = addresses.literal(location.host) if location is not None else None
    # A name is resolved at each delivery, which checks its addresses.
    if address is not None and not addresses.may_connect(
        address, of(WebhookSettings).webhook_private_networks
    ):
        raise InvalidRequest.of(
            "url",
            "must not have an address that is not public",
            hint=(
                "The setting WEBHOOK_PRIVATE_NETWORKS names networks that are not public and to "
                "which webhooks may be sent."
            ),
        )
    return url


def _names(given: Collection[str], field: str) -> list[str]:
    names = list(dict.fromkeys(given))
    if len(names) > MAX_NAMES:
        raise InvalidRequest.of(field, f"must hold at most {MAX_NAMES} names")
    return names


def _checked_events(patterns: list[str]) -> list[str]:
    if not patterns:
        raise InvalidRequest.of("events", "must hold at least one type")
    for pattern in patterns:
        try:
            types = set(log.matching_types([pattern]))
        except InvalidRequest:
            rule = "must hold types of events such as job.failed, or patterns: job.*, or *"
            raise InvalidRequest.of("events", rule) from None
        if not types & of(EventSettings).keep_events:
            raise UnsupportedFeature(
                f"events: no event that {pattern} matches is recorded",
                details={"field": "events"},
                hint="The setting KEEP_EVENTS names the events that are recorded.",
            )
    return patterns
