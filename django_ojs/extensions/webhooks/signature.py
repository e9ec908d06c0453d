"""How the body of a delivery is signed (ojs-webhooks §8)."""

import hashlib
import hmac
from collections.abc import Iterable


def signature(secrets: Iterable[str], timestamp: str, body: bytes) -> str:
    """Return the header `X-OJS-Signature`: a signature for each secret (§8.1, §8.3)."""
    signed = timestamp.encode() + b"." + body
    return ",".join(
        f"sha256={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
        for secret in secrets
    )
