"""s3://bucket/key"""

from django_ojs.conf import of
from django_ojs.extensions.payloads import s3_client
from django_ojs.extensions.payloads.reader import Budget, Source
from django_ojs.extensions.payloads.reference import Reference
from django_ojs.extensions.payloads.schemes.buckets import StoredObject, locate
from django_ojs.extensions.payloads.settings import PayloadSettings
from django_ojs.spec.errors import PayloadUnavailable


def open_(
    reference: Reference, field: str, budget: Budget, *, allowed: tuple[str, ...] | None = None
) -> Source:
    """Open an object of a bucket in PAYLOAD_S3_BUCKETS, or in `allowed`."""
    names = of(PayloadSettings).payload_s3_buckets if allowed is None else allowed
    bucket, key = locate(reference, field, setting="PAYLOAD_S3_BUCKETS", allowed=names)
    service = s3_client.client()
    try:
        response = service.get_object(Bucket=bucket, Key=key)
    except s3_client.errors():
        raise PayloadUnavailable(f"the payload of {field} cannot be read from S3") from None
    return StoredObject(response["Body"], field, s3_client.errors())
