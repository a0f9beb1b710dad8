"""`cepheid service`: real processes, from a supplier's push to a consumer's receipt, through kills."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cepheid.app import load
from cepheid.cli.top import milliseconds, view
from cepheid.model.events import Event
from cepheid.service import metrics
from cepheid.service.client import ConsumerClient, RefusedByService, read_stats
from cepheid.service.engine import Engine
from cepheid.service.log import LogReader
from cepheid.service.metrics import MetricsPage
from cepheid.service.outlet import NeedsToken, Outlet
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from tests.service.intakes import tail_of

COMMAND = (sys.executable, "-m", "cepheid.cli.main")
APPLICATION = """
name: plant
levels: [critical, background]
streams:
  air: {attributes: {sensor: string, flow: float}, period: 10ms}
graph:
  high: {kind: threshold, inputs: [air], attribute: flow, above: 5}
  every: {kind: filter, inputs: [air], where: "?e.flow IS NOT NULL"}
consumers:
  alarm: {input: high, level: critical}
  all: {input: every, level: background}
service: {listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: LOG}
"""


@contextmanager
def service(
    folder: Path, log: str = "{path: log, durability: each}", application: str = APPLICATION
) -> Iterator[subprocess.Popen[str]]:
    (folder / "app.yaml").write_text(application.replace("LOG", log))
    command = [*COMMAND, "service", "app.yaml"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline(), process.stdout.readline()]
        if not lines[0]:
            pytest.fail(process.stderr.read() if process.stderr else "")
        assert lines == ["suppliers: unix:supply.sock\n", "consumers: unix:deliver.sock\n"]
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        if (folder / "log").exists():
            for log_folder in (folder / "log", folder / "log" / "dead"):
                tail_of(log_folder).unlink(missing_ok=True)


def children(process: subprocess.Popen[Any]) -> dict[str, int]:
    """The processes that the service started, by their names."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread or child that has ended meanwhile
            for pid in (task / "children").read_text().split():
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                names = [part for part in command if part.startswith("cepheid.service.")]  # none of one that has ended
                found |= dict.fromkeys(names, int(pid))
    return found


