"""Strategy: the whole query as one text of Spark SQL over the archived events and the semantic tables.

The paper's plain query rewriting (section 5.2), by its rules, with SQL in the place of SPARQL:

    FILTER   a condition on the variable's table                        rule 1
    JOIN     a condition between two of them                            rule 2
    SEQ      each step's times are below those of the next              rule 3
    WINDOW   the greatest time of its variables minus the least         rule 4
    order    all strategies' matches are sorted as rule O2 says         rule 5

NOT between two steps is an anti-join. What can't be said exactly in SQL is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import types as st

from cepheid.history.asked import Asked
from cepheid.history.found import FOUND, lines
from cepheid.history.frames import Layout, in_times
from cepheid.history.order import order_of
from cepheid.history.past import Past
from cepheid.history.sql import NotExact, check_steps, expression, name_of, quoted
from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.language.output import MatchPrinter
from cepheid.language.syntax import conjuncts
from cepheid.model.matches import Bound, EventRef, Match, MatchIds
from cepheid.model.types import Type
from cepheid.plan.compile import is_looked_up
from cepheid.spark.knowledge import portable


@dataclass(frozen=True)
class Rewritten:
    """A query as SQL. The tables it names are `events_<stream>`, and `known_<number>` for its lookups."""

    text: str
    lookups: tuple[tuple[str, Lookup], ...]


def rewrite(past: Past, asked: Asked, layout: Layout) -> DataFrame:
    """The matches, in no order: rows of FOUND. Raises NotExact."""
    checked = layout.checked
    rewritten = rewritten_of(layout)
    for name in layout.names:
        in_times(past.events(layout.streams[name]), asked.times).createOrReplaceTempView(f"events_{name}")
    for view, lookup in rewritten.lookups:
        known_table(past, lookup).createOrReplaceTempView(view)
    rows = past.spark.sql(rewritten.text)
    return rows.mapInArrow(_printing(checked, layout.names), FOUND)


def known_table(past: Past, lookup: Lookup) -> DataFrame:
    """What is known, by key: whether there is anything."""
    entries = [(key[0], bool(rows)) for key, rows in lookup.table.rows.items() if key[0] is not None]
    whole = any(isinstance(value, int) for value, _ in entries)
    schema = st.StructType(
        [st.StructField("key", st.LongType() if whole else st.StringType()), st.StructField("found", st.BooleanType())]
    )
    return past.spark.createDataFrame(entries, schema)


def rewritten_of(layout: Layout) -> Rewritten:
    """The query as SQL. Raises NotExact, which says what can't be."""
    return _Rewriter(layout).run()


