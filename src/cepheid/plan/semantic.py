"""From a checked query with PATHs to one without: conditions on what is known of an event, which the core looks up.

The rules go over each part: pruning, then transformation; what is left becomes a lookup for each stream of its
variable. A PATH variable that is used outside becomes an attribute of its event that no record has, and that the lookup
fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from cepheid.knowledge.annotation import Annotations
from cepheid.knowledge.asking import ask_all
from cepheid.knowledge.index import PartLookup, empty, fill, lookup_of
from cepheid.knowledge.refresh import properties_of
from cepheid.knowledge.store import Knowledge
from cepheid.knowledge.tables import FLAG, RELATED, RELATED_AT_ALL, TERM, VALUE, Lookup, Row, Table
from cepheid.language import syntax
from cepheid.language.checker import Checked, Output
from cepheid.language.errors import Diagnostic, Span
from cepheid.language.functions import ValueType
from cepheid.language.partition import partition
from cepheid.language.parts import Condition, Either, Flag, Part, Related
from cepheid.language.path import Element, expand, groups, span_at, tokens
from cepheid.language.scope import Resolved
from cepheid.language.syntax import Attribute, Constant, Expression, Kind, step_variables
from cepheid.model.types import Value
from cepheid.plan.path_pruning import prune
from cepheid.plan.path_transformation import transform

Mode: TypeAlias = Literal["naive", "buffer", "cache", "buffer+cache", "index", "auto"]


@dataclass(frozen=True, slots=True)
class Step:
    """What a rule did with a PATH, for `explain`."""

    rule: Literal["prune", "transform", "index", "evaluate", "share", "constant"]
    text: str
    reason: str


@dataclass(frozen=True)
class Semantic:
    """A query as it runs, what became of its PATHs, and what there is to say about them."""

    checked: Checked
    #: As it was before.
    original: Checked = field(repr=False)
    steps: tuple[Step, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    #: The properties on which constants in the query depend; None: any.
    constants: frozenset[str] | None = frozenset()
    #: The variables that events share by all the values that each of them has.
    related: frozenset[str] = frozenset()
    #: Those for which an equality says the same, as long as no event has several values.
    single: frozenset[str] = frozenset()
    #: The version of the knowledge by which it is judged.
    version: int = 0

    @property
    def lookups(self) -> tuple[PartLookup, ...]:
        return tuple(lookup for lookup in self.checked.lookups if isinstance(lookup, PartLookup))

    def fits(self, lookup: Lookup, every: Iterable[tuple[Row, ...] | None]) -> bool:
        """Whether nothing in these rows of a lookup has several values where it is judged as one that has not."""
        own = enumerate(lookup.columns)
        places = [at for at, column in own if column[0] in (TERM, VALUE) and column[1:] in self.single]
        return not places or all(len({tuple(row[at] for at in places) for row in rows or ()}) < 2 for rows in every)

    @property
    def is_single(self) -> bool:
        """Whether no event can have several values where it is judged as one that has not."""
        shares = {kind + name for name in self.single for kind in (TERM, VALUE)}
        return all(
            look.table.complete and self.fits(look, (look.table.otherwise, *look.table.rows.values()))
            for look in self.lookups
            if shares & set(look.columns)
        )

    def at(self, version: int) -> Semantic:
        """The same, judged by another version."""
        return replace(self, version=version)


class NotIndexed(ValueError):
    """A part whose keys can't be known beforehand, where the index was asked for by hand."""


