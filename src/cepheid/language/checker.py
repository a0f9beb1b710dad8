"""What a query must be, beyond its syntax, to mean something: known names, fitting types, patterns that can be run.

Everything found is reported at once. Each fault names the rule of docs/semantics.md that it breaks, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, Protocol

from cepheid.language import bounds, parts, path, syntax
from cepheid.language.errors import Diagnostic, Severity, Span
from cepheid.language.functions import ValueType
from cepheid.language.never import report_never
from cepheid.language.partition import Partition, partition
from cepheid.language.printer import normal_form, print_step
from cepheid.language.scope import Catalogue, MixedAttribute, Resolved, expand, resolve_attribute
from cepheid.language.syntax import Expression, Query, step_variables, walk
from cepheid.language.typing import Typer
from cepheid.model.names import suggestion


@dataclass(frozen=True, slots=True)
class Output:
    """A value of SELECT. With `condition`, only where that holds (rule W5)."""

    name: str
    expression: Expression
    type: ValueType
    condition: Expression | None = None


class Lookup(Protocol):
    """What is known of the events of a variable in one stream: rows by the values of some attributes.

    See knowledge/index.py; here only what the checker's reader has to know of it.
    """

    @property
    def variable(self) -> str: ...
    @property
    def stream(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Checked:
    """A query that was found right, with what its names mean.

    In `query` every variable has a range, every selected value a name, and attributes have the names that their streams
    declare, unless these differ. `attributes` has, for each variable, those that the query reads, by the name in it.
    `event_variables` are in the order of FROM, else of first mention, which is that of the output. `id_kinds` are those
    of its streams.
    """

    query: Query
    event_variables: tuple[str, ...]
    attributes: Mapping[tuple[str, str], Resolved]
    outputs: tuple[Output, ...]
    partition: Partition
    id_kinds: Mapping[str, Literal["int", "string"]]
    #: What the groups are called: as the query writes them, without a prefix (rule O3).
    groups: tuple[str, ...] = ()
    #: What the PATHs ask of which event; and the prefixes that they may use.
    paths: parts.Divided = field(default_factory=parts.Divided)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    #: Set where PATHs have become conditions on what is known of an event (plan/semantic.py): the query as it was.
    origin: Query | None = None
    lookups: tuple[Lookup, ...] = ()
    #: By name what stands for the PATH variables that are used outside: their values make a match too (rule P3).
    used: Mapping[str, Expression] = field(default_factory=dict)
    #: What PATHs say of several events together, where no JOIN says it.
    related: tuple[parts.Related, ...] = ()

    @property
    def normal_form(self) -> str:
        """The text that stands for what the query finds, and that match ids are made of (rule Q6)."""
        return normal_form(self.origin or self.query)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that the query reads, each once."""
        return tuple(dict.fromkeys(s for r in self.query.ranges for s in r.streams))


_ABSENT: Final = "what did not happen has no attributes: name those of an event that did"
#: As many as a matcher has (native/src/plan.rs).
MAX_VARIABLES: Final = 64


def check(query: Query, catalogue: Catalogue, *, live: bool = False) -> tuple[Checked | None, list[Diagnostic]]:
    """The checked query, unless something in it is wrong, and everything to say about it, in order.

    On live streams a query whose state has no bound is refused; over files it is warned of (rule Q4).
    """
    checker = _Checker(query, catalogue, live)
    checker.run()
    found = sorted(checker.problems, key=_position)
    if any(p.severity == "error" for p in found):
        return None, found
    return checker.checked(), found


def _position(diagnostic: Diagnostic) -> tuple[int, int]:
    return (diagnostic.span.line, diagnostic.span.column) if diagnostic.span else (0, 0)


