"""Handlers of functions that take keyword arguments, as tasks of other interfaces do."""

import inspect
from typing import Any, Final

from django_ojs import annotations
from django_ojs.handlers import Handler
from django_ojs.spec.errors import InvalidArgs
from django_ojs.spec.json import JSON
from django_ojs.unique_arguments import has_json_default

_KEYWORDS: Final = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)


class KeywordHandler(Handler[..., Any]):
    """A handler whose function may have keyword-only parameters and `**kwargs`.

    The arguments of its jobs are positional, by the signature. For such parameters, a job has one
    more argument, the last one: an object of the keywords. A subclass sets `takes_context`, whether
    the first parameter is no argument of the job, before `__init__`.
    """

    def read_signature(self) -> inspect.Signature:
        """Return the signature of the job's arguments."""
        signature = annotations.signature(self.function)
        parameters = list(signature.parameters.values())[1 if self.takes_context else 0 :]
        self.callable_signature = signature.replace(parameters=parameters)
        positional = [p for p in parameters if p.kind not in _KEYWORDS]
        self._has_keywords = len(positional) < len(parameters)
        if self._has_keywords:
            kind = inspect.Parameter.POSITIONAL_ONLY
            # Every other parameter, even `*args`, comes before it, so only `bind` knows its
            # position.
            positional = [p for p in positional if p.kind is not inspect.Parameter.VAR_POSITIONAL]
            positional = [p.replace(kind=kind, default=inspect.Parameter.empty) for p in positional]
            name = "kwargs"
            while any(p.name == name for p in positional):
                name += "_"
            positional.append(inspect.Parameter(name, kind, annotation=dict))
        return signature.replace(parameters=positional)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[JSON]:
        """Return the positional arguments of a job. Raises InvalidArgs when they do not match."""
        if not self._has_keywords:
            return super().bind(args, kwargs)
        try:
            bound = self.callable_signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgs(
                f"The arguments do not fit {self.type}{self.callable_signature}: {error}.",
                details={"field": "args"},
            ) from None
        # The defaults are added, so that a unique policy sees the same arguments however they are
        # given.
        for parameter in self.callable_signature.parameters.values():
            if parameter.kind in _KEYWORDS or not has_json_default(parameter):
                break
            if parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
                bound.arguments.setdefault(parameter.name, parameter.default)
        return [*bound.args, bound.kwargs]

    def call_arguments(self, args: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return how to call the function with the arguments of a job. Raises InvalidArgs."""
        if not self._has_keywords:
            return args, {}
        if not args or not isinstance(args[-1], dict):
            raise InvalidArgs.of(
                "args",
                f"of {self.type}{self.callable_signature} must end with an object of its keywords",
            )
        return args[:-1], args[-1]

    def split_keywords(self, args: list[JSON]) -> tuple[list[JSON], dict[str, JSON] | None]:
        """Return the positional arguments of a job and its keywords; see `Handler`."""
        if self._has_keywords and args and isinstance(args[-1], dict):
            return args[:-1], args[-1]
        return args, None

    def keyword_parameter(self, name: str) -> inspect.Parameter | None:
        """Return the keyword-only parameter of a name, or `**kwargs`; see `Handler`."""
        if name in self.parameters and name in self.callable_signature.parameters:
            return None
        parameters = [p for p in self.callable_signature.parameters.values() if p.kind in _KEYWORDS]
        return next(
            (p for p in parameters if p.name == name or p.kind is inspect.Parameter.VAR_KEYWORD),
            None,
        )