class _Rewriter:
    def __init__(self, layout: Layout) -> None:
        self.layout, self.checked = layout, layout.checked
        self.query = layout.checked.query
        self.lookups: list[tuple[str, Lookup]] = []
        self.absent = [s.variable for s in self.query.seq if isinstance(s, syntax.Absent)]
        self.present = [v for v in self.checked.event_variables if v not in self.absent]

    def run(self) -> Rewritten:
        self._check()
        tables = ",\n".join(f"{quoted(v)} AS (\n{self._table(v)}\n)" for v in self.checked.event_variables)
        found = f"WITH {tables}\nSELECT {self._outputs()}\nFROM {self._joined()}"
        where = list(self._conditions(self.present))
        if where:
            found += "\nWHERE " + "\n  AND ".join(where)
        return Rewritten(found, tuple(self.lookups))

    def _check(self) -> None:
        query = self.query
        if query.match != "ANY":
            raise NotExact(f"MATCH {query.match}")
        if query.after != "KEEP":
            raise NotExact(f"AFTER MATCH {query.after}")
        if self.layout.is_moving:
            raise NotExact("a moving WINDOW")
        if self.checked.used:
            raise NotExact("PATH variables that are used outside")
        if query.having is not None:
            raise NotExact("HAVING")
        names = [*self.checked.event_variables, *(f"{v}.{name}" for v, name in self.checked.attributes)]
        if len({name.lower() for name in names}) < len(names):
            raise NotExact("names that differ in capitals only, which SQL does not tell apart")
        check_steps(query)

    # a variable's table: rule 1, and what is known

    def _table(self, variable: str) -> str:
        streams = next(r.streams for r in self.query.ranges if r.variable == variable)
        return "\nUNION ALL\n".join(self._part(variable, stream) for stream in streams)

    def _part(self, variable: str, stream: str) -> str:
        layout = self.layout
        is_text = self.checked.id_kinds[stream] == "string"
        columns = [
            f"{layout.names.index(stream)} AS stream",
            ("CAST(NULL AS bigint)" if is_text else "t.id") + " AS number",
            ("t.id" if is_text else "CAST(NULL AS string)") + " AS name",
            "unix_micros(t.time) AS time",
        ]
        for owner, name in self.checked.attributes:
            if owner == variable and name not in ("id", "time") and name[0] not in "?=!":
                columns.append(f"{self._value(stream, variable, name)[0]} AS {quoted('_' + name)}")
        joined, conditions = [], []
        for lookup in self.checked.lookups:
            if lookup.variable == variable and lookup.stream == stream:
                assert isinstance(lookup, Lookup)
                join, condition = self._known(lookup)
                joined += [join] if join else []
                conditions.append(condition)
        own = (*self.query.filters, *(p for join in self.query.joins for p in conjuncts(join)))
        for demanded in own:
            if syntax.variables(demanded) == (variable,):
                if is_looked_up(demanded):
                    raise NotExact("a condition on what a PATH finds")
                conditions.append(expression(demanded, lambda a: self._value(stream, variable, a.name)).text)
        table = quoted(f"events_{stream}")
        where = "\n  WHERE " + " AND ".join(conditions) if conditions else ""
        return f"  SELECT {', '.join(columns)}\n  FROM {table} AS t{''.join(joined)}{where}"  # noqa: S608 - checked

    def _value(self, stream: str, variable: str, name: str) -> tuple[str, ValueType]:
        """An attribute, of a row of the stream's table."""
        if name == "time":
            return "unix_micros(t.time)", ValueType.TIMESTAMP
        resolved = self.checked.attributes[variable, name]
        if name == "id":
            return "t.id", resolved.type
        target = name_of(resolved.type)
        own = resolved.names.get(stream)
        if own is None:
            return f"CAST(NULL AS {target})", resolved.type
        column, kind = f"t.{quoted(own)}", self.layout.streams[stream].attributes[own]
        if kind is Type.TIMESTAMP:
            return f"unix_micros({column})", resolved.type
        return column if ValueType.of(kind) is resolved.type else f"CAST({column} AS {target})", resolved.type

    def _known(self, lookup: Lookup) -> tuple[str, str]:
        """The join with a table of what is known, and the condition that something is."""
        if lookup.columns or len(lookup.key) > 1:
            raise NotExact("a PATH that is more than a condition on one attribute")
        otherwise = str(bool(lookup.table.otherwise)).lower()
        if not lookup.key:
            return "", str(bool(lookup.table.rows.get((), lookup.table.otherwise))).lower()
        view = f"known_{len(self.lookups)}"
        self.lookups.append((view, lookup))
        key = f"t.{quoted(lookup.key[0])}"
        of_null = str(bool(lookup.table.rows.get((None,), lookup.table.otherwise))).lower()
        return (
            f" LEFT JOIN {view} ON {view}.key = {key}",
            f"coalesce({view}.found, if({key} IS NULL, {of_null}, {otherwise}))",
        )

    # between variables: rules 2 to 4

    def _column(self, attribute: syntax.Attribute) -> tuple[str, ValueType]:
        variable, name = quoted(attribute.variable), attribute.name
        resolved = self.checked.attributes.get((attribute.variable, name))
        if name == "time":
            return f"{variable}.time", ValueType.TIMESTAMP
        assert resolved is not None
        if name == "id":
            return f"{variable}.{'name' if resolved.type is ValueType.STRING else 'number'}", resolved.type
        return f"{variable}.{quoted('_' + name)}", resolved.type

    def _conditions(self, variables: list[str], new: str | None = None) -> Iterator[str]:
        """What is demanded of these variables together; of those with `new` only what names it."""
        for part in (p for join in self.query.joins for p in conjuncts(join)):
            named = syntax.variables(part)
            if len(named) != 1 and set(named) <= set(variables) and (new is None or new in named):
                if is_looked_up(part):
                    raise NotExact("a JOIN on what a PATH finds")
                yield expression(part, self._column).text
        for window in self.query.windows:
            assert isinstance(window, syntax.SpanWindow)
            names = [v for v in window.variables if v in variables]
            if len(names) > 1 and (new in names if new is not None else True):
                times = ", ".join(f"{quoted(v)}.time" for v in names)
                yield f"greatest({times}) - least({times}) <= {window.width}"
        if new is None:
            yield from self._in_sequence()
            yield from self._distinct()

    def _in_sequence(self) -> Iterator[str]:
        steps = [s for s in self.query.seq if not isinstance(s, syntax.Absent)]
        for one, other in pairwise(steps):
            for before in syntax.step_variables(one):
                for after in syntax.step_variables(other):
                    yield f"{quoted(before)}.time < {quoted(after)}.time"

    def _distinct(self) -> Iterator[str]:
        """Different variables are different events (rule Q3), where SEQ does not say so already."""
        streams = {r.variable: set(r.streams) for r in self.query.ranges}
        step_of = {v: n for n, step in enumerate(self.query.seq) for v in syntax.step_variables(step)}
        for one, other in combinations(self.present, 2):
            apart = one in step_of and other in step_of and step_of[one] != step_of[other]
            if streams[one] & streams[other] and not apart:
                a, b = quoted(one), quoted(other)
                same = f"{a}.stream = {b}.stream AND {a}.number <=> {b}.number AND {a}.name <=> {b}.name"
                yield f"NOT ({same})"

    def _joined(self) -> str:
        first, *others = [quoted(variable) for variable in self.present]
        joined = first + "".join(f" CROSS JOIN {other}" for other in others)
        for place, step in enumerate(self.query.seq):
            if isinstance(step, syntax.Absent):
                joined = self._without(joined, place, step.variable)
        return joined

    def _without(self, joined: str, place: int, variable: str) -> str:
        """NOT ?c: an anti-join with what lies strictly between its neighbours (rule S5)."""
        before = next(s for s in reversed(self.query.seq[:place]) if not isinstance(s, syntax.Absent))
        after = next(s for s in self.query.seq[place + 1 :] if not isinstance(s, syntax.Absent))
        name = quoted(variable)
        between = [f"{name}.time > {quoted(v)}.time" for v in syntax.step_variables(before)]
        between += [f"{name}.time < {quoted(v)}.time" for v in syntax.step_variables(after)]
        between += self._conditions([*self.present, variable], variable)
        # Filters on the rest come first, so that the anti-join has little to do.
        return f"{joined}\n  LEFT ANTI JOIN {name} ON " + " AND ".join(between)

    def _outputs(self) -> str:
        columns = []
        for number, variable in enumerate(self.present):
            parts = ("stream", "number", "name", "time")
            columns += [f"{quoted(variable)}.{part} AS e{number}_{part}" for part in parts]
        for number, output in enumerate(self.checked.outputs):
            if output.condition is not None:
                raise NotExact("a comparison with an aggregate")
            found = expression(output.expression, self._column)
            given = found.text if found.type is output.type else f"CAST({found.text} AS {name_of(output.type)})"
            columns.append(f"{given} AS s{number}")
        return ", ".join(columns)


