"""Enqueue a job from the admin, and enqueue a changed copy of a job that has ended."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_ojs.admin import payload_permission
from django_ojs.admin.base import OperatorModelAdmin
from django_ojs.admin.enqueue_form import EnqueueForm
from django_ojs.conf import settings
from django_ojs.enqueue_options import Options, Request, envelope_of, push_options_of
from django_ojs.handlers import job_types, parameters_of
from django_ojs.models import Job
from django_ojs.operations import delete, run_again
from django_ojs.operations.enqueue.result import EnqueuedJob, Outcome
from django_ojs.operations.jobs.redaction import redacted_args
from django_ojs.operations.operator_push import push_by_operator
from django_ojs.spec import json
from django_ojs.spec.envelope import Envelope, check_type
from django_ojs.spec.errors import Conflict, OJSError
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import TERMINAL
from django_ojs.storage import transitions

#: The most types that the page links to; any type can be typed in.
_MAX_TYPES: Final = 200
#: A form shows arguments of up to this many characters. Longer ones are kept unchanged.
_MAX_EDITED: Final = 100_000


def may_enqueue(request: HttpRequest) -> bool:
    """Return whether the user may enqueue jobs."""
    user: Any = request.user
    return bool(user.has_perm("django_ojs.enqueue_job"))


def url(page: OperatorModelAdmin, request: HttpRequest, **query: str) -> str:
    """Return the URL of the form, or "" for a user who may not enqueue."""
    if not may_enqueue(request):
        return ""
    return page.url("enqueue") + (f"?{urlencode(query)}" if query else "")


def copy_url(page: OperatorModelAdmin, request: HttpRequest, job: Job) -> str:
    """Return the URL of the form for a copy, or "" if the user may not copy the job."""
    return url(page, request, copy=str(job.pk)) if job.state in TERMINAL else ""


def enqueue_view(page: OperatorModelAdmin, request: HttpRequest) -> HttpResponse:
    """Let the user choose a type and enqueue a job of it. Raises PermissionDenied, Http404."""
    if not (page.has_view_permission(request) and may_enqueue(request)):
        raise PermissionDenied
    data = request.POST if request.method == "POST" else None
    given = data or request.GET
    if key := given.get("copy", ""):
        return _copy_page(page, request, key, data)
    type = given.get("type", "").strip()
    try:
        check_type(type, settings().limits)
    except OJSError as error:
        return _types_page(page, request, type, error.message if type else "")
    as_json = "json" in given
    form = EnqueueForm(data, type, as_json=as_json)
    context = {
        "form": form,
        "hidden": {"type": type, **({"json": "1"} if as_json else {})},
        "other_url": url(page, request, type=type, **({} if form.is_json else {"json": "1"})),
        "next": page.url("changelist"),
    }
    if form.is_valid():
        values = form.cleaned_data
        options = Options(
            queue=values["queue"] or None,
            priority=values["priority"],
            scheduled_at=values["scheduled_at"],
            on_full="raise",
        )
        if response := _enqueue(page, request, form, values["bound"], options):
            return response
    return page.render(request, "enqueue", _("Enqueue %(type)s") % {"type": type}, context)


def _types_page(
    page: OperatorModelAdmin, request: HttpRequest, type: str, error: str
) -> HttpResponse:
    known = job_types()
    context = {
        "type": type,
        "error": error,
        "types": [(each, urlencode({"type": each})) for each in known[:_MAX_TYPES]],
        "more": max(0, len(known) - _MAX_TYPES),
        "suggested": known[:_MAX_TYPES],
        "next": page.url("changelist"),
    }
    return page.render(request, "enqueue_type", _("Enqueue a job"), context)


def _enqueue(
    page: OperatorModelAdmin,
    request: HttpRequest,
    form: EnqueueForm,
    args: Sequence[Any],
    options: Options,
) -> HttpResponse | None:
    """Enqueue a new job, or return None if the form then shows an error."""
    item = Request(type=form.type, args=list(args), options=options)
    try:
        result = push_by_operator(envelope_of(item), push_options_of(item))
    except OJSError as error:
        form.add_operation_error(error)
        return None
    return _response(page, request, form, result, _enqueued(result))


def _enqueued(result: EnqueuedJob) -> str:
    return _("Enqueued in %(queue)s.") % {"queue": result.queue}


def _copy_page(page: OperatorModelAdmin, request: HttpRequest, key: str, data: Any) -> HttpResponse:
    job = _job(key)
    shown = {"priority": job.priority or None}
    has_arguments = _may_edit(request, job)
    form = EnqueueForm(
        data,
        job.type,
        args=job.args,
        initial={"queue": job.queue, **shown},
        if_empty=(job.queue, 0),
        has_arguments=has_arguments,
        as_json=has_arguments and "json" in (data or request.GET),
    )
    if page.has_scope(request, Scope.ADMIN):
        form.offer_deletion()
    back = page.url("change", job.pk)
    other = {} if form.is_json else {"json": "1"}
    context = {
        "form": form,
        "hidden": {"copy": key, **({"json": "1"} if form.is_json else {})},
        "other_url": url(page, request, copy=key, **other) if has_arguments else "",
        "copy_of": job,
        "keeps_arguments": not has_arguments,
        "next": back,
    }
    if form.is_valid():
        try:
            run_again.ended(job.pk)
            envelope, changed = _changed_copy(form, job)
            item = Request(type=job.type, args=envelope.args, options=Options(on_full="raise"))
            options = replace(push_options_of(item), generated_ids=False)
            result = push_by_operator(envelope, options, copy_of=job.pk, changed=changed)
        except OJSError as error:
            form.add_operation_error(error)
        else:
            text = _("Enqueued a copy of %(id)s in %(queue)s.")
            text %= {"id": job.pk, "queue": result.queue}
            if form.cleaned_data.get("delete_original") and result.outcome is Outcome.STORED:
                text = f"{text} {_delete_original(job)}"
            if response := _response(page, request, form, result, text):
                return response
    return page.render(request, "enqueue", _("Edit and run %(type)s") % {"type": job.type}, context)


def _delete_original(job: Job) -> str:
    """Delete the job that was copied. Return a sentence for the user."""
    try:
        delete.delete(job.pk)
    except OJSError as error:  # Another operator has retried or deleted it in the meantime.
        return error.message
    return _("That job is deleted.")


def _job(key: str) -> Job:
    try:
        job = transitions.get(UUID(key))
    except (ValueError, OJSError):
        raise Http404(_("There is no job with this id; it may have been pruned.")) from None
    if job.state not in TERMINAL:
        raise Http404(_("The job has not ended; only a job that has ended can be run again."))
    return job


def _may_edit(request: HttpRequest, job: Job) -> bool:
    """Return whether the form has the arguments.

    It has none if any of them is redacted, because it would store the redacted value.
    """
    shown = redacted_args(job.args, parameters_of(job.type, job.args))
    if not payload_permission.may_see(request) or shown != job.args:
        return False
    return "offloaded" not in job.options and len(json.dumps(job.args)) <= _MAX_EDITED


def _changed_copy(form: EnqueueForm, job: Job) -> tuple[Envelope, list[str]]:
    """Return the envelope of the copy, and the names of what differs from the job."""
    values = form.cleaned_data
    queue, priority = values["queue"] or job.queue, values["priority"] or 0
    args = values.get("bound", job.args)
    envelope = run_again.copy(job, args=args, priority=priority)
    # The copy is made as code would make it, because a limit key and a unique policy may depend on
    # the arguments.
    options = Options(queue=queue, scheduled_at=values["scheduled_at"])
    anew = envelope_of(Request(type=job.type, args=args, options=options))
    envelope.queue, envelope.priority, envelope.args = queue, priority, anew.args
    envelope.scheduled_at = anew.scheduled_at
    if envelope.rate_limit is not None and anew.rate_limit is not None:
        envelope.rate_limit = anew.rate_limit
    new = {"args": args, "queue": queue, "priority": priority}
    old = {"args": job.args, "queue": job.queue, "priority": job.priority}
    return envelope, [name for name, value in new.items() if value != old[name]]


def _response(
    page: OperatorModelAdmin,
    request: HttpRequest,
    form: EnqueueForm,
    result: EnqueuedJob,
    text: str,
) -> HttpResponse | None:
    match result.outcome:
        case Outcome.DROPPED:
            form.add_operation_error(Conflict("An enqueue middleware dropped the job."))
            return None
        case Outcome.OUTBOX:
            stored = _("Stored in the outbox for %(destination)s.") % {
                "destination": result.destination
            }
            page.message_user(request, stored, "SUCCESS")
            return HttpResponseRedirect(page.url("changelist"))
        case Outcome.DUPLICATE:
            text = _("Not enqueued: by its unique policy, the job is a duplicate of this one.")
            page.message_user(request, text, "WARNING")
        case _:
            page.message_user(request, text, "SUCCESS")
    return HttpResponseRedirect(page.url("change", result.id))
