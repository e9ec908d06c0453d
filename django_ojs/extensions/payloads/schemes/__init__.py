"""How to open the references of each scheme (payload-limits §5.1), one module each.

A module has one function, `open_`, which checks a reference against the settings before it opens
anything.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Final

from django_ojs.extensions.payloads.reader import Budget, Source
from django_ojs.extensions.payloads.reference import SCHEMES, Reference
from django_ojs.spec.errors import PayloadRejected

Opener = Callable[[Reference, str, Budget], Source]

_MODULES: Final = {name: f"{__name__}.{name}" for name in SCHEMES}


def open_(reference: Reference, field: str, budget: Budget) -> Source:
    """Open what a reference leads to; `field` is its place in the job, for messages.

    Raises PayloadRejected for what the settings do not allow, and PayloadUnavailable for what
    cannot be read now.
    """
    name = _MODULES.get(reference.scheme)
    if name is None:
        raise PayloadRejected(f"the scheme of {field} must be one of {', '.join(SCHEMES)}")
    # The module is imported here, because a site needs only the libraries of the schemes that it
    # uses.
    try:
        opener: Opener = import_module(name).open_
    except ImportError:
        raise PayloadRejected(
            f"the scheme of {field} needs a library: install django-ojs[payloads]"
        ) from None
    return opener(reference, field, budget)
