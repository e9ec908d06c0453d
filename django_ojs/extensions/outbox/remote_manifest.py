"""The manifest of a server (conformance §4): its limits and its encodings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

#: Seconds after which a manifest is fetched again.
MAX_AGE: Final = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteManifest:
    """The part of a manifest that a sender needs. A field that the manifest lacks is None."""

    envelope_bytes: int | None = None
    meta_bytes: int | None = None
    queue_bytes: int | None = None
    type_bytes: int | None = None
    body_bytes: int | None = None
    zstd: bool = False
    batches: bool = True

    @classmethod
    def parse(cls, document: object) -> Self:
        """Parse a manifest with the names of the specification or of its website. Never raises."""
        top = _object(document)
        extension = _object(_object(top.get("extensions")).get("payload_limits"))
        site = _object(top.get("limits"))
        codings = extension.get("supported_compression")
        return cls(
            envelope_bytes=_first(
                extension.get("max_envelope_bytes"),
                site.get("max_envelope_bytes"),
                site.get("max_job_size_bytes"),
            ),
            meta_bytes=_first(
                extension.get("max_meta_bytes"),
                site.get("max_metadata_bytes"),
                site.get("max_meta_size_bytes"),
            ),
            queue_bytes=_first(
                extension.get("max_queue_name_bytes"),
                site.get("max_queue_name_bytes"),
                site.get("max_queue_name_length"),
            ),
            type_bytes=_first(
                extension.get("max_job_type_bytes"),
                site.get("max_job_type_bytes"),
                site.get("max_type_length"),
            ),
            body_bytes=_first(site.get("max_body_bytes")),
            zstd=isinstance(codings, list) and "zstd" in codings,
            # If the manifest lacks the field, batches are tried.
            batches=_object(top.get("capabilities")).get("batch_enqueue") is not False,
        )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first(*values: object) -> int | None:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
