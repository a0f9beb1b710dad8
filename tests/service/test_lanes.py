"""Queries in the fast lane: the matches that `cepheid match` finds in the logged events, through kills and restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cepheid.app import load
from cepheid.model.events import Event
from cepheid.plan.matcher import Matcher
from cepheid.plan.standing import Standing
from cepheid.service.client import ConsumerClient
from cepheid.service.engine import Engine
from cepheid.service.intake import IntakeThread, config_of
from cepheid.service.lowering import NotYet
from cepheid.service.received import Received
from cepheid.service.supplier import Supplier
from tests.service.intakes import tail_of
from tests.service.test_service import COMMAND, children, service

QUERY = (
    "SELECT ?a.sensor, ?b.flow - ?a.flow AS rise FROM (?a, air), (?b, air) JOIN (?a.sensor = ?b.sensor)"
    " JOIN (?b.flow > ?a.flow + 1) SEQ (?a, ?b) WINDOW (?a, ?b, 1s)"
)
QUIET = (
    "SELECT ?a.sensor FROM (?a, air), (?b, air) FILTER (?a.flow > 8) FILTER (?b.flow < 1) JOIN (?a.sensor = ?b.sensor)"
    " SEQ (?a, NOT ?b) WINDOW (?a, ?b, 50ms)"
)
APPLICATION = f"""
name: plant
levels: [critical, background]
streams:
  air: {{attributes: {{sensor: string, flow: float}}, period: 10ms, valid_for: 1h, idle: 20ms}}
queries:
  rising: {{level: critical, engine: service, text: "{QUERY}"}}
  quiet: {{level: background, engine: service, text: "{QUIET}"}}
  slow: {{engine: spark, text: "{QUERY}"}}
service: {{listen: "unix:supply.sock", deliver: "unix:deliver.sock", log: {{path: log, durability: each}}}}
"""


def air(number: int, start: int) -> Event:
    flow = float(number * 7 % 11)
    return Event("air", number, start + number * 1000, {"sensor": f"s{number % 3}", "flow": flow})


def matched(folder: Path) -> list[str]:
    """The ids that `cepheid match` finds in the log's events."""
    (folder / "rising.chi").write_text(QUERY)
    with (folder / "events.jsonl").open("w") as file:
        log = "from cepheid.service.log import LogReader; import json, sys\n"
        log += "for x in LogReader(sys.argv[1]):\n"
        log += "    e = x.event; print(json.dumps({'stream': e.stream, 'id': e.id, 'time': e.time, **e.attributes}))"
        subprocess.run([sys.executable, "-c", log, str(folder / "log")], stdout=file, check=True)
    done = subprocess.run(
        [*COMMAND, "match", "rising.chi", "--events", "events.jsonl", "--app", "app.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line)["id"] for line in done.stdout.splitlines()]


def test_matches_are_those_of_match_through_a_kill(tmp_path: Path) -> None:
    with (
        service(tmp_path, application=APPLICATION) as process,
        Supplier(f"unix:{tmp_path / 'supply.sock'}") as supplier,
        ConsumerClient(f"unix:{tmp_path / 'deliver.sock'}", "rising") as consumer,
    ):
        found: dict[object, Received] = {}
        consumer.call(lambda one: found.setdefault(one.id, one))
        start = time.time_ns() // 1000
        for number in range(200):
            supplier.push(air(number, start))
            if number == 100:
                supplier.flush()
                os.kill(children(process)["cepheid.service.process"], signal.SIGKILL)
        supplier.flush()
        wanted = matched(tmp_path)
        assert len(wanted) > 200
        deadline = time.monotonic() + 30
        while set(found) != set(wanted) and time.monotonic() < deadline:
            time.sleep(0.05)
        # What was found before the kill and not sent yet is found again by the next engine: the ids are the same.
        assert set(found) == set(wanted)
        one = found[wanted[-1]]
        assert set(one.attributes) == {"sensor", "rise"}
        assert one.end == one.time + 3_600_000_000


def test_queries_of_a_level_share_and_find_what_each_finds_alone(tmp_path: Path) -> None:
    ranges = "FROM (?a, air), (?b, air)"
    pair = "JOIN (?b.flow > ?a.flow) SEQ (?a, ?b) WINDOW (?a, ?b, 1s) MATCH NEXT"
    queries = {
        "pair": f"SELECT ?a.flow AS low {ranges} {pair}",
        "again": f"SELECT ?b.flow AS high, ?a.sensor {ranges} {pair}",
        "triple": f"SELECT ?c.flow {ranges}, (?c, air) {pair.replace('?b) WINDOW', '?b, ?c) WINDOW')}"
        " JOIN (?c.flow < ?a.flow) WINDOW (?a, ?c, 5ms)",
    }
    listed = "\n".join(f'  {name}: {{engine: service, text: "{text}"}}' for name, text in queries.items())
    head, _, rest = APPLICATION.partition("queries:\n")
    (tmp_path / "app.yaml").write_text(f"{head}queries:\n{listed}\n{rest[rest.index('service: {listen') :]}")
    app = load(tmp_path / "app.yaml")
    checked = app.plan().queries
    assert [p.queries for p in Standing(checked).patterns] == [("pair", "again"), ("triple",)]
    with Engine(app) as engine, IntakeThread(config_of(app)) as intake:
        engine.follow(tmp_path / "log")
        start = time.time_ns() // 1000
        events = [air(number, start) for number in range(60)]
        with Supplier(intake.address) as supplier:
            for one in events:
                supplier.push(one)
            supplier.flush()
            for name, query in checked.items():
                wanted = Matcher(query).matches(events)
                assert len(wanted) > 10
                found = [engine.matches(name).get(timeout=10) for _ in wanted]
                assert [one and one.match for one in found] == wanted
                assert all(one and one.end == one.match.time + 3_600_000_000 for one in found)


def test_what_waits_for_time_comes_on_an_idle_stream(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(APPLICATION)
    app = load(tmp_path / "app.yaml")
    with Engine(app) as engine, IntakeThread(config_of(app)) as intake:
        engine.follow(tmp_path / "log")
        assert sorted(engine.stats()["queries"]) == ["quiet", "rising"]
        with Supplier(intake.address) as supplier:
            supplier.push(Event("air", 1, time.time_ns() // 1000, {"sensor": "s", "flow": 9.0}))
            supplier.flush()
            # Nothing comes any more: the clock says that nothing followed.
            found = engine.matches("quiet").get(timeout=10)
        assert found is not None
        assert found.match.events == {"a": ("air", 1)}
        assert engine.stats()["queries"]["quiet"] == {"found": 1, "shed": 0, "lost": 0}
    for folder in (tmp_path / "log", tmp_path / "log" / "dead"):
        tail_of(folder).unlink(missing_ok=True)


def test_what_the_lane_can_not_run_is_said(tmp_path: Path) -> None:
    text = APPLICATION.replace(
        "queries:", "graph:\n  every: {kind: filter, inputs: [air], where: '?e.flow > 1'}\nqueries:"
    )
    text = text.replace("FROM (?a, air), (?b, air) FILTER", "FROM (?a, every), (?b, air) FILTER")
    (tmp_path / "app.yaml").write_text(text)
    (tmp_path / "log").mkdir()
    with Engine(load(tmp_path / "app.yaml")) as engine, pytest.raises(NotYet, match="'quiet' reads 'every'"):
        engine.follow(tmp_path / "log")
