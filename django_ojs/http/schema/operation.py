"""What one method of one route takes and answers, and how OpenAPI writes it down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from django_ojs.http.renderers import MEDIA_TYPE
from django_ojs.http.schema.values import JOB_ID, Schema, optional, ref

#: Both are read (http-binding §4.1).
REQUEST_TYPES: Final = (MEDIA_TYPE, "application/json")

#: What any request may be answered with: another OJS-Version, a failure, no database.
ALWAYS: Final = (400, 422, 500, 503)
#: What one that needs a caller may be answered with.
CLOSED: Final = (401, 403)
#: What one with a body may be answered with.
BODY: Final = (413, 415)

_OF_EVERY_ANSWER: Final = ("OJS-Version", "X-Request-Id")
_OF_STATUS: Final[Mapping[int, tuple[str, ...]]] = {
    401: ("WWW-Authenticate",),
    429: ("Retry-After", "X-OJS-Queue-Depth", "X-OJS-Queue-Bound"),
    503: ("Retry-After",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer that is no error. `schema` None: one without a body."""

    text: str
    schema: Schema | None = None
    headers: tuple[str, ...] = ()
    media_type: str = MEDIA_TYPE


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A parameter of the query."""

    name: str
    text: str
    schema: Schema
    #: It may be given several times.
    repeated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """A method of a route. `errors` are the statuses beside those that any request may have."""

    id: str
    tag: str
    summary: str
    text: str = ""
    scope: str | None = None
    body: Schema | None = None
    #: Whether a request without a body is malformed.
    needs_body: bool = True
    query: Sequence[Query] = ()
    headers: Sequence[str] = ()
    path: Mapping[str, Schema] = field(default_factory=lambda: {"key": JOB_ID})
    answers: Mapping[int, Answer]
    errors: Sequence[int] = ()

    def render(self, variables: Sequence[str]) -> Schema:
        """Return the operation object; `variables` are those of the path."""
        out: Schema = {
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
        }
        if self.text or self.scope:
            needs = f"Needs the scope `{self.scope}`." if self.scope else ""
            out["description"] = " ".join(part for part in (self.text, needs) if part)
        out["parameters"] = self._parameters(variables)
        if self.body is not None:
            out["requestBody"] = {
                "required": self.needs_body,
                "content": {kind: {"schema": self.body} for kind in REQUEST_TYPES},
            }
        if self.scope is None:
            out["security"] = []
        out["responses"] = self._responses(bool(variables))
        return out

    def _parameters(self, variables: Sequence[str]) -> list[Schema]:
        path = [
            {"name": name, "in": "path", "required": True, "schema": self.path[name]}
            for name in variables
        ]
        query = [
            {
                "name": one.name,
                "in": "query",
                "description": one.text,
                "schema": {"type": "array", "items": one.schema} if one.repeated else one.schema,
            }
            for one in self.query
        ]
        names = ("OJS-Version", "X-Request-Id", *self.headers)
        return [
            *path,
            *query,
            *({"$ref": f"#/components/parameters/{name}"} for name in names),
        ]

    def _responses(self, has_path: bool) -> dict[str, Schema]:
        out = {
            str(status): _response(answer.text, answer.schema, answer.headers, answer.media_type)
            for status, answer in self.answers.items()
        }
        statuses = {*ALWAYS, *self.errors}
        statuses |= {*CLOSED} if self.scope else set()
        statuses |= {*BODY} if self.body is not None else set()
        statuses |= {404} if has_path else set()
        # A status may be an answer and an error: a failing health check is a report.
        for status in sorted(statuses - set(self.answers)):
            out[str(status)] = {"$ref": f"#/components/responses/{HTTPStatus(status).name}"}
        return dict(sorted(out.items()))


def error_responses() -> dict[str, Schema]:
    """Return the answer of each error status, for the components."""
    statuses = (*ALWAYS, *CLOSED, *BODY, 404, 405, 409, 429)
    return {
        HTTPStatus(status).name: _response(
            HTTPStatus(status).phrase, ref("ErrorAnswer"), _OF_STATUS.get(status, ())
        )
        for status in sorted(statuses)
    }


def _response(
    text: str,
    schema: Schema | None,
    headers: Sequence[str] = (),
    media_type: str = MEDIA_TYPE,
) -> Schema:
    names = (*_OF_EVERY_ANSWER, *headers)
    out: dict[str, Any] = {
        "description": text,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
    }
    if schema is not None:
        out["content"] = {media_type: {"schema": schema}}
    return out


def nullable(properties: Mapping[str, Schema]) -> dict[str, Schema]:
    """Let each of these fields of a request be null."""
    return {name: optional(schema) for name, schema in properties.items()}
