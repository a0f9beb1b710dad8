"""PATHs of live queries on Spark, and knowledge that changes meanwhile: each event is judged by one version."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyoxigraph import Literal, NamedNode, Triple
from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.history.live_events import NotOnSpark
from cepheid.history.pipeline import Pipeline
from cepheid.knowledge import journal
from cepheid.model.events import Event
from cepheid.service.intake import IntakeProcess, config_of, start
from cepheid.service.supplier import Supplier
from tests.history.going import go_through

TURTLE = """@prefix : <http://x#> .
:s0 :in :r0 . :s1 :in :r1 . :s2 :in :r2 .
:r0 a :Office . :r1 a :Office . :r2 a :Hall .
:Limit :is 4 .
"""
APP = """
name: plant
prefixes: {"": "http://x#"}
streams:
  air:
    attributes: {sensor: string, flow: float}
    semantics: {sensor: {property: ":src", entity: ":{value}"}, flow: ":flow"}
knowledge: {sources: [kb.ttl], reasoning: none}
service: {listen: "unix:intake.sock", log: {path: log, durability: each}}
queries:
  offices:
    sink: {kind: delta, path: out/offices}
    text: "SELECT ?r FROM (?e, air) WITHIN [1970-01-01, ) PATH {?e :src ?s . ?s :in ?r . ?r a :Office}"
  pairs:
    sink: {kind: delta, path: out/pairs}
    text: |
      SELECT ?b.flow - ?a.flow AS rise FROM (?a, air), (?b, air) WITHIN [1970-01-01, )
      JOIN (?a.sensor = ?b.sensor AND ?b.flow > ?a.flow) SEQ (?a, ?b) WINDOW (?a, ?b, 1s)
      PATH {?a :flow ?f . :Limit :is ?l . FILTER (?f > ?l)}
"""


def triple(subject: str, name: str, target: str | int) -> Triple:
    end = NamedNode(f"http://x#{target}") if isinstance(target, str) else Literal(target)
    a = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
    return Triple(NamedNode(f"http://x#{subject}"), NamedNode(a if name == "a" else f"http://x#{name}"), end)


def write(folder: Path) -> Application:
    (folder / "kb.ttl").write_text(TURTLE, encoding="utf-8")
    (folder / "app.yaml").write_text(APP, encoding="utf-8")
    return load(folder / "app.yaml")


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[IntakeProcess]:
    with start(config_of(write(tmp_path))) as process:
        yield process


def push(folder: Path, *events: tuple[int, str, float]) -> None:
    with Supplier(f"unix:{folder / 'intake.sock'}") as supplier:
        supplier.push_many([Event("air", n, n * 10, {"sensor": s, "flow": f}) for n, s, f in events])
        supplier.flush()


def learn(pipeline: Pipeline, folder: Path, added: list[Triple], removed: list[Triple], said: list[str]) -> set[str]:
    """Changes the knowledge as `cepheid knowledge apply` does; which queries go on by it."""
    before = len(said)
    journal.append(journal.journal_of(folder), added, removed)
    deadline = time.monotonic() + 60
    while len(said) == before and time.monotonic() < deadline:
        time.sleep(0.1)
        pipeline.tend()
    return {line.split()[0] for line in said[before:]}


def found(spark: SparkSession, app: Application, query: str) -> list[tuple[tuple[int, ...], int]]:
    """The ids of the events of each match, and the version of the knowledge that it says."""
    table = spark.read.format("delta").load(str(app.folder / "out" / query))
    return sorted((tuple(row["events"]), row["knowledge"]) for row in table.collect())


def unfinish(folder: str) -> None:
    """As if Spark had died before it wrote down that the last batch was done."""
    commits = Path(folder) / "commits"
    last = max(int(name.name) for name in commits.iterdir() if name.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.usefixtures("intake")
def test_a_stream_takes_a_change_up_between_two_batches(spark: SparkSession, tmp_path: Path) -> None:
    app, said = load(tmp_path / "app.yaml"), list[str]()
    push(tmp_path, (0, "s9", 3.0), (1, "s0", 5.0), (2, "s1", 3.0), (3, "s2", 3.0))
    with Pipeline(spark, app, say=said.append) as pipeline:
        go_through(pipeline)
        # The hall becomes an office: one query is another by that, and the other notices nothing.
        assert learn(pipeline, tmp_path, [triple("r2", "a", "Office")], [], said) == {"offices"}
        push(tmp_path, (4, "s2", 1.0))
        go_through(pipeline)
        # Nothing is known of s9, which only the query that asks for its room wants to know.
        assert {status.name: status.unknown for status in pipeline.status()} == {"offices": 1, "pairs": 0}
        assert found(spark, app, "offices") == [((1,), 1), ((2,), 1), ((4,), 2)]
        # A constant: what is held stays as it was judged.
        changed = [triple("Limit", "is", 6)], [triple("Limit", "is", 4)]
        assert learn(pipeline, tmp_path, *changed, said) == {"pairs"}
        push(tmp_path, (5, "s0", 5.5), (6, "s1", 5.0), (7, "s0", 7.0))
        go_through(pipeline)
        push(tmp_path, (8, "s0", 7.5))  # the watermark passes
        go_through(pipeline)
        assert found(spark, app, "pairs") == [((1, 5), 3), ((1, 7), 3)]
        checkpoint = pipeline._parts["pairs"].judging
        assert checkpoint is not None
    # A batch that is done again is judged as it was, whatever is known by then; what comes after it is not.
    unfinish(checkpoint.checkpoint)
    journal.append(journal.journal_of(tmp_path), [triple("Limit", "is", 100)], [triple("Limit", "is", 6)])
    with Pipeline(spark, app, say=said.append) as pipeline:
        assert pipeline._parts["pairs"].is_finishing
        go_through(pipeline)
        assert not pipeline._parts["pairs"].is_finishing
        push(tmp_path, (9, "s0", 8.0), (10, "s0", 9.0), (11, "s2", 0.0))
        go_through(pipeline)
        # 8, of the batch that was done twice, was above 6; 9 is not above 100.
        rises = [(1, 8), (1, 9), (1, 10), (7, 8), (7, 9), (7, 10), (8, 9), (8, 10)]
        assert found(spark, app, "pairs") == sorted([((1, 5), 3), ((1, 7), 3), *((pair, 4) for pair in rises)])
        assert not pipeline.down


def test_what_is_not_indexed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path)
    for changed in (
        APP.replace("reasoning: none}", "reasoning: none, semantics: naive}"),
        APP.replace("?r a :Office", "?e :flow ?f . ?r :limit ?l . FILTER (?f > ?l)"),
    ):
        (tmp_path / "app.yaml").write_text(changed, encoding="utf-8")
        with pytest.raises(NotOnSpark, match="not indexed"):
            Pipeline(spark, load(tmp_path / "app.yaml"))
