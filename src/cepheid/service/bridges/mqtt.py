"""From topics of an MQTT broker (3.1.1 or 5) to streams of the intake.

A message is a record of JSON, or several, one a line; the intake judges them. A message is acknowledged to the broker
when its records are safe in the log, so that a crash of the bridge, the intake or the broker loses none (QoS 1, a
session that the broker keeps). What the broker delivers again is recognised by its id (rule E4); records without ids
can't be, and are then doubled.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from cepheid.service.session import MAX_RECORD
from cepheid.service.supplier import Supplier, SupplierError

#: Messages that wait for the intake; when there are more, the broker is not read, and keeps the rest.
MAX_WAITING: Final = 10_000
#: Messages that are sent to the intake together.
MAX_TOGETHER: Final = 1_000
#: How long the broker keeps what comes while the bridge is away (MQTT 5).
SESSION_SECONDS: Final = 7 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Tls:
    """An encrypted connection: whose word for the broker is taken (None: whose this machine takes), and who this is."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class MqttSource:
    """Topics of a broker, whose messages are records of one stream unless they name another."""

    stream: str
    topics: Sequence[str]
    broker: str = "localhost:1883"
    version: Literal["3.1.1", "5"] = "5"
    user: str | None = None
    password: str | None = None
    tls: Tls | None = None


class MqttBridge:
    """Runs in threads of its own from `start` to `stop`; use it as a context manager.

    `name` is the bridge's for the broker, which keeps its messages under that name: two bridges need two names.
    """

    def __init__(self, source: MqttSource, intake: str, name: str, *, token: str | None = None) -> None:
        self._source, self._intake, self._name, self._token = source, intake, name, token
        self._waiting: queue.Queue[MQTTMessage | None] = queue.Queue(MAX_WAITING)
        self._subscribed = threading.Event()
        self._stopping = threading.Event()
        self._worker = threading.Thread(target=self._run, name=f"mqtt {name}", daemon=True)
        self._client = self._make_client()
        #: Messages whose records are safe.
        self.messages = 0
        self.failure: str | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, timeout: float = 30.0) -> Self:
        """Connects and subscribes; ConnectionError if the broker does not answer in time."""
        host, _, port = self._source.broker.rpartition(":")
        self._worker.start()
        options: dict[str, Any] = {}
        if self._source.version == "5":
            options["clean_start"] = False
            options["properties"] = _properties(SessionExpiryInterval=SESSION_SECONDS)
        self._client.connect(host, int(port), **options)
        self._client.loop_start()
        if not self._subscribed.wait(timeout):
            self.stop()
            raise ConnectionError(f"mqtt {self._source.broker}: {self.failure or 'no answer'}")
        return self

    def stop(self) -> None:
        """Ends it; what was not acknowledged is delivered again, to the next bridge of this name."""
        self._stopping.set()
        self._client.disconnect()
        self._client.loop_stop()
        if self._worker.ident is not None:
            self._worker.join()

    def _make_client(self) -> Client:
        five = self._source.version == "5"
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._name,
            clean_session=None if five else False,
            protocol=MQTTv5 if five else MQTTv311,
            manual_ack=True,
        )
        client.username_pw_set(self._source.user, self._source.password)
        tls = self._source.tls
        if tls is not None:
            client.tls_set(tls.ca_file, tls.certificate_file, tls.key_file)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_disconnect = self._on_disconnect
        return client

    def _on_connect(self, client: Client, _data: object, _flags: object, reason: Any, _properties: object) -> None:
        if reason.is_failure:
            self.failure = str(reason)
            return
        client.subscribe([(topic, 1) for topic in self._source.topics])

    def _on_subscribe(self, _client: Client, _data: object, _mid: int, reasons: Any, _properties: object) -> None:
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if refused:
            self.failure = f"the subscription was refused: {refused[0]}"
        else:
            self.failure = None
            self._subscribed.set()

    def _on_disconnect(self, _client: Client, _data: object, _flags: object, reason: Any, _properties: object) -> None:
        if not self._stopping.is_set():
            self.failure = f"the connection is lost: {reason}"

    def _on_message(self, _client: Client, _data: object, message: MQTTMessage) -> None:
        # Waiting here stops reading from the broker, which then keeps what comes.
        while not self._stopping.is_set():
            try:
                self._waiting.put(message, timeout=0.2)
                return
            except queue.Full:
                continue

    def _run(self) -> None:
        supplier: Supplier | None = None
        while not self._stopping.is_set():
            messages = self._take()
            while messages and not self._stopping.is_set():
                try:
                    if supplier is None:
                        supplier = Supplier(self._intake, token=self._token, default_stream=self._source.stream)
                    supplier.push_json(_records(messages))
                    supplier.flush()
                except SupplierError as error:
                    # Not even in its patience: all of them are sent again, in another session.
                    self.failure = str(error)
                    _closed(supplier)
                    supplier = None
                    self._stopping.wait(0.5)
                else:
                    for message in messages:
                        self._client.ack(message.mid, message.qos)
                    self.messages += len(messages)
                    self.failure = None
                    break
        _closed(supplier)

    def _take(self) -> list[MQTTMessage]:
        """The messages that are there, waiting a little for the first."""
        messages: list[MQTTMessage] = []
        try:
            first = self._waiting.get(timeout=0.2)
            while first is not None and len(messages) < MAX_TOGETHER:
                messages.append(first)
                first = self._waiting.get_nowait()
        except queue.Empty:
            pass
        return messages


def _closed(supplier: Supplier | None) -> None:
    if supplier is not None:
        supplier.close()


def _records(messages: Iterable[MQTTMessage]) -> Iterable[bytes]:
    for message in messages:
        lines = [line for line in bytes(message.payload).split(b"\n") if line and not line.isspace()]
        # What is cut off is no record any more, and becomes a dead letter.
        yield from (line[:MAX_RECORD] for line in lines or [b""])


def _properties(**values: object) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties
