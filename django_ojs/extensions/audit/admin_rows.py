"""Entries of the audit trail as the pages show them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from django.http import HttpRequest
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, pgettext

from django_ojs.admin import limit_key_text
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.panels import Panel
from django_ojs.admin.query_timeout import TimedQueries
from django_ojs.conf import settings
from django_ojs.extensions.audit import storage as audit
from django_ojs.extensions.audit.admin_search import AuditSearch
from django_ojs.extensions.audit.models import AuditEntry
from django_ojs.models import Job
from django_ojs.models.base import model_named
from django_ojs.operations.jobs.redaction import HIDDEN, redacted

#: How many members of an entry are shown, and how many characters of each value.
_MAX_MEMBERS: Final = 30
_MAX_LENGTH: Final = 200

#: How many entries the history of an object shows, and how many the page of a job.
_MAX_ROWS: Final = 100
_MAX_OF_JOB: Final = 20

#: Members of the detail that are ids of jobs.
_JOBS: Final = ("job", "copy_of")

_LIMIT_KEY: Final = "limit_key"

#: The model whose admin page shows an object, by the type of the object.
_MODELS: Final = {
    "queue": "queue",
    "job": "job",
    "cron_job": "cronjob",
    "api_key": "apikey",
    _LIMIT_KEY: "limitkey",
    "webhook": "webhook",
    "bulk_operation": "bulkoperation",
    "worker": "worker",
    "workflow": "workflow",
}
_OBJECT_TYPES: Final = {
    **{model: object_type for object_type, model in _MODELS.items()},
    "deadletter": "job",
}
#: The endings of the names of actions after which the object no longer exists.
_ENDED: Final = (".deleted", ".removed")


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRow:
    """An entry as the pages show it.

    `model` is the model whose page shows the object, or empty. `jobs` are labels and ids of related
    jobs. The queries find the entries with the same actor, action, object or day.
    """

    entry: AuditEntry
    object_kind: str
    object_name: str
    model: str
    changes: list[tuple[str, str, str]]
    detail: list[tuple[str, str]]
    jobs: list[tuple[str, str]]
    actor_query: str
    action_query: str
    object_query: str
    day_query: str


def rows_about(
    model: str, key: str, limit: int, *, shown_key: Callable[[str], str] = str
) -> list[AuditRow]:
    """Return the newest entries about an object."""
    object_type = _OBJECT_TYPES.get(model, "")
    entries = audit.entries().filter(object_type=object_type, object_id=key)
    return [row_of(entry, shown_key=shown_key) for entry in entries.order_by("-pk")[:limit]]


def history_of(request: HttpRequest, model: str, key: str) -> list[AuditRow]:
    """Return the newest entries about an object, for a user."""
    shown_key = partial(limit_key_text.shown, request)
    return rows_about(model, key, _MAX_ROWS, shown_key=shown_key)


def row_of(
    entry: AuditEntry, search: AuditSearch | None = None, *, shown_key: Callable[[str], str] = str
) -> AuditRow:
    """Return an entry as the pages show it; its links narrow `search`.

    `shown_key` returns a limit key as the user may see it.
    """
    search = search or AuditSearch()
    shown = entry.changes, entry.detail
    if "*" not in settings().admin_redact:
        shown = redacted(entry.changes), redacted(entry.detail)
    changes, detail = shown
    key = entry.object_id
    name = shown_key(key) if entry.object_type == _LIMIT_KEY else key
    is_hidden = name != key
    has_page = not entry.action.endswith(_ENDED) and key and not is_hidden
    day = timezone.localtime(entry.time).date()
    return AuditRow(
        entry=entry,
        object_kind=_kind(entry.object_type),
        object_name=_text(detail.get("key_prefix") or name),
        model=_MODELS.get(entry.object_type, "") if has_page else "",
        changes=[
            (name, _text(pair[0]), _text(pair[1])) if pair != HIDDEN else (name, HIDDEN, HIDDEN)
            for name, pair in list(changes.items())[:_MAX_MEMBERS]
        ],
        detail=[
            (name.replace("_", " "), _text(value))
            for name, value in list(detail.items())[:_MAX_MEMBERS]
            if name not in (*_JOBS, "key_prefix")
        ],
        jobs=[(name.replace("_", " "), str(detail[name])) for name in _JOBS if name in detail],
        actor_query=_query(replace(search, actor=entry.actor)),
        action_query=_query(replace(search, action=entry.action)),
        object_query=""
        if is_hidden or not key
        else _query(replace(search, object=f"{entry.object_type}/{key}")),
        day_query=_query(replace(search, day=day)),
    )


def _kind(object_type: str) -> str:
    model = model_named(_MODELS.get(object_type, ""))
    if model is not None:
        return str(model._meta.verbose_name)
    kinds = {
        "maintenance": _("maintenance"),
        "outbox_entry": _("outbox entry"),
        "check": pgettext("of the doctor", "check"),
    }
    return kinds.get(object_type) or object_type.replace("_", " ")


def _query(search: AuditSearch) -> str:
    return "?" + urlencode({"q": search.render()})


def _text(value: Any) -> str:
    if value is None or value in ("", []):
        return "—"
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"


def _of_job(
    page: OperatorModelAdmin, request: HttpRequest, query: TimedQueries, job: Job
) -> dict[str, Any]:
    rows = query(gettext_noop("history"), lambda: rows_about("job", str(job.pk), _MAX_OF_JOB))
    return {"rows": rows}


JOB_HISTORY: Final = Panel(
    kind=Job, read=_of_job, template="django_ojs/admin/job_history.html", place=100
)
