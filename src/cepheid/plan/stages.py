"""Rule: a query is a chain of operators; those that stand together have what they have in common once.

Each variable's events come from a stream through conditions; a pattern or a window binds them; a projection selects.
Queries stand together that run in the service at one level (homes.py) and read the same streams, and so have one
watermark; on Spark each runs by itself. Then a condition on a stream's events is one, whatever the queries call the
variable; so is a pattern, whatever its variables are called and whatever is selected. Patterns that begin alike hold
the matches of their beginning once under MATCH NEXT, and its events once under MATCH ANY.

    hot:  SELECT ?a.id FILTER (?a.x > 5)                 filter s: ?e.x > 5    project id
    rise: SELECT ?b.id FILTER (?b.x > 5) SEQ (?b, ?c)    filter s: ?e.x > 5 (shared)    pattern ...    project id

Which patterns are one, and which begin alike, is asked of the native core, which runs them so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.printer import normal_form, print_expression, print_path, print_query, print_step
from cepheid.language.syntax import Expression, Query, conjuncts
from cepheid.plan.compile import is_looked_up, tables
from cepheid.plan.graph import Graph
from cepheid.plan.implied import implied
from cepheid.plan.matcher import Budget
from cepheid.plan.placement import Placement
from cepheid.plan.standing import Pattern, Standing

#: Queries with the same of this stand together.
Lane: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator of queries that stand together. `inputs` are streams, or the meanings of other stages.

    `rank` is that of the most important query that it serves; `steps` how many of SEQ are done when a pattern matches.
    """

    kind: Literal["filter", "path", "events", "pattern", "window", "project"]
    label: str
    meaning: str
    inputs: tuple[str, ...]
    queries: tuple[str, ...]
    rank: int
    steps: int = 0


def lane(name: str, checked: Checked, homes: Mapping[str, int], placed: Mapping[str, Placement]) -> Lane:
    """With whom a query stands together."""
    if placed[name].engine != "service":
        return ("spark", name)
    return ("service", str(homes[name]), *sorted(checked.streams))


def stages(
    queries: Mapping[str, Checked],
    graph: Graph,
    ranks: Mapping[str, int],
    homes: Mapping[str, int],
    placed: Mapping[str, Placement],
) -> dict[str, Stage]:
    """The operators of all queries by their meaning, each as often as it runs, in the order they are first needed."""
    lanes: dict[Lane, dict[str, Checked]] = {}
    for name, checked in queries.items():
        lanes.setdefault(lane(name, checked, homes, placed), {})[name] = checked
    limits = {name: graph.queries[name].limit for name in queries}
    found: dict[str, Stage] = {}
    for place, together in lanes.items():
        found |= _Lane(" ".join(place), together, limits, ranks).stages()
    order = {name: number for number, name in enumerate(queries)}
    return dict(sorted(found.items(), key=lambda item: order[item[1].queries[0]]))


@dataclass
class _Lane:
    name: str
    queries: Mapping[str, Checked]
    limits: Mapping[str, int | None]
    ranks: Mapping[str, int]
    found: dict[str, Stage] = field(default_factory=dict)

    def stages(self) -> dict[str, Stage]:
        shared = dict(self._patterns())
        for name, checked in self.queries.items():
            self._query(name, checked, shared.get(name, []))
        return self.found

    def _patterns(self) -> Iterator[tuple[str, list[tuple[str, Pattern]]]]:
        """By query the patterns that lead to its matches, the first one last, each with a name."""
        by_limit: dict[int | None, dict[str, Checked]] = {}
        for name, checked in self.queries.items():
            # What is asked for as events come is a query's own.
            if checked.query.path is None and all(table.complete for table in tables(checked)):
                by_limit.setdefault(self.limits[name], {})[name] = checked
        for limit, queries in by_limit.items():
            patterns = Standing(queries, budget=None if limit is None else Budget(limit)).patterns
            for number, pattern in enumerate(patterns):
                chain = [number]
                while (earlier := patterns[chain[-1]].begun_by) is not None:
                    chain.append(earlier)
                named = [(f"{limit} {place}", patterns[place]) for place in chain]
                yield from ((name, named) for name in pattern.queries)

    def _add(self, name: str, kind: str, label: str, meaning: str, inputs: Sequence[str], steps: int = 0) -> str:
        """Adds a stage, or a query to one that is known; returns its meaning."""
        meaning = f"{kind} {meaning} ({self.name})"
        known = self.found.get(meaning)
        if known is None:
            unique = tuple(dict.fromkeys(inputs))
            known = Stage(kind, label, meaning, unique, (), self.ranks[name], steps)  # type: ignore[arg-type]
        if name not in known.queries:
            rank = min(known.rank, self.ranks[name])
            known = replace(known, queries=(*known.queries, name), rank=rank)
        self.found[meaning] = known
        return meaning

    def _query(self, name: str, checked: Checked, patterns: Sequence[tuple[str, Pattern]]) -> None:
        # What a query is called by, and binds, is said with its PATHs; what its filters are, with what became of them.
        query = checked.origin or checked.query
        feeds = {given.variable: self._feeds(name, checked, given) for given in query.ranges}
        inputs = [feed for fed in feeds.values() for feed in fed]
        looked_up = [lookup for lookup in checked.lookups if isinstance(lookup, Lookup)]
        inputs += [self._add(name, "path", one.label, one.meaning, (one.stream,)) for one in looked_up]
        if checked.query.path is not None:
            text = print_path(checked.query.path)
            inputs = [self._add(name, "path", text, f"{text} of {' '.join(inputs)}", inputs)]
        binding = _binding(query)
        if binding is not None:
            done = 0
            begun: list[str] = []
            whose_matches = 0
            for unit, pattern in reversed(patterns or [("path", Pattern((name,), len(query.seq), None))]):
                if pattern.steps < len(query.seq) or begun:
                    taken = [v for step in query.seq[done : pattern.steps] for v in syntax.step_variables(step)]
                    taken += [] if name not in pattern.queries else _outside(query)
                    inputs = [*begun, *(feed for v in taken for feed in feeds[v])]
                done = pattern.steps
                if pattern.holds_events:
                    begun = [self._add(name, "events", print_beginning(query, done), unit, inputs, done)]
                    continue
                label = _label(query, whose_matches, done) if binding == "pattern" else _window_label(query)
                meaning = unit if checked.query.path is None else _without_select(query)
                begun = [self._add(name, binding, label, meaning, inputs, done)]
                whose_matches = done
            inputs = begun
        selected = ", ".join(output.name for output in checked.outputs)
        self._add(name, "project", selected, f"{name} {normal_form(query)}", inputs)

    def _feeds(self, name: str, checked: Checked, given: syntax.Range) -> list[str]:
        """Where a variable's events come from: by stream its conditions, or the stream itself."""
        conditions = list(conditions_of(checked, given.variable))
        feeds: list[str] = []
        for stream in sorted(given.streams):
            for text, types in conditions:
                feeds.append(self._add(name, "filter", f"{stream}: {text}", f"{stream}: {text} {types}", (stream,)))
            # STRICT judges neighbours before it filters (rule S10).
            if not conditions or checked.query.match == "STRICT":
                feeds.append(stream)
        return feeds


