"""What may go wrong around the intake: suppliers that die, lie, flood or babble, a full disk, its own sudden end."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cepheid.model.events import Event
from cepheid.service.intake import IntakeProcess
from cepheid.service.supplier import Supplier
from cepheid.service.wire import GREETING, Frames, Kind, frame, json_frame
from tests.service.intakes import Start, air, connected, dead_letters, end_of, everything, logged, say, starting

HELLO = GREETING + json_frame(Kind.HELLO, {"version": 1, "role": "supplier", "session": "00000000000000aa"})


def works(process: IntakeProcess, event: Event) -> bool:
    """Whether the intake still serves others."""
    with Supplier(process.address) as supplier:
        supplier.push(event)
        supplier.flush()
        return supplier.acknowledged == 1


def greeted(process: IntakeProcess) -> socket.socket:
    stream = connected(process)
    stream.sendall(HELLO)
    frames = Frames()
    while not any(found.kind is Kind.WELCOME for found in frames.feed(stream.recv(1 << 16))):
        pass
    return stream


def record_of(process: IntakeProcess, event: Event) -> bytes:
    with Supplier(process.address) as supplier:
        return supplier._session.encode(event)


def last_error(stream: socket.socket) -> dict[str, object]:
    errors = [found.json() for found in Frames().feed(everything(stream)) if found.kind is Kind.ERROR]
    return dict(errors[-1])


def test_a_supplier_that_dies_in_the_middle_of_a_frame(intake: Start, tmp_path: Path) -> None:
    process = intake()
    whole = frame(Kind.BATCH, 0, record_of(process, air(1)))
    for cut in (1, 8, 15, 16, 17, 24, len(whole) - 1):
        stream = greeted(process)
        stream.sendall(whole[:cut])
        stream.close()
    for cut in (1, 7, 9, 20, len(HELLO) - 1):
        with connected(process) as stream:
            stream.sendall(HELLO[:cut])
    assert works(process, air(2))
    assert [each.event.id for each in logged(tmp_path)] == [2]


@pytest.mark.parametrize("length", [0, 1, 8, 15, 17, 4 * 1024 * 1024 + 8, 2**31, 2**32 - 8])
def test_a_supplier_that_lies_about_the_length_of_a_frame(intake: Start, tmp_path: Path, length: int) -> None:
    process = intake()
    with greeted(process) as stream:
        stream.sendall(struct.pack("<IB3xQ", length, Kind.BATCH, 0) + bytes(100))
        assert last_error(stream)["code"] == "malformed-frame"
    assert works(process, air(2))


@pytest.mark.parametrize("length", [0, 8, 25, 10_000, 2**32 - 8])
def test_a_supplier_that_lies_about_the_length_of_a_record(intake: Start, tmp_path: Path, length: int) -> None:
    """Nothing of such a batch is taken: where its records begin is not known."""
    process = intake()
    record = record_of(process, air(1))
    with greeted(process) as stream:
        stream.sendall(frame(Kind.BATCH, 0, record + struct.pack("<I", length) + record[4:]))
        assert last_error(stream)["code"] == "malformed-batch"
    assert works(process, air(2))
    assert [each.event.id for each in logged(tmp_path)] == [2]


def test_garbage(intake: Start, tmp_path: Path) -> None:
    process = intake()
    noise = random.Random(7)
    for size in (1, 7, 100, 100_000):
        for prefix in (b"", GREETING, HELLO):
            with connected(process) as stream:
                try:
                    stream.sendall(prefix + noise.randbytes(size))
                    stream.shutdown(socket.SHUT_WR)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # it was cut off meanwhile
                everything(stream)
    assert works(process, air(1))
    assert [each.event.id for each in logged(tmp_path)] == [1]


def test_frames_that_were_changed_on_the_way(intake: Start, tmp_path: Path) -> None:
    """Whatever a byte becomes, the intake lives, and what it takes can be read back."""
    process = intake(durability="none")
    noise = random.Random(11)
    batch = record_of(process, air(1)) + record_of(process, Event("vibration", "text", 5, {"samples": b"abc"}))
    whole = HELLO[:-1] + b" " + frame(Kind.BATCH, 0, batch)
    for session in range(200):
        changed = bytearray(whole.replace(b"00000000000000aa", b"%016x" % (session + 1)))
        for _ in range(noise.randint(1, 3)):
            # Mostly behind the hello, whose JSON is soon no JSON.
            at = noise.randrange(len(HELLO) - 1, len(changed)) if session % 10 else noise.randrange(len(changed))
            changed[at] = noise.randrange(256)
        with connected(process) as stream:
            try:
                stream.sendall(changed)
                stream.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was cut off meanwhile
            everything(stream)
    assert works(process, air(2))
    assert len(logged(tmp_path)) == end_of(tmp_path)


def test_lines_that_are_no_records_are_kept_but_not_forever(intake: Start, tmp_path: Path) -> None:
    process = intake()
    answers = say(process, b"x\n" * 5000)
    assert json.loads(answers[-1])["error"] == "garbage"
    assert len(dead_letters(tmp_path)) <= 2000
    assert works(process, air(1))


def test_lines_that_are_too_long(intake: Start, tmp_path: Path) -> None:
    process = intake()
    long = b'{"stream": "air", "id": 1, "time": 0, "sensor": "' + b"x" * (5 << 20) + b'"}\n'
    answers = say(process, long + b'{"stream": "air", "id": 2, "time": 0}\n' + long)
    codes = [json.loads(answer).get("error") for answer in answers]
    assert codes == ["too-long", "too-long", None]
    assert [each.event.id for each in logged(tmp_path)] == [2]
    assert [(letter["code"], len(letter["raw"])) for letter in dead_letters(tmp_path)] == [("too-long", 4 << 20)] * 2


def test_a_supplier_that_never_reads_what_it_is_told(intake: Start, tmp_path: Path) -> None:
    """What it is told is bounded; nobody else notices."""
    process, frames = intake(durability="none"), Frames()
    wrong = bytearray(record_of(process, air(1)))
    wrong[7] = 4  # no mark that there is
    payload = bytes(wrong) * 1000
    with greeted(process) as stream:
        for number in range(100):
            stream.sendall(frame(Kind.BATCH, number * 1000, payload))
            if number % 20 == 0:
                assert works(process, air(number))
        # Refusals were left out when too many waited, but everything was counted, and kept.
        told = 0
        while told < 100_000:
            for found in frames.feed(stream.recv(1 << 16)):
                if found.kind is Kind.ACK:
                    told = int.from_bytes(found.payload[8:16], "little")
    assert len(dead_letters(tmp_path)) == 100_000


def test_who_finds_no_descriptor_left_is_taken_when_there_is_one(intake: Start) -> None:
    process = intake(durability="each")
    assert works(process, air(1))
    time.sleep(0.5)  # what is opened at the start is open, or closed again
    pid = process.process.pid
    highest = max(int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir())
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 3, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    *others, last = [connected(process) for _ in range(40)]
    last.sendall(HELLO)
    last.settimeout(0.5)
    with pytest.raises(TimeoutError):
        last.recv(1)
    for other in others:
        other.close()
    last.settimeout(30)
    assert Kind.WELCOME in {found.kind for found in Frames().feed(last.recv(1 << 16))}
    last.close()


def memory_of(process: IntakeProcess) -> int:
    """Resident bytes."""
    pages = Path(f"/proc/{process.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_floods_are_bounded_in_memory(intake: Start, tmp_path: Path) -> None:
    """Twenty suppliers send what they can, and half a frame more; an honest one is served among them."""
    process = intake(durability="interval 10ms", duplicates=1000)
    before = memory_of(process)
    record = record_of(process, air(1))
    batch = record * (1_000_000 // len(record))
    stop = threading.Event()

    def flood(session: int) -> None:
        hello = {"version": 1, "role": "supplier", "session": f"{session:016x}"}
        with connected(process) as stream:
            stream.sendall(GREETING + json_frame(Kind.HELLO, hello))
            number = 0
            for _ in range(3):
                stream.sendall(frame(Kind.BATCH, number, batch))
                number += len(batch) // len(record)
            stream.sendall(frame(Kind.BATCH, number, batch)[: len(batch) // 2])
            stop.wait(60)

    threads = [threading.Thread(target=flood, args=(session,)) for session in range(1, 21)]
    for thread in threads:
        thread.start()
    for number in range(20):
        assert works(process, air(1_000_000 + number))
    grown = memory_of(process) - before
    stop.set()
    for thread in threads:
        thread.join()
    assert grown < 150_000_000
    assert works(process, air(7))
    assert end_of(tmp_path) >= 20


@pytest.mark.parametrize("durability", ["each", "interval 10ms", "none"])
def test_sigkill_of_the_intake_loses_and_doubles_nothing(intake: Start, tmp_path: Path, durability: str) -> None:
    """A supplier pushes while the intake is killed and started; every event is in the log, once, in order."""
    chance = random.Random(3)
    process = intake(durability=durability, segment_bytes=20_000)
    total, done = 3_000, threading.Event()
    pushed = threading.Semaphore(0)
    failures: list[BaseException] = []

    def supply() -> None:
        try:
            with Supplier(process.address, window=10_000) as supplier:
                at = 0
                while at < total:
                    count = min(chance.randint(1, 30), total - at)
                    supplier.push_many(air(number) for number in range(at, at + count))
                    at += count
                    pushed.release()
                supplier.flush()
                assert supplier.acknowledged == total
        except BaseException as failure:
            failures.append(failure)
        finally:
            done.set()
            pushed.release(1000)

    thread = threading.Thread(target=supply)
    thread.start()
    kills = 0
    while True:
        # By progress, so that a slow machine is killed no more often than a quick one; then at any moment.
        for _ in range(chance.randint(10, 40)):
            pushed.acquire()
        if done.wait(chance.uniform(0, 0.003)):
            break
        process.kill()
        process = intake(durability=durability, segment_bytes=20_000)
        kills += 1
    thread.join()
    assert failures == []
    assert kills >= 3
    found = logged(tmp_path)
    assert [each.event.id for each in found] == list(range(total))
    assert not any(each.duplicate for each in found)


@pytest.mark.parametrize("seed", range(4))
def test_a_torn_tail_is_cut_and_the_supplier_sends_it_again(intake: Start, tmp_path: Path, seed: int) -> None:
    """As a machine leaves it that ends while it writes: half a frame, anything, or room that was reserved."""
    chance = random.Random(seed)
    process = intake(durability="each")
    with Supplier(process.address) as supplier:
        for number in range(20):
            supplier.push(air(number))
        supplier.flush()
        process.kill()
        segment = max((tmp_path / "log").glob("*.log"))
        whole = segment.read_bytes().rstrip(b"\0")
        whole += bytes(-len(whole) % 8)
        torn = whole[: chance.randrange(8, 200)] if seed % 2 else chance.randbytes(chance.randrange(1, 300))
        segment.write_bytes(whole + torn + bytes(chance.choice([0, 5, 4096])))
        process = intake(durability="each")
        for number in range(20, 30):
            supplier.push(air(number))
        supplier.flush()
        assert supplier.acknowledged == 30
    found = logged(tmp_path)
    assert [(each.event.id, each.duplicate) for each in found] == [(number, False) for number in range(30)]


def test_sigkill_of_a_supplier_leaves_what_was_acknowledged(intake: Start, tmp_path: Path) -> None:
    code = """
