"""The annotations of a function, which may contain names that exist for type checkers only.

With `from __future__ import annotations` they are strings; from Python 3.14 on, names that were not
imported are ForwardRefs. Annotations of parameters are not resolved: that could import modules.
"""

import inspect
import sys
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, ForwardRef, Union, get_args, get_origin

#: What `spec.json` accepts.
_JSON = (str, int, float, bool, list, tuple, dict, NoneType)


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function; `inspect.signature` may raise NameError from 3.14 on."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(function)


def text_of(annotation: Any) -> str:
    """Return an annotation as text."""
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return inspect.formatannotation(annotation)


def last_name(annotation: Any) -> str:
    """Return the last part of the name of an unresolved annotation; "" for any other annotation."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    return annotation.split(".")[-1].strip("'\"") if isinstance(annotation, str) else ""


def result_that_is_not_json(function: Callable[..., Any]) -> str | None:
    """Return what a function is annotated to return if JSON cannot represent it, else None.

    In doubt, return None.
    """
    if hasattr(function, "__wrapped__"):
        return None  # The annotation belongs to the inner function, but the outer one returns.
    annotation = signature(function).return_annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, getattr(function, "__globals__", {}))
        except Exception:  # Such as NameError, for a name that exists for type checkers only.
            return None
    return None if _may_be_json(annotation) else text_of(annotation)


def _may_be_json(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        # None does not count: a function that returns `Model | None` is called for its models.
        members = [each for each in get_args(annotation) if each is not NoneType]
        return any(map(_may_be_json, members))
    found = get_origin(annotation) or annotation
    if not isinstance(found, type) or found in (Any, inspect.Signature.empty):
        return True
    try:
        # JSON may be an instance of a class such as Mapping or object.
        return any(issubclass(found, each) or issubclass(each, found) for each in _JSON)
    except TypeError:  # a protocol that issubclass() does not accept
        return True
