"""Cron jobs: register, list, enable, disable and remove them (ojs-cron §8)."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from django_ojs.extensions.cron import operations as cron
from django_ojs.extensions.cron.models import CronJob
from django_ojs.extensions.cron.operations import Definition
from django_ojs.http import fields, pagination
from django_ojs.http.responses import json_response
from django_ojs.http.views.base import OJSView
from django_ojs.http.views.jobs import check_access
from django_ojs.spec import envelope, times
from django_ojs.spec.errors import InvalidRequest, NotFound
from django_ojs.spec.scopes import Scope

#: The members that describe the job, at the top level or in `job_template`.
_TEMPLATE: Final = ("type", "args", "meta", "metadata", "options")


class CronJobs(OJSView):
    """List the cron jobs in the queues of the caller, by name; register one (§8.1, §8.2)."""

    needs = {"GET": Scope.READ, "POST": Scope.ADMIN}

    def get(self, request: HttpRequest) -> dict[str, Any]:
        query = request.GET
        read = partial(cron.page, enabled=_enabled(query), within=self.access.queues)
        found = pagination.listed(query, "cron_jobs", read, _render)
        shown = found["cron_jobs"]
        return {**found, "crons": shown, "count": len(shown)}

    def post(self, request: HttpRequest) -> HttpResponse:
        """Register a cron job, or replace the one of this name."""
        wanted = _definition(self.body())
        job = cron.check(wanted).envelope
        check_access(job, self.access)
        if self.access.queues is not None:
            with suppress(NotFound):
                self.access.check_queue(cron.get(wanted.name).queue)
        self.make_known(queues=[job.queue], types=[job.type])
        stored, is_new = cron.register(wanted)
        body = _both(stored)
        if warning := cron.warning_of(stored.expression):
            body["warnings"] = [str(warning)]
        if is_new:
            return json_response(body, 201, {"Location": f"{request.path}/{stored.name}"})
        return json_response(body)


class CronJobDetail(OJSView):
    """One cron job (§8.3 to §8.5)."""

    needs = {"GET": Scope.READ, "PATCH": Scope.OPERATOR, "DELETE": Scope.ADMIN}

    def get(self, request: HttpRequest, name: str) -> dict[str, Any]:
        return _both(self.find(name))

    def patch(self, request: HttpRequest, name: str) -> dict[str, Any]:
        """Enable or disable the cron job, even if code owns it."""
        data = self.body()
        if not isinstance(fields.required(data, "enabled"), bool):
            raise InvalidRequest.of("enabled", "must be a boolean")
        for field in sorted(data.keys() - {"enabled"}):
            raise InvalidRequest.of(
                field if field.isprintable() else "body",
                "cannot be changed by PATCH: send the whole cron job with POST",
            )
        self.find(name)
        return _both(cron.set_enabled(name, data["enabled"]))

    def delete(self, request: HttpRequest, name: str) -> dict[str, Any]:
        found = self.find(name)
        cron.remove(name)
        return {"deleted": True, "name": name, **_both(found)}

    def find(self, name: str) -> CronJob:
        """Return a cron job that the caller may use. Raises NotFound, PermissionDenied."""
        found = cron.get(name)
        self.access.check_queue(found.queue)
        return found


def _definition(data: dict[str, Any]) -> Definition:
    """Read a cron job in either form: flat (ojs-cron), or with `job_template` (OpenAPI)."""
    values = {
        name: data[name]
        for name in ("timezone", "overlap_policy", "enabled", "description")
        if data.get(name) is not None
    }
    return Definition(
        name=fields.required(data, "name"),
        expression=fields.required(data, "cron", "expression"),
        template=_template(data),
        **values,
    )


def _template(data: dict[str, Any]) -> dict[str, Any]:
    """Return the job in the form of a PUSH. Options at the top level belong to the job."""
    given = fields.object_(data, "job_template") or {}
    source = {**data, **given}
    found = {name: source[name] for name in _TEMPLATE if source.get(name) is not None}
    options = {name: source[name] for name in envelope.OPTIONS - {*_TEMPLATE} if name in source}
    if options:
        found["options"] = {**options, **(fields.object_(found, "options") or {})}
    # An unknown member at the top level may belong to the cron job, so it is left out.
    unknown = {name: value for name, value in given.items() if name not in envelope.ATTRIBUTES}
    return {"args": [], **unknown, **found}


def _enabled(query: Mapping[str, str]) -> bool | None:
    given = query.get("enabled", "")
    if given not in ("", "true", "false"):
        raise InvalidRequest.of("enabled", "must be true or false")
    return given == "true" if given else None


def _both(job: CronJob) -> dict[str, Any]:
    shown = _render(job)
    return {"cron_job": shown, "cron": shown}


def _render(job: CronJob) -> dict[str, Any]:
    """Return a cron job in both forms at once."""
    template = job.template
    out = {
        **template,
        "name": job.name,
        "cron": job.expression,
        "expression": job.expression,
        "timezone": job.timezone,
        "options": template.get("options") or {},
        "job_template": template,
        "overlap_policy": job.overlap_policy,
        "enabled": job.enabled,
        "status": "active" if job.enabled else "disabled",
        "owner": job.owner,
        "description": job.description,
        "run_count": job.run_count,
    }
    moments = {
        "last_run_at": job.last_run_at,
        "next_run_at": job.next_run_at,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }
    return out | {
        name: None if moment is None else times.format_timestamp(moment)
        for name, moment in moments.items()
    }
