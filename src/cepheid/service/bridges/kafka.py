"""From a topic of Kafka to a stream of the intake, each message once.

A message is a record of JSON; the intake judges it. Each partition is a session of its own, whose numbers are Kafka's
offsets. So the log itself knows how far each partition has been read, in the same frame as the events: after a crash of
the bridge, the intake or the broker, reading goes on exactly there. Offsets are committed to Kafka too, for those who
look at the group's lag; they decide only where a partition begins that the log does not know.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cepheid.service.session import MAX_RECORD
from cepheid.service.supplier import Supplier, SupplierError

#: Messages that are sent to the intake together.
MAX_TOGETHER: Final = 2_000


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic, whose messages are records of one stream unless they name another."""

    stream: str
    topic: str
    brokers: str = "localhost:9092"
    group: str = "cepheid"
    #: Further settings of the client, by librdkafka's names.
    options: Mapping[str, str] = field(default_factory=dict)


class KafkaBridge:
    """Runs in a thread of its own from `start` to `stop`; use it as a context manager."""

    def __init__(self, source: KafkaSource, intake: str, *, token: str | None = None) -> None:
        self._source, self._intake, self._token = source, intake, token
        self._stopping = threading.Event()
        self._suppliers: dict[int, Supplier] = {}
        self._thread = threading.Thread(target=self._run, name=f"kafka {source.topic}", daemon=True)
        #: Messages whose records are safe.
        self.messages = 0
        self.failure: str | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Begins to read; brokers that are not there yet are waited for.

        Raises ValueError if the client does not take its options.
        """
        try:
            Consumer(self._settings()).close()
        except KafkaException as error:
            raise ValueError(f"options of '{self._source.topic}': {error.args[0].str()}") from error
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends it; the next bridge goes on where the log stands."""
        self._stopping.set()
        self._thread.join()

    def _settings(self) -> dict[str, Any]:
        return {
            **self._source.options,
            "bootstrap.servers": self._source.brokers,
            "group.id": self._source.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "error_cb": self._troubled,
        }

    def _run(self) -> None:
        while not self._stopping.is_set():
            consumer = Consumer(self._settings())
            try:
                consumer.subscribe([self._source.topic], on_assign=self._assigned, on_revoke=self._revoked)
                while not self._stopping.is_set():
                    self._forward(consumer)
            except (SupplierError, KafkaException) as error:
                # Everything is begun again, from where the log stands.
                self.failure = str(error)
                self._stopping.wait(0.5)
            finally:
                consumer.close()
                self._forget()

    def _troubled(self, error: KafkaError) -> None:
        """What the library is in trouble with, and tries again by itself, such as brokers that are away."""
        self.failure = error.str()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begins each partition where the log stands."""
        for partition in partitions:
            supplier = Supplier(
                self._intake,
                token=self._token,
                default_stream=self._source.stream,
                session=self._session(partition.partition),
            )
            self._suppliers[partition.partition] = supplier
            if supplier.resumed is not None:
                partition.offset = supplier.resumed
        committed = [p for p in consumer.committed(partitions, timeout=10) if p.partition in self._suppliers]
        known = {p.partition: p.offset for p in committed if p.offset >= 0}
        for partition in partitions:
            if self._suppliers[partition.partition].resumed is None:
                partition.offset = known.get(partition.partition, OFFSET_BEGINNING)
        consumer.assign(partitions)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            supplier = self._suppliers.pop(partition.partition, None)
            if supplier is not None:
                supplier.close()

    def _forward(self, consumer: Consumer) -> None:
        by_partition: defaultdict[int, list[Message]] = defaultdict(list)
        for message in consumer.consume(MAX_TOGETHER, timeout=0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            by_partition[_number(message.partition())].append(message)
        for number, messages in by_partition.items():
            supplier = self._suppliers.get(number)
            if supplier is not None:  # else it was taken away meanwhile, and another bridge has it
                for run in _runs(messages):
                    supplier.push_json(map(_record, run), first=_number(run[0].offset()))
        for number, messages in by_partition.items():
            if number in self._suppliers:
                self._suppliers[number].flush()
                consumer.commit(message=messages[-1], asynchronous=True)
                self.messages += len(messages)
                self.failure = None

    def _session(self, partition: int) -> str:
        """The same for every bridge of this group; another group reads the topic for itself."""
        name = f"kafka {self._source.group} {self._source.topic} {partition}"
        return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()

    def _forget(self) -> None:
        for supplier in self._suppliers.values():
            supplier.close()
        self._suppliers.clear()


def _number(found: int | None) -> int:
    assert found is not None, "a message without an error has partition and offset"
    return found


def _runs(messages: list[Message]) -> list[list[Message]]:
    """The messages in runs without gaps: compacted topics and transactions leave offsets out."""
    runs: list[list[Message]] = []
    for message in messages:
        if runs and _number(message.offset()) == _number(runs[-1][-1].offset()) + 1:
            runs[-1].append(message)
        else:
            runs.append([message])
    return runs


def _record(message: Any) -> bytes:
    """The text of a message, on one line; an empty one is kept as a dead letter, and so is one that is cut off."""
    return (message.value() or b"").replace(b"\n", b" ")[:MAX_RECORD]
