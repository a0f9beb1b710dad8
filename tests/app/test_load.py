"""Reading application files: includes, variables, YAML's corners, and that a file and Python give the same graph."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import jsonschema
import pytest
import yaml

from cepheid.app import Builder, examine, load, within
from cepheid.app.reference import reference
from cepheid.app.schema import json_schema
from cepheid.language.errors import Rejected
from tests.golden_files import GOLDEN

ROOT = Path(__file__).parents[2]
STREAM = "streams: {s: {attributes: {x: float}}}\n"


def write(folder: Path, **files: str) -> Path:
    """Write name.yaml for each keyword; returns the first."""
    paths = [folder / f"{name}.yaml" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths[0]


def messages(path: Path, variables: dict[str, str] | None = None) -> list[str]:
    return [d.message for d in examine(path, variables or {})[1]]


def test_a_file_and_python_give_the_same_graph() -> None:
    file = load(GOLDEN / "explain" / "campus.yaml")
    app = Builder(
        "campus",
        levels=["critical", "high", "normal", "background"],
        prefixes=file.sections.prefixes,
        default_stream="airflowReport",
    )
    app.stream(
        "airflowReport",
        {"sensorID": "string", "flowrate": "float"},
        spellings={"flowrate": ["airvolume", "airflow"]},
        key="sensorID",
        period="1s",
        valid_for="2s",
        lateness="0s",
        idle="5s",
        source={"kind": "socket"},
        semantics={"flowrate": "hvc:airflow", "sensorID": {"property": "evt:hasSource", "entity": "ee:{value}"}},
    )
    v1 = app.stream("vibration1", {"samples": "array<uint8>"}, period="5ms", valid_for="10ms")
    v2 = app.stream("vibration2", {"samples": "array<uint8>"}, period="5ms", valid_for="10ms")
    fused = app.ekf("fused", v1, v2, relative=[within("5ms", v1, v2)])
    spectrum = app.fft("spectrum", fused)
    spectrum2 = app.fft("spectrum2", app.ekf("fused2", v1, v2, relative=[within("5ms", v1, v2)]))
    cipher = app.aes("cipher", spectrum2)
    app.aes("lost", spectrum2, key="00112233445566778899aabbccddeeff")
    app.consumer("plant", spectrum, level="critical", stale="shed")
    app.consumer("log", cipher, level="background", stale="mark")
    for name, query in file.graph.queries.items():
        app.query(name, query.text, level="high" if name == "overcooled" else None)
    app.archive("data/archive", retain="30d")
    app.knowledge([str(GOLDEN / "explain" / "campus.ttl")], reasoning="none", semantics="auto")
    built = app.build()
    assert built.graph == file.graph
    assert built.plan() == file.plan()


def test_python_has_the_words_of_the_file(tmp_path: Path) -> None:
    """Those of which the graph knows nothing."""
    text = """
        name: plant
        prefixes: {x: "http://x#"}
        streams:
          air:
            attributes: {sensor: string}
            semantics: {sensor: {property: "x:src", entity: "x:{value}"}}
            enrich: {sensor: {room: "x:in"}}
            source: {kind: kafka, topic: air}
        queries:
          all:
            text: SELECT ?e.sensor FROM (?e, air)
            sink: {kind: kafka, topic: all}
            real_time: true
        knowledge: {sources: [kb.ttl]}
        archive: {path: archive}
        service: {deliver: "tcp:127.0.0.1:7001", metrics: "tcp:127.0.0.1:7002", log: none}
    """
    file = load(write(tmp_path, app=dedent(text)))
    app = Builder("plant", prefixes={"x": "http://x#"})
    app.stream(
        "air",
        {"sensor": "string"},
        semantics={"sensor": {"property": "x:src", "entity": "x:{value}"}},
        enrich={"sensor": {"room": "x:in"}},
        source={"kind": "kafka", "topic": "air"},
    )
    app.query("all", "SELECT ?e.sensor FROM (?e, air)", sink={"kind": "kafka", "topic": "all"}, real_time=True)
    app.knowledge([str(tmp_path / "kb.ttl")])
    app.archive(tmp_path / "archive")
    app.service(deliver="tcp:127.0.0.1:7001", metrics="tcp:127.0.0.1:7002", log="none")
    assert app.build().sections == file.sections


def test_the_builder_says_all_that_is_wrong() -> None:
    app = Builder("plant", levels=["high"])
    s = app.stream("s", {"x": "flaot"}, period="0s")
    app.stream("s", {"x": "float"})
    app.consumer("c", s, level="low")
    with pytest.raises(Rejected) as rejected:
        app.build()
    text = str(rejected.value)
    assert "'s' is given twice in streams" in text
    assert "unknown type 'flaot'\n  hint: did you mean 'float'?" in text
    assert "this duration must be longer than zero" in text


def test_the_builder_checks_the_graph() -> None:
    app = Builder("plant")
    s = app.stream("s", {"x": "float"})
    app.consumer("c", app.fft("f", s), level="urgent")
    with pytest.raises(Rejected, match=r"(?s)unknown level 'urgent'.*fft 'f' reads an array, but 's' has x: float"):
        app.build()


def test_includes_fill_the_same_sections(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write(tmp_path / "parts", graph="graph: {f: {kind: fft, inputs: [v]}}\ninclude: ../consumers.yaml\n")
    (tmp_path / "parts" / "rising.chi").write_text("SELECT ?e.x FROM (?e, s)")
    write(tmp_path / "parts", queries="queries: {rising: {file: rising.chi}}\n")
    write(tmp_path, consumers="consumers: {c: {input: f}}\n")
    app = load(
        write(
            tmp_path,
            app="name: a\ninclude: [parts/graph.yaml, parts/queries.yaml]\n"
            'streams: {s: {attributes: {x: float}}, v: {attributes: {samples: "array<uint8>"}}}\n',
        )
    )
    assert set(app.graph.operators) == {"f"}
    assert set(app.graph.consumers) == {"c"}
    assert app.graph.queries["rising"].text == "SELECT ?e.x FROM (?e, s)", "relative to the file that names it"


def test_a_file_included_by_two_ways_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, shared=STREAM, b="include: shared.yaml\n")
    app = load(write(tmp_path, app="name: a\ninclude: [shared.yaml, b.yaml]\narchive: {path: x}\n"))
    assert set(app.graph.streams) == {"s"}


def test_errors_in_an_included_file_point_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, part="# a comment\nstreams: {s: {attributes: {x: flot}}}\n")
    write(tmp_path, app="name: a\ninclude: [part.yaml]\narchive: {path: x}\n")
    _, diagnostics = examine("app.yaml")
    assert [str(d.span) for d in diagnostics] == ["part.yaml:2:31"]


@pytest.mark.parametrize(
    ("section", "place"),
    [
        ("text: SELECT ?e.y", "app.yaml:5:18"),
        ("text: 'SELECT ?e.y'", "app.yaml:5:19"),
        ("text: |\n      # a comment\n      SELECT ?e.x\n      FILTER (?e.y > 5)", "app.yaml:8:15"),
        ("text: >\n      SELECT ?e.y\n      FILTER (?e.x > 5)", "app.yaml:6:14"),
        ("file: q.chi", "q.chi:2:9"),
    ],
)
def test_faults_of_a_query_point_into_its_text(
    section: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.chi").write_text("SELECT ?e.x\nFILTER (?e.y > 5)\n")
    write(tmp_path, app=f"name: a\n{STREAM}queries:\n  q:\n    {section}\n")
    _, diagnostics = examine("app.yaml")
    assert [str(d.span) for d in diagnostics] == [place]
    assert diagnostics[0].message == "'s' has no attribute 'y'"


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    app = load(write(tmp_path, app=f"name: a\n{STREAM}archive: {{path: data/archive}}\n"))
    assert app.sections.archive is not None
    assert app.sections.archive.path == str(tmp_path / "data" / "archive")
    absolute = load(write(tmp_path, app=f"name: a\n{STREAM}archive: {{path: /data}}\n"))
    assert absolute.sections.archive is not None
    assert absolute.sections.archive.path == "/data"
    elsewhere = load(write(tmp_path, app=f"name: a\n{STREAM}archive: {{path: 's3a://bucket/data'}}\n"))
    assert elsewhere.sections.archive is not None
    assert elsewhere.sections.archive.path == "s3a://bucket/data"


def test_variables(tmp_path: Path) -> None:
    text = (
        "name: a\n" + STREAM + "archive: {path: '/${PLANT}/${SITE:-home}'}\n"
        "service:\n  cores: ${CORES}\n  listen: unix:$${x}\n"
        "queries: {q: {text: 'SELECT ?e.x AS y # ${NOT}'}}\n"
    )
    path = write(tmp_path, app=text)
    application, diagnostics = examine(path, {"PLANT": "p1", "CORES": "2"})
    assert diagnostics == []
    assert application is not None
    sections = application.sections
    assert sections.archive is not None
    assert sections.service is not None
    assert sections.archive.path == "/p1/home"
    assert sections.service.cores == 2
    assert sections.service.listen == "unix:${x}"
    assert sections.queries["q"].text == "SELECT ?e.x AS y # ${NOT}", "a query's text is the language's own"
    assert messages(path, {"CORES": "2"}) == ["the environment variable PLANT is not set"]


def test_yaml_of_today_not_of_2005(tmp_path: Path) -> None:
    """`on` and `1:30` are text, a date is text, and 010 is ten: nothing turns into something else."""
    app = load(
        write(
            tmp_path,
            app='name: "on"\nlevels: [on, off, yes]\nstreams: {no: {attributes: {y: float, n: int}}}\n'
            "archive: {path: 2012-05-07}\nservice: {cores: 010}\n",
        )
    )
    assert app.graph.levels == ("on", "off", "yes")
    assert list(app.graph.streams["no"].attributes) == ["y", "n"]
    assert app.sections.archive is not None
    assert app.sections.service is not None
    assert app.sections.archive.path.endswith("2012-05-07")
    assert app.sections.service.cores == 10


def test_anchors_and_merges(tmp_path: Path) -> None:
    app = load(
        write(
            tmp_path,
            app="name: a\nstreams:\n  one: &sensor {attributes: {x: float}, period: 5ms}\n  two: *sensor\n"
            "  three: {<<: *sensor, period: 7ms}\narchive: {path: x}\n",
        )
    )
    periods = {name: stream.period for name, stream in app.graph.streams.items()}
    assert periods == {"one": 5000, "two": 5000, "three": 7000}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a]\nname: x\n", "not YAML: an alias that contains itself"),
        ("a: &a {<<: {<<: *a}}\nname: x\n", "unknown name 'a'"),
        ("a: &a {<<: *a}\nname: x\n", "unknown name 'a'"),
        ("name: x\n? [1, 2]\n: y\n", "a name must be text, not a list or a mapping"),
        ("[" * 100_000, "not YAML: nested more than 64 deep"),
        ("- " * 100_000, "not YAML: nested more than 64 deep"),
        ("name: x\n--- \nname: y\n", "not YAML: a second document begins here"),
        ("name: !!python/object/apply:os.system ['true']\n", "not YAML: the tag tag:yaml.org,2002:python/"),
        ("name: \x07\n", "not YAML: "),
        ("name: *nothing\n", "not YAML: nothing is called &nothing above"),
    ],
)
def test_odd_yaml(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "app.yaml"
    path.write_text(text)
    assert any(m.startswith(message) for m in messages(path)), messages(path)


def test_an_alias_bomb_is_refused_in_little_time(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    path = write(tmp_path, app="name: x\n" + "\n".join(lines) + "\nlevels: *a29\n")
    assert "more than" in messages(path)[0]


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    write(tmp_path, app="name: a\n")
    assert messages(tmp_path / "ap.yaml") == [f"{tmp_path / 'ap.yaml'}: no such file"]
    assert examine(tmp_path / "ap.yaml")[1][0].hint == "here: app.yaml"
    assert messages(tmp_path) == [f"{tmp_path}: Is a directory"]
    rubbish = tmp_path / "rubbish.yaml"
    rubbish.write_bytes(b"name: \xff\xfe\x00")
    assert messages(rubbish) == [f"{rubbish}: not a text file (byte 7 is not UTF-8)"]


def test_the_json_schema_knows_what_the_program_knows() -> None:
    """Editors are told by the same schema: the example fits, and a mistake does not."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    example = yaml.safe_load((GOLDEN / "explain" / "campus.yaml").read_text())
    jsonschema.validate(example, schema)
    example["graph"]["spectrum"]["kind"] = "ftf"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(example, schema)


def test_the_generated_documents_are_up_to_date() -> None:
    hint = "run `make docs`"
    assert (ROOT / "docs" / "application.md").read_text() == reference(), hint
    assert json.loads((ROOT / "docs" / "application.schema.json").read_text()) == json_schema(), hint


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("path: a.csv", "csv"),
        ("path: 'a/*.parquet'", "parquet"),
        ("path: a", "jsonl"),
        ("path: a.csv, format: jsonl", "jsonl"),
    ],
)
def test_the_extension_of_a_source_tells_its_format(source: str, told: str, tmp_path: Path) -> None:
    stream = f"{{attributes: {{x: float}}, source: {{kind: files, {source}}}}}"
    app = load(write(tmp_path, app=f"name: a\nstreams: {{s: {stream}}}\narchive: {{path: x}}\n"))
    assert getattr(app.sections.streams["s"].source, "format", None) == told
