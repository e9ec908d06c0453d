"""Which arguments of a handler a unique policy selects: parameters by name, with their defaults."""

import inspect
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from django_ojs.spec import json
from django_ojs.spec.errors import OJSError, UniqueKeyInvalid
from django_ojs.spec.suggestions import did_you_mean
from django_ojs.spec.unique_policy import UniquePolicy, is_position

#: An annotation that has only these names never stands for a JSON object.
_NOT_OBJECTS: Final = frozenset(
    {
        *("int", "float", "str", "bool", "bytes", "None", "NoneType", "list", "tuple"),
        *("Literal", "Optional", "Union", "typing"),
        *("PayloadFile", "PayloadStream", "UnverifiedPayloadStream", "ojs", "django_ojs"),
    }
)


class UniqueArguments:
    """The parameters of one handler, as unique policies name and select them."""

    def __init__(self, type: str, signature: inspect.Signature) -> None:
        self._label = f"{type}{signature}"
        parameters = list(signature.parameters.values())
        self._positions = {p.name: str(index) for index, p in enumerate(parameters)}
        self._rest = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        self._parameters = [p for p in parameters if p.kind is not inspect.Parameter.VAR_POSITIONAL]
        self._may_have_object = any(_may_be_object(p) for p in parameters)

    def at(self, policy: UniquePolicy) -> UniquePolicy:
        """Return the policy with names of parameters in `args_keys` turned into positions.

        Positions also have a meaning for a producer that does not have the function.
        """
        if policy.args_keys is None:
            return policy
        return replace(
            policy,
            args_keys=tuple(dict.fromkeys(self._positions.get(n, n) for n in policy.args_keys)),
        )

    def check(self, policy: UniquePolicy) -> None:
        """Check what `args_keys` names, before any job exists. Raises UniqueKeyInvalid."""
        for name in policy.args_keys or ():
            if is_position(name):
                unknown = int(name) >= len(self._parameters) and not self._rest
            else:
                unknown = name not in self._positions and not self._may_have_object
            if unknown:
                raise UniqueKeyInvalid.of(
                    "unique.args_keys",
                    f"names {name!r}, which is not a parameter of {self._label}. "
                    f"{did_you_mean(name, tuple(self._positions))}",
                    hint="To select a member of an object, annotate its parameter, as in "
                    "order: dict.",
                )
        for parameter in self._parameters[: self._last(self.at(policy))]:
            if policy.args_keys and not has_json_default(parameter):
                raise UniqueKeyInvalid.of(
                    "unique.args_keys",
                    f"needs the default of {parameter.name!r} of {self._label} in the job, and "
                    "JSON cannot carry it",
                )

    def complete(self, args: Sequence[Any], policy: UniquePolicy) -> list[Any]:
        """Return the arguments with the defaults that the policy selects.

        So a call that leaves a default out and a call that passes the same value have the same key.
        The defaults become arguments of the job: another server computes the key from these alone.
        """
        completed = list(args)
        for parameter in self._parameters[len(completed) : self._last(policy)]:
            if parameter.default is inspect.Parameter.empty or not has_json_default(parameter):
                break
            completed.append(parameter.default)
        return completed

    def _last(self, policy: UniquePolicy) -> int:
        """Return how many parameters, from the first one, the policy needs."""
        if "args" not in policy.keys:
            return 0
        if policy.args_keys is None:
            return len(self._parameters)
        return max((int(name) + 1 for name in policy.args_keys if is_position(name)), default=0)


def _may_be_object(parameter: inspect.Parameter) -> bool:
    if parameter.annotation is inspect.Parameter.empty:
        return parameter.kind is inspect.Parameter.VAR_POSITIONAL
    # Annotations may be strings. Resolving them could import modules that are there for type
    # checkers only.
    names = re.findall(r"[A-Za-z_]\w*", inspect.formatannotation(parameter.annotation))
    return not _NOT_OBJECTS.issuperset(names)


def has_json_default(parameter: inspect.Parameter) -> bool:
    """Whether a job can carry the default of a parameter, or there is no default."""
    if parameter.default is inspect.Parameter.empty:
        return True
    try:
        json.check(parameter.default, parameter.name)
    except OJSError:
        return False
    return True
