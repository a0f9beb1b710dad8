"""The consumers' socket of an engine, which is native (native/src/service/outlet.rs), and what Python answers there.

A first line that names a consumer is never seen here: `{"consumer": "plant"}` gets events as lines, with `"format":
"frames"` as frames. Others are requests, by their key: `{"stats": true}` is answered with the engine's books, and
`{"histograms": true}` with its latencies.
"""

from __future__ import annotations

from cepheid import _native
from cepheid.service.running.threads import Event

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol, TypeAlias

    #: Makes the answer of a request, which JSON can say, or is a line of JSON; a ValueError is the answer "error".
    Request: TypeAlias = Callable[[Mapping[str, Any]], object]

    class Served(Protocol):
        """An engine, in a program or in a process of its own."""

        @property
        def native(self) -> _native.Engine: ...
        def stats(self) -> dict[str, Any]: ...
        def again(self, query: str) -> bool: ...


#: How long who asks waits until it is open, seconds.
_PATIENCE = 10.0


class NeedsToken(ValueError):
    """An address that others can reach, and no token to keep them out."""


class Outlet:
    """Serves the consumers of an engine at an address; a context manager. `requests` are further ones, by their keys.

    A request runs on a thread of its own, and may take its time.
    """

    def __init__(
        self, engine: Served, address: str, token: str | None = None, requests: Mapping[str, Request] | None = None
    ) -> None:
        if token is None and address.startswith("tcp:"):
            _check_loopback(address)
        self._engine = engine
        self._requests: dict[str, Request] = {
            "stats": lambda _: self.stats(),
            "histograms": lambda _: engine.native.histograms(),
            "again": lambda asked: {"again": engine.again(asked["again"])},
            **(requests or {}),
        }
        #: Requests come as soon as it listens, before who opens it has it in hand.
        self._is_open = Event()
        self._outlet = _native.Outlet(engine.native, address, token, self._answer)
        self.address = self._outlet.address
        self._is_open.set()

    def __enter__(self) -> Outlet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all connections; the address is free again."""
        self._outlet.close()

    def stats(self) -> dict[str, Any]:
        """The engine's books, and under `delivered` what the clients of each consumer were sent and lost."""
        return self._engine.stats() | {"delivered": _native.read_json(self._outlet.stats().encode())}

    def _answer(self, line: str) -> str:
        self._is_open.wait(_PATIENCE)
        asked: dict[str, Any] = _native.read_json(line.encode())
        key = next((key for key in asked if key in self._requests), None)
        if key is None:
            raise ValueError(
                f'the first line is to name a consumer, such as {{"consumer": "plant"}}, or one of: '
                f"{', '.join(sorted(self._requests))}"
            )
        answer = self._requests[key](asked)
        return answer if isinstance(answer, str) else _native.write_json(answer)


def _check_loopback(address: str) -> None:
    # Not at the top: an engine at a Unix socket has no need of it.
    from cepheid.service.wire import is_loopback, parse_address

    target = parse_address(address)
    if isinstance(target, tuple) and not is_loopback(target[0]):
        raise NeedsToken(f"{address} can be reached from elsewhere: give a token, or listen on loopback or unix:path")