def lower(
    checked: Checked,
    knowledge: Knowledge,
    annotations: Annotations,
    mode: Mode = "auto",
    tables: dict[str, Table] | None = None,
    like: Semantic | None = None,
) -> Semantic:
    """The query with its PATHs judged by what is known. Raises TooMuch, NotIndexed.

    `tables` has those of other queries, by the meaning of their lookups: equal ones are filled once, and shared. `like`
    is the query as it was lowered by an earlier version of the knowledge: what a matcher holds of it fits this one too.
    """
    knowledge.prepare()  # a store that was opened on disk can only be read, and roots are put beside it
    types = {} if like is None else {place: known.type for place, known in like.checked.attributes.items()}
    tables = {} if tables is None else tables
    related = frozenset() if like is None else like.related
    with knowledge.reading():
        while True:
            filled = dict(tables)
            lowering = _Lowering(checked, knowledge, annotations, mode, filled, types, related)
            lowered = lowering.run()
            if lowered.is_single:
                tables.update(filled)
                return lowered
            # What is shared with one of them is judged together with it.
            several = frozenset(n for names in lowering.connected() for n in names if names & lowered.single)
            related |= several - lowering.readings


@dataclass
class _Lowering:
    checked: Checked
    knowledge: Knowledge
    annotations: Annotations
    mode: Mode
    tables: dict[str, Table]
    #: What attributes were before; they stay so.
    types: Mapping[tuple[str, str], ValueType] = field(default_factory=dict)
    #: The variables that events share by all the values that each of them has.
    related: frozenset[str] = frozenset()
    asked: list[Element] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    filters: list[Expression] = field(default_factory=list)
    joins: list[Expression] = field(default_factory=list)
    lookups: list[PartLookup] = field(default_factory=list)
    attributes: dict[tuple[str, str], Resolved] = field(default_factory=dict)
    #: What stands for a PATH variable as a value: for each event variable that has it.
    values: dict[str, dict[str, Attribute]] = field(default_factory=dict)
    #: Those that a reading is for some event, so that it has one value.
    readings: set[str] = field(default_factory=set)
    flags: dict[str, Expression] = field(default_factory=dict)

    def run(self) -> Semantic:
        paths = self.checked.paths
        self.warnings += self._unknown_terms()
        for part in paths.parts:
            self._part(part)
        for name, owners in paths.shared.items():
            if name not in self.related:
                own = [self._term(owner, name) for owner in owners]
                self.joins += [syntax.Compare("=", one, other) for i, one in enumerate(own) for other in own[i + 1 :]]
        judged_by_all = self.related & self._compared
        apart = [c for c in paths.compared if not judged_by_all & set(syntax.variables(c))]
        self.joins += [self._rewritten(compared) for compared in apart]
        self.joins += [self._condition(condition) for condition in paths.conditions]
        constants = properties_of(self.asked, self.checked.prefixes)
        version = self.knowledge.version
        return Semantic(
            self._lowered(),
            self.checked,
            tuple(self.steps),
            tuple(self.warnings),
            constants,
            self.related,
            self._one_by_one() - self.related - self.readings,
            version,
        )

    # parts

    def _part(self, part: Part) -> None:
        if part.variable is None:
            self._constant_part(part)
            return
        rewritten = prune(part, self.knowledge, self.checked.prefixes)
        self._note("prune", part, rewritten.reasons)
        self.asked += rewritten.asked
        never = rewritten.never
        if never is not None and part.flag is None:
            self._never(part, never)
        part = rewritten.part
        streams = self._streams(part.variable)
        rewritten = transform(part, streams, self.annotations, self.checked.prefixes, self._property(part.variable))
        self._note("transform", part, rewritten.reasons)
        self.filters += rewritten.filters
        for name, attribute in rewritten.columns.items():
            self.values.setdefault(name, {})[str(part.variable)] = attribute
            self.readings.add(name)
        if rewritten.part.groups:
            self._look_up(rewritten.part, str(part.variable), is_never=never is not None)

    def _constant_part(self, part: Part) -> None:
        """A part with no event in it: known now."""
        self.asked += part.elements
        found = ask_all(self.knowledge, part, self.checked.prefixes, [()], list(part.columns))[0]
        text = f"PATH {{{part.text}}}"
        owner = self._sure[0] if self._sure else self.checked.event_variables[0]
        if part.flag is not None and self._sure:
            self._look_up(part, owner)
        elif part.flag is not None:
            self.flags[part.flag] = Constant(Kind.BOOL, bool(found))
        if part.flag is None and not found:
            self._never(part, "nothing in the knowledge fits it")
        if part.flag is None and part.columns:
            self._look_up(part, owner)
        elif part.flag is None and found:
            message = "this PATH names no event and is true: it says nothing"
            hint = "leave it out, or connect it with an event"
            self.warnings.append(Diagnostic("warning", "always-true", message, part.elements[0].place, hint))
        self.steps.append(Step("constant", text, f"names no event; {'true' if found else 'never true'}"))

    def _never(self, part: Part, reason: str) -> None:
        """A part that no event fits, or nothing at all if it is nobody's."""
        variable = part.variable
        if variable is None:
            self.joins.append(Constant(Kind.BOOL, False))
        else:
            self.attributes[variable, "id"] = Resolved(
                dict.fromkeys(self._streams(variable), "id"), self._id_type(variable)
            )
            self.filters.append(syntax.IsNull(Attribute(variable, "id")))
        self._warn_of_never(part, reason)

    def _warn_of_never(self, part: Part, reason: str) -> None:
        variable = part.variable
        whole = variable is None or variable in self._sure
        what = "so nothing matches" if whole else f"so no event is ?{variable}"
        place = part.elements[0].place if part.elements else None
        self.warnings.append(Diagnostic("warning", "never-true", f"this PATH is never true, {what}: {reason}", place))

    def _id_type(self, variable: str) -> ValueType:
        kinds = {self.checked.id_kinds[stream] for stream in self._streams(variable)}
        return ValueType.INT if kinds == {"int"} else ValueType.STRING

    def _note(self, rule: Literal["prune", "transform"], part: Part, reasons: Sequence[str]) -> None:
        self.steps += [Step(rule, f"PATH {{{part.text}}}", reason) for reason in reasons]

    def _look_up(self, part: Part, owner: str, *, is_never: bool = False) -> None:
        columns = self._columns(part)
        lookups = [
            lookup_of(part, stream, columns, self.annotations, self.checked.prefixes, owner)
            for stream in self._streams(owner)
        ]
        for place, lookup in enumerate(lookups):
            shared = self.tables.get(lookup.meaning)
            if shared is None:
                self.tables[lookup.meaning] = lookup.table
                if is_never:
                    empty(lookup)
                else:
                    self._fill(lookup)
            else:
                lookups[place] = replace(lookup, table=shared)
                self.steps.append(
                    Step("share", f"PATH {{{part.text}}}", f"{lookup.stream}: an equal one is there already")
                )
        is_known = part.variable is not None and all(look.table.complete for look in lookups)
        if is_known and not is_never and part.flag is None and not any(map(_can_hold, lookups)):
            # Only said: what is known may change, and then the tables have rows.
            among = ", ".join(look.stream for look in lookups)
            self._warn_of_never(part, f"no entity that an event of {among} can have fits it")
        for column in columns:
            names = dict.fromkeys(self._streams(owner), f"?{owner}{column}")
            kind = self.types.get((owner, column)) or _type_of(column, lookups)
            self.attributes[owner, column] = Resolved(names, kind)
            if column[0] == VALUE:
                self.values.setdefault(column[1:], {})[owner] = Attribute(owner, column)
            elif column[0] == FLAG:
                self.flags[column[1:]] = syntax.Compare("=", Attribute(owner, column), Constant(Kind.BOOL, True))
        self.lookups += lookups

    def _fill(self, lookup: PartLookup) -> None:
        text = f"PATH {{{lookup.part.text}}}"
        keys = ", ".join(lookup.key) or "no attribute"
        if self.mode in ("index", "auto") and fill(lookup, self.knowledge):
            count = sum(1 for rows in lookup.table.rows.values() if rows)
            reason = f"{lookup.stream}: by {keys}, {count:,} of {len(lookup.table.rows):,} keys have an answer"
            self.steps.append(Step("index", text, reason))
        elif self.mode == "index":
            raise NotIndexed(
                f"{text} can't be indexed: {keys} of '{lookup.stream}' does not range over entities of the knowledge"
            )
        else:
            mode = "buffer+cache" if self.mode == "auto" else self.mode
            self.steps.append(Step("evaluate", text, f"{lookup.stream}: {mode}, keyed on {keys}"))

    def _columns(self, part: Part) -> list[str]:
        if part.flag is not None:
            return [FLAG + part.flag]
        shared = self.checked.paths.shared
        compared = {n for c in self.checked.paths.compared for n in syntax.variables(c)}
        used = self._used | (compared - (self._compared & self.related))
        found = [VALUE + name for name in part.columns if name in used]
        found += [TERM + name for name in part.columns if name in shared and name not in self.related]
        if names := self._related_in(part):
            found.append(RELATED + " ".join(names))
            if self._is_chosen_first(part) and any(column[0] == VALUE for column in found):
                found.append(RELATED_AT_ALL + " ".join(names))
        return found

    # what events share

    def connected(self) -> list[frozenset[str]]:
        """The variables that events share, together where a part has several of them."""
        paths = self.checked.paths
        joined = paths.shared.keys() | self._compared
        together = [joined & set(part.columns) for part in paths.parts]
        together += [joined & set(syntax.variables(compared)) for compared in paths.compared]
        groups: list[frozenset[str]] = []
        for own in map(frozenset, together):
            apart = [group for group in groups if not group & own]
            groups = [*apart, own.union(*(group for group in groups if group & own))] if own else groups
        return groups

    @property
    def _compared(self) -> set[str]:
        """The variables that PATHs compare, one event's with another's, where none of them is used outside."""
        paths, found = self.checked.paths, set[str]()
        for names in map(syntax.variables, paths.compared):
            if not self._used & set(names) and all(len(paths.owners(name)) == 1 for name in names):
                found.update(names)
        return found

    def _owners(self, names: frozenset[str]) -> list[str]:
        owning = {owner for name in names for owner in self.checked.paths.owners(name)}
        return [v for v in self.checked.event_variables if v in owning]

    def _one_by_one(self) -> frozenset[str]:
        """The variables of which an event with several values can't stand there once for each.

        In other steps every event is tried with every other; these take the first, or all, or ask whether there is one.
        """
        query = self.checked.query
        steps = (syntax.Maybe, syntax.Many, syntax.Absent)
        taking = {v for s in query.seq if isinstance(s, steps) for v in step_variables(s)}
        groups = self.connected()
        return frozenset(
            name for names in groups if query.match == "NEXT" or taking & set(self._owners(names)) for name in names
        )

    def _related_in(self, part: Part) -> tuple[str, ...]:
        own, paths = self.related & set(part.columns), self.checked.paths
        compared = [VALUE + name for name in own & self._compared]
        return tuple(sorted([*(name for name in own if name in paths.shared), *compared]))

    def _is_chosen_first(self, part: Part) -> bool:
        """Whether events are chosen by all that is known of them, and only then the values that are used outside.

        Not where a JOIN demands something of these values, as they are chosen with them.
        """
        names = next(names for names in self.connected() if names & set(part.columns))
        query, owners = self.checked.query, self._owners(names)
        demanded = {n for c in (*query.joins, *self.checked.paths.compared) for n in syntax.variables(c)}
        demanded -= self._compared
        own = {n for p in self.checked.paths.parts if set(p.columns) & names for n in p.columns}
        maybes = {s.variable for s in query.seq if isinstance(s, syntax.Maybe)}
        return (query.match == "NEXT" or bool(maybes & set(owners))) and not demanded & own

    def _relations(self) -> Iterator[Related]:
        for names in self.connected():
            if not names & self.related:
                continue
            own = {str(p.variable): p for p in self.checked.paths.parts if names & set(p.columns)}
            settled, chosen = [], []
            for variable, part in own.items():
                shared = self._related_in(part)
                text = " ".join(shared)
                if (variable, RELATED + text) not in self.attributes:
                    continue
                settled.append((Attribute(variable, RELATED + text), shared))
                is_split = (variable, RELATED_AT_ALL + text) in self.attributes
                chosen.append((Attribute(variable, (RELATED_AT_ALL if is_split else RELATED) + text), shared))
            compared = tuple(self._comparisons(names))
            if settled == chosen:
                yield Related("always", tuple(settled), compared)
            else:
                yield Related("chosen", tuple(chosen), compared)
                yield Related("settled", tuple(settled), compared)

    def _comparisons(self, names: frozenset[str]) -> Iterator[tuple[syntax.Sign, str | Attribute, str | Attribute]]:
        def side(e: Expression) -> str | Attribute:
            assert isinstance(e, syntax.Variable)
            if e.name in self.related & self._compared:
                return VALUE + e.name
            value = self._value(e.name, e.span)
            assert isinstance(value, Attribute)
            return value

        for condition in self.checked.paths.compared:
            if names & self.related & self._compared & set(syntax.variables(condition)):
                assert isinstance(condition, syntax.Compare)
                yield condition.sign, side(condition.left), side(condition.right)

    # names

    @property
    def _used(self) -> set[str]:
        query = self.checked.query
        expressions = [*(s.expression for s in query.select), *query.filters, *query.joins]
        expressions += [query.having] if query.having is not None else []
        found = {
            e.name for expression in expressions for e in syntax.walk(expression) if isinstance(e, syntax.Variable)
        }
        return found - set(self.checked.event_variables)

    @property
    def _sure(self) -> list[str]:
        """The event variables that are bound to one event in every match."""
        loose: set[str] = set()
        for step in self.checked.query.seq:
            if not isinstance(step, syntax.One | syntax.AllOf):
                loose |= set(step_variables(step))
        return [v for v in self.checked.event_variables if v not in loose]

    def _streams(self, variable: str | None) -> tuple[str, ...]:
        return next(r.streams for r in self.checked.query.ranges if r.variable == variable)

    def _property(self, variable: str | None):  # type: ignore[no-untyped-def]
        """Names the attribute of a property, and sees to it that the query knows it."""
        streams = self._streams(variable)

        def name(iri: str) -> str:
            names = {
                stream: attribute
                for stream in streams
                for attribute, annotation in self.annotations.properties(stream).items()
                if annotation.property == iri
            }
            kinds = {self.annotations.properties(s)[a].type.value for s, a in names.items()}
            kind = ValueType.FLOAT if kinds == {"int", "float"} else ValueType(min(kinds))
            own = next(iter(set(names.values()))) if len(set(names.values())) == 1 else f"<{iri}>"
            self.attributes.setdefault((str(variable), own), Resolved(names, kind))
            return own

        return name

    def _term(self, owner: str, name: str) -> Attribute:
        """What a variable that events share is joined on."""
        return Attribute(owner, TERM + name) if (owner, TERM + name) in self.attributes else self.values[name][owner]

    def _value(self, name: str, span: Span | None) -> Expression:
        """What stands for a PATH variable: its value at the event that has it."""
        owners = self.values.get(name, {})
        if not owners:  # in a PATH that is never true
            return Constant(Kind.NULL, None, span)
        sure = [v for v in self._sure if v in owners]
        if sure:
            return owners[sure[0]]
        absent = {s.variable for s in self.checked.query.seq if isinstance(s, syntax.Absent)}
        present = [owners[v] for v in self.checked.event_variables if v in owners and v not in absent]
        if not present:
            return next(iter(owners.values()))
        return present[0] if len(present) == 1 else syntax.Call("COALESCE", tuple(present), span)

    def _rewritten(self, expression: Expression) -> Expression:
        """An expression with attributes in place of PATH variables, and IRIs in place of names."""

        def put(e: Expression) -> Expression:
            if isinstance(e, syntax.Variable) and e.name not in self.checked.event_variables:
                return self._value(e.name, e.span)
            if isinstance(e, Constant) and e.kind is Kind.NAME:
                text = str(e.value)
                iri = text[1:-1] if text.startswith("<") else expand(text, self.checked.prefixes)
                return Constant(Kind.STRING, iri if iri is not None else text, e.span)
            return e

        return syntax.replaced(expression, put)

    def _condition(self, condition: Condition) -> Expression:
        match condition:
            case Flag(_, name):
                return self.flags[name]
            case Either(word, operands):
                return syntax.Logical(word, tuple(map(self._condition, operands)))
            case _:
                return Constant(Kind.BOOL, condition)

    # the result

    def _lowered(self) -> Checked:
        checked, query = self.checked, self.checked.query
        outputs = tuple(self._output(output) for output in checked.outputs)
        lowered = replace(
            query,
            path=None,
            select=tuple(replace(s, expression=self._rewritten(s.expression)) for s in query.select),
            filters=(*map(self._rewritten, query.filters), *self.filters),
            joins=(*map(self._rewritten, query.joins), *self.joins),
            having=None if query.having is None else self._rewritten(query.having),
        )
        attributes = {**checked.attributes, **self.attributes}
        # A PATH variable divides events only where that changes no match: S7's partition is of attributes.
        divides = query.match != "STRICT" and query.after == "KEEP"
        return replace(
            checked,
            query=lowered,
            outputs=outputs,
            attributes=attributes,
            partition=partition(lowered, attributes) if divides else checked.partition,
            origin=query,
            lookups=tuple(self.lookups),
            used={name: self._value(name, None) for name in sorted(self._used)},
            related=tuple(self._relations()),
        )

    def _output(self, output: Output) -> Output:
        expression = self._rewritten(output.expression)
        kind = output.type
        if kind is ValueType.NODE and isinstance(expression, Attribute):
            kind = self.attributes[expression.variable, expression.name].type
        elif kind is ValueType.NODE and isinstance(expression, Constant):
            kind = ValueType.STRING
        condition = None if output.condition is None else self._rewritten(output.condition)
        return replace(output, expression=expression, condition=condition, type=kind)

    # what is unknown

    def _unknown_terms(self) -> Iterator[Diagnostic]:
        """Names that neither the knowledge nor an annotation speaks of: most likely mistyped."""
        own = {a.property for s in self.checked.streams for a in self.annotations.properties(s).values()}
        for group in groups(self.checked.query.path):
            for token in tokens(group):
                if token.kind not in ("name", "iri"):
                    continue
                iri = token.text[1:-1] if token.kind == "iri" else expand(token.text, self.checked.prefixes)
                if iri is None or iri in own or iri.startswith(_WELL_KNOWN) or self.knowledge.knows(iri):
                    continue
                nearest = self.knowledge.nearest(iri, self.checked.prefixes)
                yield Diagnostic(
                    "warning",
                    "unknown-term",
                    f"the knowledge says nothing of {token.text}",
                    span_at(group, token.start, token.end),
                    f"did you mean {nearest}?" if nearest else None,
                )


