"""The OpenAPI document has only forms of which generators make usable clients.

What is forbidden here broke a client of OpenAPI Generator: a type without fields, a program that
does not compile, an answer that cannot be read. `test_generated_clients.py` makes such clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_ojs.http.views.openapi import DOCUMENT
from tests.http.operations import operations
from tests.http.tolerance import requests_of, schemas_in

MAX_INT32 = 2**31 - 1
#: What generators add to the name of an operation, for a type of their own.
SUFFIXES = ("Request", "Response", "Params", "JSONBody", "JSONRequestBody")

Node = dict[str, Any]


def _nodes(node: Any, path: str = "") -> Iterator[tuple[str, Node]]:
    """Yield each schema of the document, with its path: what has a type or refers to one."""
    if isinstance(node, list):
        for index, each in enumerate(node):
            yield from _nodes(each, f"{path}[{index}]")
    elif isinstance(node, dict):
        yield path, node
        for name, each in node.items():
            if name != "examples":
                yield from _nodes(each, f"{path}.{name}")


def alternatives(path: str, node: Node) -> bool:
    """Alternatives and conditions: they make types without fields."""
    words = ("anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas")
    return any(isinstance(node.get(word), list | dict) for word in words) and not _is_map(path)


def fields_beside_a_part(path: str, node: Node) -> bool:
    """What stands beside `allOf` is lost."""
    known = {"allOf", "additionalProperties", "description"}
    return isinstance(node.get("allOf"), list) and not node.keys() <= known


def rules_beside_a_reference(path: str, node: Node) -> bool:
    """So is what stands beside a reference."""
    return isinstance(node.get("$ref"), str) and not node.keys() <= {"$ref", "description"}


def references_into_a_schema(path: str, node: Node) -> bool:
    """Only what has a name of its own becomes a type."""
    reference = node.get("$ref")
    return isinstance(reference, str) and reference.count("/") != 3


def several_types(path: str, node: Node) -> bool:
    """A type beside null is understood; two others are not."""
    types = node.get("type")
    return isinstance(types, list) and (len(types) != 2 or types[1] != "null")


def constants(path: str, node: Node) -> bool:
    """A constant becomes a type with one value, also where that is no text."""
    return "const" in node and not _is_map(path) and not path.startswith(".components.headers")


def choices_that_are_no_texts(path: str, node: Node) -> bool:
    """Null among them makes names that are no names."""
    if not isinstance(choices := node.get("enum"), list):
        return False
    return node.get("type") != "string" or not all(isinstance(each, str) for each in choices)


def numbers_that_do_not_fit(path: str, node: Node) -> bool:
    """Without a format, an integer has 32 bits."""
    if node.get("type") not in ("integer", ["integer", "null"]):
        return False
    return abs(node.get("maximum", 0)) > MAX_INT32 and node.get("format") != "int64"


RULES: list[Callable[[str, Node], bool]] = [
    alternatives,
    fields_beside_a_part,
    rules_beside_a_reference,
    references_into_a_schema,
    several_types,
    constants,
    choices_that_are_no_texts,
    numbers_that_do_not_fit,
]


def _is_map(path: str) -> bool:
    # The names of the fields of something, which may be those of a rule.
    return path.endswith(".properties")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_form_that_generators_do_not_understand_is_not_used(
    rule: Callable[[str, Node], bool],
) -> None:
    assert [path for path, node in _nodes(DOCUMENT.read()) if rule(path, node)] == []


@pytest.mark.parametrize(
    ("rule", "node"),
    [
        (alternatives, {"anyOf": [{"$ref": "#/components/schemas/A"}, {"type": "null"}]}),
        (alternatives, {"type": "object", "properties": {}, "oneOf": [{"required": ["a"]}]}),
        (fields_beside_a_part, {"allOf": [{"$ref": "#/components/schemas/A"}], "properties": {}}),
        (rules_beside_a_reference, {"$ref": "#/components/schemas/A", "maxLength": 3}),
        (references_into_a_schema, {"$ref": "#/components/schemas/A/properties/b"}),
        (several_types, {"type": ["string", "integer"]}),
        (several_types, {"type": ["string", "integer", "null"]}),
        (constants, {"type": "boolean", "const": True}),
        (choices_that_are_no_texts, {"enum": ["wait", None]}),
        (choices_that_are_no_texts, {"type": ["string", "null"], "enum": ["wait", None]}),
        (numbers_that_do_not_fit, {"type": "integer", "maximum": 2**53 - 1}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_each_rule_finds_what_it_forbids(rule: Callable[[str, Node], bool], node: Node) -> None:
    assert [path for path, each in _nodes({"a": node}) if rule(path, each)]


def test_null_stands_in_responses_only() -> None:
    # Left out means the same in a request, and a client has no other word for it.
    found = [
        path
        for name in requests_of(DOCUMENT.read())
        for path, node in _nodes(DOCUMENT.read()["components"]["schemas"][name], name)
        if isinstance(node.get("type"), list)
    ]
    assert found == []


def test_a_response_may_have_more_fields_than_its_client_knows() -> None:
    # A client in Go rejects a field that it does not know, unless it is told of such.
    document = DOCUMENT.read()
    responses = [one.content["responses"] for one in operations()]
    found = [
        path
        for name in schemas_in(document, [*responses, document["components"]["responses"]])
        for path, node in _nodes(document["components"]["schemas"][name], name)
        # Of a whole that has parts, what stands beside them counts.
        if isinstance(node.get("properties", node.get("allOf")), dict | list)
        and not _is_map(path)
        and not node.get("additionalProperties")
    ]
    assert found == []


def test_no_schema_has_the_name_of_what_a_generator_makes_for_an_operation() -> None:
    names = {name.lower(): name for name in DOCUMENT.read()["components"]["schemas"]}
    made = {f"{one.id}{suffix}".lower() for one in operations() for suffix in SUFFIXES}

    assert [names[each] for each in names.keys() & made] == []
    # Each is a file of its own, and not all file systems tell upper case from lower case.
    assert len(names) == len(DOCUMENT.read()["components"]["schemas"])


def test_choices_that_have_a_name_share_no_value() -> None:
    # In Go all of them are constants of one package.
    schemas = DOCUMENT.read()["components"]["schemas"].values()
    found = Counter(value for schema in schemas for value in schema.get("enum", ()))

    assert [value for value, number in found.items() if number > 1] == []
