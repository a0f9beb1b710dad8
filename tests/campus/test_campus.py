"""The campus: as many sensors as asked for, the same from the same seed, and the truth about it is true."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from itertools import pairwise
from pathlib import Path

import pytest

from cepheid.campus.generator import START, Campus
from cepheid.campus.model import Model
from cepheid.knowledge.store import Knowledge
from cepheid.model.time import parse_instant

PREFIXES = {
    "bd": "http://cei.usc.edu/Building.owl#",
    "ee": "http://cei.usc.edu/Equipment.owl#",
    "hvc": "http://cei.usc.edu/HVAC.owl#",
    "org": "http://cei.usc.edu/Organization.owl#",
}
#: The semantic part of the paper's Query 4.
QUERY_4 = """SELECT ?src { ?src a ee:AirflowSensor . ?src bd:hasLocation ?loc .
    ?loc a bd:Office . ?loc bd:belongsTo org:EEDepartment }"""


@pytest.mark.parametrize("sensors", [4, 20, 333, 50_000])
def test_as_many_sensors_as_asked_for(sensors: int) -> None:
    model = Model.of(sensors)
    assert len({sensor.name for sensor in model.sensors}) == sensors
    assert len({sensor.kind for sensor in model.sensors}) == 4
    assert len({room.name for room in model.rooms}) == len(model.rooms)


def test_the_example_is_the_paper_s_campus_of_twenty() -> None:
    shipped = (resources.files("cepheid.examples.campus") / "campus.ttl").read_text(encoding="utf-8")
    assert shipped == Model.of(20).as_turtle()


def test_the_paper_s_words_work_on_brick(tmp_path: Path) -> None:
    model = Model.of(300)
    model.write(tmp_path)
    knowledge = Knowledge.load(["campus.ttl"], folder=tmp_path)
    expected = {
        sensor.name
        for sensor in model.sensors
        if sensor.kind == "airflow"
        and sensor.room is not None
        and (sensor.room.kind, sensor.room.department) == ("Office", "EEDepartment")
    }
    found = {row["src"].value.removeprefix(PREFIXES["ee"]) for row in knowledge.select(QUERY_4, PREFIXES)}
    assert found == expected
    assert len(expected) > 1


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert list(Campus(7).lines(2_000)) == list(Campus(7).lines(2_000))
    assert list(Campus(7).lines(100)) != list(Campus(8).lines(100))


@pytest.fixture(scope="module")
def morning() -> tuple[Campus, list[dict[str, object]]]:
    """About an hour of a campus; records that are not JSON of a known stream are left out."""
    campus = Campus(2012, 200)
    records = []
    for line in campus.lines(30_000):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record.get("time"), str) and "id" in record:
            records.append(record)
    return campus, records


def test_streams_come_at_their_rates_in_several_spellings(morning: tuple[Campus, list[dict[str, object]]]) -> None:
    campus, records = morning
    times = [parse_instant(str(record["time"])) for record in records]
    seconds = (max(times) - START) / 1e6
    each = Counter(sensor.kind for sensor in campus.model.sensors)
    count = Counter(record["stream"] for record in records)
    assert count["airflowReport"] == pytest.approx(seconds / 10 * each["airflow"], rel=0.1)
    assert count["ambientTemperature"] == pytest.approx(seconds / 30 * each["temperature"], rel=0.1)
    assert count["meterUpdate"] == pytest.approx(seconds / 60 * each["meter"], rel=0.1)
    spellings = {name for record in records for name in record}
    assert spellings >= {"flowrate", "airvolume", "airflow", "celsius", "temperature"}


def test_what_was_put_in_is_written_down(morning: tuple[Campus, list[dict[str, object]]], tmp_path: Path) -> None:
    campus, records = morning
    known = {sensor.name for sensor in campus.model.sensors}
    strangers = Counter(str(r["stream"]) for r in records if str(r.get("sensorID", next(iter(known)))) not in known)
    # Those that were also malformed are not among the records.
    assert 0 < strangers.total() <= campus.truth.unknown.total() <= strangers.total() * 1.2
    late = sum(str(one["time"]) > str(other["time"]) for one, other in pairwise(records))
    assert late == pytest.approx(campus.truth.late.total(), rel=0.1)
    assert len(campus.truth.bad) > 5
    campus.truth.write(tmp_path / "truth.json")
    told = json.loads((tmp_path / "truth.json").read_text())
    assert {fault["kind"] for fault in told["faults"]} == {"overcooled", "stuck"}


def test_only_the_overcooled_rooms_have_too_much_air(morning: tuple[Campus, list[dict[str, object]]]) -> None:
    campus, records = morning
    overcooled = {fault.sensor for fault in campus.truth.faults if fault.kind == "overcooled"}
    known = {sensor.name for sensor in campus.model.sensors}
    found = set()
    for record in records:
        rate = record.get("flowrate", record.get("airvolume", record.get("airflow")))
        if isinstance(rate, float) and rate > 500 and record["sensorID"] in known:
            found.add(record["sensorID"])
    assert found == overcooled