def _printing(checked: Checked, names: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    absent = {s.variable for s in checked.query.seq if isinstance(s, syntax.Absent)}
    variables = [v for v in checked.event_variables if v not in absent]
    outputs = [output.name for output in checked.outputs]
    normal_form = checked.normal_form
    sent = portable(checked)

    def in_executor(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ids, printer = MatchIds(normal_form), MatchPrinter(sent)
        for batch in batches:
            found = (_match(row, variables, names, outputs, ids) for row in batch.to_pylist())
            yield from lines(found, printer)

    return in_executor


def _match(
    row: dict[str, Any], variables: list[str], names: list[str], outputs: list[str], ids: MatchIds
) -> tuple[bytes, Match]:
    events: dict[str, Bound] = {}
    places: list[list[tuple[int, int, int | str]]] = []
    for number, variable in enumerate(variables):
        stream, event_id = row[f"e{number}_stream"], row[f"e{number}_number"]
        event_id = row[f"e{number}_name"] if event_id is None else event_id
        ref: EventRef = (names[stream], event_id)
        events[variable] = ref
        places.append([(row[f"e{number}_time"], stream, event_id)])
    time = max(place[0][0] for place in places)
    select = {name: row[f"s{number}"] for number, name in enumerate(outputs)}
    return order_of(time, places), Match(ids.of_events(events), time, events, select)
