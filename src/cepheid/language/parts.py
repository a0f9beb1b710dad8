"""A query's PATHs as conditions: whose each part is, what is joined, and what is known before any event (rules P2-P4).

    PATH {?a :in ?r . ?b :in ?r . :limit :is ?x}      a part of ?a and one of ?b, joined on ?r; :limit ... is nobody's
    PATH {?a :in :x} OR PATH {?b :in :y}              judged on the match: ?a's part holds, or ?b's does

AND joins as SPARQL does: what two PATHs call by one name is one thing. OR is UNION.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

from cepheid.language import syntax
from cepheid.language.path import Element, PathFault, Token, elements, groups, written
from cepheid.language.syntax import Attribute, Expression

#: The root node of an event that is asked for by itself.
ROOT: Final = "urn:cepheid:root:0"


def _as_text(groups: Sequence[Sequence[Element]]) -> str:
    inside = ["\n".join(e.text for e in group) for group in groups]
    return inside[0] if len(inside) == 1 else "\n".join(f"{{ {text} }}" for text in inside)


@dataclass(frozen=True)
class Part:
    """Elements that belong together, of one event variable or of none.

    `groups` keep apart what different PATHs say. `columns` are the variables that are needed outside: used in SELECT or
    JOIN, or shared with another event's part. A `flag` is not demanded: it is a value, true or false, of the event.
    """

    variable: str | None
    groups: tuple[tuple[Element, ...], ...]
    columns: tuple[str, ...] = ()
    flag: str | None = None

    @cached_property
    def elements(self) -> tuple[Element, ...]:
        return tuple(element for group in self.groups for element in group)

    @cached_property
    def variables(self) -> frozenset[str]:
        return frozenset[str]().union(*(e.variables for e in self.elements))

    @cached_property
    def text(self) -> str:
        """The part as SPARQL."""
        return _as_text(self.groups)

    @cached_property
    def text_of_root(self) -> str:
        """The same of one event, whose root node stands wherever its variable does."""
        if self.variable is None:
            return self.text
        return _as_text([[e.with_variable(self.variable, f"<{ROOT}>") for e in group] for group in self.groups])


@dataclass(frozen=True, slots=True)
class Flag:
    """Whether a part holds, as a condition of the match."""

    variable: str
    name: str


Condition: TypeAlias = "Flag | Either | bool"


@dataclass(frozen=True, slots=True)
class Either:
    """Conditions of the match, all or one of which must hold."""

    word: Literal["AND", "OR"]
    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Related:
    """Events that have to share values of variables: there are some that fit all who are bound (rules P2 and P3).

    `members` has for each of them the attribute with what it can share, and of which variables that is. Judged
    `always`, when single events are `chosen`, or once it is `settled` which values the match has of variables that are
    used. `compared` are conditions between values among them, and attributes.
    """

    when: Literal["always", "chosen", "settled"]
    members: tuple[tuple[Attribute, tuple[str, ...]], ...]
    compared: tuple[tuple[syntax.Sign, str | Attribute, str | Attribute], ...] = ()


@dataclass(frozen=True)
class Divided:
    """What a query's PATHs ask.

    `shared` has, for each variable that several events' parts have, those events in order. `compared` are FILTERs
    between variables of different events, which are JOINs.
    """

    parts: tuple[Part, ...] = ()
    conditions: tuple[Condition, ...] = ()
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compared: tuple[Expression, ...] = ()

    def owners(self, name: str) -> tuple[str, ...]:
        """The event variables whose parts bind a PATH variable, in order."""
        owning = (p.variable for p in self.parts if p.variable is not None and name in p.columns)
        return tuple(dict.fromkeys(owning))


def divide(path: syntax.Path | None, events: Sequence[str], used: AbstractSet[str]) -> Divided:
    """The parts of PATHs. `used` are the variables that are used outside of them. Raises PathFault."""
    if path is None:
        return Divided()
    return _Divider(tuple(events), used).run(path)


@dataclass
class _Divider:
    events: tuple[str, ...]
    used: AbstractSet[str]
    flags: list[Part] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    compared: list[Expression] = field(default_factory=list)

    def run(self, path: syntax.Path) -> Divided:
        conjuncts = path.operands if isinstance(path, syntax.PathLogical) and path.word == "AND" else (path,)
        groups: list[list[Element]] = []
        for conjunct in conjuncts:
            if isinstance(conjunct, syntax.PathGroup):
                groups.append(elements(conjunct))
            elif len(self._events_of(_all_variables(conjunct))) > 1:
                self.conditions.append(self._condition(conjunct))
            else:
                groups.append([_union(conjunct)])
        parts = [part for section in _sections(groups) for part in self._parts(section)]
        columns = self._columns(parts)
        shared = {
            name: owners
            for name in dict.fromkeys(n for p in parts for n in sorted(p.variables))
            if len(owners := tuple(p.variable for p in parts if p.variable and name in p.variables)) > 1
            and name not in self.events
        }
        named = [Part(p.variable, p.groups, tuple(sorted(columns & (p.variables - {p.variable})))) for p in parts]
        return Divided((*named, *self.flags), tuple(self.conditions), shared, tuple(self.compared))

    def _events_of(self, variables: Iterable[str]) -> list[str]:
        known = set(variables)
        return [e for e in self.events if e in known]

    def _columns(self, parts: Sequence[Part]) -> frozenset[str]:
        """The variables that are needed outside of their part."""
        counts: dict[str, int] = {}
        for part in parts:
            for name in part.variables - set(self.events):
                counts[name] = counts.get(name, 0) + 1
        shared = {name for name, count in counts.items() if count > 1}
        compared = {name for c in self.compared for name in syntax.variables(c)}
        return frozenset(shared | set(self.used) | compared)

    # parts

    def _parts(self, groups: Sequence[Sequence[Element]]) -> list[Part]:
        """The parts of what shared variables connect: one, or one for each event variable in it."""
        found = self._events_of({v for group in groups for e in group for v in e.variables})
        whole = tuple(tuple(group) for group in groups if group)
        if len(found) < 2:
            return [Part(found[0] if found else None, whole)]
        labels = self._labels(groups, found)
        return [
            Part(event, tuple(kept for group in groups if (kept := tuple(e for e in group if labels.get(e) == event))))
            for event in found
        ]

    def _labels(self, groups: Sequence[Sequence[Element]], events: Sequence[str]) -> dict[Element, str]:
        """The event variable that each element belongs to: the nearest. What compares two events' variables has none.

        However elements are dealt out, the parts joined on what they share mean what the whole does, as long as each
        element that is more than a triple stays with all that it reads.
        """
        items = [element for group in groups for element in group]
        patterns = [e for e in items if e.kind != "filter"]
        near: dict[str, str] = {event: event for event in events}
        labels: dict[Element, str] = {}
        while len(labels) < len(patterns):
            ring = [
                (e, owner)
                for e in patterns
                if e not in labels and (owner := next((near[v] for v in _from_subject(e) if v in near), None))
            ]
            if not ring:  # what only a FILTER connects is with who that speaks of
                reading = [(e, sorted(e.variables & near.keys())) for e in items if e.kind == "filter"]
                named = {v: near[known[0]] for e, known in reading if known for v in e.variables - near.keys()}
                near |= named or {v: events[0] for e in patterns if e not in labels for v in e.links}
                continue
            for element, owner in ring:
                own = self._events_of(element.variables)
                labels[element] = own[0] if own else owner
                if len(own) > 1:
                    raise _two_events(element, own)
            for element, _ in ring:
                for name in element.links:
                    near.setdefault(name, labels[element])
        reach = {event: self._reach(event, labels) for event in events}
        for element in patterns:
            if element.kind != "triple":
                self._stays_whole(element, labels, reach)
        for element in items:
            if element.kind == "filter":
                homes = [event for event in events if element.variables <= reach[event]]
                if homes:
                    labels[element] = homes[0]
                else:
                    self.compared.append(_as_expression(element))
        return labels

    def _reach(self, event: str, labels: Mapping[Element, str]) -> set[str]:
        return {v for e, owner in labels.items() if owner == event for v in e.variables} | {event}

    def _stays_whole(self, element: Element, labels: Mapping[Element, str], reach: Mapping[str, set[str]]) -> None:
        """An OPTIONAL, BIND or UNION reads what is bound beside it; all of that must be one event's."""
        own = labels[element]
        elsewhere = [
            event
            for event in reach
            if event != own and any(e is not element and o == event and e.variables & element.variables
                                    for e, o in labels.items())
        ]  # fmt: skip
        if elsewhere:
            raise _two_events(element, [event for event in reach if event == own or event in elsewhere])

    # conditions of the match

    def _condition(self, path: syntax.Path) -> Condition:
        own = self._events_of(_all_variables(path))
        if isinstance(path, syntax.PathLogical) and len(own) > 1:
            return Either(path.word, tuple(self._condition(operand) for operand in path.operands))
        items = [elements(path)] if isinstance(path, syntax.PathGroup) else [[_union(path)]]
        outside = sorted(set(self.used) & _all_variables(path) - set(self.events))
        if outside:
            raise PathFault(
                "path-or",
                f"?{outside[0]} is used outside of an OR between different events' PATHs, which is only true or false",
                next(groups(path)).span,
                "write a query for each side of the OR",
            )
        flags: list[Condition] = []
        for section in _sections(items):
            names = self._events_of({v for group in section for e in group for v in e.variables})
            if len(names) > 1:
                raise _two_events(section[0][0], names)
            name = f"{len(self.flags)}"
            whole = tuple(tuple(group) for group in section if group)
            self.flags.append(Part(names[0] if names else None, whole, (), name))
            flags.append(Flag(names[0] if names else "", name))
        return flags[0] if len(flags) == 1 else Either("AND", tuple(flags))


