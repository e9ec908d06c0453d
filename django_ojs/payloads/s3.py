"""The S3 service of the settings, as boto3 has it."""

from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from django_ojs.conf import settings
from django_ojs.spec.errors import PayloadRefused

#: Seconds without an answer after which a request is given up.
CONNECT_TIMEOUT: Final = 5
READ_TIMEOUT: Final = 20


def client() -> Any:
    """Return a client for the service that OJS['PAYLOAD_S3'] describes; threads may share it.

    Raises PayloadRefused where boto3 is not installed.
    """
    return _client(settings().payload_s3)


@lru_cache(maxsize=4)
def _client(options: tuple[tuple[str, str], ...]) -> Any:
    try:
        boto3, botocore = import_module("boto3"), import_module("botocore.config")
    except ImportError:
        raise PayloadRefused("s3:// needs boto3: install django-ojs[payloads]") from None
    config = botocore.Config(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        retries={"mode": "standard", "total_max_attempts": 3},
    )
    # A session of its own: boto3's default one is not made for threads.
    return boto3.session.Session().client("s3", config=config, **dict(options))


def errors() -> tuple[type[Exception], ...]:
    """Return what boto3 raises when the service does not do what it is asked."""
    botocore = import_module("botocore.exceptions")
    return botocore.BotoCoreError, botocore.ClientError, OSError


def age(answer: Any, modified: Any) -> timedelta:
    """Return how old an object is, by the service's own clock: ours may differ from it."""
    date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
    return parsedate_to_datetime(date) - modified  # type: ignore[no-any-return]  # boto3 has no types
