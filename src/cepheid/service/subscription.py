"""A consumer's connection without its socket: what it says first, and what the bytes that come mean.

Both clients, blocking and asyncio, are shells around this.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from cepheid._native import DeliveryReader
from cepheid.model.events import EventId
from cepheid.service.place import Place
from cepheid.service.received import Received
from cepheid.service.wire import Kind, head

#: A first line is not longer.
_MOST: Final = 1 << 20
#: So many matches are known again when they are recovered.
_KNOWN: Final = 1 << 16


class RefusedByService(ValueError):
    """The service does not have the consumer, or wants another token."""


class Subscription:
    """What a consumer asks for, and how far a connection has come; `begin` with each connection."""

    def __init__(self, consumer: str, token: str | None, place: Place | None = None) -> None:
        self.consumer = consumer
        self.lost = 0
        self._hello: dict[str, object] = {"consumer": consumer, "format": "frames"}
        if token is not None:
            self._hello["token"] = token
        if place is not None:
            self._hello["acks"] = True
        self._place = place
        #: Of a match that was given and not handled yet, its id and number.
        self._given: tuple[str, int] | None = None
        #: The number before which all is handled, and what was said of that.
        self._reached = self._said = 0
        self._line = bytearray()
        self._reader: DeliveryReader | None = None
        self._next: int | None = None
        #: The ids of matches that came, the oldest first.
        self._known: dict[EventId, None] = {}

    def begin(self) -> bytes:
        """What a connection begins with."""
        self._line.clear()
        self._reader = None
        self._next = None
        self._given = None
        self._reached = self._said = 0
        return json.dumps(self._hello).encode() + b"\n"

    @property
    def is_welcome(self) -> bool:
        """Whether the service has answered."""
        return self._reader is not None

    def feed(self, data: bytes) -> Iterator[Received]:
        """What is whole with these bytes. RefusedByService if there will be nothing."""
        if self._reader is None:
            self._line += data
            line, end, rest = bytes(self._line).partition(b"\n")
            if not end:
                if len(line) > _MOST:
                    raise RefusedByService("what answers at this address is no service")
                return
            answer: dict[str, Any] = json.loads(line)
            self._reader, data = _reader(answer), rest
            if self._place is not None:
                self._place.begin(answer["acks"])
        for number, pushed, latency, marks, valid_until, identity, time, attributes, found in self._reader.feed(data):
            self.lost += number - (number if self._next is None else self._next)
            self._next = number + 1
            content: Any = None if found is None else json.loads(found)
            if self._place is not None:
                self._place.done(content.pop("done"))
                if self._place.had(str(identity), number):
                    self._reached = number + 1
                    continue
                self._given = str(identity), number
            elif found is not None and self._came_before(identity, "recovered" in marks):
                continue
            yield Received(
                self.consumer,
                identity,
                time,
                attributes,
                valid_until,
                frozenset(marks),
                pushed,
                content,
                latency // 1000 if "recovered" in marks else None,
            )

    def handled(self) -> bytes:
        """What was given is handled, all of it: what is to be said of that, if anything."""
        if self._place is not None and self._given is not None:
            given, self._given = self._given, None
            try:
                self._place.handled(*given)
            except OSError as error:
                raise RuntimeError(f"the place {self._place.path} can't be written: {error.strerror}") from error
            self._reached = given[1] + 1
        if self._reached == self._said:
            return b""
        self._said = self._reached
        return head(Kind.ACK, self._reached, 0)

    def close(self) -> None:
        """Lets go of its place."""
        if self._place is not None:
            self._place.close()

    def _came_before(self, identity: EventId, is_recovered: bool) -> bool:
        """Whether a match came before the engine died, and again after it. One that is live never comes twice."""
        if is_recovered and identity in self._known:
            return True
        self._known[identity] = None
        if len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]
        return False


def _reader(answer: dict[str, Any]) -> DeliveryReader:
    if "error" in answer:
        raise RefusedByService(answer["error"])
    if "select" in answer:
        return DeliveryReader(answer["select"], None)
    names = [name for name, _ in answer["attributes"]]
    return DeliveryReader(names, [kind for _, kind in answer["attributes"]])
