"""The boto3 client for the S3 service of the settings."""

from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from django_ojs.conf import of
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.spec.errors import PayloadRejected

#: Seconds without a response after which a request fails.
CONNECT_TIMEOUT: Final = 5
READ_TIMEOUT: Final = 20


def client() -> Any:
    """Return a client for the service of OJS['PAYLOAD_S3'], which threads may share.

    Raises PayloadRejected where boto3 is not installed.
    """
    return client_for(of(PayloadSettings).payload_s3)


@lru_cache(maxsize=4)
def client_for(options: tuple[tuple[str, str], ...]) -> Any:
    """Return the client for a service, made once for the same options."""
    try:
        boto3, botocore = import_module("boto3"), import_module("botocore.config")
    except ImportError:
        raise PayloadRejected("s3:// needs boto3: install django-ojs[payloads]") from None
    config = botocore.Config(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=READ_TIMEOUT,
        retries={"mode": "standard", "total_max_attempts": 3},
    )
    # The session is our own, because boto3's default session is not thread-safe.
    return boto3.session.Session().client("s3", config=config, **dict(options))


def errors() -> tuple[type[Exception], ...]:
    botocore = import_module("botocore.exceptions")
    return botocore.BotoCoreError, botocore.ClientError, OSError


def age(response: Any, modified: Any) -> timedelta:
    """Return the age of an object by the service's clock, from which ours may differ."""
    date = response["ResponseMetadata"]["HTTPHeaders"]["date"]
    return parsedate_to_datetime(date) - modified  # type: ignore[no-any-return]  # boto3 has no types
