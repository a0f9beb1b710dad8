"""`cepheid query`: the archive, and what is not archived yet, asked as one; what is missing or wrong is said."""

from __future__ import annotations

import io
import json
import random
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from cepheid.app import Application, load
from cepheid.cli.match import command as match_command
from cepheid.cli.query import command as query_command
from cepheid.history import log_source
from cepheid.history.answer import STRATEGIES, PartialAnswer, query
from cepheid.history.archiving import Tally, archive_log
from cepheid.history.asked import asked, named
from cepheid.history.damage import ArchiveDamaged
from cepheid.history.follow import follow
from cepheid.history.log_place import LogPlace
from cepheid.history.past import ArchiveDiffers, NothingToAsk
from cepheid.history.reached import ArchiveAbsent
from cepheid.history.sparql import to_sparql
from cepheid.history.sql import NotExact
from cepheid.language.errors import Rejected
from cepheid.model.events import Event
from cepheid.model.time import parse_instant
from cepheid.plan.matcher import Matcher
from cepheid.service.intake import config_of, start
from cepheid.service.supplier import Supplier
from cepheid.spark.application import archive_batch, archive_of
from cepheid.spark.care import remove_before

pytestmark = pytest.mark.spark

APP = """
name: plant
default_stream: air
streams:
  air: {attributes: {sensor: string, flow: float}, source: {kind: files, path: events}}
  door: {attributes: {room: string, open: bool}, id: string, source: {kind: files, path: events}}
archive: {path: archive}
queries:
  rising:
    text: |
      SELECT ?p.sensor, ?q.flow - ?p.flow AS rise
      WITHIN [2012-05-07T09:00, 2012-05-07T10:00)
      FILTER (?p.flow > 3) JOIN (?p.sensor = ?q.sensor AND ?q.flow > ?p.flow + 2)
      SEQ (?p, ?q) WINDOW (?p, ?q, 10min)
"""
RISING = APP.split("text: |\n")[1]


def records(first: int, count: int, day: str = "2012-05-07") -> list[dict[str, Any]]:
    r = random.Random(first)
    made: list[dict[str, Any]] = []
    for number in range(first, first + count):
        time = f"{day}T{r.randrange(8, 11):02d}:{r.randrange(60):02d}:{r.choice(['00', '20', '40'])}Z"
        flow = r.choice([None, 1.0, 4.5, 6.0, 9.25])
        made.append({"stream": "air", "id": number, "time": time, "sensor": f"s{r.randrange(3)}", "flow": flow})
        if number % 5 == 0:
            made.append({"stream": "door", "id": f"d{number}", "time": time, "room": "r1", "open": r.random() < 0.5})
    return made