def _from_subject(element: Element) -> list[str]:
    """What connects an element, the subject of a triple first: a path belongs to where it comes from."""
    subject = [t.text[1:] for t in element.ends[0] if t.kind == "variable"] if element.ends is not None else []
    return [*subject, *sorted(element.links - set(subject))]


def _two_events(element: Element, events: Sequence[str]) -> PathFault:
    shown = " and ".join(f"?{e}" for e in events)
    return PathFault(
        "path-events",
        f"this reads what belongs to {shown} at once, so it can't be judged for each of them (rule P2)",
        element.place,
        "say it of one event, or compare them with JOIN outside of the PATH",
    )


def _sections(groups: Sequence[Sequence[Element]]) -> list[list[list[Element]]]:
    """The elements by the parts that shared variables connect; each part keeps its groups apart, and their order."""
    items = [(g, element) for g, group in enumerate(groups) for element in group]
    parent = list(range(len(items)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    seen: dict[str, int] = {}
    for i, (g, element) in enumerate(items):
        for name in element.links:
            # A blank node's label is its PATH's own.
            key = f"{g}{name}" if name.startswith("_:") else name
            parent[root(i)] = root(seen.setdefault(key, i))
    found: dict[int, dict[int, list[Element]]] = {}
    for i, (g, element) in enumerate(items):
        found.setdefault(root(i), {}).setdefault(g, []).append(element)
    return [list(by_group.values()) for by_group in found.values()]


def _all_variables(path: syntax.Path) -> set[str]:
    if isinstance(path, syntax.PathGroup):
        return {v for e in elements(path) for v in e.variables}
    return set[str]().union(*map(_all_variables, path.operands))


def _union(path: syntax.Path) -> Element:
    """PATHs joined by OR, or by AND inside an OR, as one element."""
    return Element("group", tuple(_union_tokens(path)), next(groups(path)).place)


def _union_tokens(path: syntax.Path) -> list[Token]:
    brace, closing = Token("sign", "{", -2, -2), Token("sign", "}", -2, -2)
    if isinstance(path, syntax.PathGroup):
        inside: list[Token] = []
        for element in elements(path):
            inside += [*element.tokens, *([Token("sign", ".", -2, -2)] if element.kind == "triple" else [])]
        return [brace, *inside, closing]
    found: list[Token] = [brace]
    for i, operand in enumerate(path.operands):
        found += [Token("word", "UNION", -2, -2)] if i and path.word == "OR" else []
        found += _union_tokens(operand)
    return [*found, closing]


# FILTERs between events


_SIGNS: Final[Mapping[str, syntax.Sign]] = {
    "=": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


def _as_expression(element: Element) -> Expression:
    """A FILTER that compares two variables, as a JOIN."""
    match [t for t in element.tokens if t.text not in ("(", ")")]:
        case [_, Token("variable") as left, Token("sign", sign), Token("variable") as right] if sign in _SIGNS:
            return syntax.Compare(
                _SIGNS[sign], syntax.Variable(left.text[1:]), syntax.Variable(right.text[1:]), element.place
            )
    raise PathFault(
        "path-events",
        f"{written(element.tokens)} is between different events; such a FILTER compares two variables",
        element.place,
        "write it as a JOIN outside of the PATH",
    )
