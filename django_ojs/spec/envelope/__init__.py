"""The job envelope (ojs-core §5): how it is read, checked, stored and rendered."""

from django_ojs.spec.envelope.alike import AlikeJobs, distinct
from django_ojs.spec.envelope.fields import FIELDS, OPTIONS, SYSTEM
from django_ojs.spec.envelope.model import (
    DEFAULT_LIMITS,
    MAX_PRIORITY,
    MAX_TIMEOUT_MS,
    MIN_PRIORITY,
    SPECVERSION,
    SPECVERSIONS,
    Envelope,
    Limits,
)
from django_ojs.spec.envelope.parse import ATTRIBUTES, parse, parse_alike, parse_many, when_text
from django_ojs.spec.envelope.render import StoredJob, outline, render, workflow_of
from django_ojs.spec.envelope.stored import options_of, store_with, with_stored
from django_ojs.spec.envelope.validate import (
    check_bytes,
    check_queue,
    check_size,
    check_type,
    sized,
    validate,
)

__all__ = [
    "ATTRIBUTES",
    "DEFAULT_LIMITS",
    "FIELDS",
    "MAX_PRIORITY",
    "MAX_TIMEOUT_MS",
    "MIN_PRIORITY",
    "OPTIONS",
    "SPECVERSION",
    "SPECVERSIONS",
    "SYSTEM",
    "AlikeJobs",
    "Envelope",
    "Limits",
    "StoredJob",
    "check_bytes",
    "check_queue",
    "check_size",
    "check_type",
    "distinct",
    "options_of",
    "outline",
    "parse",
    "parse_alike",
    "parse_many",
    "render",
    "sized",
    "store_with",
    "validate",
    "when_text",
    "with_stored",
    "workflow_of",
]
