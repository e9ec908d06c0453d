"""gs://bucket/key"""

from importlib import import_module

from django_ojs.conf import of
from django_ojs.extensions.payloads.reader import CHUNK, Budget, Source
from django_ojs.extensions.payloads.reference import Reference
from django_ojs.extensions.payloads.schemes.buckets import StoredObject, locate
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.spec.errors import PayloadRejected


def open_(reference: Reference, field: str, budget: Budget) -> Source:
    """Open an object of a bucket in PAYLOAD_GS_BUCKETS, with the environment's credentials."""
    bucket, key = locate(
        reference,
        field,
        setting="PAYLOAD_GS_BUCKETS",
        allowed=of(PayloadSettings).payload_gs_buckets,
    )
    try:
        storage = import_module("google.cloud.storage")
    except ImportError:
        raise PayloadRejected("gs:// needs google-cloud-storage: install django-ojs[gs]") from None
    blob = storage.Client().bucket(bucket).blob(key)
    # The library raises its own exceptions, and exceptions of `requests` and of its transport.
    return StoredObject(blob.open("rb", chunk_size=CHUNK), field, (Exception,))
