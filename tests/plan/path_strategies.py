"""Random small ontologies, PATHs, queries around them, and events."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hypothesis import assume
from hypothesis import strategies as st

from cepheid.app.known import Known
from cepheid.knowledge.annotation import Annotation, Annotations
from cepheid.knowledge.store import Knowledge
from cepheid.language.checker import Checked, check
from cepheid.language.errors import Source
from cepheid.language.parser import examine
from cepheid.language.scope import Catalogue
from cepheid.model.events import Event
from cepheid.model.streams import Stream
from cepheid.model.types import Type
from cepheid.plan.semantic import Mode

SECOND: Final = 1_000_000
NS: Final = "http://x#"
PREFIXES: Final = {
    "": NS,
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
}

NODES: Final = ("s0", "s1", "s2", "r0", "r1", "d0")
LINKS: Final = ("in", "part", "near")
_CLASSES: Final = ("Room", "Hall")


@st.composite
def ontologies(draw: st.DrawFn) -> str:
    """Turtle: links between nodes, types, limits, and serial numbers to look up."""
    node = st.sampled_from(NODES)

    def several(least: int, most: int, subject: str, *values: str) -> list[str]:
        return [
            f":{draw(node)} {subject} {draw(st.sampled_from(values))} ." for _ in range(draw(st.integers(least, most)))
        ]

    nodes = [f":{name}" for name in NODES]
    links = [line for link in LINKS for line in several(1, 5, f":{link}", *nodes)]
    types = several(1, 5, "a", ":Room", ":Hall")
    limits = several(0, 4, ":limit", "1", "2", "2.5", "3")
    serials = several(0, 4, ":serial", *(f'"{name}"' for name in NODES))
    lines = [f"@prefix : <{NS}> .", *links, *types, *limits, *serials]
    return "\n".join(lines)


_PATHS: Final = (
    ":in",
    ":part",
    ":near",
    "^:in",
    ":in/:part",
    ":in+",
    ":part*",
    ":in?",
    ":in|:near",
    "(:in|^:part)/:near?",
    "!:in",
)


@st.composite
def groups(draw: st.DrawFn, event: str, tag: str, shared: str | None = None, constants: bool = True) -> str:
    """A group about one event: how it leads to an entity, what is said of that, and of its reading.

    Without `constants` all of it is connected with the event.
    """
    src, loc, v, limit = f"?src{tag}", shared or f"?loc{tag}", f"?v{tag}", f"?limit{tag}"
    parts = [draw(st.sampled_from([f"?{event} :src {src} .", f"?{event} :src {src} .", f"?{event} :src/:in {src} ."]))]
    path = st.sampled_from(_PATHS)
    is_linked = shared is not None or draw(st.booleans())
    if is_linked:
        parts.append(f"{src} {draw(path)} {loc} .")
    more = [
        f"{src} a :Room .",
        *([f"{loc} a :Hall .", f"VALUES {loc} {{ :r0 :r1 }}"] if constants or is_linked else []),
        f"{src} :limit {limit} .",
        f"?{event} :value {v} . ?{event} :weight ?w{tag} . FILTER ({v} > 1 || ?w{tag} > 1)",
        f"?{event} :value {v} . FILTER ({v} > 1)",
        f"?{event} :value {v} . FILTER ({v} > {limit})",
        f"?{event} :value {v} .",
        f"?{event} :value 2.0 .",
        f"OPTIONAL {{ {src} :near {loc} }}",
        f"OPTIONAL {{ ?{event} :value {v} }}",
        f"{{ {src} :in {loc} }} UNION {{ ?{event} :room {loc} }}",
        f"FILTER NOT EXISTS {{ {src} :part :d0 }}",
        f"FILTER EXISTS {{ ?{event} :room {loc} }}",
        f"MINUS {{ {src} :near :r0 }}",
        f"?{event} :value {v} . VALUES {limit} {{ 1 2.5 }} FILTER ({v} > {limit})",
        f"?{event} :value {v} . VALUES {limit} {{ 1 2 }} VALUES ?w{tag} {{ 2 UNDEF }} "
        f"FILTER ({v} = {limit} || {v} < ?w{tag})",
        f"BIND (:r0 AS ?w{tag}) {src} :in ?w{tag} .",
        f"?{event} ?p{tag} {loc} .",
        f"?{event} :room {loc} .",
        f"FILTER ({src} != :s1)",
        *([":s0 :in :r0 .", f":s0 :limit {limit} .", f":none :limit {limit} ."] if constants else []),
        f"[] :in {src} .",
        f"{src} :in [ a :Room ] .",
    ]
    parts += draw(st.lists(st.sampled_from(more), max_size=2))
    return " ".join(parts)


#: The variables of a pattern whose events share something, and the pattern.
_TOGETHER: Final = (
    ("ef", "SEQ (?e, ?f) WINDOW (?e, ?f, 4s) MATCH NEXT"),
    ("efg", "SEQ (?e, ?f, ?g) WINDOW (?e, ?g, 5s) MATCH NEXT"),
    ("efg", "SEQ (ALL(?e, ?f), ?g) WINDOW (?e, ?f, ?g, 5s) MATCH NEXT"),
    ("efg", "SEQ (?e, ANY(?f, ?g)) WINDOW (?e, ?f, 4s) WINDOW (?e, ?g, 4s) MATCH NEXT"),
    ("efg", "SEQ (?e, ?f?, ?g) WINDOW (?e, ?g, 5s)"),
    ("efg", "SEQ (?e, ?f?, ?g) WINDOW (?e, ?g, 5s) MATCH NEXT"),
    ("ef", "SEQ (?e, ?f?) WINDOW (?e, ?f, 4s)"),
    ("ef", "SEQ (?f?, ?e) WINDOW (?e, ?f, 4s)"),
    ("ef", "SEQ (?e, ?f?) WINDOW (?e, ?f, 4s) MATCH NEXT"),
    ("efg", "SEQ (?e, ?f+, ?g) WINDOW (?e, ?g, 5s)"),
    ("efg", "SEQ (?e, ?f{2,3}, ?g) WINDOW (?e, ?g, 6s) MATCH NEXT"),
    ("efg", "SEQ (?e, ?f{0,2}, ?g) WINDOW (?e, ?g, 5s)"),
    ("ef", "SEQ (?e, ?f+) WINDOW (?e, ?f, 4s)"),
    ("efg", "SEQ (?e, NOT ?f, ?g) WINDOW (?e, ?g, 5s)"),
    ("efg", "SEQ (?e, NOT ?f, ?g) WINDOW (?e, ?g, 5s) MATCH NEXT"),
    ("ef", "SEQ (?e, NOT ?f) WINDOW (?e, ?f, 3s)"),
    ("efg", "SEQ (?e, ?f) WINDOW (?e, ?f, ?g, 4s)"),
)


@st.composite
def crowded(draw: st.DrawFn) -> str:
    """Turtle: of each thing that events lead to, how many rooms it is in and near to: none to three."""
    rooms = st.lists(st.sampled_from((":r0", ":r1", ":d0")), max_size=3, unique=True)
    links = [f":{name} :{link} {room} ." for name in NODES[:3] for link in ("in", "near") for room in draw(rooms)]
    limits = [f":{name} :limit {limit} ." for name in NODES[:2] for limit in (1, 2)]
    return "\n".join([f"@prefix : <{NS}> .", *links, *limits])


@st.composite
def together(draw: st.DrawFn) -> str:
    """A query whose events share what they lead to, in every kind of step."""
    variables, pattern = draw(st.sampled_from(_TOGETHER))
    # Where there is no order between them, an event of each has to be found.
    shared = [draw(st.sampled_from(("?x", "?x", "?x", "?x", "?x ?y"))) for _ in variables]
    paths = []
    for variable, names in zip(variables, shared, strict=True):
        ways = [f"?s{variable} {way} {name} ." for way, name in zip((":in", ":near"), names.split(), strict=False)]
        if draw(st.integers(0, 4)) == 0:
            ways.append(f"?s{variable} :limit ?limit{variable} .")
        paths.append(f"PATH {{?{variable} :src ?s{variable} . {' '.join(ways)}}}")
    used = draw(st.sampled_from(["", "", "", ", ?x", ", ?se"]))
    used = used if used[-1:] != "x" or any("?x" in names for names in shared) else ""
    after = draw(st.sampled_from(["", "", "", " AFTER MATCH CONSUME"]))
    around = ", ".join(f"(?{v}, a)" for v in variables)
    return f"SELECT ?e.id{used} FROM {around} {pattern}{after if not used else ''} {' '.join(paths)}"


@st.composite
def queries(draw: st.DrawFn) -> str:
    kind = draw(
        st.sampled_from(
            ["one", "one", "pair", "shared", "or", "window", "next", "not", "plus", "maybe", "maybe", "join"]
        )
    )
    used = draw(st.sampled_from(["", "", ", ?src1", ", ?loc1", ", ?src1, ?loc1"]))
    # A part that names no event is the query's, whichever PATH it stands in; the reference does not split PATHs.
    order = draw(_ORDER)
    one = draw(groups("e", "1", constants="ANY" not in order))
    two = draw(groups("f", "2", constants=kind not in ("not", "plus", "maybe") and "ANY" not in order))
    around = "FROM (?e, a), (?f, a)"
    match kind:
        case "one":
            more = draw(groups("e", "3"))
            joint = draw(st.sampled_from(["", f"PATH {{{more}}}", f"OR PATH {{{more}}}", f"AND PATH {{{more}}}"]))
            return f"SELECT ?e.id{used} FROM (?e, a) PATH {{{one}}} {joint}"
        case "pair":
            inside = draw(st.booleans())
            paths = f"PATH {{{one} . {two}}}" if inside else f"PATH {{{one}}} PATH {{{two}}}"
            return f"SELECT ?e.id{used} {around} {order} {paths}"
        case "shared":
            constants = "ANY" not in order
            one, two = (draw(groups(*which, "?x", constants)) for which in (("e", "1"), ("f", "2")))
            used = draw(st.sampled_from(["", ", ?x"]))
            paths = draw(st.sampled_from([f"PATH {{{one} . {two}}}", f"PATH {{{one}}} PATH {{{two}}}"]))
            return f"SELECT ?e.id{used} {around} {order} {paths}"
        case "or":
            return f"SELECT ?e.id {around} {order} PATH {{{one}}} OR PATH {{{two}}}"
        case "join":
            sign = draw(st.sampled_from(["=", "!=", "<"]))
            join = draw(
                st.sampled_from([f"JOIN (?src1 {sign} ?src2)", "JOIN (?e.value > ?limit1)", "FILTER (?src1 = :s1)"])
            )
            return f"SELECT ?e.id{used} {around} {order} {join} PATH {{{one}}} PATH {{{two}}}"
        case "window":
            window = draw(st.sampled_from(["sliding, 2s", "length, 2", "batch, 2s", "session, 2s"]))
            used = "" if window.startswith(("batch", "session")) else used
            return f"SELECT COUNT(?e) AS n{used} FROM (?e, a) WINDOW (?e, {window}) PATH {{{one}}}"
        case "next":
            policy = draw(st.sampled_from(["NEXT", "STRICT"]))
            seq = f"SEQ (?e, ?f) WINDOW (?e, ?f, 3s) MATCH {policy}"
            return f"SELECT ?e.id{used} {around} {seq} PATH {{{one}}} PATH {{{two}}}"
        case "not":
            seq = "SEQ (?e, NOT ?f, ?g) WINDOW (?e, ?g, 4s)"
            return f"SELECT ?e.id{used} {around}, (?g, a) {seq} PATH {{{one}}} PATH {{{two}}}"
        case "plus":
            return (
                f"SELECT COUNT(?f) AS n{used} {around} SEQ (?e, ?f+) WINDOW (?e, ?f, 3s) PATH {{{one}}} PATH {{{two}}}"
            )
        case _:
            used = draw(st.sampled_from([used, ", ?src2", ", ?loc2", ", ?src1, ?src2, ?loc2"]))
            seq = draw(
                st.sampled_from(
                    [
                        "SEQ (?e, ?f?) WINDOW (?e, ?f, 3s)",
                        "SEQ (?e, ?f?, ?g) WINDOW (?e, ?g, 4s)",
                        "SEQ (?f?, ?e) WINDOW (?e, ?f, 3s)",
                    ]
                )
            )
            policy = draw(st.sampled_from(["ANY", "NEXT"]))
            more = ", (?g, a)" if "?g" in seq else ""
            return f"SELECT ?e.id{used} {around}{more} {seq} MATCH {policy} PATH {{{one}}} PATH {{{two}}}"


_ORDER: Final = st.sampled_from(["", "SEQ (?e, ?f) WINDOW (?e, ?f, 3s)", "SEQ (ANY(?e, ?f))", "SEQ (ALL(?e, ?f))"])


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    values = st.sampled_from([None, 0.5, 1.5, 2.0, 3.0])
    sensors = st.sampled_from(["s0", "s1", "s2", "s0", "s1", "r0", "unknown", None])
    rooms = st.sampled_from([None, "r0", "r1"])
    weights = st.sampled_from([None, 1, 2])
    return [
        Event(
            "a",
            n,
            draw(st.integers(0, 6)) * SECOND,
            {"sensor": draw(sensors), "room": draw(rooms), "value": draw(values), "weight": draw(weights)},
        )
        for n in range(1, draw(st.integers(1, 7)) + 1)
    ]


@st.composite
def crowds(draw: st.DrawFn) -> list[Event]:
    """Events of the things that `crowded` knows."""
    sensors = [draw(st.sampled_from(("s0", "s1", "s2"))) for _ in range(draw(st.integers(3, 7)))]
    pauses = st.sampled_from((1, 1, 1, 2, 0))
    times = [0]
    times += [times[-1] + draw(pauses) for _ in sensors]
    return [
        Event("a", n, times[n] * SECOND, {"sensor": sensor, "room": None, "value": 1.5, "weight": None})
        for n, sensor in enumerate(sensors)
    ]


@st.composite
def meanings(draw: st.DrawFn) -> Annotations:
    lookup = Annotation(f"{NS}src", "lookup", Type.STRING, lookup=f"{NS}serial")
    return _meaning(draw(st.sampled_from([_TEMPLATE, lookup])))


def _meaning(sensor: Annotation) -> Annotations:
    return Annotations(
        {
            "a": {
                "sensor": sensor,
                "room": Annotation(f"{NS}room", "template", Type.STRING, template=NS + "{value}"),
                "value": Annotation(f"{NS}value", "literal", Type.FLOAT),
                "weight": Annotation(f"{NS}weight", "literal", Type.INT),
            }
        }
    )


_TEMPLATE: Final = Annotation(f"{NS}src", "template", Type.STRING, template=NS + "{value}")
_BY_NAME: Final = _meaning(_TEMPLATE)


@dataclass(frozen=True, repr=False)
class PathCase:
    """A query, what is known, and events."""

    text: str
    turtle: str
    checked: Checked
    knowledge: Knowledge
    annotations: Annotations
    events: Sequence[Event]

    def __repr__(self) -> str:
        kinds = [a.kind for a in self.annotations.properties("a").values()]
        rows = [(e.id, e.time // SECOND, *e.attributes.values()) for e in self.events]
        return f"{self.text}\n{self.turtle}\n{kinds}\n{rows}"

    def known(self, mode: Mode) -> Known:
        return Known(self.knowledge, self.annotations, mode)


STREAM: Final = Stream(
    "a", {"sensor": Type.STRING, "room": Type.STRING, "value": Type.FLOAT, "weight": Type.INT}, id_kind="int"
)


@st.composite
def cases_together(draw: st.DrawFn) -> PathCase:
    """Cases in which events share what has several values."""
    return _case(draw(together()), draw(crowded()), _BY_NAME, draw(crowds()))


@st.composite
def cases(draw: st.DrawFn) -> PathCase:
    return _case(draw(queries()), draw(ontologies()), draw(meanings()), draw(events()))


def _case(text: str, turtle: str, annotations: Annotations, given: Sequence[Event]) -> PathCase:
    tree, problems = examine(Source("query", text))
    assert tree is not None, problems
    checked, _ = check(tree, Catalogue({"a": STREAM}, "a", PREFIXES))
    # What a random query asks may be refused, such as an OPTIONAL that reads two events' variables.
    assume(checked is not None)
    assert checked is not None
    return PathCase(text, turtle, checked, knowledge(turtle), annotations, given)


def knowledge(turtle: str) -> Knowledge:
    """What a text in Turtle says, and nothing that follows from it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kb.ttl"
        file.write_text(turtle, encoding="utf-8")
        return Knowledge.load([str(file)], folder=Path(folder), reasoning="none")
