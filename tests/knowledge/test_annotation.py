"""P1: the triples of an event, by literal, template, lookup and table; what has no entity is counted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, Triple

from cepheid.app.schema import AnnotationSection, StreamSection
from cepheid.knowledge.annotation import Annotations, root_of
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.terms import escaped
from cepheid.language.errors import Rejected
from cepheid.model.events import Event
from cepheid.model.types import Type, Value

EX = "http://example.org/"
PREFIXES = {"ex": EX}
FACTS = """@prefix ex: <http://example.org/> .
ex:s1 ex:id "D105VOL" . ex:s2 ex:id "D105VOL"@en . ex:s3 ex:id 76284 .
"""


@pytest.fixture
def knowledge(tmp_path: Path) -> Knowledge:
    (tmp_path / "facts.ttl").write_text(FACTS)
    (tmp_path / "sensors.csv").write_text("value,entity\nD105VOL,ex:s1\nD105VOL,ex:s9\nB,<http://example.org/b>\n")
    return Knowledge.load(["facts.ttl"], folder=tmp_path)


def meanings(folder: Path, kind: Type = Type.STRING, **how: str) -> Annotations:
    section = AnnotationSection(property="ex:source", **how)
    stream = StreamSection(attributes={"sensor": kind, "flow": Type.FLOAT}, semantics={"sensor": section})
    return Annotations.of({"air": stream}, PREFIXES, folder)


def objects(found: Annotations, value: Value, knowledge: Knowledge) -> set[object]:
    event = Event("air", 7, 0, {"sensor": value, "flow": 1.0})
    triples = found.triples(event, knowledge)
    assert all(t.subject == root_of(event) and t.predicate == NamedNode(EX + "source") for t in triples)
    return {triple.object for triple in triples}


def ex(*names: str) -> set[object]:
    return {NamedNode(EX + name) for name in names}


@pytest.mark.parametrize(
    ("how", "value", "expected"),
    [
        ({}, "D105VOL", {Literal("D105VOL")}),
        ({"entity": "ex:{value}"}, "D105VOL", ex("D105VOL")),
        ({"entity": "ex:{value}-VAV"}, "room 1", ex("room%201-VAV")),
        ({"entity": "http://example.org/{value}"}, "a", ex("a")),
        ({"lookup": "ex:id"}, "D105VOL", ex("s1", "s2")),
        ({"lookup": "ex:id"}, "76284", ex("s3")),
        ({"lookup": "ex:id"}, "nobody", set()),
        ({"table": "sensors.csv"}, "D105VOL", ex("s1", "s9")),
        ({"table": "sensors.csv"}, "B", ex("b")),
        ({"table": "sensors.csv"}, "nobody", set()),
    ],
)
def test_p1(how: dict[str, str], value: str, expected: set[object], knowledge: Knowledge, tmp_path: Path) -> None:
    found = meanings(tmp_path, Type.STRING, **how)
    assert objects(found, value, knowledge) == expected
    assert found.unknown == ({} if expected else {("air", "sensor"): 1})


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Type.INT, 5, '"5"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        (Type.FLOAT, 5.5, '"5.5"^^<http://www.w3.org/2001/XMLSchema#double>'),
        (Type.BOOL, True, '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>'),
        (Type.TIMESTAMP, 0, '"1970-01-01T00:00:00.000000Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'),
        (Type.BYTES, b"a", '"YQ=="^^<http://www.w3.org/2001/XMLSchema#base64Binary>'),
    ],
)
def test_values_are_literals(kind: Type, value: Value, expected: str, knowledge: Knowledge, tmp_path: Path) -> None:
    assert [str(o) for o in objects(meanings(tmp_path, kind), value, knowledge)] == [expected]


def test_null_says_nothing_and_is_not_counted(knowledge: Knowledge, tmp_path: Path) -> None:
    found = meanings(tmp_path, lookup="ex:id")
    assert objects(found, None, knowledge) == set()
    assert not found.unknown


def test_a_number_is_looked_up_as_text(knowledge: Knowledge, tmp_path: Path) -> None:
    assert objects(meanings(tmp_path, Type.INT, lookup="ex:id"), 76284, knowledge) == ex("s3")


@given(st.text())
def test_any_value_fits_into_a_template(value: str) -> None:
    Triple(NamedNode(EX + escaped(value)), NamedNode(EX), NamedNode(EX))


@given(st.text(), st.text())
def test_different_values_are_different_entities(one: str, other: str) -> None:
    assert (escaped(one) == escaped(other)) == (one == other)


@pytest.mark.parametrize("first", ["value,entity\n", "sensor\n", "", "\ufeff"])
def test_a_table_begins_with_names_or_with_what_it_says(first: str, knowledge: Knowledge, tmp_path: Path) -> None:
    (tmp_path / "sensors.csv").write_text(first + "a,ex:s1\nb,ex:s2\n")
    found = meanings(tmp_path, table="sensors.csv")
    assert objects(found, "a", knowledge) == ex("s1")
    assert objects(found, "b", knowledge) == ex("s2")


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("a,xe:b\n", r"sensors\.csv:1:3: error: unknown prefix in 'xe:b'"),
        ("value,entity\na,ex:b,c\n", r"sensors\.csv:2:1: error: expected value and entity, found 3 fields"),
        ("value,entity\na,xe:b\n", r"(?s)sensors\.csv:2:3: error: unknown prefix in 'xe:b'.*hint: known: ex"),
    ],
)
def test_broken_tables(table: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "sensors.csv").write_text(table)
    with pytest.raises(Rejected, match=told):
        meanings(tmp_path, table="sensors.csv")
