"""Reading a workflow from JSON, in either form: `type` with nesting, or steps with `depends_on`."""

from collections.abc import Mapping
from typing import Any

from django_ojs.extensions.workflows.spec.builder import GraphBuilder, Position
from django_ojs.extensions.workflows.spec.definition import id_of, object_of, text_of, type_of
from django_ojs.extensions.workflows.spec.dependencies import read_graph
from django_ojs.extensions.workflows.spec.graph import Graph
from django_ojs.spec.envelope import DEFAULT_LIMITS, Limits
from django_ojs.spec.errors import InvalidRequest, OJSError


def parse(data: Mapping[str, Any], *, limits: Limits = DEFAULT_LIMITS) -> Graph:
    """Return the graph that a decoded JSON object describes, after checking its jobs.

    Raises InvalidRequest and its subclasses, and CyclicDependency; each error names the path.
    """
    try:
        return _parse(data, limits)
    except OJSError as error:
        field = error.details.get("field")
        path = f"$.{field}" if field else "$"
        validation = [{"path": path, "message": error.message}]
        raise error.with_details(validation_errors=validation) from None


def _parse(data: Mapping[str, Any], limits: Limits) -> Graph:
    if not isinstance(data, Mapping):
        raise InvalidRequest("a workflow must be an object")
    name = text_of(data, "name", "")
    key, client_id = id_of(data)
    builder = GraphBuilder(limits=limits)
    root = Position(options=object_of(data, "options", ""))
    if data.get("type") is None:
        workflow_type = read_graph(data, builder, root)
    else:
        workflow_type = type_of(data, "")
        builder.parts(data, root)
    return Graph(
        type=workflow_type,
        name=name,
        id=key,
        client_id=client_id,
        steps=tuple(builder.steps),
        definition=data,
    )
