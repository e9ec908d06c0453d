"""s3:// against an S3 service over HTTP; gs:// against a library of the test's own."""

from __future__ import annotations

import io
import json
import sys
from types import ModuleType
from typing import Any

import pytest

from django_ojs.extensions.payloads import s3_client
from django_ojs.spec.errors import ChecksumMismatch, PayloadRejected, PayloadUnavailable
from tests.payloads.conftest import Bucket
from tests.payloads.resolving import checksum, value

BODY = json.dumps({"large": ["x"] * 300_000}).encode()


@pytest.mark.requirement("PL-012")
@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_an_object_of_a_bucket_is_the_value(bucket: Bucket, algorithm: str) -> None:
    uri = bucket.put("inputs/a.json", BODY)
    assert value(uri, size=len(BODY), checksum=checksum(BODY, algorithm)) == json.loads(BODY)


@pytest.mark.requirement("PL-013")
def test_an_object_that_was_replaced_is_noticed(bucket: Bucket) -> None:
    uri = bucket.put("a.json", b"[1]")
    with pytest.raises(ChecksumMismatch):
        value(uri, checksum=checksum(b"[2]"))


@pytest.mark.parametrize("key", ["a?versionId=b", "a#b", "ä b".encode().hex(), "a%2fb", "a//b"])
def test_a_key_is_taken_literally(bucket: Bucket, key: str) -> None:
    assert value(bucket.put(key, b'"here"')) == "here"


def test_an_object_that_is_not_there_may_come(bucket: Bucket) -> None:
    with pytest.raises(PayloadUnavailable):
        value(f"s3://{bucket.name}/none")


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_bucket_that_is_not_allowed_is_not_asked(
    scheme: str, bucket: Bucket, connections_made: list[Any]
) -> None:
    setting = f"PAYLOAD_{scheme.upper()}_BUCKETS"
    for name in ("another", f"{bucket.name}x", bucket.name[:-1], f"{bucket.name}.evil.test"):
        with pytest.raises(PayloadRejected, match=setting):
            value(f"{scheme}://{name}/key")
    for path in ("", "/", bucket.name, f"{bucket.name}/", f"{bucket.name}/../x/key"):
        with pytest.raises(PayloadRejected):
            value(f"{scheme}://{path}")
    assert connections_made == []


def test_a_prefix_allows_a_part_of_a_bucket(bucket: Bucket, settings: Any) -> None:
    settings.OJS = settings.OJS | {"PAYLOAD_S3_BUCKETS": [f"{bucket.name}/open/"]}
    assert value(bucket.put("open/a.json", b"1")) == 1
    for key in ("closed/a.json", "openly/a.json", "open", "open/../closed/a.json"):
        with pytest.raises(PayloadRejected):
            value(f"s3://{bucket.name}/{key}")


def test_a_service_that_is_away_is_tried_again(bucket: Bucket, settings: Any) -> None:
    away = {**dict(settings.OJS["PAYLOAD_S3"]), "endpoint_url": "http://127.0.0.1:9"}
    settings.OJS = settings.OJS | {"PAYLOAD_S3": away}
    with pytest.raises(PayloadUnavailable):
        value(f"s3://{bucket.name}/a")


def test_without_boto3_it_says_what_to_install(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    s3_client.client_for.cache_clear()
    with pytest.raises(PayloadRejected, match="install"):
        value(f"s3://{bucket.name}/a")


class Blob:
    """An object, as google-cloud-storage has it."""

    def __init__(self, bucket: str, key: str) -> None:
        self.where = (bucket, key)

    def open(self, mode: str, chunk_size: int) -> io.BytesIO:
        assert mode == "rb"
        if self.where != ("models", "a/b.json"):
            return Broken()
        return io.BytesIO(b'{"from": "gs"}')


class Broken(io.BytesIO):
    """An object that cannot be had."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise RuntimeError("secret details")


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    class Client:
        def bucket(self, name: str) -> Any:
            return type("Bucket", (), {"blob": lambda self, key: Blob(name, key)})()

    storage = ModuleType("google.cloud.storage")
    storage.Client = Client  # type: ignore[attr-defined]  # a module of the test's own
    cloud = ModuleType("google.cloud")
    monkeypatch.setitem(sys.modules, "google", ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.cloud", cloud)
    monkeypatch.setitem(sys.modules, "google.cloud.storage", storage)
    settings.OJS = settings.OJS | {"PAYLOAD_GS_BUCKETS": ["models"]}


@pytest.mark.usefixtures("google")
def test_an_object_of_google_cloud_storage_is_the_value() -> None:
    assert value("gs://models/a/b.json") == {"from": "gs"}
    with pytest.raises(PayloadUnavailable) as caught:
        value("gs://models/none")
    assert "secret" not in str(caught.value)


def test_without_its_library_gs_says_what_to_install(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.storage", None)
    settings.OJS = settings.OJS | {"PAYLOAD_GS_BUCKETS": ["models"]}
    with pytest.raises(PayloadRejected, match="google-cloud-storage"):
        value("gs://models/a")
