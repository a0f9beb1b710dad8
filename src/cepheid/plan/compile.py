"""From a checked query to the plan that the native matcher reads: names become places, and `now` a time.

The plan is JSON, because it is small, read once a query, and can be looked at. Its reader is native/src/plan.rs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Final, TypeAlias

from cepheid.knowledge.tables import FLAG, TERM, VALUE, Key, Lookup, Row, Table
from cepheid.language import syntax
from cepheid.language.checker import Checked, Output
from cepheid.language.functions import FUNCTIONS, ValueType
from cepheid.language.parts import Related
from cepheid.language.syntax import Expression, Kind, Query, conjuncts, step_variables
from cepheid.model.types import INT64_MAX, INT64_MIN, Value
from cepheid.plan.implied import implied

#: What JSON can hold.
_Json: TypeAlias = "bool | int | float | str | list[_Json] | dict[str, _Json] | None"

#: The slots of what every event has.
_ID: Final = -1
_TIME: Final = -2


def compile_query(checked: Checked, now: int, *, live: bool = False) -> str:
    """The plan of a query that is registered at `now` (microseconds).

    A `live` query without WITHIN sees what comes from now on (rule Q5).
    """
    if checked.query.path is not None:
        raise ValueError("PATH is for the knowledge base: lower the query first (plan/semantic.py)")
    plan = _Compiler(checked, now).plan()
    if live and checked.query.within is None:
        plan["within"] = [now, INT64_MAX]
    return json.dumps(plan, ensure_ascii=False, separators=(",", ":"))


def within(query: Query, now: int) -> tuple[int, int]:
    """The times of WITHIN, both included; without it, or where an end is open, as far as integers go (rule Q5)."""
    low, high = INT64_MIN, INT64_MAX
    if query.within is not None:
        bounds = query.within
        if bounds.low is not None:
            low = bounds.low.microseconds + (now if bounds.low.now else 0) + (not bounds.low_included)
        if bounds.high is not None:
            high = bounds.high.microseconds + (now if bounds.high.now else 0) - (not bounds.high_included)
    return max(low, INT64_MIN), min(high, INT64_MAX)


@dataclass
class _Compiler:
    checked: Checked
    now: int
    streams: list[str] = field(init=False)
    #: The attributes that are read of each stream, by slot.
    slots: dict[str, dict[str, int]] = field(init=False)
    aggregates: list[_Json] = field(default_factory=list)
    #: By whose clocks something is asked, in the order of mention.
    zones: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # In the order of their names, so that places compare as names do (rule E2).
        self.streams = sorted(self.checked.streams)
        self.slots = {stream: {} for stream in self.streams}

    def plan(self) -> dict[str, _Json]:
        query = self.checked.query
        plan: dict[str, _Json] = {
            "normal_form": self.checked.normal_form,
            "within": list(within(query, self.now)),
            "steps": [self._step(step) for step in query.seq],
            "windows": [
                {"variables": self._numbers(w.variables), "width": w.width}
                for w in query.windows
                if isinstance(w, syntax.SpanWindow)
            ],
            "moving": self._moving(),
            "group_by": [self._expression(attribute) for attribute in query.group_by],
            "group_types": [self.checked.attributes[a.variable, a.name].type.value for a in query.group_by],
            "joins": [self._expression(part) for part in self._conditions if len(syntax.variables(part)) > 1],
            "match": query.match,
            "after": query.after,
            "keys": [self._key_part(members) for members in self.checked.partition.classes],
            "outputs": [self._output(output) for output in self.checked.outputs],
            "having": None if query.having is None else self._expression(query.having),
        }
        # Last, for everything above finds slots and aggregates; the FILTERs after all that is read later than they are,
        # so that what is kept comes first.
        plan["relations"] = [self._relation(related) for related in self.checked.related]
        plan["used"] = [[name, self._expression(value)] for name, value in self.checked.used.items()]
        plan["aggregates"] = self.aggregates
        keys = {stream: self._stream_key(stream) for stream in self.streams}
        names = {name: self._key(name) for name in self.checked.event_variables}
        plan["variables"] = [{**self._variable(name), "key": key} for name, key in names.items()]
        plan["follows"] = self.checked.origin is not None
        plan["kept"] = [[s, self.checked.id_kinds[s], list(self.slots[s]), keys[s]] for s in self.streams]
        filters: list[_Json] = [self._filters(name) for name in self.checked.event_variables]
        lookups: list[_Json] = [self._lookup(lookup) for lookup in self._lookups]
        # The last of all: what is known changes, and what is read to judge by it, and the tz database; the rest says
        # which query it is (native/src/plan.rs).
        plan["tables"] = [_table(table) for table in self._tables]
        plan["lookups"] = lookups
        plan["streams"] = [
            {
                "name": stream,
                "id": self.checked.id_kinds[stream],
                "attributes": list(self.slots[stream]),
                "key": keys[stream],
            }
            for stream in self.streams
        ]
        plan["filters"] = filters
        if self.zones:
            plan["zones"] = {name: _clocks(name) for name in self.zones}
        return plan

    def _relation(self, related: Related) -> dict[str, _Json]:
        shared = sorted({name for _, names in related.members for name in names})
        members: list[_Json] = [
            [self._expression(attribute), [shared.index(name) for name in names]]
            for attribute, names in related.members
        ]

        def side(e: str | syntax.Attribute) -> _Json:
            return ["place", shared.index(e)] if isinstance(e, str) else self._expression(e)

        compared: list[_Json] = [[sign, side(left), side(right)] for sign, left, right in related.compared]
        return {"when": related.when, "members": members, "compared": compared}

    # what is known of events

    @cached_property
    def _lookups(self) -> list[Lookup]:
        return [lookup for lookup in self.checked.lookups if isinstance(lookup, Lookup)]

    @cached_property
    def _tables(self) -> list[Table]:
        return tables(self.checked)

    def _lookup(self, lookup: Lookup) -> dict[str, _Json]:
        columns: list[_Json] = [self._slot(lookup.stream, f"?{lookup.variable}{name}") for name in lookup.columns]
        return {
            "variable": self.checked.event_variables.index(lookup.variable),
            "stream": self.streams.index(lookup.stream),
            "key": [self._slot(lookup.stream, name) for name in lookup.key],
            "columns": columns,
            "table": next(i for i, table in enumerate(self._tables) if table is lookup.table),
        }

    @cached_property
    def _conditions(self) -> list[Expression]:
        """The conjuncts of the JOINs; those over one variable judge its events, as FILTERs do."""
        return [part for join in self.checked.query.joins for part in conjuncts(join)]

    @cached_property
    def _implied(self) -> tuple[Expression, ...]:
        return implied(self.checked)

    def _numbers(self, names: tuple[str, ...]) -> list[_Json]:
        return [self.checked.event_variables.index(name) for name in names]

    def _variable(self, name: str) -> dict[str, _Json]:
        streams = next(r.streams for r in self.checked.query.ranges if r.variable == name)
        return {
            "name": name,
            "streams": [self.streams.index(stream) for stream in streams],
        }

    def _filters(self, name: str) -> list[_Json]:
        """What judges a variable's events by themselves, and what after the lookups; what names none judges all."""
        query = self.checked.query
        own = [f for f in (*query.filters, *self._conditions, *self._implied) if syntax.variables(f) in ((name,), ())]
        plain: list[_Json] = [self._expression(f) for f in own if not is_looked_up(f)]
        late: list[_Json] = [self._expression(f) for f in own if is_looked_up(f)]
        return [plain, late]

    def _key(self, variable: str) -> list[_Json] | None:
        """The attributes by whose values a variable's events are divided; None for a NOT variable without them."""
        if not self._divides:
            return []
        classes = self.checked.partition.classes
        if not all(variable in members for members in classes):
            return None
        return [self._expression(syntax.Attribute(variable, members[variable][0])) for members in classes]

    def _stream_key(self, stream: str) -> list[_Json] | None:
        """The attributes that say which partition a stream's event is in (rule S7); None if they don't reach it."""
        ranges = self.checked.query.ranges
        key: list[_Json] = []
        for members in self.checked.partition.classes:
            variable = next((r.variable for r in ranges if r.variable in members and stream in r.streams), None)
            if variable is None:
                return None
            key.append(self._expression(syntax.Attribute(variable, members[variable][0])))
        return key

    def _key_part(self, members: Mapping[str, tuple[str, ...]]) -> dict[str, _Json]:
        places = [(variable, name) for variable, names in members.items() for name in names]
        return {
            # With floats the class's integers are compared as floats.
            "float": any(self.checked.attributes[place].type is ValueType.FLOAT for place in places),
            # A variable that only NOT or what may be unbound is linked to can match without a value.
            "nulls": sum(variable in self._sure for variable in members) < 2,
        }

    @cached_property
    def _sure(self) -> frozenset[str]:
        """The variables that are bound in every match."""
        unsure: set[str] = set()
        for step in self.checked.query.seq:
            if isinstance(step, syntax.Absent | syntax.Maybe | syntax.AnyOf) or (
                isinstance(step, syntax.Many) and step.least == 0
            ):
                unsure |= set(step_variables(step))
        return frozenset(set(self.checked.event_variables) - unsure)

    @cached_property
    def _divides(self) -> bool:
        """Whether events can be divided by key without changing what matches.

        MATCH ANY judges a match as a whole. MATCH NEXT takes the first event that qualifies with what is bound so far,
        so there a key must be demanded by a JOIN with something that is bound by then.
        """
        if self.checked.query.match != "NEXT":
            return True
        return all(self._demanded(members) for members in self.checked.partition.classes)

    def _demanded(self, members: Mapping[str, tuple[str, ...]]) -> bool:
        seq = self.checked.query.seq
        links = {frozenset(link) for link in self._links(members)}

        def linked(variable: str, others: Iterable[str]) -> Iterator[bool]:
            return (frozenset((variable, other)) in links for other in others)

        single = [v for step in seq if isinstance(step, syntax.One | syntax.AllOf) for v in step_variables(step)]
        bound: list[str] = []
        alternatives: tuple[str, ...] = ()
        for place, step in enumerate(seq):
            variables = step_variables(step)
            if isinstance(step, syntax.Absent):
                continue  # judged last, with everything
            if place == 0 and isinstance(step, syntax.Many) and step.least > 0:
                demanded = False  # its events begin runs, whose next step is free to take any key
            elif place == 0 and isinstance(step, syntax.Many | syntax.Maybe):
                demanded = any(linked(step.variable, single))  # likewise
            elif bound:
                demanded = all(any(linked(v, bound)) for v in variables)
            elif alternatives:
                demanded = all(all(linked(v, alternatives)) for v in variables)
            else:
                # The members of ALL come in any order.
                demanded = isinstance(step, syntax.AnyOf) or all(all(linked(*pair)) for pair in _pairs(variables))
            if not demanded:
                return False
            if isinstance(step, syntax.One | syntax.AllOf):
                bound += variables
            elif isinstance(step, syntax.AnyOf):
                alternatives = alternatives or variables
        return True

    def _links(self, members: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
        """The pairs of variables whose first attribute in a class is made equal by a JOIN."""
        for join in self.checked.query.joins:
            for part in conjuncts(join):
                match part:
                    case syntax.Compare("=", syntax.Attribute() as one, syntax.Attribute() as other):
                        if all(members.get(a.variable, ("",))[0] == a.name for a in (one, other)):
                            yield one.variable, other.variable

    def _moving(self) -> dict[str, _Json] | None:
        for window in self.checked.query.windows:
            if isinstance(window, syntax.EventWindow):
                return {"kind": window.kind, "size": window.size}
        return None

    def _step(self, step: syntax.Step) -> dict[str, _Json]:
        least, most = (step.least, step.most) if isinstance(step, syntax.Many) else (1, None)
        numbers = self._numbers(step_variables(step))
        return {"kind": syntax.STEP_NAMES[type(step)], "variables": numbers, "least": least, "most": most}

    def _output(self, output: Output) -> dict[str, _Json]:
        return {
            "expression": self._expression(output.expression),
            "condition": None if output.condition is None else self._expression(output.condition),
            "float": output.type is ValueType.FLOAT,
            "type": output.type.value,
        }

    def _slot(self, stream: str, name: str) -> int:
        if name == "id":
            return _ID
        if name == "time":
            return _TIME
        known = self.slots[stream]
        return known.setdefault(name, len(known))

    def _attribute(self, attribute: syntax.Attribute) -> list[_Json]:
        resolved = self.checked.attributes[attribute.variable, attribute.name]
        variable = self.checked.event_variables.index(attribute.variable)
        places: list[_Json] = [
            [self.streams.index(stream), self._slot(stream, name)] for stream, name in resolved.names.items()
        ]
        return ["attribute", variable, places, resolved.type is ValueType.FLOAT]

    def _aggregate(self, e: syntax.Aggregate) -> list[_Json]:
        (variable,) = syntax.variables(e.argument)
        argument = None if isinstance(e.argument, syntax.Variable) else self._expression(e.argument)
        aggregate: _Json = {
            "function": e.function,
            "variable": self.checked.event_variables.index(variable),
            "argument": argument,
        }
        if aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
        return ["aggregate", self.aggregates.index(aggregate)]

    def _local(self, time: Expression, zone: Expression) -> list[_Json]:
        """A time as the clocks of a zone show it."""
        assert isinstance(zone, syntax.Constant)
        self.zones[str(zone.value)] = None
        return ["local", zone.value, self._expression(time)]

    def _expression(self, e: Expression) -> list[_Json]:
        of = self._expression
        match e:
            case syntax.Constant():
                return _constant(e)
            case syntax.Attribute():
                return self._attribute(e)
            case syntax.Variable(name):
                raise ValueError(f"?{name} is bound by a PATH, which the matcher does not know")
            case syntax.Compare(sign, left, right):
                return ["compare", sign, of(left), of(right)]
            case syntax.Arithmetic(sign, left, right):
                return ["arithmetic", sign, of(left), of(right)]
            case syntax.Negative(operand):
                return ["negative", of(operand)]
            case syntax.Not(operand):
                return ["not", of(operand)]
            case syntax.Logical(word, operands):
                return [word.lower(), [of(operand) for operand in operands]]
            case syntax.In(operand, items, negated):
                return ["in", of(operand), [of(item) for item in items], negated]
            case syntax.Between(operand, low, high, negated):
                return ["between", of(operand), of(low), of(high), negated]
            case syntax.IsNull(operand, negated):
                return ["is null", of(operand), negated]
            case syntax.Case(branches, otherwise):
                listed: list[_Json] = [[of(when), of(then)] for when, then in branches]
                return ["case", listed, None if otherwise is None else of(otherwise)]
            case syntax.Call(function, arguments):
                if FUNCTIONS[function].zoned and len(arguments) == 2:
                    return ["call", function, [self._local(*arguments)]]
                return ["call", function, [of(argument) for argument in arguments]]
            case syntax.Aggregate():
                return self._aggregate(e)


def _clocks(zone: str) -> dict[str, _Json]:
    from cepheid.model.zones import clocks_of  # few ask for it

    clocks = clocks_of(zone)
    years: list[_Json] = [[list(change) for change in changes] for changes in clocks.years]
    return {"times": list(clocks.times), "offsets": list(clocks.offsets), "years": years}


def is_looked_up(condition: Expression) -> bool:
    """Whether a condition reads what a lookup finds, so that it is judged after it."""
    return any(isinstance(e, syntax.Attribute) and e.name[0] in (VALUE, TERM, FLAG) for e in syntax.walk(condition))


def _table(table: Table) -> dict[str, _Json]:
    """A table as the core reads it: many keys have the same rows, which are written once."""
    places: dict[tuple[Row, ...], int] = {}
    entries: list[_Json] = [[_cells(key), places.setdefault(rows, len(places))] for key, rows in table.rows.items()]
    return {"entries": entries, "rows": [_rows(rows) for rows in places], "otherwise": _rows(table.otherwise)}


def _rows(rows: Iterable[Row]) -> list[_Json]:
    return [_cells(row) for row in rows]


def _cells(values: Iterable[Value]) -> list[_Json]:
    cells: list[_Json] = []
    for value in values:
        if isinstance(value, bytes | tuple):
            raise ValueError("what is known of an event can't be keyed on bytes or arrays")
        cells.append(value)
    return cells


def tables(checked: Checked) -> list[Table]:
    """The tables of a query's lookups, each once, in the order of the plan."""
    found: list[Table] = []
    for lookup in checked.lookups:
        if isinstance(lookup, Lookup) and not any(lookup.table is table for table in found):
            found.append(lookup.table)
    return found


def learned(rows_by_key: Mapping[Key, tuple[Row, ...] | None]) -> str:
    """Rows of a table that became known, as the core reads them; None: no longer known."""
    entries = [[_cells(key), None if rows is None else _rows(rows)] for key, rows in rows_by_key.items()]
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"))


def _pairs(variables: tuple[str, ...]) -> Iterator[tuple[str, tuple[str]]]:
    return ((one, (other,)) for one, other in combinations(variables, 2))


def _constant(constant: syntax.Constant) -> list[_Json]:
    match constant.kind:
        case Kind.NULL:
            return ["null"]
        case Kind.BOOL:
            return ["bool", constant.value]
        case Kind.FLOAT:
            return ["float", constant.value]
        case Kind.STRING:
            return ["text", constant.value]
        case Kind.NAME:
            raise ValueError(f"{constant.value} is for the knowledge base, which the matcher does not know")
        case Kind.INT | Kind.DURATION | Kind.TIMESTAMP:
            return ["int", constant.value]
