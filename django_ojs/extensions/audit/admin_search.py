"""The search of the audit trail: `actor:ann action:queue.* object:queue/email day:2026-01-31`."""

from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_ojs.admin.formatting import StrOrPromise
from django_ojs.extensions.audit import storage as audit
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import ActorKind
from django_ojs.operations.jobs import search_query
from django_ojs.spec import ids
from django_ojs.spec.suggestions import nearest

#: The qualifiers, with examples.
QUALIFIERS: Final[dict[str, StrOrPromise]] = {
    "actor": gettext_lazy('actor:ann, actor:shop* or actor:"shop (k3v9x0a2bq)"'),
    "action": gettext_lazy(
        "action:queue.paused, or action:queue.* (everything that is done to queues)"
    ),
    "object": gettext_lazy("object:queue/email, or object:email (of any type)"),
    "day": "day:2026-01-31",
}
#: The kinds of actors that the lists of people and of programs show.
PEOPLE: Final = (ActorKind.USER, ActorKind.COMMAND)
PROGRAMS: Final = tuple(kind for kind in ActorKind if kind not in PEOPLE)
#: The most entries that a search without an index reads, such as one for the beginning of a name.
SCAN_LIMIT: Final = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditSearch:
    """The conditions of a search. With `errors`, nothing is searched."""

    actor: str = ""
    action: str = ""
    object: str = ""
    day: date | None = None
    kinds: tuple[ActorKind, ...] = ()
    errors: list[str] = field(default_factory=list)

    @property
    def scans(self) -> bool:
        """Whether neither an index nor a day bounds what the search reads."""
        is_read_for_each = self.actor.endswith("*") or (self.kinds and not self.actor)
        return bool(is_read_for_each) and not self.object and self.day is None

    def entries(self) -> QuerySet[AuditEntry]:
        """Return the entries that match, unordered."""
        found = audit.entries()
        if self.actor.endswith("*"):
            found = found.filter(actor__startswith=self.actor[:-1])
        elif self.actor:
            found = found.filter(actor=self.actor)
        if self.kinds:
            found = found.filter(actor_kind__in=self.kinds)
        if self.action:
            found = found.filter(action__in=_actions(self.action))
        if self.object:
            type, _slash, key = self.object.partition("/")
            is_typed = key and type in audit.OBJECT_TYPES
            of_type = Q(object_type=type, object_id=key) if is_typed else Q()
            found = found.filter(of_type or Q(object_id=self.object))
        if self.day is not None:
            first, after = _midnight(self.day), _midnight(self.day + timedelta(days=1))
            found = found.filter(pk__gte=ids.first_of(first), pk__lt=ids.first_of(after))
        return found

    def render(self) -> str:
        """Return the text of the search."""
        parts = {
            "actor": self.actor,
            "action": self.action,
            "object": self.object,
            "day": self.day.isoformat() if self.day else "",
        }
        return " ".join(
            f"{name}:{search_query.as_value(value)}" for name, value in parts.items() if value
        )


def parse(text: str) -> AuditSearch:
    """Parse a search; every text has a result."""
    if len(text) > search_query.MAX_LENGTH:
        return AuditSearch(
            errors=[_("At most %(limit)s characters.") % {"limit": search_query.MAX_LENGTH}]
        )
    search, errors = AuditSearch(), []
    for name, value, _rest in search_query.split(text):
        if not (name + value).isprintable():
            errors.append(_("Use printable characters only."))
        elif name not in QUALIFIERS:
            errors.append(_no_qualifier(name, value))
        elif getattr(search, name):
            errors.append(_("%(name)s is given twice.") % {"name": name})
        elif name == "day":
            if (day := _day(value)) is None:
                errors.append(_("day must be a date such as 2026-01-31."))
            search = replace(search, day=day)
        elif name == "action" and not _actions(value):
            errors.append(_no_action(value))
        else:
            given: dict[str, Any] = {name: value}
            search = replace(search, **given)
    return replace(search, errors=errors)


def _no_qualifier(name: str, value: str) -> str:
    near = nearest(name, QUALIFIERS) if name else None
    values = {"word": _cut(name or value), "near": near, "known": ", ".join(QUALIFIERS)}
    if not name:
        text = _(
            "%(word)s has no qualifier. Write actor:NAME or object:NAME. The qualifiers are "
            "%(known)s."
        )
    elif near is None:
        text = _("There is no qualifier %(word)s. The qualifiers are %(known)s.")
    else:
        text = _(
            "There is no qualifier %(word)s. Did you mean %(near)s? The qualifiers are %(known)s."
        )
    return text % values


def _no_action(value: str) -> str:
    near = nearest(value, audit.ACTIONS)
    values = {"action": _cut(value), "near": near, "known": ", ".join(audit.ACTIONS)}
    text = (
        _("There is no action %(action)s. The names are %(known)s.")
        if near is None
        else _("There is no action %(action)s. Did you mean %(near)s?")
    )
    return text % values


def _actions(value: str) -> list[str]:
    if value.endswith("*"):
        return [each for each in audit.ACTIONS if each.startswith(value[:-1])]
    return [value] if value in audit.ACTIONS else []


def _day(value: str) -> date | None:
    try:
        day = date.fromisoformat(value)
    except ValueError:
        return None
    # A day is rejected if its midnight, or the next day's, cannot be expressed as a time.
    return day if 1970 < day.year < 9999 else None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), timezone.get_current_timezone())


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
