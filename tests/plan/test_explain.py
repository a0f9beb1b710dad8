"""`explain` in its three forms, against golden files."""

from __future__ import annotations

import json
from pathlib import Path

from cepheid.app import load
from cepheid.cli.explain import strategies
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.explain import as_mermaid, as_text, describe
from cepheid.plan.graph import Consumer, Graph, Operator
from cepheid.plan.planner import plan
from tests.golden_files import GOLDEN, assert_golden

CAMPUS = GOLDEN / "explain" / "campus.yaml"


def test_its_forms() -> None:
    app = load(CAMPUS)
    described = describe(app.plan(), "campus", past=strategies(app, app.plan()))
    assert_golden(CAMPUS.with_suffix(".txt"), as_text(described))
    assert_golden(CAMPUS.with_suffix(".json"), json.dumps(described, indent=2, ensure_ascii=False))
    assert_golden(CAMPUS.with_suffix(".mmd"), as_mermaid(described))


def test_strategies_that_are_not_possible_are_named_with_the_reason() -> None:
    past: dict[str, dict[str, str | None]] = {"rising": {"hybrid": None, "rewrite": "ROUND"}, "other": {"hybrid": None}}
    lines = as_text(describe(load(CAMPUS).plan(), "campus", "rising", past=past)).splitlines()
    assert lines[-1] == "  rising  hybrid; rewrite can't give ROUND exactly"


def test_what_queries_share() -> None:
    described = describe(load(GOLDEN / "rules" / "stages" / "beginnings.yaml").plan(), "case")
    assert_golden(GOLDEN / "explain" / "beginnings.txt", as_text(described))
    assert_golden(GOLDEN / "explain" / "beginnings.mmd", as_mermaid(described))


def test_only_what_one_query_depends_on() -> None:
    described = describe(load(CAMPUS).plan(), "campus", "rising")
    assert [node["name"] for node in described["physical"]] == ["airflowReport", "rising"]
    assert described["optimised"]["shared"] == {}


def test_only_what_one_consumer_depends_on() -> None:
    described = describe(load(CAMPUS).plan(), "campus", "log")
    names = [node["name"] for node in described["physical"]]
    assert names == ["vibration1", "vibration2", "fused", "spectrum", "cipher", "log"]
    assert described["optimised"]["shared"] == {"fused": ["fused2"], "spectrum": ["spectrum2"]}


def test_what_is_derived_for_queries_is_archived_too(tmp_path: Path) -> None:
    """Rule G7; a query's matches are a stream for the graph as well, an operator's output is none for another."""
    (tmp_path / "app.yaml").write_text("""
name: derived
streams: {s: {attributes: {x: float, wave: array<float>}}}
graph: {read: {kind: fft, inputs: [s]}, equal: {kind: fft, inputs: [s]}, bytes: {kind: aes, inputs: [read]}}
consumers: {c: {input: bytes}, d: {input: heard}}
queries:
  reader: {text: "SELECT ?e.time AS at FROM (?e, equal)"}
  heard: {text: "SELECT ?e.x FROM (?e, s)", engine: service}
  unread: {text: "SELECT ?e.at FROM (?e, reader)"}
archive: {path: archive}
service: {log: {path: log}}
""")
    described = describe(load(tmp_path / "app.yaml").plan(), "derived")
    assert [n["name"] for n in described["physical"] if n.get("archived")] == ["read", "reader", "heard"]
    text, drawing = as_text(described), as_mermaid(described)
    assert text.count("; read as a stream, so archived (rule G7)\n") == 3
    assert drawing.count(" -.-> archive\n") == 4


def test_what_is_missing_for_real_time_mode(tmp_path: Path) -> None:
    """Source, sink and the types of attributes too: what the pipeline asks for."""
    topic = "{kind: kafka, brokers: 'localhost:9092', topic: t}"
    query, source = f"text: SELECT ?e.v FILTER (?e.v > 1), sink: {topic}", f"source: {topic}"
    cases = {
        ("v: float", source): "qualifies",
        ("v: float", "lateness: 1s"): "qualifies, if 's' came from a topic of Kafka (in an application without a log "
        "of its own)",
        ("v: float, raw: bytes", source): "FROM: 'raw' of 's' is bytes",
    }
    for (attributes, more), verdict in cases.items():
        (tmp_path / "app.yaml").write_text(
            f"name: a\nstreams: {{s: {{attributes: {{{attributes}}}, {more}}}}}\nqueries: {{q: {{{query}}}}}\n"
        )
        app = load(tmp_path / "app.yaml")
        (node,) = (n for n in describe(app.plan(), "a", topics=app.topics)["physical"] if n["name"] == "q")
        assert node["real_time"] == verdict


def test_a_key_is_not_shown() -> None:
    text = json.dumps(describe(load(CAMPUS).plan(), "campus"))
    assert "00112233" not in text
    assert "(secret)" in text


def test_a_deep_graph_is_drawn() -> None:
    operators = {"o0": Operator("o0", "fft", ("s",))}
    operators |= {f"o{i}": Operator(f"o{i}", "fft", (f"o{i - 1}",)) for i in range(1, 3000)}
    graph = Graph(("high",), {"s": Stream("s", {"x": Type.UINT8_ARRAY})}, operators, {}, {"c": Consumer("c", "o2999")})
    described = describe(plan(graph), "deep")
    assert "o2999  fft" in as_text(described)
    assert as_mermaid(described).count("-->") == 3001
