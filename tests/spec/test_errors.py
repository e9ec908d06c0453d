"""The catalogue of errors, against a table written out by hand."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import django_ojs
from django_ojs.spec import errors
from tests.cases import together

# number, class, wire code, HTTP status, retryable
TABLE = """
OJS-1000 InvalidPayload invalid_payload 400 no
OJS-1001 InvalidJobType invalid_request 400 no
OJS-1002 InvalidQueue invalid_request 400 no
OJS-1003 InvalidArgs invalid_request 400 no
OJS-1004 InvalidMetadata invalid_request 400 no
OJS-1005 Conflict conflict 409 no
OJS-1006 InvalidRetryPolicy invalid_request 422 no
OJS-1007 InvalidCronExpression invalid_request 400 no
OJS-1009 PayloadTooLarge PAYLOAD_TOO_LARGE 413 no
OJS-1010 MetadataTooLarge METADATA_TOO_LARGE 413 no
OJS-1011 ConnectionError CONNECTION_ERROR - yes
OJS-1014 QueueNameTooLong QUEUE_NAME_TOO_LONG 400 no
OJS-1015 JobTypeTooLong JOB_TYPE_TOO_LONG 400 no
OJS-1016 ChecksumMismatch CHECKSUM_MISMATCH 422 no
OJS-1017 UnsupportedCompression UNSUPPORTED_COMPRESSION 415 no
OJS-2000 BackendError backend_error 500 yes
OJS-2001 BackendUnavailable backend_error 503 yes
OJS-2002 BackendTimeout BACKEND_TIMEOUT 504 yes
OJS-2004 InternalServerError backend_error 500 yes
OJS-3000 JobNotFound not_found 404 no
OJS-3001 DuplicateJob duplicate 409 no
OJS-3004 QueuePaused queue_paused 422 yes
OJS-4000 WorkflowNotFound not_found 404 no
OJS-4003 DependencyFailed DEPENDENCY_FAILED 422 no
OJS-4004 CyclicDependency CYCLIC_DEPENDENCY 400 no
OJS-5000 Unauthenticated UNAUTHENTICATED 401 no
OJS-5001 PermissionDenied PERMISSION_DENIED 403 no
OJS-5002 TokenExpired TOKEN_EXPIRED 401 no
OJS-6000 RateLimited rate_limited 429 yes
OJS-6001 QueueFull QUEUE_FULL 429 yes
OJS-7000 UnsupportedFeature unsupported 422 no
OJS-7002 UniqueKeyInvalid invalid_request 400 no
"""
ROWS = [line.split() for line in TABLE.split("\n") if line]


def classes() -> list[type[errors.OJSError]]:
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [cls for cls in found if issubclass(cls, errors.OJSError)]


def catalogue() -> dict[str, type[errors.OJSError]]:
    """Return the first class that has a number, by number. `NotFound` is no entry of its own."""
    entries: dict[str, type[errors.OJSError]] = {}
    for cls in classes():
        if cls.number and cls is not errors.NotFound:
            entries.setdefault(cls.number, cls)
    return entries


@together(("number", "name", "code", "status", "retryable"), ROWS)
def test_the_catalogue_says_what_the_table_says(
    number: str, name: str, code: str, status: str, retryable: str
) -> None:
    found = catalogue()[number]
    assert found is getattr(errors, name)
    assert found.__name__ == name
    assert found.code == code
    assert found.status == (None if status == "-" else int(status))
    assert found.retryable is (retryable == "yes")


def test_the_table_is_the_whole_catalogue() -> None:
    assert list(catalogue()) == [row[0] for row in ROWS]


def test_every_class_is_used() -> None:
    package = Path(django_ojs.__file__).parent
    files = [each for each in package.rglob("*.py") if each != Path(errors.__file__)]
    words = {word for each in files for word in re.findall(r"\w+", each.read_text())}

    assert [cls.__name__ for cls in classes() if cls.__name__ not in words] == []


@together("cls", classes(), ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling(cls: type[errors.OJSError]) -> None:
    error = cls("queue must not be empty", details={"index": 3}, hint="name one")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (str(copy), copy.details, copy.hint) == (str(error), {"index": 3}, "name one")


def test_details_are_not_shared_with_the_caller() -> None:
    mine = {"a": 1}
    error = errors.Conflict("no", details=mine)
    error.with_details(index=2)
    assert mine == {"a": 1}
    assert error.details == {"a": 1, "index": 2}


def test_the_type_of_the_seed_documents_is_there() -> None:
    assert errors.InvalidRetryPolicy.type == "validation_error"
    assert errors.PayloadTooLarge.type == "PayloadTooLarge"
    assert errors.ChecksumMismatch.type == "PayloadChecksumMismatch"
    assert errors.Conflict.type is None


def test_a_full_queue_says_how_full_it_is() -> None:
    error = errors.QueueFull.at("mail", depth=10, bound=10, strategy="reject")
    assert error.details == {"queue": "mail", "depth": 10, "bound": 10, "strategy": "reject"}


def test_losing_a_claim_is_a_conflict() -> None:
    assert issubclass(errors.ClaimLost, errors.Conflict)


def test_a_wrong_database_is_never_sent_over_http() -> None:
    assert errors.WrongDatabase.status is None


def test_a_field_error_names_the_field_and_carries_more_details() -> None:
    error = errors.InvalidRequest.of("page", "must be at most 9", hint="use cursor", max_page=9)
    assert str(error) == "page must be at most 9"
    assert (error.details, error.hint) == ({"field": "page", "max_page": 9}, "use cursor")
