"""External payload references (payload-limits §5.1)."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from django_ojs.spec.errors import PayloadRejected

KEY: Final = "__ojs_ref"

SCHEMES: Final = ("s3", "gs", "https", "file")

#: The length of a checksum in hexadecimal, by algorithm (§5.4).
ALGORITHMS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}

MAX_URI: Final = 4_096

# Visible ASCII without backslashes: parsers differ in how they read other characters.
_URI: Final = re.compile(r"[!-\[\]-~]+").fullmatch
_CHECKSUM: Final = re.compile(r"([a-z0-9]+):([0-9a-fA-F]+)").fullmatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The location of a payload, and its expected size and checksum."""

    uri: str
    size: int | None = None
    checksum: str | None = None

    @classmethod
    def parse(cls, data: Mapping[str, Any], field: str) -> Self:
        """Parse a reference; `field` names it in messages. Raises PayloadRejected."""
        uri = data[KEY]
        if not isinstance(uri, str) or len(uri) > MAX_URI or _URI(uri) is None:
            raise PayloadRejected(
                f"{field}.{KEY} must be a URI of visible ASCII without backslashes, of at most "
                f"{MAX_URI} characters"
            )
        # `size_bytes` is the spelling of the specification's site.
        size = data.get("size") if data.get("size") is not None else data.get("size_bytes")
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
            raise PayloadRejected(f"{field}.size must be an integer of at least 0")
        checksum = data.get("checksum")
        if checksum is not None:
            checksum = _checksum(checksum, field)
        return cls(uri=uri, size=size, checksum=checksum)

    @property
    def scheme(self) -> str:
        """The scheme of the URI, in lower case."""
        return self.uri.partition("://")[0].lower()

    @property
    def algorithm(self) -> str | None:
        return None if self.checksum is None else self.checksum.partition(":")[0]

    def matches(self, digest: str) -> bool:
        """Return whether a checksum, in hexadecimal, is the expected one."""
        return self.checksum is None or hmac.compare_digest(self.checksum.partition(":")[2], digest)

    def render(self) -> dict[str, Any]:
        out: dict[str, Any] = {KEY: self.uri}
        if self.size is not None:
            out["size"] = self.size
        if self.checksum is not None:
            out["checksum"] = self.checksum
        return out


def is_reference(value: object) -> bool:
    """Return whether an argument is a reference. Objects inside an argument never are."""
    return isinstance(value, dict) and KEY in value


def payload_reference(uri: str, *, size: int | None = None, checksum: str | None = None) -> Any:
    """Make a reference, to pass as an argument: `transcode.enqueue(ojs.payload_reference(…))`.

    `size` is in bytes, `checksum` like "sha256:…". Typed as Any, since it stands for the
    payload. Raises PayloadRejected for a reference that no worker will resolve.
    """
    reference = Reference.parse({KEY: uri, "size": size, "checksum": checksum}, "reference")
    if reference.scheme not in SCHEMES:
        raise PayloadRejected(f"the scheme of a reference must be one of {', '.join(SCHEMES)}")
    return reference.render()


def _checksum(value: object, field: str) -> str:
    found = _CHECKSUM(value) if isinstance(value, str) else None
    if found is None or ALGORITHMS.get(found[1]) != len(found[2]):
        raise PayloadRejected(
            f"{field}.checksum must be {', '.join(ALGORITHMS)} with a colon and all its digits in "
            "hexadecimal"
        )
    return f"{found[1]}:{found[2].lower()}"
