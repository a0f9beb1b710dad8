"""A real building, written for another purpose, as it is: the public Brick model of a university hall."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cepheid.knowledge.store import Knowledge

PLACES = (os.environ.get("CEPHEID_SODA"), *(up / "shared/data/soda_brick.ttl" for up in Path(__file__).parents[3:6]))
SODA = next((Path(place) for place in PLACES if place and Path(place).is_file()), None)
PREFIXES = {
    "brick": "https://brickschema.org/schema/Brick#",
    "soda": "https://brickschema.org/schema/1.0.2/building_example#",
}


@pytest.fixture(scope="module")
def soda() -> Knowledge:
    if SODA is None:
        pytest.skip("soda_brick.ttl is not here; set CEPHEID_SODA to its path")
    return Knowledge.load([SODA, "brick:1.4"], folder=SODA.parent)


def count(knowledge: Knowledge, pattern: str) -> int:
    found = knowledge.select(f"SELECT (COUNT(DISTINCT ?x) AS ?n) {{ {pattern} }}", PREFIXES)
    return int(found[0]["n"].value)


def test_what_its_readme_says_is_found(soda: Knowledge) -> None:
    assert count(soda, "?x a brick:Supply_Air_Flow_Sensor") == 242
    assert count(soda, "?x a brick:Room") == 243
    assert count(soda, "?x a brick:AHU") == 5


def test_what_follows_by_brick_is_there(soda: Knowledge) -> None:
    assert count(soda, "?x a brick:Sensor") > 242
    assert count(soda, "?x brick:isFedBy soda:ahu_A1") == count(soda, "soda:ahu_A1 brick:feeds ?x") > 0
    assert count(soda, "?x a brick:Air_Flow_Sensor ; brick:isPointOf/brick:isFedBy soda:ahu_A1") > 0


def test_its_sensors_lead_to_rooms_of_an_air_handler(soda: Knowledge) -> None:
    rooms = "?x a brick:Room . ?zone brick:hasPart ?x . soda:ahu_A1 brick:feeds/brick:feeds ?zone"
    assert count(soda, rooms) == 98
