"""What the engine is told of a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cepheid.examples
from cepheid._native import VirtualClock
from cepheid.app.application import Application
from cepheid.app.builder import Builder
from cepheid.app.load import load
from cepheid.language.errors import Rejected
from cepheid.service.lowering import lower

CAMPUS = Path(next(iter(cepheid.examples.__path__))) / "campus" / "app.yaml"


def spec_of(application: Application, **options: bool) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lower(application.plan(), "test", 2, **options))
    return found


def test_the_example_is_lowered_with_its_shared_operators_once() -> None:
    spec = spec_of(load(CAMPUS))
    assert [stream["name"] for stream in spec["streams"]] == sorted(stream["name"] for stream in spec["streams"])
    operators = {operator["name"]: operator for operator in spec["operators"]}
    assert list(operators) == ["fused", "spectrum", "fan_sealed"]
    names = [stream["name"] for stream in spec["streams"]] + list(operators)
    fused = operators["fused"]
    assert [names[i] for i in fused["inputs"]] == ["vibration1", "vibration2"]
    assert fused["relative"] == [{"inputs": [0, 1], "within": 5000}]
    assert (fused["level"], fused["stale"], fused["ring"], fused["depth"]) == (0, "mark", 2, 2)
    assert fused["parameters"]["payload"] == [0, 0]
    assert operators["spectrum"]["attributes"] == [["samples", "array<float>"]]
    assert operators["fan_sealed"]["level"] == 3
    consumers = {consumer["name"]: consumer for consumer in spec["consumers"]}
    assert names[consumers["fan_control"]["input"]] == "spectrum"
    assert (consumers["fan_control"]["stale"], consumers["maintenance"]["level"]) == ("shed", 3)
    VirtualClock(json.dumps(spec))


def test_replacement_is_as_configured() -> None:
    build = Builder("b")
    build.consumer("c", build.stream("s", {"x": "int"}))
    build.service(replace=True)
    application = build.build()
    assert application.sections.service is not None
    assert application.sections.service.replace
    assert spec_of(application, replace=True)["streams"][0]["replace"]
    assert not spec_of(application)["streams"][0]["replace"]


def test_a_query_that_an_operator_reads_is_a_stream_to_it() -> None:
    build = Builder("b")
    stream = build.stream("s", {"x": "int"})
    query = build.query("q", "SELECT ?e.x FROM (?e, s)")
    build.consumer("c", build.threshold("t", query, above=1.0, attribute="x"))
    build.consumer("d", stream)
    spec = spec_of(build.build())
    assert [stream["name"] for stream in spec["streams"]] == ["q", "s"]
    assert spec["operators"][0]["inputs"] == [0]


def test_an_operator_that_a_query_reads_has_a_consumer_that_logs_it() -> None:
    build = Builder("b")
    strong = build.threshold("t", build.stream("s", {"x": "int"}), above=1.0, attribute="x")
    build.query("q", "SELECT ?e.id FROM (?e, t)")
    spec = spec_of(build.build())
    assert strong.name == "t"
    assert [(one["name"], one["input"], one["stale"]) for one in spec["consumers"]] == [("log:t", 1, "mark")]


@pytest.mark.parametrize(
    ("where", "message"),
    [("?e.y > 1", "y"), ("?e.x +", "condition"), ("?f.x > 1", "condition"), ("COUNT(?e.x) > 1", "condition")],
)
def test_a_condition_that_is_not_right_is_reported_where_it_is(where: str, message: str) -> None:
    build = Builder("b")
    build.consumer("c", build.filter("f", build.stream("s", {"x": "int"}), where=where))
    with pytest.raises(Rejected, match=message):
        build.build()


def test_what_a_map_selects_is_its_schema() -> None:
    build = Builder("b")
    stream = build.stream("s", {"x": "int", "y": "float", "room": "string"})
    build.consumer("c", build.map("m", stream, select="?e.x + 1 AS next, ?e.y * 2 AS twice, ?e.room"))
    (operator,) = spec_of(build.build())["operators"]
    assert operator["attributes"] == [["next", "int"], ["twice", "float"], ["room", "string"]]
    build = Builder("b")
    build.consumer("c", build.map("m", build.stream("s", {"x": "int"}), select="?e.x AS id"))
    with pytest.raises(Rejected, match="every event has 'id' already"):
        build.build()
