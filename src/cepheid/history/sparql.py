"""A query as SPARQL over events as RDF, as the paper ran it (section 5.2), by its rules 1 to 5.

An event is a node of its own: cep:stream, cep:id, cep:time (microseconds), the attributes it has under cep:attribute:,
and what its annotations say (rule P1). PATHs stand in the query as they were written. What SPARQL can't give exactly is
refused, as by `rewrite`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from cepheid.history.asked import Asked
from cepheid.history.sql import NotExact
from cepheid.knowledge.annotation import root_of
from cepheid.language import syntax
from cepheid.language.functions import ValueType
from cepheid.language.printer import print_expression
from cepheid.language.syntax import Expression, Kind, conjuncts
from cepheid.model.events import Event
from cepheid.model.types import Value

if TYPE_CHECKING:
    import pyoxigraph

    from cepheid.app.known import Known

CEP: Final = "urn:cepheid:"
_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_PLAIN: Final = (
    ValueType.BOOL,
    ValueType.INT,
    ValueType.FLOAT,
    ValueType.STRING,
    ValueType.TIMESTAMP,
    ValueType.DURATION,
)


def to_sparql(asked: Asked) -> str:
    """The query as SPARQL. Raises NotExact."""
    return _Writer(asked).text()


def as_rdf(events: Iterable[Event], known: Known | None = None) -> Iterator[pyoxigraph.Quad]:
    """Events as the triples that `to_sparql` asks for."""
    import pyoxigraph as ox

    for event in events:
        node = root_of(event)
        yield ox.Quad(node, ox.NamedNode(f"{CEP}stream"), ox.Literal(event.stream))
        yield ox.Quad(node, ox.NamedNode(f"{CEP}id"), ox.Literal(event.id))
        yield ox.Quad(node, ox.NamedNode(f"{CEP}time"), ox.Literal(event.time))
        for name, value in event.attributes.items():
            if value is not None and not isinstance(value, bytes | tuple):
                yield ox.Quad(node, ox.NamedNode(_attribute(event.stream, name)), _literal(value))
        if known is not None:
            for triple in known.annotations.triples(event, known.knowledge):
                yield ox.Quad(node, triple.predicate, triple.object)


def _literal(value: Value) -> pyoxigraph.Literal:
    import pyoxigraph as ox

    if isinstance(value, float):
        return ox.Literal(repr(value), datatype=ox.NamedNode(f"{_XSD}double"))
    assert isinstance(value, bool | int | str)
    return ox.Literal(value)


def _attribute(stream: str, name: str) -> str:
    return f"{CEP}attribute:{quote(stream, safe='')}:{quote(name, safe='')}"


class _Writer:
    def __init__(self, asked: Asked) -> None:
        # As it was written: its PATHs are SPARQL already.
        self.checked = asked.question.original
        self.query, self.times = self.checked.query, asked.times
        self.absent = [s.variable for s in self.query.seq if isinstance(s, syntax.Absent)]
        self.present = [v for v in self.checked.event_variables if v not in self.absent]
        places = {v: i for i, v in enumerate(self.checked.event_variables)}
        #: The variable that has an attribute's value.
        self.names = {
            (v, name): f"?{v}_{number}" for number, (v, name) in enumerate(self.checked.attributes) if v in places
        }

    def text(self) -> str:
        self._check()
        prefixes = {**self.checked.prefixes, "cep": CEP, "xsd": _XSD}
        lines = [f"PREFIX {name}: <{iri}>" for name, iri in sorted(prefixes.items())]
        outputs = [f"?s{number}" for number in range(len(self.checked.outputs))]
        ids = [f"?{v}_id" for v in self.present]
        times = [f"?{v}_time" for v in self.present]
        lines.append(f"SELECT DISTINCT {' '.join(f'?{v}' for v in self.present)} {' '.join((*ids, *times, *outputs))}")
        lines.append("WHERE {")
        for variable in self.present:
            lines += [f"  {line}" for line in self._event(variable)]
        lines += [f"  FILTER ({c})" for c in self._conditions(self.present)]
        if isinstance(self.query.path, syntax.PathGroup):
            lines.append(f"  {{ {self._path(self.query.path)} }}")
        for place, step in enumerate(self.query.seq):
            if isinstance(step, syntax.Absent):
                lines += [f"  {line}" for line in self._without(place, step.variable)]
        for number, output in enumerate(self.checked.outputs):
            lines.append(f"  BIND ({self._expression(output.expression)} AS ?s{number})")
        lines.append("}")
        lines.append("ORDER BY " + " ".join([self._last(), *(f"?{v}_time ?{v}_id" for v in self.present)]))
        return "\n".join(lines) + "\n"

    def _check(self) -> None:
        query = self.query
        if query.match != "ANY" or query.after != "KEEP":
            raise NotExact(f"MATCH {query.match}, AFTER MATCH {query.after}")
        if any(isinstance(w, syntax.EventWindow) for w in query.windows) or query.having is not None:
            raise NotExact("a WINDOW of one variable, or HAVING")
        if query.path is not None and not isinstance(query.path, syntax.PathGroup):
            raise NotExact("PATHs joined by AND and OR")
        _check_steps(query)
        names = {name for compared in self.checked.paths.compared for name in syntax.variables(compared)}
        if any(part.variable in self.absent and names & part.variables for part in self.checked.paths.parts):
            raise NotExact("a PATH that compares a value of what is not there")
        for resolved in self.checked.attributes.values():
            if resolved.type not in _PLAIN:
                raise NotExact(f"{resolved.type.value}, which RDF has no literals of")

    def _path(self, path: syntax.PathGroup) -> str:
        """The PATH as it was written, but for what it says of events that are not there."""
        parts = self.checked.paths.parts
        if not any(part.variable in self.absent for part in parts):
            return path.text
        there = [part.text for part in parts if part.variable not in self.absent]
        return "\n".join([*there, *(f"FILTER ({print_expression(c)})" for c in self.checked.paths.compared)])

    def _path_without(self, variable: str) -> str:
        """What the PATH says of an event that is not there, with those that are: of any values of what they share."""
        parts = [part for part in self.checked.paths.parts if part.variable not in self.absent]
        own = [part for part in self.checked.paths.parts if part.variable == variable]
        events = set(self.checked.event_variables)
        reached = {name for part in own for name in part.variables} - events
        while more := [part for part in parts if part.variables & reached]:
            own += more
            parts = [part for part in parts if part not in more]
            reached |= {name for part in more for name in part.variables} - events
        renamed = {name: f"?{name}_{variable}" for name in reached}
        return "\n".join(e.renamed(renamed).text for part in own for e in part.elements)

    def _event(self, variable: str) -> Iterator[str]:
        streams = next(r.streams for r in self.query.ranges if r.variable == variable)
        yield f"VALUES ?{variable}_stream {{ {' '.join(_text(stream) for stream in streams)} }}"
        parts = f"cep:stream ?{variable}_stream ; cep:id ?{variable}_id ; cep:time ?{variable}_time"
        yield f"?{variable} {parts} ."
        yield f"FILTER (?{variable}_time >= {self.times.low} && ?{variable}_time <= {self.times.high})"
        for (owner, name), resolved in self.checked.attributes.items():
            if owner == variable and name not in ("id", "time"):
                own = sorted(_attribute(stream, attribute) for stream, attribute in resolved.names.items())
                path = "|".join(f"<{iri}>" for iri in own)
                yield f"OPTIONAL {{ ?{variable} {path} {self.names[owner, name]} }}"
        for condition in (*self.query.filters, *(p for join in self.query.joins for p in conjuncts(join))):
            if syntax.variables(condition) == (variable,):
                yield f"FILTER ({self._expression(condition)})"

    def _conditions(self, variables: list[str], new: str | None = None) -> Iterator[str]:
        for part in (p for join in self.query.joins for p in conjuncts(join)):
            named = syntax.variables(part)
            if len(named) != 1 and set(named) <= set(variables) and (new is None or new in named):
                yield self._expression(part)
        for window in self.query.windows:
            assert isinstance(window, syntax.SpanWindow)
            names = [v for v in window.variables if v in variables]
            if new is None or new in names:
                for one, other in combinations(names, 2):
                    yield f"ABS(?{one}_time - ?{other}_time) <= {window.width}"
        if new is not None:
            return
        steps = [s for s in self.query.seq if not isinstance(s, syntax.Absent)]
        for before, after in pairwise(steps):
            for one in syntax.step_variables(before):
                yield from (f"?{one}_time < ?{other}_time" for other in syntax.step_variables(after))
        yield from (f"?{one} != ?{other}" for one, other in combinations(self.present, 2))

    def _without(self, place: int, variable: str) -> Iterator[str]:
        before = next(s for s in reversed(self.query.seq[:place]) if not isinstance(s, syntax.Absent))
        after = next(s for s in self.query.seq[place + 1 :] if not isinstance(s, syntax.Absent))
        yield "FILTER NOT EXISTS {"
        yield from (f"  {line}" for line in self._event(variable))
        between = [f"?{variable}_time > ?{v}_time" for v in syntax.step_variables(before)]
        between += [f"?{variable}_time < ?{v}_time" for v in syntax.step_variables(after)]
        between += self._conditions([*self.present, variable], variable)
        yield from (f"  FILTER ({condition})" for condition in between)
        if inside := self._path_without(variable):
            yield f"  {inside}"
        yield "}"

    def _last(self) -> str:
        """The time of a match: its last event's."""
        found = f"?{self.present[0]}_time"
        for variable in self.present[1:]:
            found = f"IF(?{variable}_time > {found}, ?{variable}_time, {found})"
        return found if len(self.present) == 1 else f"({found})"

    def _expression(self, e: Expression) -> str:
        of = self._expression
        match e:
            case syntax.Constant(kind=Kind.STRING, value=value):
                return _text(str(value))
            case syntax.Constant(kind=Kind.FLOAT, value=value):
                return f'"{float(str(value))!r}"^^xsd:double'
            case syntax.Constant(kind=Kind.BOOL, value=value):
                return str(value).lower()
            case syntax.Constant(kind=Kind.INT | Kind.TIMESTAMP | Kind.DURATION, value=value):
                return f"({value})"
            case syntax.Attribute(variable, "id" | "time" as name):
                return f"?{variable}_{name}"
            case syntax.Attribute(variable, name):
                return self.names[variable, name]
            case syntax.Compare(sign, left, right):
                return f"({of(left)} {sign} {of(right)})"
            case syntax.Arithmetic("+" | "-" | "*" as sign, left, right):
                found = f"({of(left)} {sign} {of(right)})"
                # Out of range is null: a variable that nothing binds.
                return f'IF(ABS({found}) < "INF"^^xsd:double, {found}, ?nothing)'
            case syntax.Not(operand):
                return f"(! {of(operand)})"
            case syntax.Logical(word, operands):
                return "(" + (" && " if word == "AND" else " || ").join(map(of, operands)) + ")"
            case syntax.In(operand, items, negated):
                found = " || ".join(f"{of(operand)} = {of(item)}" for item in items)
                return f"(! ({found}))" if negated else f"({found})"
            case syntax.Between(operand, low, high, negated):
                found = f"({of(operand)} >= {of(low)} && {of(operand)} <= {of(high)})"
                return f"(! {found})" if negated else found
            case syntax.IsNull(syntax.Attribute() as attribute, negated):
                return f"{'' if negated else '! '}BOUND({of(attribute)})"
            case _:
                raise NotExact(f"{type(e).__name__.lower()} in an expression")


def _check_steps(query: syntax.Query) -> None:
    """Raises NotExact for steps that are not one event, or a NOT between two."""
    for place, step in enumerate(query.seq):
        if isinstance(step, syntax.Many | syntax.Maybe | syntax.AnyOf):
            raise NotExact("a step ?e+, ?e{n,m}, ?e? or ANY")
        if isinstance(step, syntax.Absent) and place in (0, len(query.seq) - 1):
            raise NotExact("NOT at an end of SEQ")


def _text(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        value = value.replace(plain, escaped)
    return f'"{value}"'
