"""The paper's "spike at 10 AM, as in the last 4 days": a window of days, of which only the spikes are held.

They are days in which the clocks go back, so that one has 25 hours.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cepheid.app import load
from cepheid.cli.match import command as match_command
from cepheid.cli.query import command as query_command
from cepheid.history.asked import asked, named
from cepheid.model.events import Event
from cepheid.model.time import UNITS, format_instant, in_zone, parse_local, zone_of
from cepheid.model.types import Value
from cepheid.plan.matcher import Matcher
from cepheid.spark.application import archive_batch

EXAMPLE = Path(__file__).parents[2] / "examples" / "spike"
LOS_ANGELES = zone_of("America/Los_Angeles")
FIRST, LAST = parse_local("2012-11-01[America/Los_Angeles]"), parse_local("2012-11-08[America/Los_Angeles]")
QUARTER = 15 * UNITS["min"]
DAYS = 7
#: On which days a meter has its spike at 10, and how many kW that is.
SPIKES = {"M1": dict.fromkeys(range(DAYS), 450.0), "M2": dict.fromkeys((0, 1, 2, 4, 5, 6), 450.0)}
SPIKES["M3"] = {day: 450.0 if day < 4 else 520.0 for day in range(DAYS)}


def readings() -> list[Event]:
    found = []
    for quarter, time in enumerate(range(FIRST, LAST, QUARTER)):
        shown = in_zone(time, LOS_ANGELES)
        day, place = shown.day - 1, 4 * shown.hour + shown.minute // 15
        for number, (meter, spikes) in enumerate(SPIKES.items()):
            # Each is above 400 at other times too.
            kw = spikes.get(day, 300.0) if place == 40 else 450.0 if place % 9 == 0 else 200.0 + place
            values: dict[str, Value] = {"meterID": meter, "kw": kw}
            found.append(Event("meterUpdate", len(SPIKES) * quarter + number, time, values))
    return found


@pytest.mark.spark
def test_as_in_the_last_4_days(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPIKE_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("SPIKE_ARCHIVE", str(tmp_path / "archive"))
    (tmp_path / "events").mkdir()
    events = readings()
    with (tmp_path / "events" / "week.jsonl").open("w") as file:
        for e in events:
            line = {"stream": e.stream, "id": e.id, "time": format_instant(e.time), **e.attributes}
            file.write(json.dumps(line) + "\n")
    path = str(EXAMPLE / "app.yaml")
    files = [str(tmp_path / "events" / "week.jsonl")]
    matched = CliRunner().invoke(match_command, [str(EXAMPLE / "workday.chi"), "--app", path, "--events", *files])
    rows = [json.loads(line) for line in matched.stdout.splitlines()]
    found = {(row["select"]["meterID"], row["time"]) for row in rows}
    tens = [format_instant(parse_local(f"2012-11-0{1 + day}T10:00[America/Los_Angeles]")) for day in range(DAYS)]
    # M2 has none on the fourth day; M3's are higher than usual from the fifth on.
    assert found == {("M1", tens[4]), ("M1", tens[5]), ("M1", tens[6])}
    assert {row["select"]["usual"] for row in rows} == {450.0}

    archive_batch(spark, load(path))
    assert CliRunner().invoke(query_command, [path, "workday"]).stdout == matched.stdout
    shown = ["--format", "table", "--zone", "America/Los_Angeles"]
    assert "2012-11-05T10:00:00-08:00" in CliRunner().invoke(query_command, [path, "workday", *shown]).stdout


def test_only_spikes_are_held() -> None:
    checked = asked(load(EXAMPLE / "app.yaml"), named(load(EXAMPLE / "app.yaml"), "workday"), 0).checked
    matcher = Matcher(checked)
    most = 0
    for event in readings():
        matcher.push([event])
        matcher.advance(event.time)
        most = max(most, matcher.counters["kept"])
    assert most <= 5 * len(SPIKES)
