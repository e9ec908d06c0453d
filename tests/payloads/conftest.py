"""Hosts for payloads, and a record of where connections went."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from django_ojs.extensions.payloads.schemes import https
from tests.payloads.servers import Authority, HttpsServer, authority, https_server

NAME = "payloads.test"


@pytest.fixture(scope="session")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"), NAME)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Resolve these names as DNS would: each query takes the next of the addresses of a name."""
    known: dict[str, list[str]] = {NAME: ["127.0.0.1"]}
    real = socket.getaddrinfo
    asked: dict[str, int] = {}

    def resolve(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in known:
            return real(host, port, *args, **kwargs)
        count = asked[host] = asked.get(host, 0) + 1
        outcomes = known[host][min(count, len(known[host])) - 1].split()
        if outcomes == ["nothing"]:
            raise socket.gaierror
        return [
            (
                socket.AF_INET6 if ":" in address else socket.AF_INET,
                socket.SOCK_STREAM,
                6,
                "",
                (address, port, 0, 0) if ":" in address else (address, port),
            )
            for address in outcomes
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.fixture
def connections_made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every address to which a socket connects."""
    made: list[Any] = []
    real = socket.socket

    class Recording(real):  # type: ignore[misc,valid-type]  # a class made of the real one
        def connect(self, address: Any) -> None:
            made.append(address)
            super().connect(address)

        def connect_ex(self, address: Any) -> int:
            made.append(address)
            return int(super().connect_ex(address))

    monkeypatch.setattr(socket, "socket", Recording)
    return made


@pytest.fixture
def host(trusted: Authority, names: dict[str, list[str]], settings: Any) -> Iterator[HttpsServer]:
    """Start an HTTPS host that the settings allow, at an address they allow."""
    https.ssl_context.cache_clear()
    with https_server(trusted.context) as server:
        settings.OJS = settings.OJS | {
            "PAYLOAD_HTTPS_HOSTS": [f"{NAME}:{server.port}"],
            "PAYLOAD_PRIVATE_NETWORKS": ["127.0.0.1/32"],
            "PAYLOAD_CA_FILE": str(trusted.ca_file),
        }
        yield server
    https.ssl_context.cache_clear()


@pytest.fixture(scope="session")
def moto() -> Iterator[dict[str, str]]:
    """Start an S3 service that is spoken to over HTTP, and return how it is reached."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address, port = server.get_host_and_port()
    yield {
        "endpoint_url": f"http://{address}:{port}",
        "region_name": "us-east-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }
    server.stop()


class Bucket:
    """A bucket of the S3 service."""

    def __init__(self, service: dict[str, str]) -> None:
        self.name = f"bucket-{uuid4().hex}"
        self.client: Any = boto3.client("s3", **service)
        self.client.create_bucket(Bucket=self.name)

    def put(self, key: str, data: bytes) -> str:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)
        return f"s3://{self.name}/{key}"

    def get(self, uri: str) -> bytes:
        key = uri.removeprefix(f"s3://{self.name}/")
        data: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return data

    @property
    def keys(self) -> list[str]:
        return [o["Key"] for o in self.client.list_objects_v2(Bucket=self.name).get("Contents", ())]


@pytest.fixture
def bucket(moto: dict[str, str], settings: Any) -> Bucket:
    """Make a bucket that the settings allow."""
    made = Bucket(moto)
    settings.OJS = settings.OJS | {"PAYLOAD_S3": moto, "PAYLOAD_S3_BUCKETS": [made.name]}
    return made


@pytest.fixture
def offloading(bucket: Bucket, settings: Any) -> Bucket:
    """Put arguments over 1,000 bytes into the bucket."""
    config = {"bucket": bucket.name, "prefix": "jobs/", "over": 1_000}
    settings.OJS = settings.OJS | {"OFFLOAD": config, "PAYLOAD_S3_BUCKETS": []}
    return bucket
