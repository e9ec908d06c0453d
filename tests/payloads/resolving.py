"""Resolve one reference, without a worker round it."""

from __future__ import annotations

import hashlib
import inspect
from typing import Any

from django_ojs.extensions.payloads.parameter_kinds import ParameterKinds
from django_ojs.extensions.payloads.reference import KEY
from django_ojs.extensions.payloads.resolver import Resolved
from django_ojs.spec import ids


def kinds(*annotations: Any) -> ParameterKinds:
    """Return the kinds of parameters that are annotated like this."""
    return ParameterKinds(
        inspect.Parameter(f"p{i}", inspect.Parameter.POSITIONAL_ONLY, annotation=annotation)
        for i, annotation in enumerate(annotations)
    )


def resolved(*args: Any, as_: Any = Any) -> Resolved:
    """Resolve arguments that a handler takes as values, or as `as_`."""
    return Resolved(ids.uuid7(), args, kinds(*[as_] * len(args)))


def value(uri: str, **fields: Any) -> Any:
    """Return the value that a reference leads to."""
    with resolved({KEY: uri} | fields) as found:
        return found.args[0]


def checksum(data: bytes, algorithm: str = "sha256") -> str:
    """Return a checksum as references have it."""
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