def wait_for(folder: Path, offset: int) -> dict[str, object]:
    """The service's books, once its engine has come to an offset of the log."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            stats = read_stats(f"unix:{folder / 'deliver.sock'}")
        except OSError:
            stats = {}
        if stats and stats["log"]["offset"] >= offset:
            return stats
        time.sleep(0.02)
    raise AssertionError(f"the engine has not come to {offset}: {stats.get('log')}")


def air(number: int, flow: float = 1.0) -> Event:
    return Event("air", number, number * 1000, {"sensor": "D105", "flow": flow})


@pytest.mark.parametrize("log", ["{path: log, durability: each}", "none"])
def test_from_supplier_to_consumer(tmp_path: Path, log: str) -> None:
    with (
        service(tmp_path, log) as process,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "alarm") as consumer,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
    ):
        first: list[Received] = []
        consumer.call(first.append)
        number = 0
        deadline = time.monotonic() + 30
        # The client may not be there for the first ones.
        while not first and time.monotonic() < deadline:
            number += 1
            supplier.push(air(number, flow=9.0 if number % 2 else 1.0))
            supplier.flush()
            time.sleep(0.02)
        assert first
        assert first[0].consumer == "alarm"
        assert process.poll() is None


def test_the_engine_dies_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with service(tmp_path) as process, Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier:
        for number in range(50):
            supplier.push(air(number))
        supplier.flush()
        wait_for(tmp_path, 50)
        engine = children(process)["cepheid.service.process"]
        os.kill(engine, signal.SIGKILL)
        # The intake does not need the engine.
        for number in range(50, 100):
            supplier.push(air(number))
        supplier.flush()
        stats = wait_for(tmp_path, 100)
        assert children(process)["cepheid.service.process"] != engine
        assert stats["log"]["trouble"] is None  # type: ignore[index]
        with LogReader(tmp_path / "log") as reader:
            assert [logged.event.id for logged in reader] == list(range(100))


def test_the_intake_dies_and_suppliers_go_on(tmp_path: Path) -> None:
    with service(tmp_path) as process, Supplier(f"unix:{tmp_path / 'supply.sock'}", patience=60) as supplier:
        for number in range(50):
            supplier.push(air(number))
        supplier.flush()
        os.kill(children(process)["cepheid.service.intake"], signal.SIGKILL)
        for number in range(50, 100):
            supplier.push(air(number))
        supplier.flush()
        wait_for(tmp_path, 100)
        with LogReader(tmp_path / "log") as reader:
            assert [logged.event.id for logged in reader] == list(range(100))


def test_what_is_wrong_with_the_application_is_said(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: plant\nstreams: {air: {attributes: {flow: flaot}}}\n")
    done = subprocess.run(
        [*COMMAND, "service", "app.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "flaot" in done.stderr
    assert "app.yaml:2:" in done.stderr


def test_a_place_that_can_not_be_had_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    def refused(application: str) -> str:
        (tmp_path / "app.yaml").write_text(application)
        command = [*COMMAND, "service", "app.yaml"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        return done.stderr

    inside = APPLICATION.replace("LOG", "{path: file/log}")
    assert "file/log/queries.json: Not a directory" in refused(inside)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp:127.0.0.1:{other.getsockname()[1]}"
        taken = APPLICATION.replace("LOG", "none").replace("deliver:", f'metrics: "{address}", deliver:')
        said = refused(taken)
    assert f"the page for Prometheus can't be at {address}: Address already in use" in said


def test_who_may_connect(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APPLICATION.replace("LOG", "none"))
    with Engine(load(tmp_path / "app.yaml")) as engine:
        with pytest.raises(NeedsToken, match="can be reached from elsewhere"):
            Outlet(engine, "tcp:0.0.0.0:0")
        with Outlet(engine, "tcp:127.0.0.1:0", token="secret") as outlet:
            with pytest.raises(RefusedByService, match="the token is missing or wrong"):
                next(iter(ConsumerClient(outlet.address, "alarm")))
            with pytest.raises(RefusedByService, match="there is no consumer 'alram'; there are: alarm, all"):
                next(iter(ConsumerClient(outlet.address, "alram", token="secret")))
            assert set(read_stats(outlet.address, "secret")["consumers"]) == {"alarm", "all"}


def test_a_client_that_does_not_read_loses_its_oldest(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APPLICATION.replace("LOG", "none"))
    with (
        Engine(load(tmp_path / "app.yaml")) as engine,
        Outlet(engine, f"unix:{tmp_path / 'o.sock'}") as outlet,
        socket.socket(socket.AF_UNIX) as lazy,
    ):
        lazy.connect(outlet.address.removeprefix("unix:"))
        lazy.sendall(b'{"consumer": "all"}\n')
        with lazy.makefile("rb") as lines:
            assert json.loads(lines.readline()) == {"consumer": "all"}
            busy = ConsumerClient(outlet.address, "all")
            seen: list[object] = []
            busy.call(lambda one: seen.append(one.id))
            deadline = time.monotonic() + 30
            number = 0
            while len(seen) < 4000 and time.monotonic() < deadline:
                for _ in range(50):
                    number += 1
                    engine.push("air", {"id": number, "time": number, "sensor": "x" * 500, "flow": 1.0})
                engine.settle()
            assert len(seen) >= 4000, "the one who reads is not held up"
            busy.close()


def test_the_page_for_prometheus_and_top(tmp_path: Path) -> None:
    query = "SELECT ?e.flow FROM (?e, air) FILTER (?e.flow > 5)"
    application = APPLICATION.replace("deliver:", 'metrics: "tcp:127.0.0.1:0", deliver:').replace(
        "service:", f'queries:\n  strong: {{level: critical, engine: service, text: "{query}"}}\nservice:'
    )
    with (
        service(tmp_path, application=application) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
    ):
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("metrics: ").strip()
        for number in range(20):
            supplier.push(Event("air", number, time.time_ns() // 1000, {"sensor": "D105", "flow": 9.0}))
        supplier.flush()
        with socket.socket(socket.AF_UNIX) as terminal:
            terminal.connect(str(tmp_path / "supply.sock"))
            terminal.sendall(b'{"stream": "air", "id": 1}\n')
            terminal.shutdown(socket.SHUT_WR)
            terminal.recv(1000)
        wait_for(tmp_path, 20)
        deadline = time.monotonic() + 30
        while read_stats(f"unix:{tmp_path / 'deliver.sock'}")["queries"]["strong"]["found"] < 20:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with urllib.request.urlopen(url) as answer:
            page = answer.read().decode()
        assert 'cepheid_consumer_came_total{consumer="all"} 20' in page
        assert "cepheid_log_accepted_total 20" in page
        assert 'cepheid_level_latency_seconds_bucket{level="critical",le="0.001"} ' in page
        assert 'cepheid_operator_run_seconds_bucket{operator="high",le="+Inf"} 20' in page
        assert 'cepheid_consumer_latency_seconds_count{consumer="all"} 20' in page
        for part in ("engine", "intake"):
            assert f'cepheid_up{{part="{part}"}} 1' in page
            assert f'cepheid_restarts_total{{part="{part}"}} 0' in page
            memory = re.search(rf'cepheid_resident_memory_bytes\{{part="{part}"\}} (\d+)', page)
            assert memory is not None
            assert 1e6 < int(memory[1]) < 1e9
        assert 'cepheid_consumer_waiting{consumer="all"} 20' in page, "nobody reads it"
        assert 'cepheid_operator_held{operator="every"} 20' in page
        for gauge in ("input", "pending", "moving"):
            assert f'cepheid_level_{gauge}{{level="critical"}} 0' in page
        assert 'cepheid_query_found_total{query="strong"} 20' in page
        assert 'cepheid_operator_used_total{operator="high"} 20' in page
        assert "cepheid_intake_late_total 0\n" in page
        assert "cepheid_intake_accepted_total 20" in page
        assert 'cepheid_intake_dead_letters_total{code="' in page
        for counter in ("stale", "relative", "failed"):
            assert f'cepheid_level_{counter}_total{{level="critical"}} 0' in page
        for counter in ("replaced", "shed", "expired"):
            assert f'cepheid_consumer_{counter}_total{{consumer="alarm"}} ' in page
            assert f'cepheid_stream_{counter}_total{{stream="air"}} ' in page
        assert 'cepheid_query_latency_seconds_count{query="strong"} 20' in page
        spans = re.findall(r'cepheid_query_latency_seconds_bucket\{query="strong",le="([^"]+)"\} (\d+)', page)
        assert [bound for bound, _ in spans[:4]] == ["1e-05", "2e-05", "5e-05", "0.0001"]
        assert [bound for bound, _ in spans[-2:]] == ["10", "+Inf"]
        counts = [int(count) for _, count in spans]
        assert counts == sorted(counts)
        assert counts[-1] == 20
        assert 'cepheid_query_recovered_total{query="strong"} 0' in page
        assert 'cepheid_query_delay_seconds_count{query="strong"} 0' in page
        for line in page.splitlines():
            assert line.startswith("# ") or re.fullmatch(r"[a-z_]+(\{[^}]*\})? [0-9.]+", line), line
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.removesuffix("/metrics"))
        shown = subprocess.run(
            [*COMMAND, "top", "app.yaml", "--once"], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        stats = json.loads(shown.stdout)
        assert stats["log"]["offset"] == 20
        console = Console(width=120, file=io.StringIO())
        console.print(view(stats, stats, 1.0))
        drawn = console.file.getvalue()  # type: ignore[attr-defined]
        assert all(
            word in drawn for word in ("levels", "consumers", "alarm", "0/s", "log: offset 20", "1 dead letters")
        )
        # The matches of the query: how many in all and a second, and how long they took; nothing was shed or lost.
        (row,) = (line for line in drawn.splitlines() if "strong" in line)
        latency = stats["queries"]["strong"]["latency"]
        wanted = ["-", *(milliseconds(latency[f"{name}_ns"]) for name in ("p99", "max"))]
        assert row.split()[1:] == [f"{stats['queries']['strong']['found']:,}", "0/s", *wanted]
        # What came between two looks is told apart from what came before.
        buckets = [*stats["histograms"]["queries"]["strong"]["buckets"], [42_000_000_000, 1]]
        later = {**stats, "histograms": {"queries": {"strong": {"buckets": buckets}}}}
        console = Console(width=120, file=io.StringIO())
        console.print(view(stats, later, 1.0))
        (row,) = (line for line in console.file.getvalue().splitlines() if "strong" in line)  # type: ignore[attr-defined]
        assert row.split()[-3] == "42,000"
        subprocess.run([*COMMAND, "top", "app.yaml", "--trace", "trace.json"], cwd=tmp_path, check=True)
        moments = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert any(moment.get("ph") in ("X", "B") for moment in moments), "Perfetto has something to draw"
        screen, its_end = pty.openpty()
        top = subprocess.Popen([*COMMAND, "top", "app.yaml", "--every", "0.1"], cwd=tmp_path, stdout=its_end)
        os.close(its_end)
        drawn_until(screen, "alarm")
        process.send_signal(signal.SIGSTOP)  # so that there is no engine for a while
        os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        drawn_until(screen, "the engine does not answer")
        process.send_signal(signal.SIGCONT)
        drawn_until(screen, "accepted", without="the engine does not answer")
        top.kill()
        top.wait()
        os.close(screen)


def drawn_until(terminal: int, words: str, without: str | None = None) -> None:
    """Reads what is drawn on a terminal until it has some words, and has not others."""
    drawn, deadline = "", time.monotonic() + 30
    while words not in drawn or (without is not None and without in drawn):
        assert time.monotonic() < deadline, drawn
        assert select.select([terminal], [], [], 30)[0], drawn
        # A look is drawn from the upper left corner on.
        drawn = (drawn + os.read(terminal, 1 << 16).decode(errors="replace")).rpartition("\x1b[H")[2]


def test_the_page_for_prometheus_asks_for_the_token() -> None:
    stats: dict[str, Any] = {"levels": {}}
    with pytest.raises(NeedsToken, match="can be reached from elsewhere"):
        MetricsPage(lambda: stats, "tcp:0.0.0.0:0")
    with MetricsPage(lambda: stats, "tcp:0.0.0.0:0", "secret") as page:
        url = page.url.replace("0.0.0.0", "127.0.0.1")
        for headers in ({}, {"Authorization": "Bearer secre"}, {"Authorization": "secret"}):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(urllib.request.Request(url, headers=headers))
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": "Bearer secret"})) as answer:
            assert answer.status == 200


def test_the_page_for_prometheus_says_that_the_engine_does_not_answer(tmp_path: Path) -> None:
    application = APPLICATION.replace("deliver:", 'metrics: "tcp:127.0.0.1:0", deliver:')
    with (
        service(tmp_path, application=application) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
    ):
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("metrics: ").strip()
        supplier.push(air(1))
        supplier.flush()
        engine = children(process)["cepheid.service.process"]
        os.kill(engine, signal.SIGSTOP)
        try:
            # The intake goes on without it, and so does what it counts.
            with urllib.request.urlopen(url, timeout=60) as answer:
                page = answer.read().decode()
            assert 'cepheid_up{part="engine"} 0' in page
            assert 'cepheid_up{part="intake"} 1' in page
            assert "cepheid_intake_accepted_total 1" in page
            assert "cepheid_operator_fired_total{" not in page
        finally:
            os.kill(engine, signal.SIGKILL)
        wait_for(tmp_path, 1)
        with urllib.request.urlopen(url, timeout=60) as answer:
            page = answer.read().decode()
        assert 'cepheid_up{part="engine"} 1' in page
        assert 'cepheid_restarts_total{part="engine"} 1' in page
        assert 'cepheid_restarts_total{part="intake"} 0' in page


def test_the_page_for_prometheus_lets_go_of_who_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_SILENCE", 0.1)
    with MetricsPage(dict[str, Any], "tcp:127.0.0.1:0") as page:
        _, _, rest = page.url.partition("//")
        host, _, port = rest.removesuffix("/metrics").partition(":")
        with socket.create_connection((host, int(port)), 60) as silent:
            assert silent.recv(1) == b"", "it is closed"


def test_top_fits_a_terminal_of_80_columns() -> None:
    times = {f"{name}_ns": nanoseconds for name, nanoseconds in (("p99", 12_345_678), ("max", 1969866000))}
    counts = dict.fromkeys(("stale", "expired", "shed", "lost", "replaced", "failed", "relative"), 12_345)
    common = {
        **counts,
        "latency": times,
        "run": times,
        "level": "background",
        "fired": 1,
        "came": 1,
        "found": 1_234_567,
    }
    book = {**common, "waiting": 200, "input": 0, "pending": 0}
    stats = {"application": "campus", "delivered": {"maintenance": {"sent": 1_234_567}}}
    parts = {part: {"maintenance": book} for part in ("levels", "consumers", "queries", "operators")}
    stats["histograms"] = {part: {"maintenance": {"buckets": [[42_000, 1]]}} for part in parts}
    console = Console(width=80, file=io.StringIO())
    console.print(view({}, {**stats, **parts}, 1.0))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert drawn.count("maintenance") == 4
    assert "…" not in drawn
    assert drawn.count("0.042") == drawn.count("12.3 ") == drawn.count("1,970") == 4


def test_top_without_a_service_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APPLICATION.replace("LOG", "none"))
    done = subprocess.run([*COMMAND, "top", "app.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "start it: cepheid service app.yaml" in done.stderr
