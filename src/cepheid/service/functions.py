"""Operators of the user's own: Python functions, and C functions by their addresses."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from typing import TypeAlias

from cepheid.plan.graph import Operator
from cepheid.plan.planner import Plan

#: A Python function; or a C function as a ctypes function pointer, a numba cfunc, or its address.
Function: TypeAlias = Callable[..., object] | int


class Functions:
    """The functions of a plan's own operators: given by name, imported, or found in libraries, which stay loaded."""

    def __init__(self, plan: Plan, given: Mapping[str, Function]) -> None:
        self.python: dict[str, Callable[..., object]] = {}
        self.addresses: dict[str, int] = {}
        #: The functions that the program gave, by operator.
        self.own = dict(given)
        self._kept: list[object] = []
        for operator in plan.graph.operators.values():
            self._add(operator, given.get(operator.name))

    def _add(self, operator: Operator, given: Function | None) -> None:
        parameters = dict(operator.parameters)
        if operator.kind == "python":
            function = given if given is not None else _imported(parameters.get("function"))
            if callable(function):
                self.python[operator.name] = function
        elif operator.kind == "native":
            if given is None and parameters.get("library") is not None:
                library = ctypes.CDLL(str(parameters["library"]))
                given = library[str(parameters.get("symbol") or operator.name)]
            if given is not None:
                self._kept.append(given)
                self.addresses[operator.name] = _address(given)


def _imported(name: object) -> Callable[..., object] | None:
    if not isinstance(name, str):
        return None
    module, _, function = name.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), function)
    return found


def _address(function: Function) -> int:
    if isinstance(function, int):
        return function
    address = getattr(function, "address", None)  # numba's
    if isinstance(address, int):
        return address
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