@dataclass
class _Checker:
    query: Query
    catalogue: Catalogue
    live: bool
    problems: list[Diagnostic] = field(default_factory=list)
    #: The streams of each event variable that has known ones.
    streams: dict[str, tuple[str, ...]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    attributes: dict[tuple[str, str], Resolved] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    event_variables: tuple[str, ...] = ()
    path_variables: frozenset[str] = frozenset()
    paths: parts.Divided = field(default_factory=parts.Divided)
    _window: syntax.EventWindow | None = None

    def report(
        self, code: str, message: str, span: Span | None, hint: str | None = None, severity: Severity = "error"
    ) -> None:
        self.problems.append(Diagnostic(severity, code, message, span, hint))

    def run(self) -> None:
        self._find_variables()
        if len(self.event_variables) > MAX_VARIABLES:
            # The rest would look at all their pairs.
            first = self.event_variables[MAX_VARIABLES]
            message = f"a query has at most {MAX_VARIABLES} variables, and ?{first} is one more"
            ranges = {r.variable: r.span for r in self.query.ranges}
            span = ranges.get(first) or self._places().get(first)
            self.report("too-many", message, span, "make it several queries")
            return
        self._find_streams()
        self._sequence()
        self._windows()
        self._paths()
        typer = Typer(self._attribute_type, self._variable_type, self.report)
        self._conditions(typer)
        self._select(typer)
        self._grouping(typer)
        self._policies()
        self._scheduling()
        if not any(p.severity == "error" for p in self.problems):
            self._bounds()

    def checked(self) -> Checked:
        ranges = tuple(syntax.Range(v, self.streams[v]) for v in self.event_variables)
        query = replace(self.query, ranges=ranges)
        attributes = {(v, _declared_name(name, r)): r for (v, name), r in self.attributes.items()}

        def declared(a: syntax.Attribute) -> syntax.Attribute:
            return replace(a, name=_declared_name(a.name, self.attributes[a.variable, a.name]))

        def renamed(e: Expression) -> Expression:
            return syntax.rebuilt(e, declared)

        complete = replace(
            query,
            select=tuple(
                replace(s, expression=renamed(s.expression), name=o.name)
                for s, o in zip(query.select, self.outputs, strict=True)
            ),
            filters=tuple(map(renamed, query.filters)),
            joins=tuple(map(renamed, query.joins)),
            group_by=tuple(map(declared, query.group_by)),
            having=None if query.having is None else renamed(query.having),
        )
        outputs = tuple(
            replace(
                o,
                expression=renamed(o.expression),
                condition=None if o.condition is None else renamed(o.condition),
            )
            for o in self.outputs
        )
        known = self.catalogue.streams
        kinds: dict[str, Literal["int", "string"]] = {}
        for stream in (s for r in ranges for s in r.streams):
            # A stream without events has ids of no kind yet, and none to show.
            kinds[stream] = (known[stream].id_kind if stream in known else None) or "int"
        groups = tuple(a.name.rpartition(":")[2] for a in self.query.group_by)
        return Checked(
            complete,
            self.event_variables,
            attributes,
            outputs,
            partition(complete, attributes),
            kinds,
            groups,
            self.paths,
            self._prefixes,
        )

    # names

    def _find_variables(self) -> None:
        """Which variables are events: those of FROM, SEQ, WINDOW, or with an attribute; others are a PATH's."""
        query = self.query
        ranged = [r.variable for r in query.ranges]
        seen: set[str] = set()
        for r in query.ranges:
            if r.variable in seen:
                hint = f"streams of one variable are listed with |: (?{r.variable}, a | b)"
                self.report("duplicate-name", f"?{r.variable} is in FROM twice", r.span, hint)
            seen.add(r.variable)
        mentions = self._mentions()
        mentioned = dict.fromkeys(ranged) | dict.fromkeys(mentions)
        bare = {e.name for e in self._expressions() if isinstance(e, syntax.Variable)}
        self.path_variables = frozenset(bare.intersection(path.variables(query.path)) - set(mentioned))
        if query.ranges:
            for variable, span in self._places().items():
                if variable not in ranged and variable not in self.path_variables:
                    hint = suggestion(variable, ranged) or f"add it: FROM ..., (?{variable}, stream)"
                    self.report("unknown-variable", f"?{variable} is not in FROM (rule Q1)", span, hint)
                    self.streams[variable] = ()
        self.event_variables = tuple(mentioned) if query.ranges else tuple(dict.fromkeys(mentions))

    def _mentions(self) -> list[str]:
        """Event variables in the order of their mention in the text; of a tree without one, clause by clause."""
        query_path = self.query.path
        found: list[tuple[str, Span | None]] = []
        for e in self._expressions():
            if isinstance(e, syntax.Attribute):
                found.append((e.variable, e.span))
            elif isinstance(e, syntax.Aggregate) and isinstance(e.argument, syntax.Variable):
                found.append((e.argument.name, e.argument.span))
        for item in (*self.query.seq, *self.query.windows, *self.query.align):
            found += [(variable, item.span) for variable in _variables_of(item)]
        if query_path is not None:
            known = {variable for variable, _ in found} | set(self._roots())
            found += [(v, group.span) for group in path.groups(query_path) for v in path.variables(group) if v in known]
        if all(span is not None for _, span in found):
            found.sort(key=lambda mention: (mention[1].line, mention[1].column) if mention[1] else (0, 0))
        return [variable for variable, _ in found]

    def _roots(self) -> tuple[str, ...]:
        """Without FROM: the variables of PATHs that are events of the default stream by what is said of them."""
        default = self.catalogue.default_stream
        if self.query.ranges or default is None:
            return ()
        bare = {e.name for e in self._expressions() if isinstance(e, syntax.Variable)}
        annotated = self.catalogue.properties.get(default, {})
        return tuple(v for v in path.roots(self.query.path, annotated, self._prefixes) if v not in bare)

    def _expressions(self) -> Iterator[Expression]:
        query = self.query
        for expression in (
            *(s.expression for s in query.select),
            *query.filters,
            *query.joins,
            *query.group_by,
            *([query.having] if query.having is not None else []),
        ):
            yield from walk(expression)

    def _places(self) -> dict[str, Span | None]:
        """Where each variable is mentioned first."""
        places: dict[str, Span | None] = {}
        for e in self._expressions():
            if isinstance(e, syntax.Attribute):
                places.setdefault(e.variable, e.span)
            elif isinstance(e, syntax.Variable):
                places.setdefault(e.name, e.span)
        for item in (*self.query.seq, *self.query.windows, *self.query.align):
            for variable in _variables_of(item):
                places.setdefault(variable, item.span)
        return places

    def _find_streams(self) -> None:
        for r in self.query.ranges:
            known = []
            for name in dict.fromkeys(r.streams):
                if name in self.catalogue.streams:
                    known.append(name)
                else:
                    hint = suggestion(name, self.catalogue.streams) or f"declare it: `streams: {{{name}: ...}}`"
                    self.report("unknown-stream", f"unknown stream '{name}'", r.span, hint)
            self.streams.setdefault(r.variable, tuple(known))
        if self.query.ranges or not self.event_variables:
            if not self.event_variables:
                self.report(
                    "no-variable", "the query reads no event", self.query.spans.get("select"), "select ?e.attribute"
                )
            return
        default = self.catalogue.default_stream
        if default is None:
            several = bool(self.catalogue.streams)
            which = "more than one stream to choose from" if several else "no stream in the input"
            self.report(
                "no-stream",
                f"there is no FROM, and {which} (rule Q1)",
                self.query.spans.get("select"),
                "add FROM (?e, stream)" + (": " + ", ".join(sorted(self.catalogue.streams)) if several else ""),
            )
        for variable in self.event_variables:
            self.streams[variable] = (default,) if default is not None else ()

    def _attribute_type(self, attribute: syntax.Attribute) -> ValueType:
        found = self._resolve(attribute)
        return found.type if found else ValueType.UNKNOWN

    def _resolve(self, attribute: syntax.Attribute) -> Resolved | None:
        place = (attribute.variable, attribute.name)
        if place in self.attributes:
            return self.attributes[place]
        streams = self.streams.get(attribute.variable, ())
        if not streams:
            return None
        try:
            found = resolve_attribute(self.catalogue, self.query, streams, attribute.name)
        except MixedAttribute as mixed:
            hint = "read the streams by variables of their own: FROM (?a, one), (?b, other)"
            self.report("type-mismatch", str(mixed), attribute.span, hint)
            return None
        if found is None:
            self._unknown_attribute(attribute, streams)
            return None
        self.attributes[place] = found
        return found

    def _unknown_attribute(self, attribute: syntax.Attribute, streams: tuple[str, ...]) -> None:
        name = attribute.name
        if ":" in name:
            if expand(name, self._prefixes) is None:
                self._unknown_prefix(name, attribute.span)
                return
            message = f"no attribute of {_quoted(streams)} is annotated with {name} (rule P5)"
            self.report("unknown-attribute", message, attribute.span, "add it to the stream's `semantics`")
            return
        known = {"id", "time"} | {a for s in streams for a in self.catalogue.streams[s].attributes}
        self.report(
            "unknown-attribute",
            f"{_quoted(streams)} has no attribute '{name}'",
            attribute.span,
            suggestion(name, known) or f"known: {', '.join(sorted(known))}",
        )

    def _variable_type(self, variable: syntax.Variable) -> ValueType:
        if variable.name in self.path_variables:
            return ValueType.NODE
        if variable.name in self.streams:
            self.report(
                "event-as-value",
                f"?{variable.name} is an event, not a value",
                variable.span,
                f"name an attribute: ?{variable.name}.time; or count events: COUNT(?{variable.name})",
            )
        else:
            self.report(
                "unknown-variable",
                f"nothing binds ?{variable.name}",
                variable.span,
                suggestion(variable.name, self.streams) or f"read a stream by it: FROM (?{variable.name}, stream)",
            )
        return ValueType.UNKNOWN

    # PATHs

    @property
    def _prefixes(self) -> dict[str, str]:
        return {**self.catalogue.prefixes, **dict(self.query.prefixes)}

    def _unknown_prefix(self, name: str, span: Span | None) -> None:
        prefix = name.partition(":")[0]
        hint = suggestion(prefix, self._prefixes) or f"begin with PREFIX {prefix}: <http://example.org/plant#>"
        self.report("unknown-prefix", f"unknown prefix '{prefix}'", span, hint)

    def _paths(self) -> None:
        """PATHs that can be read, that stay on this machine, and that bind what is used of them."""
        fine = [self._path(group) for group in path.groups(self.query.path)]
        if not all(fine):
            return
        try:
            self.paths = parts.divide(self.query.path, self.event_variables, self.path_variables)
        except path.PathFault as fault:
            self.report(fault.code, str(fault), fault.span, fault.hint)
        for name, owners in self.paths.shared.items():
            self._joined(owners, self.query.spans.get("path"), f"the PATHs share ?{name}, but no JOIN")

    def _path(self, group: syntax.PathGroup) -> bool:
        before = len(self.problems)
        try:
            items = path.elements(group)
        except path.PathFault as fault:
            self.report(fault.code, str(fault), fault.span, fault.hint)
            return False
        for item in items:
            for token, iri in item.names(self._prefixes):
                if iri is None:
                    self._unknown_prefix(token.text, path.span_at(group, token.start, token.end))
            bound = item.binds & set(self.event_variables)
            if bound:
                name = min(bound)
                message = f"?{name} is an event, so {item.kind.upper()} can't bind it"
                self.report("path-binds-event", message, item.place, "bind a variable of another name")
        if len(self.problems) == before:
            wrong = path.syntax_fault(group, self._prefixes)
            if wrong is not None:
                self.report(wrong.code, str(wrong), wrong.span, wrong.hint)
        return len(self.problems) == before

    def _path_value(self, variable: syntax.Variable, word: str) -> None:
        """A PATH variable has one value in a match only if the event that it belongs to is one (rules S3, S5, W7)."""
        owners = self.paths.owners(variable.name)
        roles = {self.roles.get(owner) for owner in owners}
        if roles and roles <= {"many", "many0"}:
            message = f"?{variable.name} belongs to ?{owners[0]}, which stands for many events (rule S3)"
            self.report("many-values", message, variable.span, "use it in JOINs only")
        elif roles == {"absent"}:
            message = (
                f"?{variable.name} belongs to ?{owners[0]}, a NOT variable, so it has no value in {word} (rule S5)"
            )
            self.report("absent-value", message, variable.span, _ABSENT)
        elif self._window is not None and self._window.kind in ("batch", "session"):
            message = f"?{variable.name} is each event's own, and a window has many events (rule W7)"
            hint = "annotate an attribute with it and group by that, or take WINDOW (?e, sliding, 5min)"
            self.report("not-grouped", message, variable.span, hint)

    # patterns

    def _sequence(self) -> None:
        steps = self.query.seq
        seen: dict[str, syntax.Step] = {}
        for step in steps:
            for variable in step_variables(step):
                if variable in seen:
                    hint = f"give the second a name of its own; ?{variable}{{2}} is two events in a row"
                    self.report("duplicate-name", f"?{variable} is in SEQ twice", step.span, hint)
                seen[variable] = step
                self.roles[variable] = syntax.STEP_NAMES[type(step)]
                if isinstance(step, syntax.Many) and step.least == 0:
                    self.roles[variable] = "many0"
            if isinstance(step, syntax.AllOf | syntax.AnyOf) and len(step.variables) < 2:
                word = "ALL" if isinstance(step, syntax.AllOf) else "ANY"
                alone = step.variables[0] if step.variables else "e"
                hint = f"write ?{alone} by itself, or {word}(?{alone}, ?other)"
                self.report("too-few", f"{word} has two or more variables", step.span, hint)
            if isinstance(step, syntax.Many) and step.most == 0:
                self.report("never", "{0,0} asks for no event", step.span, f"write NOT ?{step.variable}")
        for variable in self.event_variables:
            self.roles.setdefault(variable, "free")
        if steps and all(isinstance(s, syntax.Absent) for s in steps):
            hint = "what is missing is missing before or after an event: SEQ (?a, NOT ?b)"
            self.report("never", "SEQ needs a step that is not NOT", self.query.spans.get("seq"), hint)
            return
        self._adjacent(steps)
        for i, (one, after) in enumerate(pairwise(steps)):
            self._neighbours(one, after, i == 0, i == len(steps) - 2)
        if steps:
            self._open_end(steps[0], first=True)
            if len(steps) > 1:
                self._open_end(steps[-1], first=False)

    def _adjacent(self, steps: Sequence[syntax.Step]) -> None:
        """Two steps of many events need one between them that is always there: where one ends, the other begins."""
        behind: syntax.Many | None = None
        for step in steps:
            if isinstance(step, syntax.Many):
                if behind is not None:
                    message = f"{print_step(behind)} and {print_step(step)} have no single event between them (rule S3)"
                    hint = f"put one between them: SEQ (?{behind.variable}+, ?x, ?{step.variable}+)"
                    self.report("adjacent", message, step.span, hint)
                behind = step
            elif not isinstance(step, syntax.Maybe | syntax.Absent):
                behind = None

    def _neighbours(self, one: syntax.Step, after: syntax.Step, at_start: bool, at_end: bool) -> None:
        both_many = isinstance(one, syntax.Many) and isinstance(after, syntax.Many)
        if not both_many and (at_start or at_end) and _is_open(one) and _is_open(after):
            where = "first" if at_start and _is_open(one) else "last"
            message = f"another +, ? or NOT beside the {where} step, which is one already (rule S4)"
            hint = "put an event that is always there between them, or leave one of them out"
            self.report("adjacent", message, after.span, hint)

    def _open_end(self, step: syntax.Step, *, first: bool) -> None:
        if not _is_open(step):
            return
        if not first:
            self._circular(step)
        variable = step_variables(step)[0]
        listing = [w for w in self.query.windows if isinstance(w, syntax.SpanWindow)]
        first_variables = step_variables(self.query.seq[0])
        # What ends the step is the time of another event of the WINDOW, so one of them must always be there.
        own = [w for w in listing if variable in w.variables]
        ending = own or ([] if first else [w for w in listing if set(first_variables) & set(w.variables)])
        if not any(self._is_always_bound(v) for w in ending for v in w.variables if v != variable):
            place = "first" if first else "last"
            self.report(
                "no-deadline",
                f"{print_step(step)} is the {place} step and has no WINDOW to end it (rule S4)",
                step.span,
                self._deadline(variable, first_variables[0]),
            )

    def _deadline(self, variable: str, first: str) -> str:
        """What would end a first or last step."""
        if variable != first:
            return f"add WINDOW (?{first}, ..., ?{variable}, 5min)"
        others = [v for step in self.query.seq[1:] for v in step_variables(step) if self._is_always_bound(v)]
        if others:
            return f"add WINDOW (?{variable}, ?{others[0]}, 5min)"
        return f"add a step for one event, such as ?next, and WINDOW (?{variable}, ?next, 5min)"

    def _circular(self, step: syntax.Step) -> None:
        """A last step that may be missing, and a list, in one WINDOW: each would reach as far as the other.

        Unless an event before the list, which is always there, is the WINDOW's first: then it ends them both.
        """
        if not isinstance(step, syntax.Maybe):
            return
        steps = self.query.seq
        many = {s.variable: place for place, s in enumerate(steps) if isinstance(s, syntax.Many)}
        one = {s.variable: place for place, s in enumerate(steps) if isinstance(s, syntax.One)}
        for window in self.query.windows:
            if isinstance(window, syntax.SpanWindow) and step.variable in window.variables:
                first = min((one[v] for v in window.variables if v in one), default=len(steps))
                lists = _marked(v for v in window.variables if v in many and many[v] < first)
                if lists:
                    message = f"how far ?{step.variable}? reaches depends on {lists}, which depends on it (rule S4)"
                    self.report("circular", message, window.span, "give them WINDOWs of their own")

    def _is_always_bound(self, variable: str) -> bool:
        return self.roles.get(variable, "free") in ("one", "many", "all", "free")

    def _windows(self) -> None:
        moving = [w for w in self.query.windows if isinstance(w, syntax.EventWindow)]
        for window in self.query.windows:
            if isinstance(window, syntax.SpanWindow) and len(set(window.variables)) < len(window.variables):
                self.report("duplicate-name", "a variable is in this WINDOW twice", window.span, "name each once")
        if not moving:
            return
        self._window = moving[0]
        for other in moving[1:]:
            self.report("two-windows", "a query has one moving window", other.span, "make it two queries")
        if self.query.seq:
            message = "a moving window is of one variable, without SEQ (rule W7)"
            hint = "bound the pattern by WINDOW (?a, ?b, 5min), or aggregate in a query of its own that this one reads"
            self.report("window-with-seq", message, moving[0].span, hint)
        elif len(self.event_variables) > 1:
            others = ", ".join(f"?{v}" for v in self.event_variables if v != moving[0].variable)
            self.report(
                "second-variable",
                f"a moving window is of one variable, but there is {others} too (rule W7)",
                moving[0].span,
                "aggregate in a query of its own, and read its matches here: FROM (?m, thatQuery)",
            )
        for window in self.query.windows:
            if isinstance(window, syntax.SpanWindow):
                hint = f"leave out one; a moving window is of ?{moving[0].variable} alone"
                self.report("two-windows", "a query with a moving window has no other", window.span, hint)

    # conditions

    def _conditions(self, typer: Typer) -> None:
        for condition in self.query.filters:
            self._condition(condition, typer, "FILTER")
        for condition in self.query.joins:
            self._condition(condition, typer, "JOIN")
            self._join(condition)

    def _condition(self, condition: Expression, typer: Typer, word: str) -> None:
        names = syntax.variables(condition)
        if len(names) == 1 and word == "JOIN":
            self.report(
                "not-a-join",
                f"this is over ?{names[0]} alone, so it is a FILTER (rule Q2)",
                condition.span,
                "write FILTER",
            )
        elif len(names) > 1 and word == "FILTER":
            shown = ", ".join(f"?{n}" for n in names)
            self.report(
                "not-a-filter", f"this is over {shown}, so it is a JOIN (rule Q2)", condition.span, "write JOIN"
            )
        elif not names:
            hint = "name an attribute: ?e.flowrate > 500; what is always true can be left out"
            self.report("no-variable", f"{word} mentions no event", condition.span, hint)
        for e in walk(condition):
            if isinstance(e, syntax.Aggregate):
                self.report("aggregate", f"{e.function} can't be in {word}", e.span, "use HAVING")
        typer.condition(condition, word)

    def _join(self, condition: Expression) -> None:
        self._joined(syntax.variables(condition), condition.span, "no JOIN")

    def _joined(self, names: Sequence[str], span: Span | None, what: str) -> None:
        many = [n for n in names if self.roles.get(n) in ("many", "many0")]
        absent = [n for n in names if self.roles.get(n) == "absent"]
        if len(many) > 1:
            hint = "compare each with an event of which there is one: JOIN (?b.room = ?a.room)"
            self.report("two-many", f"{what} can name two of {_marked(many)} (rule S3)", span, hint)
        if len(absent) > 1:
            message = f"{what} can name two NOT variables, {_marked(absent)} (rule S5)"
            self.report("two-not", message, span, "join each of them with an event that is there")
        if absent and many:
            shown = _marked([*absent, *many])
            message = f"{what} can name a NOT variable and one of many, {shown} (rule S5)"
            hint = f"join ?{absent[0]} with an event of which there is one"
            self.report("not-with-many", message, span, hint)

    # output

    def _select(self, typer: Typer) -> None:
        taken: dict[str, Span | None] = {}
        for selected in self.query.select:
            expression, condition = selected.expression, None
            if isinstance(expression, syntax.Compare) and isinstance(expression.left, syntax.Aggregate):
                typer.condition(expression, "SELECT")
                expression, condition = expression.left, expression
            kind = typer.type_of(expression)
            self._outside_aggregates(expression, "SELECT")
            name = selected.name or _implied_name(selected.expression)
            if name is None:
                self.report("no-name", "this value has no name (rule O3)", selected.span, "add AS and a name")
                continue
            if name in taken:
                self.report(
                    "duplicate-name",
                    f"two selected values are called '{name}' (rule O3)",
                    selected.span,
                    "rename one with AS",
                )
            taken[name] = selected.span
            self.outputs.append(Output(name, expression, kind, condition))

    def _outside_aggregates(self, expression: Expression, word: str) -> None:
        """NOT variables have no value; a variable of many events has one only inside an aggregate (rules S3, S5)."""
        stack: list[tuple[Expression, bool]] = [(expression, False)]
        while stack:
            e, inside = stack.pop()
            if isinstance(e, syntax.Aggregate):
                self._aggregate(e, inside)
                inside = True
            if isinstance(e, syntax.Attribute):
                role = self.roles.get(e.variable)
                if role == "absent":
                    self.report(
                        "absent-value",
                        f"?{e.variable} is a NOT variable, so it has no value in {word} (rule S5)",
                        e.span,
                        _ABSENT,
                    )
                elif role in ("many", "many0") and not inside:
                    hint = f"take one value of them: FIRST(?{e.variable}.{e.name}), AVG(...)"
                    self.report("many-values", f"?{e.variable} stands for many events (rule S3)", e.span, hint)
            if isinstance(e, syntax.Variable) and e.name in self.path_variables:
                if inside:
                    hint = "annotate an attribute with its property, and name that: AVG(?e.flowrate)"
                    self.report("aggregate", f"?{e.name} is of a PATH; aggregates are over attributes", e.span, hint)
                self._path_value(e, word)
            stack.extend((child, inside) for child in syntax.children(e))

    def _aggregate(self, e: syntax.Aggregate, inside: bool) -> None:
        if inside:
            hint = "aggregate twice by two queries: the second reads the matches of the first"
            self.report("aggregate", "an aggregate can't be inside another", e.span, hint)
        names = syntax.variables(e.argument)
        if len(names) > 1:
            hint = f"take one of each: {' - '.join(f'{e.function}(?{name}.x)' for name in names[:2])}"
            self.report("aggregate", f"{e.function} is over one variable, not {_marked(names)}", e.span, hint)
        for name in names:
            role = self.roles.get(name)
            if role in ("many", "many0") or (self._window is not None and self._window.variable == name):
                continue
            if role is not None:
                hint = f"write ?{name}+ in SEQ, or WINDOW (?{name}, sliding, 5min)"
                self.report(
                    "aggregate", f"{e.function} has no events to range over: ?{name} is one (rule W7)", e.span, hint
                )
        if not names:
            hint = "COUNT(?e) counts events" if e.function == "COUNT" else f"such as {e.function}(?e.flowrate)"
            self.report("aggregate", f"{e.function} mentions no event", e.span, hint)

    def _grouping(self, typer: Typer) -> None:
        query = self.query
        self._groups(typer)
        if query.group_by and self._window is None:
            why = "with SEQ it is refused (rule W6)" if query.seq else "there is no moving window (rule W5)"
            joined = "to keep keys apart, join the steps: JOIN (?b.sensorID = ?a.sensorID)"
            hint = joined if query.seq else "add WINDOW (?e, sliding, 5min), or leave out GROUP BY"
            self.report("group-by", f"GROUP BY: {why}", query.spans.get("group_by"), hint)
        if query.having is not None:
            typer.condition(query.having, "HAVING")
            self._outside_aggregates(query.having, "HAVING")
            many = any(r in ("many", "many0") for r in self.roles.values())
            if self._window is None and not many:
                message = "HAVING needs a moving window, or a step of many events"
                hint = "write FILTER for one event; or add WINDOW (?e, sliding, 5min), or ?e+ in SEQ"
                self.report("having", message, query.spans.get("having"), hint)
        if self._window is not None and self._window.kind in ("batch", "session"):
            grouped = [self._meant(a) for a in query.group_by]
            for e in _outside(
                [*(s.expression for s in query.select), *([query.having] if query.having is not None else [])]
            ):
                if self._meant(e) not in grouped:
                    self.report(
                        "not-grouped",
                        f"?{e.variable}.{e.name} is not grouped by, and a window has many events (rule W7)",
                        e.span,
                        f"add GROUP BY ?{e.variable}.{e.name}, or take an aggregate of it",
                    )

    def _meant(self, attribute: syntax.Attribute) -> tuple[str, Mapping[str, str] | str]:
        """An attribute, whatever it is called here."""
        resolved = self.attributes.get((attribute.variable, attribute.name))
        return attribute.variable, attribute.name if resolved is None else resolved.names

    def _groups(self, typer: Typer) -> None:
        taken: set[str] = set()
        for attribute in self.query.group_by:
            typer.type_of(attribute)
            resolved = self.attributes.get((attribute.variable, attribute.name))
            if resolved is None:
                continue
            # Two spellings of one attribute are one group, whatever they are called.
            declared = _declared_name(attribute.name, resolved).rpartition(":")[2]
            names = {attribute.name.rpartition(":")[2], declared}
            if names & taken:
                hint = "leave out one of them: they are the same attribute, or would have the same name"
                self.report("duplicate-name", f"two groups are called '{declared}' (rule W5)", attribute.span, hint)
            taken |= names

    # policies

    def _policies(self) -> None:
        query = self.query
        if query.match != "ANY":
            outside = [v for v in self.event_variables if self.roles.get(v) == "free"]
            if not query.seq or outside:
                names = f"; {_marked(outside)} is outside" if query.seq else ""
                self.report(
                    "policy",
                    f"MATCH {query.match} needs a SEQ with all variables (rule S8){names}",
                    query.spans.get("match"),
                    f"put {_marked(outside)} into SEQ, or write MATCH ANY",
                )
                return
        if any(p.severity == "error" for p in self.problems):
            return
        if query.match == "STRICT" or query.after != "KEEP":
            found = partition(
                replace(query, ranges=tuple(syntax.Range(v, self.streams[v]) for v in self.event_variables)),
                self.attributes,
            )
            if found.ambiguous:
                word = "STRICT" if query.match == "STRICT" else f"AFTER MATCH {query.after}"
                stream, equal = found.ambiguous
                self.report(
                    "ambiguous-partition",
                    f"{word} needs one key a stream, but joins {_marked_names(equal)} of '{stream}' (rule S7)",
                    query.spans.get("match" if query.match == "STRICT" else "after"),
                    "join all steps by one attribute, the same of each event of a stream",
                )

    def _scheduling(self) -> None:
        for align in self.query.align:
            for variable in align.variables:
                if variable not in self.streams:
                    hint = suggestion(variable, self.streams) or f"read a stream by it: FROM (?{variable}, stream)"
                    self.report("unknown-variable", f"nothing binds ?{variable}", align.span, hint)

    def _bounds(self) -> None:
        report_never(self.query, self.roles, self.report)
        unbounded = bounds.unbounded(self.query, self.event_variables, self.roles)
        if unbounded:
            message = f"no WINDOW bounds {_marked(unbounded)}: every event has to be kept (rule Q4)"
            self.report(
                "unbounded",
                message,
                self.query.spans.get("seq") or self.query.spans.get("select"),
                f"add WINDOW ({', '.join(f'?{v}' for v in self.event_variables if self.roles[v] != 'absent')}, 5min)",
                severity="error" if self.live else "warning",
            )


def _declared_name(name: str, resolved: Resolved) -> str:
    """The name that all streams declare for what the query calls `name`; that itself, if they differ."""
    names = set(resolved.names.values())
    return names.pop() if len(names) == 1 else name


def _outside(expressions: Iterable[Expression]) -> Iterator[syntax.Attribute]:
    """The attributes that stand outside of aggregates."""
    stack = list(expressions)
    while stack:
        e = stack.pop()
        if isinstance(e, syntax.Attribute):
            yield e
        elif not isinstance(e, syntax.Aggregate):
            stack.extend(syntax.children(e))


def _variables_of(item: syntax.Step | syntax.Window | syntax.Align) -> tuple[str, ...]:
    if isinstance(item, syntax.EventWindow):
        return (item.variable,)
    if isinstance(item, syntax.SpanWindow | syntax.Align):
        return item.variables
    return step_variables(item)


def _is_open(step: syntax.Step) -> bool:
    """Whether a step takes its extent from its neighbours, so that at an end it needs a deadline."""
    return isinstance(step, syntax.Many | syntax.Maybe | syntax.Absent)


def _implied_name(expression: Expression) -> str | None:
    if isinstance(expression, syntax.Attribute):
        return expression.name.rpartition(":")[2]
    return expression.name if isinstance(expression, syntax.Variable) else None


def _marked(names: Iterable[str]) -> str:
    return ", ".join(f"?{name}" for name in names)


def _marked_names(names: Iterable[str]) -> str:
    return " and ".join(f"'{name}'" for name in sorted(names))


def _quoted(streams: Iterable[str]) -> str:
    return " and ".join(f"'{s}'" for s in streams)