def write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    (folder / "events").mkdir(exist_ok=True)
    (folder / "events" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def application(folder: Path, text: str = APP) -> Application:
    (folder / "app.yaml").write_text(text)
    return load(folder / "app.yaml")


def ask(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(query_command, [str(folder / "app.yaml"), *arguments])


def matched(folder: Path, text: str, *options: str) -> list[str]:
    """What `cepheid match` prints for the same files."""
    (folder / "query.chi").write_text(text)
    files = sorted(map(str, (folder / "events").iterdir()))
    arguments = [str(folder / "query.chi"), "--app", str(folder / "app.yaml"), "--events", *files, *options]
    result = CliRunner().invoke(match_command, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_archive_and_files_are_one(spark: SparkSession, tmp_path: Path) -> None:
    """From files alone, archived, and with a file more: always what `cepheid match` prints, first of each id only."""
    app = application(tmp_path)
    write(tmp_path, "a.jsonl", [*records(0, 150), {**records(7, 1)[0], "flow": 3.5}, {"id": "no event"}])
    wanted = matched(tmp_path, RISING)
    assert len(wanted) > 5
    assert ask(tmp_path, "rising").stdout.splitlines() == wanted

    archive_batch(spark, app)
    assert ask(tmp_path, "rising").stdout.splitlines() == wanted

    write(tmp_path, "b.jsonl", [*records(150, 150), *records(20, 10)])
    more = matched(tmp_path, RISING)
    assert len(more) > len(wanted)
    assert ask(tmp_path, "rising").stdout.splitlines() == more
    archive_batch(spark, app)
    assert ask(tmp_path, "rising").stdout.splitlines() == more

    explained = ask(tmp_path, "rising", "--explain").stdout
    assert "chosen     hybrid" in explained
    assert (
        "\nlive       --follow would go on with the log, and air come from files; rising itself runs on Spark"
        in explained
    )
    assert "FROM `?p` CROSS JOIN `?q`" in explained
    assert "PartitionFilters: [isnotnull(day" in explained
    seconds = r"\d+\.\d s"
    assert re.search(rf"\nwhy        hybrid: about {seconds}; replay {seconds}; rewrite {seconds}\n", explained)
    assert re.search(rf"\nreplay: about (\d+) events, \1 of them related to others, {seconds}\n", explained)

    count = len(matched(tmp_path, RISING.replace("09:00, 2012-05-07T10:00", "00:00, 2012-05-08T00:00")))
    days = ask(tmp_path, "rising", "--dry-run", "--since", "-2d", "--now", "2012-05-08").stdout.splitlines()
    assert days[:3] == ["day (UTC)  matches", "2012-05-06  0", f"2012-05-07  {count:,}"]
    assert days[3] == f"{count:,} matches since 2012-05-06T00:00:00.000000Z: {count / 2:,.1f} a day"
    read_and_related = r"about (\d+) events were read and \d+ related to others, \d+ and \d+ a day"
    cost = re.fullmatch(rf"{read_and_related}; \w+ took {seconds}", days[4])
    assert cost is not None
    assert int(cost[1]) == 311  # 300, and 11 whose ids were there before
    assert re.fullmatch(r"live it would read [\d.e-]+ events a second, and hold about \d+ at a time", days[5])

    noted = ask(tmp_path, "-q", "SELECT ROUND(?e.flow) AS flow FILTER (?e.flow > 9)", "--strategy", "rewrite")
    assert noted.stderr.startswith("note: rewrite can't give ROUND, which")
    assert noted.stderr.endswith("exactly; hybrid is used\n")
    assert noted.stdout.splitlines() == matched(tmp_path, "SELECT ROUND(?e.flow) AS flow FILTER (?e.flow > 9)")

    text = "SELECT HOUR(?e.time, 'Asia/Kathmandu') AS hour FILTER (MINUTE(?e.time, 'Asia/Kathmandu') < 47)"
    noted = ask(tmp_path, "-q", text, "--strategy", "rewrite")
    assert (
        "rewrite can't give MINUTE by the clocks of a zone, of which Spark's Java may know other rules" in noted.stderr
    )
    assert noted.stdout.splitlines() == matched(tmp_path, text)
    assert '"hour": 14' in noted.stdout

    table = ask(tmp_path, "rising", "--format", "table").stdout.splitlines()
    assert table[0].split() == ["time", "sensor", "rise", "?p", "?q"]
    assert table[-1] == f"{len(more)} matches"
    found = pq.read_table(io.BytesIO(ask(tmp_path, "rising", "--format", "parquet").stdout_bytes)).to_pylist()
    assert [row["id"] for row in found] == [json.loads(line)["id"] for line in more]
    assert found[0]["select"] == json.loads(more[0])["select"]

    frame = query(app, "SELECT ?e.flow, ?e.time AS at FILTER (?e.flow > 9)", spark=spark).dataframe()
    lines = matched(tmp_path, "SELECT ?e.flow, ?e.time AS at FILTER (?e.flow > 9)")
    assert [row["id"] for row in frame.collect()] == [json.loads(line)["id"] for line in lines]
    assert frame.where("select.at = time").count() == len(lines)

    both = "SELECT ?a.flow, ?d.open FROM (?a, air), (?d, air | door) WINDOW (?a, ?d, 20s) FILTER (?a.flow > 9)"
    assert list(query(app, both, spark=spark).lines()) == matched(tmp_path, both)
    counted = "SELECT COUNT(?e) AS n FROM (?e, door) WINDOW (?e, batch, 10min) GROUP BY ?e.open"
    assert list(query(app, counted, spark=spark)) == [json.loads(line) for line in matched(tmp_path, counted)]


def test_the_first_file_with_an_id_wins_whatever_attributes_are_called(spark: SparkSession, tmp_path: Path) -> None:
    """From files, of which Spark reads the larger first, then archived: each event once, with its own values."""
    names = ("place", "rank", "before", "number", "id_")
    app = application(
        tmp_path,
        "name: plant\ndefault_stream: air\narchive: {path: archive}\nstreams:\n  air:\n    source: {kind: files, path: "
        "events}\n    attributes: {place: string, rank: int, before: string, number: int, id_: string}\n",
    )

    def row(number: int, value: int) -> dict[str, Any]:
        return {
            "id": number,
            "time": value,
            **dict.fromkeys(names, value),
            "place": f"p{value}",
            "before": "",
            "id_": "",
        }

    text = f"SELECT {', '.join(f'?e.{name}' for name in names)}"
    write(tmp_path, "a.jsonl", [row(1, 10), row(2, 20), row(2, 25)])
    write(tmp_path, "b.jsonl", [*(row(number, 30 + number) for number in range(5, 1, -1)), row(1, 40)])
    wanted = matched(tmp_path, text)
    assert [json.loads(line)["select"]["rank"] for line in wanted] == [10, 20, 33, 34, 35]
    assert list(query(app, text, spark=spark).lines()) == wanted
    archive_batch(spark, app)
    assert list(query(app, text, spark=spark).lines()) == wanted
    write(tmp_path, "c.jsonl", [row(5, 50), row(6, 60)])
    assert list(query(app, text, spark=spark).lines()) == matched(tmp_path, text)
    archive_batch(spark, app)
    assert list(query(app, text, spark=spark).lines()) == matched(tmp_path, text)


def test_paths(spark: SparkSession, tmp_path: Path) -> None:
    """Semantic conditions, by every strategy; one whose values are not known beforehand, and one that is used."""
    (tmp_path / "plant.ttl").write_text("@prefix p: <http://p/> . p:s1 p:in p:hall . p:s2 p:in p:hall, p:yard .")
    means = 'air: {semantics: {sensor: {property: "p:from", entity: "p:{value}"}}, '
    text = APP.replace("air: {", means)
    app = application(tmp_path, text + 'prefixes: {p: "http://p/"}\nknowledge: {sources: [plant.ttl]}\n')
    write(tmp_path, "a.jsonl", records(0, 60))
    in_hall = "SELECT ?e.flow FILTER (?e.flow > 4) PATH { ?e p:from ?s . ?s p:in p:hall }"
    pairs = "SELECT ?q.flow SEQ (?p, ?q) WINDOW (?p, ?q, 5min) PATH { ?p p:from ?s . ?s p:in p:yard }"
    where = "SELECT ?e.flow, ?place FILTER (?e.flow > 4) PATH { ?e p:from ?s . ?s p:in ?place }"
    for asked_for in (in_hall, pairs, where):
        wanted = matched(tmp_path, asked_for)
        assert len(wanted) > 5
        for strategy in STRATEGIES:
            assert list(query(app, asked_for, spark=spark, strategy=strategy).lines()) == wanted, strategy
    assert query(app, in_hall, spark=spark, strategy="rewrite").refused is None
    assert query(app, where, spark=spark, strategy="rewrite").refused == "PATH variables that are used outside"


def test_damage_is_named(spark: SparkSession, tmp_path: Path) -> None:
    app = application(tmp_path)
    write(tmp_path, "a.jsonl", [*records(0, 20), *records(20, 20, "2012-05-08")])
    archive_batch(spark, app)
    everything = "SELECT ?e.flow WITHIN [2012-05-07, 2012-05-09)"
    assert len(list(query(app, everything, spark=spark))) == 40
    broken = next((tmp_path / "archive" / "air" / "day=2012-05-08").glob("*.parquet"))
    kept = broken.read_bytes()
    broken.write_bytes(kept[: len(kept) // 2])
    with pytest.raises(ArchiveDamaged, match=broken.name):
        list(query(app, everything, spark=spark))
    assert len(list(query(app, "SELECT ?e.flow WITHIN [2012-05-07, 2012-05-08)", spark=spark))) == 20
    broken.unlink()
    with pytest.raises(ArchiveDamaged, match=broken.name):
        list(query(app, everything, spark=spark))
    (tmp_path / "archive" / "air" / "_delta_log" / f"{0:020}.json").write_text("{garbage")
    with pytest.raises(ArchiveDamaged, match=f"{0:020}.json"):
        list(query(app, everything, spark=spark))


def test_other_schema(spark: SparkSession, tmp_path: Path) -> None:
    app = application(tmp_path)
    write(tmp_path, "a.jsonl", records(0, 20))
    archive_batch(spark, app)
    other = application(tmp_path, APP.replace("{sensor: string, flow: float}", "{sensor: int, flow: float}"))
    with pytest.raises(ArchiveDiffers, match="'sensor' is string there, and bigint in the application"):
        list(query(other, "SELECT ?e.sensor", spark=spark))
    newer = application(tmp_path, APP.replace("flow: float}", "flow: float, unit: string}"))
    assert list(query(newer, 'SELECT ?e.flow FILTER (?e.unit = "cfm")', spark=spark)) == []
    assert len(list(query(newer, "SELECT ?e.flow FILTER (?e.unit IS NULL)", spark=spark))) == 20


def test_log_and_archive_are_one(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing archived, a part, and more since, then what comes: always as of the whole log, late and duplicate ones
    aside."""
    text = APP.replace(", source: {kind: files, path: events}", "").replace("air: {", "air: {lateness: 5min, ")
    app = application(tmp_path, text + 'service: {listen: "unix:in.sock", log: {path: log, durability: each}}\n')
    rising = RISING.replace("10:00)", "11:00)").replace("10min", "25min")
    rows = [row for row in records(0, 120) if row["stream"] == "air"]
    events = [Event("air", r["id"], parse_instant(r["time"]), {"sensor": r["sensor"], "flow": r["flow"]}) for r in rows]
    events.sort(key=lambda event: event.time)
    late = Event("air", 9999, parse_instant("2012-05-06T09:00"), {"sensor": "s1", "flow": 4.0})
    beyond = Event("air", 5000, parse_instant("2012-05-07T11:06"), {})
    log_source.register(spark)

    def wanted(count: int) -> list[str]:
        return [match.id for match in Matcher(asked(app, rising, 0).checked).matches(events[:count])]

    def found() -> list[str]:
        return [match["id"] for match in query(app, rising, spark=spark, strategy="hybrid")]

    def archive() -> None:
        place, streams = str(tmp_path / "checkpoint"), list(app.graph.streams.values())
        writer = archive_log(spark, LogPlace(tmp_path / "log"), streams, archive_of(app), place, Tally())
        writer.trigger(availableNow=True).start().awaitTermination()

    with start(config_of(app)), Supplier(f"unix:{tmp_path}/in.sock") as supplier:
        supplier.push_many(events[:50])
        supplier.flush()
        assert found() == wanted(50)
        archive()
        supplier.push_many([late, *events[40:90]])
        supplier.flush()
        assert found() == wanted(90)

        came: list[str] = []
        ready = threading.Event()
        answer = query(app, rising, spark=spark)
        options = {"on_mark": lambda mark: ready.set()}
        follower = threading.Thread(target=follow, args=(answer, came.append), kwargs=options)
        follower.start()
        assert ready.wait(120)
        past = len(came)
        supplier.push_many([*events[80:], beyond])  # after which nothing of WITHIN can come
        supplier.flush()
        follower.join(60)
        assert not follower.is_alive()
    assert [json.loads(line)["id"] for line in came] == wanted(120)
    first = {event.id for event in events[:90]}
    sides = [{event_id in first for event_id in json.loads(line)["events"].values()} for line in came]
    assert past > 0  # and some across the boundary, some after it
    assert {True, False} in sides
    assert {False} in sides


def test_ranges_are_judged(spark: SparkSession, tmp_path: Path) -> None:
    """Reversed, empty, in the future: said before anything is asked, with the place."""
    application(tmp_path)
    write(tmp_path, "a.jsonl", records(0, 20))

    def said(within: str) -> Result:
        return ask(tmp_path, "-q", f"SELECT ?e.flow WITHIN {within}", "--now", "2012-05-08")

    reversed_ = said("[2012-05-08, 2012-05-07)").exception
    assert isinstance(reversed_, Rejected)
    assert "ends before it begins" in str(reversed_)
    empty = said("[2012-05-07, 2012-05-07)")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "no time lies in WITHIN" in empty.stderr
    future = said("[2012-06-01, )")
    assert (future.exit_code, future.stdout) == (0, "")
    assert "WITHIN begins in the future" in future.stderr
    half = said("[2012-05-07, 2012-06-01)")
    assert len(half.stdout.splitlines()) == 20
    assert "this is the answer as of 2012-05-08" in half.stderr


def test_what_was_removed_is_said(spark: SparkSession, tmp_path: Path) -> None:
    """Also without `retain`, and of all there is: the table knows what it lost."""
    app = application(tmp_path)
    write(tmp_path, "a.jsonl", [*records(0, 20), *records(20, 20, "2012-05-08")])
    archive_batch(spark, app)
    assert ask(tmp_path, "-q", "SELECT ?e.flow").stderr == ""
    streams = list(app.graph.streams.values())
    remove_before(spark, archive_of(app), streams, parse_instant("2012-05-08T12:00"))
    short = "events before 2012-05-08T00:00:00.000000Z were removed from the archive"
    for within, is_short in (("", True), ("WITHIN [2012-05-07, )", True), ("WITHIN [2012-05-08, )", False)):
        found = ask(tmp_path, "-q", f"SELECT ?e.flow {within}")
        assert len(found.stdout.splitlines()) == 20
        assert (short in found.stderr) is is_short
    with pytest.warns(PartialAnswer, match=short):
        list(query(app, "SELECT ?e.flow", spark=spark))
    kept = application(tmp_path, APP.replace("archive: {path: archive}", "archive: {path: archive, retain: 30d}"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked_of_day = "SELECT ?e.flow WITHIN [2012-05-08, )"
        assert len(list(query(kept, asked_of_day, spark=spark, now=parse_instant("2012-05-09")))) == 20
    away = application(tmp_path, APP.replace("path: events", 'path: "s3a://elsewhere/events"'))
    said = query(away, asked_of_day, spark=spark).missing
    assert said is not None
    assert said.startswith("of the files at 's3a://elsewhere/events' only what is archived is asked")


def test_as_sparql(tmp_path: Path) -> None:
    """Nothing is asked for it, nor Spark started."""
    app = application(tmp_path)
    printed = ask(tmp_path, "rising", "--to", "sparql")
    assert printed.exit_code == 0
    assert printed.stdout == to_sparql(asked(app, named(app, "rising"), 0))
    assert "?p cep:stream ?p_stream" in printed.stdout
    refused = ask(tmp_path, "-q", "SELECT ?p.flow SEQ (?p, ?q) WINDOW (?p, ?q, 1s) MATCH NEXT", "--to", "sparql")
    assert isinstance(refused.exception, NotExact)
    counted = ask(tmp_path, "-q", "SELECT COUNT(?p) AS n WINDOW (?p, batch, 1s)", "--to", "sparql").exception
    hint = "Take it out of the query, or ask without --to"
    assert str(counted) == f"SPARQL can't give a WINDOW of one variable, or HAVING exactly. {hint}"


def test_nothing_to_ask(tmp_path: Path) -> None:
    text = APP.replace(", source: {kind: files, path: events}", "")
    application(tmp_path, text)
    assert isinstance(ask(tmp_path, "rising").exception, ArchiveAbsent)
    (tmp_path / "archive").write_text("")
    assert isinstance(ask(tmp_path, "rising").exception, ArchiveAbsent)
    application(tmp_path, text.replace("archive: {path: archive}\n", ""))
    assert isinstance(ask(tmp_path, "rising").exception, NothingToAsk)
    wrong = ask(tmp_path, "risng")
    assert "has no query 'risng'" in str(wrong.exception)
    assert "rising" in str(wrong.exception)
    assert ask(tmp_path).exit_code == 2
    assert ask(tmp_path, "rising", "-q", "SELECT ?e.flow").exit_code == 2
    assert isinstance(ask(tmp_path, "-q", "SELECT ?e.flw").exception, Rejected)
