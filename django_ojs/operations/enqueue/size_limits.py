"""The size of an envelope that a queue takes (payload-limits §4.6)."""

import sys
from dataclasses import replace

from django_ojs.spec.envelope import Envelope, Limits, check_size, sized
from django_ojs.storage import queue_configs


def check(envelope: Envelope, limits: Limits) -> None:
    """Refuse an envelope over the limit of its queue, where the queue has one.

    What a client sent is measured as it was sent; what Python asked for, as the server's own limit
    measures it. A limit over `limits` does not count. Raises PayloadTooLarge.
    """
    limit = queue_configs.of(envelope.queue).max_envelope_bytes
    if limit is not None and limits.envelope_bytes < sys.maxsize:
        document = sized(envelope) if envelope.document is None else envelope.document
        check_size(document, replace(limits, envelope_bytes=limit))
