"""Who takes part."""

from __future__ import annotations

from tests.benchmarks.contenders.bare import BareSQL, CountedSQL
from tests.benchmarks.contenders.base import Contender, Durable
from tests.benchmarks.contenders.ojs import CoreAlone, OpenJobSpec

OURS = OpenJobSpec.name
CORE = CoreAlone.name
CEILING = BareSQL.name

_OWN: tuple[type[Contender], ...] = (OpenJobSpec, CoreAlone, BareSQL, CountedSQL)


def _all() -> tuple[type[Contender], ...]:
    from tests.benchmarks.contenders.peers import PEERS

    return _OWN + PEERS


def peers() -> tuple[type[Contender], ...]:
    """Return what else a project could use, installed or not."""
    return _all()[len(_OWN) :]


def durable() -> tuple[type[Durable], ...]:
    """Return who runs functions in durable steps, installed or not."""
    from tests.benchmarks.contenders.peers import DURABLE

    return (OpenJobSpec, *DURABLE)


def by_name(name: str) -> Contender:
    """Return the contender of this name."""
    return next(each for each in (*_all(), *durable()) if each.name == name)()
