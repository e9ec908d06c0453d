"""What a server says of itself (conformance §4): its limits, and what it can unpack."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

#: Seconds for which it is believed.
MAX_AGE: Final = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The part of a manifest that a sender needs. None: the server does not say."""

    envelope_bytes: int | None = None
    meta_bytes: int | None = None
    queue_bytes: int | None = None
    type_bytes: int | None = None
    body_bytes: int | None = None
    zstd: bool = False
    batches: bool = True

    @classmethod
    def read(cls, document: object) -> Self:
        """Read a manifest in the documents' dialect, the site's, or none at all: never an error."""
        top = _object(document)
        said = _object(_object(top.get("extensions")).get("payload_limits"))
        site = _object(top.get("limits"))
        codings = said.get("supported_compression")
        return cls(
            envelope_bytes=_first(
                said.get("max_envelope_bytes"),
                site.get("max_envelope_bytes"),
                site.get("max_job_size_bytes"),
            ),
            meta_bytes=_first(
                said.get("max_meta_bytes"),
                site.get("max_metadata_bytes"),
                site.get("max_meta_size_bytes"),
            ),
            queue_bytes=_first(
                said.get("max_queue_name_bytes"),
                site.get("max_queue_name_bytes"),
                site.get("max_queue_name_length"),
            ),
            type_bytes=_first(
                said.get("max_job_type_bytes"),
                site.get("max_job_type_bytes"),
                site.get("max_type_length"),
            ),
            body_bytes=_first(site.get("max_body_bytes")),
            zstd=isinstance(codings, list) and "zstd" in codings,
            # Only who says that it has none is asked for none.
            batches=_object(top.get("capabilities")).get("batch_enqueue") is not False,
        )


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _first(*values: object) -> int | None:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