_WELL_KNOWN: Final = (
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "http://www.w3.org/2000/01/rdf-schema#",
    "http://www.w3.org/2002/07/owl#",
    "http://www.w3.org/2001/XMLSchema#",
    "http://www.w3.org/2005/xpath-functions#",
)


def _can_hold(lookup: PartLookup) -> bool:
    return bool(lookup.table.otherwise) or any(lookup.table.rows.values())


_KINDS: Final[Mapping[type, ValueType]] = {
    bool: ValueType.BOOL,
    int: ValueType.INT,
    float: ValueType.FLOAT,
    str: ValueType.STRING,
}


def _type_of(column: str, lookups: Sequence[PartLookup]) -> ValueType:
    """The type of a column, if all that it can hold is known and of one type."""
    if column[0] != VALUE:
        return ValueType.BOOL if column[0] == FLAG else ValueType.STRING
    kinds: set[type] = set()
    for lookup in lookups:
        if not lookup.table.complete:
            return ValueType.NODE
        place = lookup.columns.index(column)
        values: Iterator[Value] = (row[place] for rows in lookup.table.rows.values() for row in rows)
        kinds |= {type(value) for value in values if value is not None}
        kinds |= {type(row[place]) for row in lookup.table.otherwise if row[place] is not None}
    return _KINDS[kinds.pop()] if len(kinds) == 1 else ValueType.NODE
