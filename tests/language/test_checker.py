"""What the checker refuses and warns of: golden pairs of a query and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cepheid.language.checker import Checked, check
from cepheid.language.errors import Source
from cepheid.language.functions import ValueType
from cepheid.language.parser import examine, parse
from cepheid.language.scope import Catalogue
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from tests.golden_files import GOLDEN, assert_golden

FOLDER = GOLDEN / "language" / "check"
CATALOGUE = Catalogue(
    streams={
        "airflow": Stream(
            "airflow",
            {
                "sensorID": Type.STRING,
                "flowrate": Type.FLOAT,
                "count": Type.INT,
                "ok": Type.BOOL,
                "since": Type.TIMESTAMP,
                "samples": Type.UINT8_ARRAY,
            },
            spellings={"flowrate": ("airvolume",)},
        ),
        "meter": Stream("meter", {"meterID": Type.STRING, "kwh": Type.FLOAT, "room": Type.STRING, "count": Type.FLOAT}),
        "door": Stream("door", {"room": Type.STRING, "open": Type.BOOL, "count": Type.STRING}, id_kind="string"),
    },
    default_stream="airflow",
    prefixes={"hvc": "http://example.org/hvac#"},
    properties={"airflow": {"http://example.org/hvac#airflow": "flowrate"}},
)


def checked(text: str, catalogue: Catalogue = CATALOGUE) -> Checked:
    found, problems = check(parse(text), catalogue)
    assert found is not None, "\n".join(p.render() for p in problems)
    return found


@pytest.mark.parametrize("case", sorted(FOLDER.glob("*.chi")), ids=lambda case: case.stem)
def test_said_of(case: Path) -> None:
    """A line of dashes separates queries; each is checked by itself."""
    said = []
    for text in case.read_text().split("----\n"):
        query, problems = examine(Source(case.name, text))
        assert query is not None, "\n".join(p.render() for p in problems)
        found, problems = check(query, CATALOGUE)
        assert (found is None) == any(p.severity == "error" for p in problems)
        said.append("\n".join(p.render() for p in problems) or "nothing")
    assert_golden(case.with_suffix(".txt"), "\n----\n".join(said))


def test_state_without_bound_is_refused_live_and_warned_of_over_files() -> None:
    query = parse("SELECT ?a.sensorID SEQ (?a, ?b)")
    assert [p.severity for p in check(query, CATALOGUE)[1]] == ["warning"]
    assert [p.severity for p in check(query, CATALOGUE, live=True)[1]] == ["error"]


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("SELECT ?a.id SEQ (?a, ?b, ?c) WINDOW (?a, ?c, 5min)", True),
        ("SELECT ?a.id SEQ (?a, ?b, ?c) WINDOW (?a, ?b, 5min)", False),
        ("SELECT ?a.id SEQ (?a, ?b, ?c) WINDOW (?a, ?b, 5min) WINDOW (?b, ?c, 1h)", True),
        ("SELECT ?a.id, ?b.id AS b JOIN (?a.sensorID = ?b.sensorID)", False),
        ("SELECT ?a.id, ?b.id AS b WINDOW (?a, ?b, 1s)", True),
        ("SELECT ?a.id", True),
        ("SELECT COUNT(?a) AS n WINDOW (?a, sliding, 5min)", True),
        ("SELECT ?a.id SEQ (?a, NOT ?b) WINDOW (?a, 5min)", True),
        ("SELECT ?a.id SEQ (?a, NOT ?x, ?b) WINDOW (?a, ?b, 5min)", True),
    ],
)
def test_bounds(text: str, bounded: bool) -> None:
    codes = [p.code for p in check(parse(text), CATALOGUE)[1]]
    assert codes == ([] if bounded else ["unbounded"])


def test_a_query_has_so_many_variables() -> None:
    def said(count: int) -> list[str]:
        names = [f"?e{i}" for i in range(count)]
        seq, window = f"SEQ ({', '.join(names)})", f"WINDOW ({', '.join(names)}, 5s)"
        return [problem.render(False) for problem in check(parse(f"SELECT ?e0.id {seq} {window}"), CATALOGUE)[1]]

    assert said(64) == []
    (message,) = said(65)
    assert "a query has at most 64 variables, and ?e64 is one more" in message
    assert len(said(5000)) == 1  # and at once


def test_what_names_mean() -> None:
    found = checked("SELECT ?e.airvolume, ?e.hvc:airflow AS flow, ?e.id")
    names = {name: dict(r.names) for (_, name), r in found.attributes.items()}
    assert names == {"flowrate": {"airflow": "flowrate"}, "id": {"airflow": "id"}}
    assert found.query == parse("SELECT ?e.flowrate AS airvolume, ?e.flowrate AS flow, ?e.id AS id FROM (?e, airflow)")
    assert [(o.name, o.type) for o in found.outputs] == [
        ("airvolume", ValueType.FLOAT),
        ("flow", ValueType.FLOAT),
        ("id", ValueType.INT),
    ]


def test_an_attribute_of_several_streams() -> None:
    found = checked("SELECT ?e.count, ?e.kwh FROM (?e, airflow | meter)")
    assert found.attributes["e", "count"].type is ValueType.FLOAT, "int and float together are float"
    assert dict(found.attributes["e", "kwh"].names) == {"meter": "kwh"}, "null where it is not"


def test_variables_are_in_the_order_of_from_else_of_mention() -> None:
    assert checked("SELECT ?b.id, ?a.id AS a FROM (?a, airflow), (?b, meter) WINDOW (?a, ?b, 1s)").event_variables == (
        "a",
        "b",
    )
    assert checked("SEQ (?a, ?b) WINDOW (?a, ?b, 1s) SELECT ?b.id, ?a.id AS a").event_variables == ("a", "b")
    assert checked("SELECT ?b.id SEQ (?a, ?b) WINDOW (?a, ?b, 1s)").event_variables == ("b", "a")


def test_a_comparison_with_an_aggregate_filters_and_yields_it() -> None:
    (output,) = checked("SELECT AVG(?e.flowrate) > 500 AS avgrate WINDOW (?e, sliding, 5min)").outputs
    assert output.type is ValueType.FLOAT
    assert output.condition == parse("SELECT AVG(?e.flowrate) > 500 AS x").select[0].expression


AB = "SELECT ?a.id SEQ (?a, ?b) WINDOW (?a, ?b, 1s)"
ABC = "SELECT ?a.id SEQ (?a, ?b, ?c) WINDOW (?a, ?c, 1s)"
MAYBE = "SELECT ?a.id SEQ (?a, ?x?, ?b) WINDOW (?a, ?b, 1s)"
NOT = "SELECT ?a.id SEQ (?a, NOT ?x, ?b) WINDOW (?a, ?b, 1s)"


@pytest.mark.parametrize(
    ("text", "touched"),
    [
        (f"{AB} JOIN (?a.sensorID = ?b.sensorID)", "ab"),
        (f"{AB} JOIN (?a.sensorID = ?b.sensorID OR ?a.ok = ?b.ok)", None),
        (f"{ABC} JOIN (?a.sensorID = ?b.sensorID)", None),
        (f"{ABC} JOIN (?a.sensorID = ?b.sensorID AND ?b.sensorID = ?c.sensorID)", "abc"),
        # A NOT variable need not be touched, and links nothing.
        (f"{NOT} JOIN (?a.sensorID = ?x.sensorID) JOIN (?x.sensorID = ?b.sensorID)", None),
        (f"{NOT} JOIN (?a.sensorID = ?b.sensorID)", "ab"),
        # One that may be unbound must be touched, and links nothing.
        (f"{MAYBE} JOIN (?a.sensorID = ?x.sensorID) JOIN (?a.sensorID = ?b.sensorID)", "abx"),
        (f"{MAYBE} JOIN (?a.sensorID = ?x.sensorID) JOIN (?x.sensorID = ?b.sensorID)", None),
        (f"{MAYBE} JOIN (?a.sensorID = ?b.sensorID)", None),
    ],
)
def test_partition(text: str, touched: str | None) -> None:
    expected = [] if touched is None else [dict.fromkeys(touched, ("sensorID",))]
    assert [dict(c) for c in checked(text).partition.classes] == expected
