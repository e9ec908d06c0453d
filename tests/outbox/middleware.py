"""A middleware that would show if it were run twice."""

from __future__ import annotations

from django_ojs.middleware import EnqueueNext
from django_ojs.spec import ids
from django_ojs.spec.envelope import Envelope


def seal(envelope: Envelope, proceed: EnqueueNext) -> Envelope | None:
    envelope.args = [f"sealed-{ids.uuid7()}-{arg}" for arg in envelope.args]
    return proceed(envelope)
