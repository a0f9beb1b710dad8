"""Operators of the user's own: Python functions, and C functions by their addresses."""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    #: A Python function; or a C function as a ctypes function pointer, a numba cfunc, or its address.
    Function: TypeAlias = Callable[..., object] | int
    #: An operator's kind and parameters.
    Own: TypeAlias = Mapping[str, object]


class Functions:
    """The functions of a job's own operators: given by name, imported, or found in libraries, which stay loaded."""

    def __init__(self, operators: Mapping[str, Own], given: Mapping[str, Function]) -> None:
        self.python: dict[str, Callable[..., object]] = {}
        self.addresses: dict[str, int] = {}
        #: The functions that the program gave, by operator.
        self.own = dict(given)
        self._kept: list[object] = []
        for name, operator in operators.items():
            self._add(name, operator, given.get(name))

    def _add(self, name: str, operator: Own, given: Function | None) -> None:
        if operator["kind"] == "python":
            function = given if given is not None else _imported(operator.get("function"))
            if callable(function):
                self.python[name] = function
            return
        if given is None and operator.get("library") is not None:
            import ctypes

            library = ctypes.CDLL(str(operator["library"]))
            given = library[str(operator.get("symbol") or name)]
        if given is not None:
            self._kept.append(given)
            self.addresses[name] = _address(given)


def _imported(name: object) -> Callable[..., object] | None:
    if not isinstance(name, str):
        return None
    from importlib import import_module

    module, _, function = name.partition(":")
    found: Callable[..., object] = getattr(import_module(module), function)
    return found


def _address(function: Function) -> int:
    if isinstance(function, int):
        return function
    address = getattr(function, "address", None)  # numba's
    if isinstance(address, int):
        return address
    import ctypes

    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
