"""gs://bucket/key"""

from importlib import import_module
from typing import Any

from django_ojs.conf import settings
from django_ojs.payloads.reader import CHUNK, Budget, Source
from django_ojs.payloads.reference import Reference
from django_ojs.payloads.schemes.buckets import locate
from django_ojs.spec.errors import PayloadRefused, PayloadUnavailable


class _Blob:
    def __init__(self, blob: Any, field: str) -> None:
        self._file = blob.open("rb", chunk_size=CHUNK)
        self._field = field

    def read(self, size: int, /) -> bytes:
        try:
            return self._file.read(size)  # type: ignore[no-any-return]  # the library has no types
        except Exception:  # The library raises its own, requests', and those of its transport.
            raise PayloadUnavailable(
                f"the payload of {self._field} cannot be read from Google Cloud Storage"
            ) from None

    def close(self) -> None:
        self._file.close()


def open_(reference: Reference, field: str, budget: Budget) -> Source:
    """Open an object of a bucket in PAYLOAD_GS_BUCKETS, with the environment's credentials."""
    bucket, key = locate(
        reference, field, setting="PAYLOAD_GS_BUCKETS", allowed=settings().payload_gs_buckets
    )
    try:
        storage = import_module("google.cloud.storage")
    except ImportError:
        raise PayloadRefused("gs:// needs google-cloud-storage: install django-ojs[gs]") from None
    return _Blob(storage.Client().bucket(bucket).blob(key), field)
