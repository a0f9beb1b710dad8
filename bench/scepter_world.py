"""The paper's world in any size: sensors in rooms of kinds and departments, their events, and Queries 1 to 7."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from cepheid.app.known import Known
from cepheid.knowledge.annotation import Annotation, Annotations
from cepheid.knowledge.store import Knowledge
from cepheid.language.checker import Checked, check
from cepheid.language.parser import parse
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.semantic import Mode

PREFIXES: Final = {
    "bd": "http://cei.usc.edu/Building.owl#",
    "ee": "http://cei.usc.edu/Equipment.owl#",
    "hvc": "http://cei.usc.edu/HVAC.owl#",
    "org": "http://cei.usc.edu/Organization.owl#",
    "evt": "http://cei.usc.edu/Event.owl#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
}
STREAM: Final = Stream("airflowReport", {"sensorID": Type.STRING, "flowrate": Type.FLOAT}, id_kind="int")
MEANINGS: Final = Annotations(
    {
        "airflowReport": {
            "sensorID": Annotation(PREFIXES["evt"] + "hasSource", "template", Type.STRING, PREFIXES["ee"] + "{value}"),
            "flowrate": Annotation(PREFIXES["hvc"] + "airflow", "literal", Type.FLOAT),
        }
    }
)
KINDS: Final = ("Office", "MeetingRoom", "LectureHall", "Lab")
DEPARTMENTS: Final = ("EEDepartment", "CSDepartment", "Physics", "Arts", "Law")

OFFICE: Final = """?e evt:hasSource ?src . ?src rdf:type ee:AirflowSensor . ?src bd:hasLocation ?loc .
?loc rdf:type bd:Office . ?loc bd:belongsTo org:EEDepartment"""
MEETING: Final = " . ".join(
    f"?e{i} evt:hasSource ?src{i} . ?src{i} rdf:type ee:AirflowSensor . ?src{i} bd:hasLocation ?loc{i} . "
    f"?loc{i} rdf:type bd:MeetingRoom"
    for i in (1, 2)
)
RISING: Final = """FILTER (?e1.flowrate > 500) JOIN (?e2.sensorID = ?e1.sensorID)
JOIN (?e2.flowrate-?e1.flowrate > 50) SEQ (?e1, ?e2) WINDOW (?e1, ?e2, 5min)"""
QUERIES: Final = {
    1: "SELECT ?e.sensorID, ?e.flowrate FILTER (?e.flowrate > 500)",
    2: "SELECT AVG(?e.flowrate) > 500 AS avgrate WINDOW (?e, sliding, 5min)",
    3: f"SELECT ?e1.sensorID {RISING}",
    5: f"""SELECT ?e.sensorID PATH {{{OFFICE} . ?e hvc:airflow ?rate .
hvc:GreenOfficeAirflow hvc:hasValue ?gaf . FILTER (?rate > ?gaf)}}""",
    6: f"SELECT AVG(?e.flowrate) > 500 AS avgrate WINDOW (?e, sliding, 5min) PATH {{{OFFICE}}}",
    7: f"SELECT ?e1.sensorID {RISING} PATH {{{MEETING}}}",
}


def turtle(sensors: int) -> str:
    """Two sensors a room, a room in one of the kinds and departments."""
    lines = [f"@prefix {name}: <{iri}> ." for name, iri in PREFIXES.items()]
    lines.append("hvc:GreenOfficeAirflow hvc:hasValue 500 .")
    for number in range(sensors):
        lines.append(f"ee:S{number} rdf:type ee:AirflowSensor ; bd:hasLocation bd:R{number // 2} .")
        if number % 2 == 0:
            room = number // 2
            kind, department = KINDS[room % len(KINDS)], DEPARTMENTS[room % len(DEPARTMENTS)]
            lines.append(
                f"bd:R{room} rdf:type bd:{kind} ; bd:belongsTo org:{department} ; bd:partOf bd:F{room // 50} ."
            )
            if room % 50 == 0:
                lines.append(f"bd:F{room // 50} bd:partOf bd:B{room // 500} .")
    return "\n".join(lines)


def knowledge(sensors: int, folder: Path) -> Knowledge:
    file = folder / f"campus{sensors}.ttl"
    file.write_text(turtle(sensors), encoding="utf-8")
    found = Knowledge.load([str(file)], folder=folder, reasoning="none")
    found.prepare()
    return found


def known(base: Knowledge, mode: Mode = "auto") -> Known:
    return Known(base, MEANINGS, mode, PREFIXES)


def checked(text: str) -> Checked:
    found, problems = check(parse(text), Catalogue({STREAM.name: STREAM}, STREAM.name, PREFIXES))
    if found is None:
        raise SystemExit(problems)
    return found


def columns(sensors: int, count: int, seed: int = 1, apart: int = 1000) -> pa.RecordBatch:
    """Events some microseconds apart; sensors by Zipf's law: a few busy ones and many quiet ones."""
    draw = np.random.default_rng(seed)
    ranks = np.minimum(draw.zipf(1.3, count) - 1, sensors - 1)
    places = draw.permutation(sensors)[ranks]
    names = pa.array([f"S{number}" for number in range(sensors)])
    return pa.record_batch(
        {
            "id": pa.array(np.arange(count, dtype=np.int64)),
            "time": pa.array(np.arange(count, dtype=np.int64) * apart),
            "sensorID": names.take(pa.array(places)),
            "flowrate": pa.array(draw.uniform(300, 600, count)),
        }
    )


def events(batch: pa.RecordBatch) -> list[Event]:
    rows = zip(*(batch.column(name).to_pylist() for name in ("id", "time", "sensorID", "flowrate")), strict=True)
    return [Event(STREAM.name, i, t, {"sensorID": s, "flowrate": f}) for i, t, s, f in rows]


def random_paths(count: int, seed: int = 7) -> Sequence[str]:
    """PATHs of two to four hops that begin at the sensor."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        parts = ["?e evt:hasSource ?src", "?src bd:hasLocation ?loc"]
        more = [
            f"?loc rdf:type bd:{draw.choice(KINDS)}",
            f"?loc bd:belongsTo org:{draw.choice(DEPARTMENTS)}",
            "?loc bd:partOf/bd:partOf ?building",
            f"FILTER NOT EXISTS {{ ?loc rdf:type bd:{draw.choice(KINDS)} }}",
            "?src rdf:type ee:AirflowSensor",
        ]
        parts += draw.sample(more, draw.randint(1, 3))
        found.append(f"SELECT ?e.sensorID FILTER (?e.flowrate > 500) PATH {{{' . '.join(parts)}}}")
    return found