def conditions_of(checked: Checked, variable: str) -> Iterator[tuple[str, str]]:
    """What a variable's events must be, said of `?e`: each condition, and the types that it sees."""

    def renamed(attribute: syntax.Attribute) -> syntax.Attribute:
        return replace(attribute, variable="e")

    query = checked.query
    own = [part for f in query.filters if not is_looked_up(f) for part in _parts(f)]
    own += [part for join in query.joins for part in conjuncts(join)]
    own += implied(checked)
    found: dict[tuple[str, str], None] = {}
    for condition in own:
        if syntax.variables(condition) == (variable,):
            text = print_expression(syntax.rebuilt(condition, renamed))
            attributes = [a for a in syntax.walk(condition) if isinstance(a, syntax.Attribute)]
            types = " ".join(checked.attributes[a.variable, a.name].type.value for a in attributes)
            found[text, types] = None
    yield from sorted(found)


def _parts(condition: Expression) -> tuple[Expression, ...]:
    """The parts of an AND, as the native core takes them."""
    if isinstance(condition, syntax.Logical) and condition.word == "AND":
        return condition.operands
    return (condition,)


def _binding(query: Query) -> Literal["pattern", "window"] | None:
    """What puts events together: a pattern, or a moving window with its aggregates."""
    if any(isinstance(w, syntax.EventWindow) for w in query.windows):
        return "window"
    return None if len(query.ranges) < 2 and not query.seq else "pattern"


def _window_label(query: Query) -> str:
    return " ".join(_clauses(query, "WINDOW", "GROUP BY"))


def _label(query: Query, done: int, steps: int) -> str:
    """A pattern's clauses: those that concern its first steps, without what is done elsewhere."""
    label = " ".join(_clauses(beginning(query, steps), "SEQ", "JOIN", "WINDOW", "MATCH", "AFTER"))
    if done == 0:
        return label
    known = set(_clauses(beginning(query, done), "JOIN", "WINDOW", "MATCH"))
    left = [clause for clause in _clauses(beginning(query, steps), "JOIN", "WINDOW") if clause not in known]
    (before,), (seq,) = _clauses(beginning(query, done), "SEQ"), _clauses(beginning(query, steps), "SEQ")
    return " ".join([seq, *left, f"from each {before}"])


def beginning(query: Query, steps: int) -> Query:
    """The query's first steps, with the conditions that name no others."""
    if steps >= len(query.seq):
        return query
    inside = {v for step in query.seq[:steps] for v in syntax.step_variables(step)}
    windows = []
    for window in query.windows:
        listed = tuple(v for v in window.variables if v in inside) if isinstance(window, syntax.SpanWindow) else ()
        if isinstance(window, syntax.SpanWindow) and len(listed) > 1:
            windows.append(replace(window, variables=listed))
    return replace(
        query,
        seq=query.seq[:steps],
        ranges=tuple(r for r in query.ranges if r.variable in inside),
        filters=tuple(f for f in query.filters if inside.issuperset(syntax.variables(f))),
        joins=tuple(
            part for join in query.joins for part in conjuncts(join) if inside.issuperset(syntax.variables(part))
        ),
        windows=tuple(windows),
    )


def print_beginning(query: Query, steps: int) -> str:
    """SEQ, up to a step."""
    return f"SEQ ({', '.join(map(print_step, query.seq[:steps]))})"


def _outside(query: Query) -> list[str]:
    """The variables that SEQ does not name."""
    inside = {v for step in query.seq for v in syntax.step_variables(step)}
    return [given.variable for given in query.ranges if given.variable not in inside]


def _clauses(query: Query, *words: str) -> list[str]:
    lines = print_query(query).splitlines()
    return [line for word in words for line in lines if line.startswith(word)]


def _without_select(query: Query) -> str:
    """The query but for what it reports of its matches."""
    return normal_form(replace(query, prefixes=())).partition("\n")[2]