import sys
from cepheid.model.events import Event
from cepheid.service.supplier import Supplier
supplier = Supplier(sys.argv[1])
for number in range(10**9):
    supplier.push(Event("air", number, 0))
    if number % 10 == 0:
        supplier.flush()
        print(supplier.acknowledged, flush=True)
"""
    process = intake(durability="interval 10ms")
    child = subprocess.Popen([sys.executable, "-c", code, process.address], stdout=subprocess.PIPE)
    assert child.stdout is not None
    acknowledged = [int(child.stdout.readline()) for _ in range(30)][-1]
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    acknowledged = max([acknowledged, *map(int, rest)])
    ids = [each.event.id for each in logged(tmp_path)]
    assert ids == list(range(len(ids)))
    assert len(ids) >= acknowledged
    assert works(process, Event("vibration", 1, 0))


def fill(process: IntakeProcess, make_room: threading.Event) -> tuple[list[str], list[int]]:
    """Pushes 60,000 events, of which not all have room; what the supplier was told, and what was there by then."""
    told: list[str] = []

    def note(refusal: object) -> None:
        told.append(getattr(refusal, "code", ""))
        make_room.set()

    with Supplier(process.address, on_refusal=note, patience=60) as supplier:
        for start in range(0, 60_000, 500):
            supplier.push_many(air(number, sensor="x" * 200) for number in range(start, start + 500))
        supplier.flush()
        return told, [supplier.acknowledged]


def test_a_file_that_may_not_grow_is_an_error_until_it_may(intake: Start, tmp_path: Path) -> None:
    process = intake(durability="interval 10ms")
    pid = process.process.pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (9_000_000, unlimited[1]))
    make_room = threading.Event()
    seen: list[int] = []

    def relieve() -> None:
        assert make_room.wait(60)
        # Others are told too, in their own way, and wait; and readers go on.
        seen.append(len(logged(tmp_path)))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)

    thread = threading.Thread(target=relieve)
    thread.start()
    told, acknowledged = fill(process, make_room)
    thread.join()
    assert set(told) == {"disk-full"}
    assert 0 < seen[0] < 60_000
    assert acknowledged == [60_000]
    assert [each.event.id for each in logged(tmp_path)] == list(range(60_000))


@contextmanager
def small_disk(folder: Path, kind: str) -> Iterator[Path]:
    """A file system of 12 MB, in memory, where the log is written at once, or on disk."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "cepheid-test", str(folder)]
    if kind == "ext4":
        image = folder.with_suffix(".ext4")
        with image.open("wb") as made:
            made.truncate(14_000_000)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", str(image)], check=True)
        mount = ["mount", "-o", "loop", str(image), str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root, and the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("segment_bytes", [1_000_000, 64_000_000])
def test_a_full_disk_is_an_error_until_there_is_room(tmp_path: Path, segment_bytes: int, kind: str) -> None:
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(tmp_path / "disk", kind))
        begin = stack.enter_context(starting(disk))
        options = {
            "durability": "interval 10ms",
            "segment_bytes": segment_bytes,
            "retain_bytes": 3_000_000,
            "consumers": ["archive"],
        }
        process = begin(**options)
        filler = disk / "filler"
        filler.write_bytes(bytes(3_000_000))
        make_room = threading.Event()
        told: list[str] = []

        def note(refusal: object) -> None:
            told.append(getattr(refusal, "code", ""))
            make_room.set()

        later: list[IntakeProcess] = []

        def relieve() -> None:
            """It is even killed, and started on the full disk."""
            assert make_room.wait(60)
            process.kill()
            later.append(begin(**options))
            filler.unlink()

        thread = threading.Thread(target=relieve)
        thread.start()
        with Supplier(process.address, on_refusal=note, patience=60) as supplier:
            for start in range(0, 40_000, 500):
                supplier.push_many(air(number, sensor="x" * 200) for number in range(start, start + 500))
        thread.join()
        assert set(told) == {"disk-full"}
        assert later[0].process.poll() is None
        assert [each.event.id for each in logged(disk)] == list(range(40_000))


def test_a_full_disk_makes_lines_wait(intake: Start, tmp_path: Path) -> None:
    process = intake(durability="none")
    pid = process.process.pid
    unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (9_000_000, unlimited[1]))
    lines = b"".join(
        b'{"stream": "air", "id": %d, "time": 0, "sensor": "%s"}\n' % (number, b"x" * 100) for number in range(60_000)
    )
    with connected(process) as stream:
        sender = threading.Thread(target=stream.sendall, args=(lines,))
        sender.start()
        assert b"disk-full" in stream.recv(1000)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        sender.join()
        stream.shutdown(socket.SHUT_WR)
        assert everything(stream) == b'{"accepted":60000,"dead_letters":0}\n'
    assert len(logged(tmp_path)) == 60_000


def test_a_log_that_was_thrown_away_begins_a_new_session(intake: Start, tmp_path: Path) -> None:
    process = intake()
    with Supplier(process.address) as supplier:
        supplier.push(air(1))
        supplier.flush()
        process.kill()
        subprocess.run(["rm", "-r", tmp_path / "log"], check=True)
        intake()
        supplier.push(air(2))
        supplier.flush()
    assert [each.event.id for each in logged(tmp_path)] == [2]
