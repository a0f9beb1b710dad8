"""A consumer of one service is a supplier of another: what it receives is pushed on, validity and marks kept."""

from __future__ import annotations

from collections.abc import Iterable

from cepheid.model.events import Event
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier


def forward(consumer: Iterable[Received], supplier: Supplier, stream: str) -> None:
    """Pushes what a consumer receives to a stream of another service, until the consumer is closed; then flushes.

    So the second service judges an event as the first would have done: it is valid from its time to its end, or less
    by the stream's own `valid_for` (rule G1), and has the marks that it had. Ids are kept, so that the second intake
    recognises what it had before, also where the first engine made it again after a crash. Both sides connect again by
    themselves. A SupplierError ends it: the event in hand was not taken then.
    """
    for received in consumer:
        event = Event(stream, received.id, received.time, received.attributes)
        supplier.push(event, valid_until=received.end, marks=received.marks - {"recovered"})
    supplier.flush()
