"""The intake: what is sent is in the log, sequenced and flagged, and what does not fit is a dead letter (E1 to E4)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cepheid.app import load
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.service.intake import PRIORITY, IntakeConfig, IntakeError, IntakeThread, config_of, start
from cepheid.service.log import LogReader
from cepheid.service.supplier import Supplier, SupplierError
from tests.service.intakes import (
    AIR,
    STREAMS,
    VIBRATION,
    Start,
    air,
    connected,
    dead_letters,
    everything,
    logged,
    read,
    say,
    tail_of,
)
from tests.service.threads import of_threads


def test_events_come_out_as_they_went_in(intake: Start, tmp_path: Path) -> None:
    events = [
        air(1, 100),
        air(-(2**63), 101, None, None),
        air(2**63 - 1, 102, "Grüße", -0.0),
        Event("vibration", "first", 0, {"samples": bytes(range(256)), "axis": 2}),
        Event("vibration", "", 0, {"samples": b"", "axis": None}),
    ]
    process = intake()
    with Supplier(process.address, STREAMS) as supplier:
        for event in events:
            supplier.push(event)
        supplier.flush()
        assert (supplier.acknowledged, supplier.pending, supplier.offset) == (5, 0, 5)
    found = logged(tmp_path)
    assert [repr(each.event) for each in found] == list(map(repr, events))
    assert [each.offset for each in found] == list(range(5))
    assert not any(each.late or each.duplicate for each in found)


def test_e4_late_and_duplicate_are_decided_once_and_stored(intake: Start, tmp_path: Path) -> None:
    times = [(1, 100), (2, 90), (3, 89), (1, 200), (4, 95), (5, 101), (6, 91)]
    expected = [(False, False), (False, False), (True, False), (False, True), (False, False), (False, False)]
    process = intake()
    with Supplier(process.address) as supplier:
        supplier.push_many(air(*each) for each in times[:4])
    process.kill()
    # What was known is read back from the log.
    with Supplier(intake().address) as supplier:
        supplier.push_many(air(*each) for each in times[4:])
        supplier.push_many([air(3, 300), air(2, 80)])
        counters = supplier.counters()["counters"]
    found = logged(tmp_path)
    assert [(each.late, each.duplicate) for each in found] == [*expected, (False, False), (False, True), (True, True)]
    assert (counters["late"], counters["duplicates"], counters["accepted"]) == (1, 2, 5)


def test_e4_each_stream_has_ids_and_times_of_its_own(intake: Start, tmp_path: Path) -> None:
    with Supplier(intake().address) as supplier:
        supplier.push(air(1, 1000))
        supplier.push(Event("vibration", 1, 5))
    assert [(each.late, each.duplicate) for each in logged(tmp_path)] == [(False, False)] * 2


def test_lines_of_json_for_a_person_with_a_terminal(intake: Start, tmp_path: Path) -> None:
    answers = say(
        intake(),
        b'{"stream": "air", "id": 1, "time": "2012-05-07T09:00:00Z", "sensor": "D1", "airflow": 5}\n'
        b'{"stream": "air", "id": 2, "tme": 3}\r\n'
        b"\n"
        b'{"stream": "vibration", "time": 3, "samples": [1, 2]}\n'
        b'{"stream": "vibration", "time": 4, "samples": "AQI="}',
    )
    assert [json.loads(answer) for answer in answers] == [
        {"error": "missing-time", "reason": "no 'time'", "line": 2},
        {"accepted": 3, "dead_letters": 1},
    ]
    nine = 1_336_381_200_000_000
    assert [each.event for each in logged(tmp_path)] == [
        Event("air", 1, nine, {"sensor": "D1", "flow": 5.0}),
        Event("vibration", 1, 3, {"samples": b"\x01\x02", "axis": None}),
        Event("vibration", 2, 4, {"samples": b"\x01\x02", "axis": None}),
    ]


def test_counted_ids_go_on_after_a_restart(intake: Start, tmp_path: Path) -> None:
    process = intake()
    say(process, b'{"stream": "vibration", "time": 3}\n' * 3)
    process.kill()
    process = intake()
    answers = say(process, b'{"stream": "vibration", "time": 3}\n{"stream": "vibration", "id": 9, "time": 3}\n')
    assert json.loads(answers[0])["error"] == "wrong-type"
    assert [each.event.id for each in logged(tmp_path)] == [1, 2, 3, 4]


def test_e3_dead_letters_are_kept_with_their_reason_and_counted(intake: Start, tmp_path: Path) -> None:
    process = intake()
    wrong = b'{"stream": "air", "id": 1, "time": 0, "flow": "high"}'
    say(process, wrong + b'\n{"stream": "air", "id": 1, "time": 0}\n\xff\n')
    with Supplier(process.address) as supplier:
        counters = supplier.counters()["counters"]
    assert counters["dead_letters"] == {"wrong-type": 1, "not-utf8": 1}
    assert counters["accepted"] == 1
    first, second = dead_letters(tmp_path)
    assert first == {
        "code": "wrong-type",
        "reason": "attribute 'flow': expected float, found string 'high'",
        "stream": "air",
        "source": "unix",
        "number": 1,
        "raw": wrong,
    }
    assert (second["code"], second["raw"], second["stream"]) == ("not-utf8", b"\xff", None)


def test_e3_records_of_a_batch_are_judged_one_by_one(intake: Start, tmp_path: Path) -> None:
    """As a supplier would send them that does not check what it sends."""
    process = intake()
    with Supplier(process.address) as supplier:
        layout = supplier.layout("vibration", {"samples": 8})
        rows = layout.empty(4)
        rows["id"], rows["axis"] = range(4), range(4)
        rows["time"][1] = 2**62
        rows["samples:at"][2] = 10_000
        supplier.push_rows(rows)
        supplier.flush()
        assert [(refusal.code, refusal.number) for refusal in supplier.refusals] == [
            ("out-of-range", 1),
            ("malformed-record", 2),
        ]
        assert supplier.acknowledged == 4
        # Ids of another kind than those before.
        supplier.push(Event("vibration", "text", 0))
        supplier.flush()
        assert supplier.refusals[-1].code == "wrong-type"
    assert [each.event.id for each in logged(tmp_path)] == [0, 3]
    assert [letter["reason"] for letter in dead_letters(tmp_path)] == [
        "'time' is out of range; the years 1 to 9999 can be held",
        "attribute 'samples' leads outside the record",
        "'id': expected int as for the others of stream 'vibration', found string",
    ]


def test_what_a_supplier_says_about_flags_does_not_count(intake: Start, tmp_path: Path) -> None:
    process = intake()
    with Supplier(process.address) as supplier:
        record = bytearray(supplier._session.encode(air(1)))
        record[6] |= 1 | 2 | 8
        supplier._push(bytes(record), 1)
    assert [(each.late, each.duplicate) for each in logged(tmp_path)] == [(False, False)]


def test_another_schema_is_refused(intake: Start) -> None:
    process = intake()
    other = Stream("air", {"sensor": Type.STRING, "flow": Type.INT})
    with pytest.raises(SupplierError, match="stream 'air' has other attributes or types here"):
        Supplier(process.address, [other])
    with pytest.raises(SupplierError, match="no stream 'water' here"):
        Supplier(process.address, [Stream("water", {})])


def test_streams_can_change_from_one_start_to_the_next(intake: Start, tmp_path: Path) -> None:
    """Numbers of streams are places in the order of names, so that a new one moves others."""
    listen = [f"unix:{tmp_path / 'intake.sock'}", "tcp:127.0.0.1:0"]
    process = intake(listen=listen)
    with Supplier(process.address) as supplier:
        supplier.push_many([air(1, 100), Event("vibration", 1, 7, {"axis": 1})])
    process.stop()
    added = Stream("aaa", {"x": Type.INT})
    wider = Stream("vibration", {"axis": Type.INT, "samples": Type.UINT8_ARRAY, "more": Type.BOOL})
    process = intake(streams=[wider, AIR, added], listen=listen)
    with Supplier(process.address) as supplier:
        supplier.push_many([air(1, 5), Event("aaa", 1, 5), Event("vibration", 2, 6, {"more": True})])
    for source in (tmp_path / "log", process.listening[1]):
        found = [(each.event.stream, each.event.id, each.late, each.duplicate) for each in read(source)]
        assert found == [
            ("air", 1, False, False),
            ("vibration", 1, False, False),
            ("air", 1, True, True),
            ("aaa", 1, False, False),
            ("vibration", 2, True, False),
        ]
    assert logged(tmp_path)[1].event.attributes == {"samples": None, "axis": 1}
    assert logged(tmp_path)[4].event.attributes == {"axis": None, "samples": None, "more": True}


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; an address for documentation
            address = str(probe.getsockname()[0])
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    return address


def test_a_token_is_needed_from_elsewhere(intake: Start) -> None:
    host = own_address()
    with pytest.raises(IntakeError, match="needs a token"):
        intake(listen=[f"tcp:{host}:0"])
    process = intake(listen=[f"tcp:{host}:0", "tcp:127.0.0.1:0"], token="secret")
    for wrong in (None, "", "secre", "secretly"):
        with pytest.raises(SupplierError, match="token"):
            Supplier(process.address, token=wrong)
        with pytest.raises(ConnectionError, match="token"):
            read(process.address, token=wrong)
    with Supplier(process.address, token="secret") as supplier:
        supplier.push(air(1))
    assert len(read(process.address, token="secret")) == 1
    with Supplier(process.listening[1]) as supplier:
        supplier.push(air(2))
    port = int(process.address.rpartition(":")[2])
    line = b'\n{"stream": "air", "id": 3, "time": 0}\n'
    for said, answer in [
        (b'{"token": "no"}' + line, b'"token"'),
        (line, b'"token"'),
        (b'{"token": "secret"}' + line, b'"accepted":1'),
        (b'{"token": "secret"}', b'"accepted":0'),
    ]:
        with socket.create_connection((host, port), timeout=30) as stream:
            stream.sendall(said)
            stream.shutdown(socket.SHUT_WR)
            assert answer in everything(stream)


def test_there_is_one_intake_of_a_log_and_of_a_socket(intake: Start, tmp_path: Path) -> None:
    intake()
    with pytest.raises(IntakeError, match="another process is writing this log"):
        intake()
    with pytest.raises(IntakeError, match="another process listens here"):
        intake(log=tmp_path / "other")


def test_a_thousand_connections(intake: Start, tmp_path: Path) -> None:
    process = intake(durability="interval 10ms")
    suppliers = [Supplier(process.address) for _ in range(1000)]
    for number, supplier in enumerate(suppliers):
        supplier.push(air(number))
    for supplier in suppliers:
        supplier.flush()
        supplier.close()
    assert sorted(each.event.id for each in logged(tmp_path)) == list(range(1000))


def test_connections_have_a_bound(intake: Start) -> None:
    process = intake(connections=2)
    with Supplier(process.address), Supplier(process.address), connected(process) as third:
        assert b"too-many-connections" in everything(third)
    with Supplier(process.address) as supplier:
        supplier.push(air(1))


def test_the_intakes_process_is_light(intake: Start) -> None:
    code = (
        "import cepheid.service.intake, cepheid._native, sys; print(*(m for m in"
        " ('pyspark', 'pyarrow', 'pandas', 'numpy', 'pydantic') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_signal_ends_it_in_order(intake: Start, tmp_path: Path) -> None:
    process = intake(durability="none")
    with Supplier(process.address) as supplier:
        supplier.push(air(1))
    process.stop()
    assert process.process.returncode == 0
    assert not (tmp_path / "intake.sock").exists()
    assert len(logged(tmp_path)) == 1


def test_of_two_connections_of_a_session_the_later_goes_on(intake: Start, tmp_path: Path) -> None:
    process = intake()
    with Supplier(process.address, patience=5) as one, Supplier(process.address) as other:
        one.push(air(1))
        one.flush()
        other._session.id, other._session._next = one._session.id, 1
        other.close()
        other.push(air(2))
        other.flush()
        with pytest.raises(SupplierError, match="goes on in another connection"):
            one.push(air(3))
        one.close()
        one._session._waiting.clear()
        one._session._held = 0
    assert [each.event.id for each in logged(tmp_path)] == [1, 2]


def test_streams_come_and_go_while_it_runs(intake: Start, tmp_path: Path) -> None:
    """Under load, with numbers of streams that move: no connection ends, and no event is lost."""
    process = intake(durability="interval 10ms")
    stop, pushed = threading.Event(), [0]

    def supply() -> None:
        with Supplier(process.address) as supplier:
            while not stop.is_set():
                supplier.push_many(air(number) for number in range(pushed[0], pushed[0] + 100))
                pushed[0] += 100

    thread = threading.Thread(target=supply)
    thread.start()
    added = Stream("aaa", {"x": Type.INT})

    def config(*streams: Stream) -> IntakeConfig:
        return IntakeConfig(streams, tmp_path / "log", ())

    with Supplier(process.address) as other:
        other.push(Event("vibration", 1, 0, {"axis": 1}))
        process.reload(config(AIR, VIBRATION, added))
        other.push(Event("vibration", 2, 0, {"axis": 2}))
        other.refresh()
        other.push(Event("aaa", 1, 0, {"x": 1}))
        other.push(Event("vibration", 1, 0, {"axis": 3}))
        process.reload(config(AIR, added))
        other.push(Event("vibration", 3, 0))
        other.push(Event("aaa", 2, 0))
        other.flush()
        assert [refusal.code for refusal in other.refusals] == ["unknown-stream"]
        with pytest.raises(IntakeError, match="order of their names"):
            process.reload(config(added, added))
        counters = other.counters()["counters"]
    stop.set()
    thread.join()
    assert (counters["connections"], counters["cut"], counters["refused"]) == (6, 0, 0)
    found = logged(tmp_path)
    assert [each.event.id for each in found if each.event.stream == "air"] == list(range(pushed[0]))
    rest = [(each.event.stream, each.event.id, each.duplicate) for each in found if each.event.stream != "air"]
    vibrations = [("vibration", 1, False), ("vibration", 2, False), ("aaa", 1, False), ("vibration", 1, True)]
    assert rest == [*vibrations, ("aaa", 2, False)]
    process.kill()
    with Supplier(intake(streams=[AIR, added]).address) as supplier:
        supplier.push(Event("aaa", 2, 0))
    assert logged(tmp_path)[-1].duplicate


def test_what_was_not_acknowledged_keeps_its_stream_when_numbers_move(intake: Start, tmp_path: Path) -> None:
    process = intake()
    with Supplier(process.address) as supplier:
        supplier.push(Event("vibration", 1, 0, {"axis": 1}))
        supplier.flush()
        process.kill()
        supplier.push(Event("vibration", 2, 0, {"axis": 2}))  # into a dead connection, with the number of before
        intake(streams=[AIR, VIBRATION, Stream("aaa", {"x": Type.INT})])
        supplier.flush()
    assert [(each.event.stream, each.event.id, each.event.attributes["axis"]) for each in logged(tmp_path)] == [
        ("vibration", 1, 1),
        ("vibration", 2, 2),
    ]


def test_an_application_says_what_its_intake_is_told(tmp_path: Path) -> None:
    (tmp_path / "plant.yaml").write_text(
        "name: plant\n"
        "streams:\n"
        "  b: {attributes: {x: int}, lateness: 2s, id: string}\n"
        "  a: {attributes: {flow: float}, spellings: {flow: [airflow]}, extras: true}\n"
        "consumers: {c: {input: a}}\n"
        "archive: {path: archive}\n"
        "service:\n"
        "  listen: 'unix:data/plant.sock'\n"
        "  log: {path: data/log, durability: interval 5ms, retain: 7d, retain_size: 1.5GB}\n"
    )
    config = config_of(load(tmp_path / "plant.yaml"))
    told = json.loads(config.to_json())
    assert told["listen"] == [f"unix:{tmp_path}/data/plant.sock"]
    assert told["log"] == {
        "path": f"{tmp_path}/data/log",
        "durability": "interval 5000",
        "segment_bytes": None,
        "retain_bytes": 1_500_000_000,
        "retain_age": 7 * 86_400_000_000,
        "consumers": ["archive"],
        "lanes": True,
    }
    assert [(stream["name"], stream["lateness"], stream["id"], stream["extras"]) for stream in told["streams"]] == [
        ("a", 0, None, True),
        ("b", 2_000_000, "string", False),
    ]
    with start(config) as process:
        assert say(process, b'{"stream": "a", "id": 1, "time": 0, "airflow": 2, "more": 3}\n') == [
            '{"accepted":1,"dead_letters":0}'
        ]
    for log in ("data/log", "data/log/dead"):
        tail_of(tmp_path / log).unlink()


def test_an_application_without_a_log_has_no_intake(tmp_path: Path) -> None:
    (tmp_path / "plant.yaml").write_text("name: plant\nstreams: {a: {attributes: {x: int}}}\n")
    with pytest.raises(IntakeError, match="give it a section 'service'"):
        config_of(load(tmp_path / "plant.yaml"))


def test_real_time_priorities_are_those_of_who_takes_and_keeps_events(intake: Start) -> None:
    """Threads that bring events to disk are just below the one that takes them; those who read for others have none."""
    process = intake(priority=5, listen=["tcp:127.0.0.1:0"])
    pid = process.process.pid
    if not process.realtime:
        assert os.getpriority(os.PRIO_PROCESS, pid) <= 0
        pytest.skip("no right to a real-time priority here")
    assert os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    with LogReader(process.address) as reader:
        assert list(reader) == []
        names = of_threads(pid, "comm")
        keep = [task for task, name in names.items() if name == "log-sync\n"]
        give = [task for task, name in names.items() if name == "log-reader\n"]
        assert {os.sched_getscheduler(task) for task in keep} == {os.SCHED_RR}
        assert {os.sched_getparam(task).sched_priority for task in keep} == {4}
        assert {os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK for task in give} == {os.SCHED_OTHER}


def test_an_intake_inside_the_program(tmp_path: Path) -> None:
    config = IntakeConfig(STREAMS, tmp_path / "log", [f"unix:{tmp_path / 'own.sock'}"])
    with IntakeThread(config) as own:
        with Supplier(own.address) as supplier:
            supplier.push_many(air(number) for number in range(10))
        assert len(logged(tmp_path)) == 10
        with pytest.raises(IntakeError, match="another process is writing this log"):
            IntakeThread(config)
    assert not (tmp_path / "own.sock").exists()
    with IntakeThread(config) as own, Supplier(own.address) as supplier:
        supplier.push(air(3))
    assert [each.duplicate for each in logged(tmp_path)] == [False] * 10 + [True]
    for log in ("log", "log/dead"):
        tail_of(tmp_path / log).unlink()


def test_a_page_of_memory_that_somebody_else_put_in_the_way(intake: Start, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make files of other users")
    (tmp_path / "log").mkdir()
    page = tail_of(tmp_path / "log")
    page.write_bytes(bytes(4096))
    os.chown(page, 12345, 12345)
    with pytest.raises(IntakeError, match="belongs to user 12345"):
        intake()
    page.unlink()


def test_a_flood_does_not_keep_the_priority_of_the_intake(intake: Start) -> None:
    """Above the engine's levels for a share of the time, and beside others for the rest of it."""
    process = intake(durability="none", priority=PRIORITY)
    if not process.realtime:
        pytest.skip("no right to a real-time priority")
    stop = threading.Event()

    def flood() -> None:
        with Supplier(process.address) as supplier:
            record = supplier._session.encode(air(1))
            while not stop.is_set():
                supplier._push(record * 2000, 2000)

    flooding = [threading.Thread(target=flood) for _ in range(2)]
    for thread in flooding:
        thread.start()
    seen: set[int] = set()
    deadline = time.monotonic() + 20
    while len(seen) < 2 and time.monotonic() < deadline:
        seen.add(os.sched_getscheduler(process.process.pid) & ~os.SCHED_RESET_ON_FORK)
        time.sleep(0.001)  # who looks all the time keeps those who flood from it
    stop.set()
    for thread in flooding:
        thread.join()
    assert seen == {os.SCHED_RR, os.SCHED_OTHER}
    # With little to do it is above them again.
    with Supplier(process.address) as supplier:
        supplier.push(air(2))
        supplier.flush()
        time.sleep(0.05)
        supplier.push(air(3))
        supplier.flush()
    assert os.sched_getscheduler(process.process.pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
