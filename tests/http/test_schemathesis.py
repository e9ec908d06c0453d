"""The API against its own document: every response to any request is one that it describes.

The document has one way to say each thing; `tolerance.py` adds the others that are accepted.

`OJS_SCHEMATHESIS_SEED` and `OJS_SCHEMATHESIS_EXAMPLES` look elsewhere, or longer. Beside these
examples, which are random, there are some hundred cases for each operation that follow from its
schema: the suite takes a part of them, spread evenly, and `make fuzz` all. The suite's are the
same in each run, and are kept for the next ones (`recorded_cases.py`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.test import override_settings
from hypothesis import HealthCheck, settings
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.openapi.checks import RejectedPositiveData
from schemathesis.specs.openapi import examples
from schemathesis.specs.openapi.checks import ignored_auth

from django_ojs.http import long_poll
from django_ojs.http.views.openapi import DOCUMENT
from django_ojs.spec.json import MAX_INTEGER
from django_ojs.spec.scopes import Scope
from django_ojs.spec.states import State
from tests import factories
from tests.http.recorded_cases import RecordedCases, frozen
from tests.http.tolerance import tolerant
from tests.model_factories import ApiKeyFactory
from tests.sizes import FULL

pytestmark = [pytest.mark.slow, pytest.mark.sized, pytest.mark.once]

SEED = int(os.environ.get("OJS_SCHEMATHESIS_SEED", "1"))
EXAMPLES = int(os.environ.get("OJS_SCHEMATHESIS_EXAMPLES", "500" if FULL else "16"))
#: At most so many of the cases that follow from the schema of an operation.
CASES = 10**9 if FULL else 100
#: After so many cases of an operation none is sent again without its key, which is as much work: an
#: operation either asks for one or does not, and `test_principals.py` asks each.
WITHOUT_KEY = 10**9 if FULL else 5


def _remembered(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws the example of a schema once.

    Most schemas stand in many operations, and each time the same example is drawn: Schemathesis
    seeds each draw with 0.
    """
    found: dict[tuple[str, Any], Any] = {}

    def once(schema: Any, config: Any, validator: Any) -> Any:
        key = (json.dumps(schema, sort_keys=True), validator)
        if key not in found:
            found[key] = generate(schema, config, validator)
        return deepcopy(found[key]) if isinstance(found[key], dict | list) else found[key]

    return once


setattr(  # noqa: B010 - another package's function
    examples, "_generate_single_example", _remembered(examples._generate_single_example)
)

CONFIG = schemathesis.Config.from_dict(
    {
        "seed": SEED,
        "generation": {
            "max-examples": EXAMPLES,
            "allow-x00": False,
            # The same examples in each run; a seed that is given goes before this.
            "deterministic": True,
            "database": "none",
            "with-security-parameters": False,
        },
        "checks": {
            # What no schema can say: two fields that contradict each other, a state in the way.
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", 404, 409, 413, 422, 429],
            },
        },
    }
)
SCHEMA = schemathesis.openapi.from_dict(tolerant(DOCUMENT.read()), config=CONFIG)
SCHEMA.app = get_wsgi_application()

#: Rules that no schema can say: it has no word for printable, nor for what two fields say together.
_UNSAID = re.compile(
    r"printable characters|next_cursor of this list|must be another queue"
    r"|^unique\.(keys|key|(meta|args)_keys) "
    r"|must lie between the years|^after names an event"
    r"|^(since|start) (must be before|and (until|end))|^older_than needs states|^filter"
    r"|^(steps|jobs)\S* (is required|is also the id|is a second|is not the id|is the step itself)"
    r"|^(steps|jobs)\S* (is a callback|must name every|must contain|must be a job)"
    r"|^(steps|jobs)?\S*callbacks\S* (is required|must hold at least|must be a job|belong to)"
    r"|(limit|period) is required beside (period|limit)$"
    r"|tenant_fairness\.enabled is required beside|^url must not have an address that"
    r"|^pool is not a pool of this server|^weights must name only queues of the list"
    r"|^strategy \S+ (has no weights|needs weights)|^worker_id is required with a pool"
    r"|_timeout must be at most|^expires_at (must be in the future|needs a limit)"
    r"|^job_types must be types of jobs|^(cron|timezone) is invalid"
    r"|^options\.(scheduled_at must be relative|pending)"
)
SPELLINGS = {
    "timeout": "timeout_ms",
    "visibility_timeout": "visibility_timeout_ms",
    "delay_until": "scheduled_at",
    "retry_policy": "retry",
    "metadata": "meta",
    "initial_interval_ms": "initial_interval",
    "max_interval_ms": "max_interval",
    "period_ms": "period",
    "expression": "cron",
}
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What there is to find: a key that may do everything, and a job in each state."""

    key: str
    jobs: list[str]

    def instead_of(self, key: str) -> str:
        """Return one of the jobs for most ids; the same one for the same id."""
        return [key, *self.jobs][int(key[-2:], 16) % (len(self.jobs) + 1)]


@pytest.fixture
def stored(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stored]:
    """Store it, as a site with default settings does; connections stay open between requests."""
    print(f"OJS_SCHEMATHESIS_SEED={SEED} OJS_SCHEMATHESIS_EXAMPLES={EXAMPLES}")
    # A FETCH may wait for seconds; here it looks, and says so.
    monkeypatch.setattr(long_poll, "until", lambda look, seconds, is_over: look())
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    with override_settings(OJS={}):
        _, key = ApiKeyFactory(scopes=list(Scope))
        yield Stored(key=key, jobs=[str(factories.in_state(state).pk) for state in State])
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@SCHEMA.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    if isinstance(failure, RejectedPositiveData):
        message = response.json()["error"]["message"]
        return not (_UNSAID.search(message) or _has_odd_host(case.body, message))
    if isinstance(failure, AcceptedNegativeData):
        # A header that nobody has described is no mistake: proxies add what they like.
        unknown = "x-schemathesis-unknown-property" in (case.headers or {})
        return not (unknown or _said_twice(case.body) or _reads_as_valid(case.query))
    return True


def _reads_as_valid(query: Any) -> bool:
    # In a query all is text: a parameter that is empty is as none, and a list that is replaced by
    # false names the queue "false".
    for name, value in (query or {}).items():
        values = [str(each).strip(",") for each in (value if isinstance(value, list) else [value])]
        if "" in values:
            return True
        if name in ("queues", "job_types") and re.fullmatch(r"true|false|null|[0-9]+", values[0]):
            return True
    return False


def _has_odd_host(body: Any, message: str) -> bool:
    # No pattern that can be read says which digits and colons are an IPv6 address.
    is_said = message.startswith("url must be a URL with a host")
    return is_said and isinstance(body, dict) and "://[" in str(body.get("url"))


def _said_twice(body: Any) -> bool:
    # One of two spellings wins, and the other one is not looked at.
    if isinstance(body, list):
        return any(_said_twice(item) for item in body)
    if not isinstance(body, dict):
        return False
    if isinstance(body.get("active_jobs"), list) and not _are_ids(body.get("active_job_ids", [])):
        return True
    if "job_template" in body and {"type", "args", "meta", "options", "queue"} & body.keys():
        return True
    options = body.get("options")
    names = [*body, *(options if isinstance(options, dict) else ())]
    plain = [SPELLINGS.get(name, name) for name in names]
    return len(set(plain)) < len(plain) or _said_twice(list(body.values()))


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and _ID.match(one) for one in value)


RECORDED = RecordedCases(SCHEMA, Path(__file__).read_text(), SEED, EXAMPLES, CASES)


def _ask(case: Any, stored: Stored, number: int) -> None:
    key = (case.path_parameters or {}).get("key", "")
    if isinstance(key, str) and _ID.fullmatch(key):
        # An id that could be anybody's: mostly, let it be somebody's.
        case.path_parameters["key"] = stored.instead_of(key)
    case.body = _as_clients_write(case.body)
    case.query = _as_digits(case.query)
    # Compressed responses are tested elsewhere: this client does not decompress them.
    case.call_and_validate(
        headers={"Authorization": f"Bearer {stored.key}", "Accept-Encoding": "identity"},
        excluded_checks=[ignored_auth] if number >= WITHOUT_KEY else None,
    )


# The fixtures are made once for an operation: what one request left, the next one meets.
# An operation takes seconds; the limit is for a machine that is busy with other things.
if not FULL and RECORDED.complete():

    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("label", RECORDED.labels)
    def test_every_response_is_as_described(label: str, stored: Stored) -> None:
        for number, case in enumerate(RECORDED.of(label)):
            _ask(case, stored, number)

else:

    @pytest.fixture
    def made(request: Any) -> Iterator[list[bytes | None]]:
        """Keep the cases of an operation, if all of them pass."""
        cases = request.function.hypothesis_explicit_examples
        cases[:] = cases[:: -(-len(cases) // CASES) or 1]
        found: list[bytes | None] = []
        yield found
        if not FULL and found and None not in found:
            RECORDED.keep(request.node.operation_label, [each for each in found if each])

    @pytest.mark.timeout(900)
    @SCHEMA.parametrize()
    # Said here as well: what a loaded profile of Hypothesis says goes before Schemathesis's own.
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    def test_every_response_is_as_described(
        case: Any, stored: Stored, made: list[bytes | None]
    ) -> None:
        before = frozen(case)
        made.append(None)
        _ask(case, stored, len(made) - 1)
        made[-1] = before


def _as_digits(query: Any) -> Any:
    # In a query an integer is written in digits, however many.
    if not isinstance(query, dict):
        return query
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in query.items()
    }


def _as_clients_write(value: Any) -> Any:
    # To JSON Schema, 5.0 is an integer and 1e300 is one too. Clients write the first as 5, and the
    # second not as an integer of 300 digits; what we say to the others is tested elsewhere.
    if isinstance(value, dict):
        return {name: _as_clients_write(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_as_clients_write(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INTEGER:
        return int(value)
    if isinstance(value, int) and MAX_INTEGER < abs(value) < 10**300:
        return float(value)
    return value
