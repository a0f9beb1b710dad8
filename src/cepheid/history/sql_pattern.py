"""SEQ, JOIN and WINDOW as SQL (rules 2 to 4 of the paper), with all steps that MATCH ANY has (rules S1 to S6).

A step that may be unbound, `?e?` or one of ANY, makes a query for each way it can be, which are put together by UNION
ALL: in each it is known which variables are bound. In a way

    ?e, ALL, ANY, ?e? where it is bound      tables that are joined
    ?e+, ?e{n,m}                             a join with all that qualify, grouped by what they were joined with
    NOT ?e, ?e? where it is unbound          an anti-join
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from cepheid.history.sql import NotExact, Word, expression, extreme, name_of, quoted, variable_name
from cepheid.history.sql_events import PLACE, PLACE_TYPE, Tables, outputs_of
from cepheid.history.sql_totals import Totals
from cepheid.language import syntax
from cepheid.language.functions import ValueType
from cepheid.language.syntax import Step, step_variables
from cepheid.plan.compile import is_looked_up

#: More ways than this are more joins than a plan should have.
_MOST_WAYS: Final = 16


def pattern_text(tables: Tables) -> str:
    """A query without a moving window, whose rows `rewrite.printing` reads. Raises NotExact."""
    if any(is_looked_up(join) for join in tables.joins):
        raise NotExact("a JOIN on what a PATH finds")
    ways = list(_ways(tables.query))
    if len(ways) > _MOST_WAYS:
        raise NotExact(f"steps that may be unbound in {len(ways)} ways")
    stages, selects = [tables.text()], []
    for number, unbound in enumerate(ways):
        way = _Way(tables, unbound, f"way {number}" if len(ways) > 1 else "way")
        stages += way.stages()
        selects.append(way.select())
    return "WITH " + ",\n".join(stages) + "\n" + "\nUNION ALL\n".join(selects)


def _ways(query: syntax.Query) -> Iterator[frozenset[str]]:
    """For each way that steps can be bound, the variables that are not."""
    choices: list[list[frozenset[str]]] = []
    for step in query.seq:
        if isinstance(step, syntax.Maybe):
            choices.append([frozenset(), frozenset({step.variable})])
        elif isinstance(step, syntax.AnyOf):
            choices.append([frozenset(step.variables) - {one} for one in step.variables])
    return (frozenset().union(*chosen) for chosen in product(*choices))


@dataclass(frozen=True)
class _Moment:
    """A time in SQL; `may_miss`: null where nothing is bound that would give it."""

    text: str
    may_miss: bool = False


class _Way:
    """One way that steps can be bound. Stages are tables with a column for each variable: its table's columns for one
    event; `events`, `first` and `last` for a list."""

    def __init__(self, tables: Tables, unbound: frozenset[str], name: str) -> None:
        self.tables, self.unbound, self.name = tables, unbound, name
        self.query, self.checked = tables.query, tables.checked
        self.steps = self.query.seq
        self.lists = [step for step in self.steps if isinstance(step, syntax.Many)]
        listed = {step.variable for step in self.lists}
        absent = {step.variable for step in self.steps if isinstance(step, syntax.Absent)}
        variables = self.checked.event_variables
        self.named = [v for v in variables if v not in absent]
        self.singles = [v for v in self.named if v not in listed and v not in unbound]
        if not self.singles:
            raise NotExact("a match without a single event")
        self.spans = [w for w in self.query.windows if isinstance(w, syntax.SpanWindow)]
        self.totals = {step.variable: Totals(step.variable, tables.column) for step in self.lists}
        #: The lists that are there already.
        self.taken: list[syntax.Many] = []
        self._stages: list[str] = []
        self._outputs = outputs_of(self.checked, self._column, self._total)
        conditions = [o.condition for o in self.checked.outputs if o.condition is not None]
        conditions += [] if self.query.having is None else [self.query.having]
        self._having = [expression(c, self._column, self._total).text for c in conditions]

    def stages(self) -> list[str]:
        """The tables that the matches are selected from, if the variables' own are not enough."""
        if self.lists:
            columns = ", ".join(f"struct({variable_name(v)}.*) AS {variable_name(v)}" for v in self.singles)
            self._stage(f"SELECT {columns}\n  FROM {self._crossed()}{_where(self._of_singles(), '  ')}")
            for step in self._in_turn():
                self._take(step)
        return self._stages

    def select(self) -> str:
        """The matches, once the stages are there."""
        source = quoted(self._last) if self.lists else self._crossed()
        for place, step in enumerate(self.steps):
            if isinstance(step, syntax.Absent) or (isinstance(step, syntax.Maybe) and step.variable in self.unbound):
                own = variable_name(step.variable)
                source += f"\n  LEFT ANTI JOIN {own} ON " + (" AND ".join(self._fits(place, step)) or "true")
        where = [] if self.lists else list(self._of_singles())
        where += [*self._of_lists(), *self._of_ends(), *self._having]
        columns = ", ".join([f"{self._when()} AS time", *self._events(), *self._outputs])
        return f"SELECT {columns}\nFROM {source}{_where(where)}"

    # columns

    def _column(self, attribute: syntax.Attribute) -> tuple[str, ValueType]:
        text, kind = self.tables.column(attribute)
        return (f"CAST(NULL AS {name_of(kind)})", kind) if attribute.variable in self.unbound else (text, kind)

    def _total(self, e: syntax.Aggregate) -> tuple[str, ValueType]:
        inside = e.argument
        names = (inside.name,) if isinstance(inside, syntax.Variable) else syntax.variables(inside)
        owner = next((self.totals[name] for name in names if name in self.totals), None)
        if owner is None or len(names) > 1:
            raise NotExact(f"{e.function} of what is no list")
        return owner.column(e)

    def _events(self) -> Iterator[str]:
        for number, variable in enumerate(self.named):
            own = variable_name(variable)
            if variable in self.unbound:
                yield f"CAST(NULL AS {PLACE_TYPE}) AS e{number}"
            elif variable in self.singles:
                yield f"struct({', '.join(f'{own}.{part}' for part in PLACE)}) AS e{number}"
            else:
                yield f"{own}.events AS e{number}"

    # single events

    def _crossed(self) -> str:
        return " CROSS JOIN ".join(map(variable_name, self.singles))

    def _of_singles(self) -> Iterator[str]:
        """What is demanded of the variables with one event."""
        for join in self.tables.joins:
            if set(syntax.variables(join)) <= set(self.singles):
                yield expression(join, self._column).text
        for window in self.spans:
            times = [_time(v) for v in window.variables if v in self.singles]
            if len(times) > 1:
                yield f"{extreme('greatest', times)} - {extreme('least', times)} <= {window.width}L"
        before: Sequence[str] = ()
        for step in self.steps:
            own = [v for v in step_variables(step) if v in self.singles]
            yield from (f"{_time(one)} < {_time(other)}" for one in before for other in own)
            before = own or before
        for one, other in combinations(self.singles, 2):
            if not (self._is_in_sequence(one) and self._is_in_sequence(other) and not self._share_step(one, other)):
                yield from self._distinct(one, other)

    def _is_in_sequence(self, variable: str) -> bool:
        return any(variable in step_variables(step) for step in self.steps)

    def _share_step(self, one: str, other: str) -> bool:
        return any({one, other} <= set(step_variables(step)) for step in self.steps)

    def _distinct(self, one: str, other: str) -> Iterator[str]:
        """Different variables are different events (rule Q3), where SEQ does not say so already."""
        if set(self.tables.streams(one)) & set(self.tables.streams(other)):
            a, b = variable_name(one), variable_name(other)
            yield f"NOT ({a}.stream = {b}.stream AND {a}.number <=> {b}.number AND {a}.name <=> {b}.name)"

    # lists

    def _in_turn(self) -> list[syntax.Many]:
        """Those inside first: how far the ends reach depends on all that is bound (rule S4)."""
        return sorted(self.lists, key=lambda step: 2 if step is self.steps[-1] else 1 if step is self.steps[0] else 0)

    def _take(self, step: syntax.Many) -> None:
        """The stage with the list of a step: all that qualify, each judged by itself (rule S3)."""
        own, variable = variable_name(step.variable), step.variable
        is_needed = step.least > 0
        only = "" if is_needed else f" FILTER (WHERE {own}.time IS NOT NULL)"
        fits = list(self._fits(self.steps.index(step), step))
        events = f"array_sort(collect_list(struct({', '.join(f'{own}.{part}' for part in PLACE)})){only})"
        listed = f"struct({events} AS events, min({own}.time) AS first, max({own}.time) AS last) AS {own}"
        others = [variable_name(v) for v in (*self.singles, *(done.variable for done in self.taken))]
        others += [name for done in self.taken for name in self.totals[done.variable].names()]
        kept = [f"any_value({other}) AS {other}" for other in others]
        keys = [f"{variable_name(v)}.{part}" for v in self.singles for part in PLACE[1:]]
        join = "JOIN" if is_needed else "LEFT JOIN"
        self._stage(
            f"SELECT {', '.join([*kept, listed, *self.totals[variable].columns(only)])}\n"
            f"  FROM {quoted(self._last)} {join} {own} ON {' AND '.join(fits) or 'true'}\n"
            f"  GROUP BY {', '.join(keys)}"
        )
        self.taken.append(step)

    def _of_lists(self) -> Iterator[str]:
        """Lists have as many events as asked for; a WINDOW that lists no single event bounds their span (rule S3)."""
        for step in self.lists:
            size = f"size({variable_name(step.variable)}.events)"
            if step.least > 1:
                yield f"{size} >= {step.least}"
            if step.most is not None:
                yield f"{size} <= {step.most}"
        for window in self.spans:
            owners = [variable_name(step.variable) for step in self.lists if step.variable in window.variables]
            if owners and not set(window.variables) & set(self.singles):
                last = extreme("greatest", [f"{own}.last" for own in owners])
                first = extreme("least", [f"{own}.first" for own in owners])
                yield f"coalesce({last} - {first}, 0L) <= {window.width}L"

    def _stage(self, text: str) -> None:
        self._stages.append(f"{quoted(f'{self.name}.{len(self._stages)}')} AS (\n  {text}\n)")

    @property
    def _last(self) -> str:
        return f"{self.name}.{len(self._stages) - 1}"

    # events that stand in a place: those of a list, of a NOT, and those that a missing `?e?` has not

    def _fits(self, place: int, step: syntax.Many | syntax.Maybe | syntax.Absent) -> Iterator[str]:
        """When an event qualifies for the one variable of a step, with all else that is bound."""
        variable = step.variable
        bound = {*self.singles, variable}
        for join in self.tables.joins:
            if variable in syntax.variables(join) and set(syntax.variables(join)) <= bound:
                yield expression(join, self.tables.column).text
        yield from self._in_place(place, _time(variable))
        is_absent = isinstance(step, syntax.Absent)
        for window in (w for w in self.spans if variable in w.variables):
            others = [v for v in window.variables if v in self.singles]
            # NOT is judged with all that is bound, the others with single events only.
            lists = [variable_name(s.variable) for s in self.taken if is_absent and s.variable in window.variables]
            if others or lists:
                times = [_time(variable), *map(_time, others)]
                last = extreme("greatest", [*times, *(f"{own}.last" for own in lists)])
                first = extreme("least", [*times, *(f"{own}.first" for own in lists)])
                yield f"{last} - {first} <= {window.width}L"
        if not is_absent:
            for other in self.singles:
                if not self._is_in_sequence(other):
                    yield from self._distinct(variable, other)

    def _in_place(self, place: int, time: str) -> Iterator[str]:
        """Strictly between the nearest bound steps, at an end within reach."""
        before = self._nearest(self.steps[:place][::-1], "greatest")
        after = self._nearest(self.steps[place + 1 :], "least")
        yield from _compared(time, ">", before)
        yield from _compared(time, "<", after)
        yield from self._within_reach(place, time)

    def _within_reach(self, place: int, time: str) -> Iterator[str]:
        if place == 0:
            yield from _compared(time, ">=", self._start)
        if place == len(self.steps) - 1:
            yield from _compared(time, "<=", self._deadline)

    def _nearest(self, steps: Sequence[Step], word: Word) -> _Moment | None:
        """The time of the first of these steps that binds anything: of those before the last, of those after the first.

        Steps with lists that are not there yet have one between them and the step in question that is always bound.
        """
        found: list[str] = []
        for step in steps:
            if isinstance(step, syntax.Many):
                found += [_end(step, word)] if step in self.taken else []
                if step in self.taken and step.least > 0:
                    return _Moment(_first_of(found))
                continue
            times = [_time(v) for v in step_variables(step) if v in self.singles]
            if times:
                return _Moment(_first_of([*found, extreme(word, times)]))
        return _Moment(_first_of(found), True) if found else None

    @property
    def _start(self) -> _Moment | None:
        """How far a first step reaches back: l - w, of several the latest (rule S4)."""
        return self._reach(self._ending(self.steps[0]), step_variables(self.steps[0]), "greatest")

    @property
    def _deadline(self) -> _Moment | None:
        """How far a last step reaches: f + w, of several the earliest (rule S4)."""
        first, last = step_variables(self.steps[0]), self.steps[-1]
        windows = self._ending(last) or [w for w in self.spans if set(w.variables) & set(first)]
        return self._reach(windows, step_variables(last), "least")

    def _ending(self, step: Step) -> list[syntax.SpanWindow]:
        (variable,) = step_variables(step)
        return [w for w in self.spans if variable in w.variables and len(w.variables) > 1]

    def _reach(self, windows: Sequence[syntax.SpanWindow], own: Sequence[str], word: Word) -> _Moment | None:
        """The end of what these WINDOWs allow, by the other events that they list."""
        ends, always = [], False
        sign = "-" if word == "greatest" else "+"
        for window in windows:
            singles = [v for v in window.variables if v in self.singles and v not in own]
            lists = [step for step in self.taken if step.variable in window.variables and step.variable not in own]
            times = [*map(_time, singles), *(_end(step, word) for step in lists)]
            if times:
                ends.append(f"{extreme(word, times)} {sign} {window.width}L")
                always = always or bool(singles) or any(step.least > 0 for step in lists)
        return _Moment(extreme(word, ends), not always) if ends else None

    # the match

    def _of_ends(self) -> Iterator[str]:
        """A first or last `?e?` that is bound lies within reach; a time that is waited for comes."""
        for place, step in enumerate(self.steps):
            if isinstance(step, syntax.Maybe) and step.variable in self.singles:
                yield from self._within_reach(place, _time(step.variable))
        if self._waits:
            deadline = self._deadline
            if deadline is None:
                yield "false"
            elif deadline.may_miss:
                yield f"{deadline.text} IS NOT NULL"

    @property
    def _waits(self) -> bool:
        last = self.steps[-1] if self.steps else None
        is_open = isinstance(last, syntax.Many | syntax.Absent)
        return is_open or (isinstance(last, syntax.Maybe) and last.variable in self.unbound)

    def _when(self) -> str:
        """The time of a match: its last event's, or the deadline if that is later (rules Q6 and S4)."""
        times = [*map(_time, self.singles), *(_end(step, "greatest") for step in self.lists)]
        deadline = self._deadline if self._waits else None
        return extreme("greatest", times if deadline is None else [deadline.text, *times])


def _time(variable: str) -> str:
    return f"{variable_name(variable)}.time"


def _end(step: syntax.Many, word: Word) -> str:
    """The last time of a list, or the first."""
    return f"{variable_name(step.variable)}.{'last' if word == 'greatest' else 'first'}"


def _compared(time: str, sign: str, moment: _Moment | None) -> Iterator[str]:
    if moment is not None:
        condition = f"{time} {sign} {moment.text}"
        yield f"coalesce({condition}, true)" if moment.may_miss else condition


def _first_of(found: Sequence[str]) -> str:
    """The first that is not null."""
    return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"


def _where(conditions: Sequence[str] | Iterator[str], indent: str = "") -> str:
    found = list(conditions)
    return f"\n{indent}WHERE " + f"\n{indent}  AND ".join(found) if found else ""
