"""YAML that knows where everything stands: plain values for the schema, and the place of each for the errors.

PyYAML parses; we compose its events ourselves, without recursion, so that nesting has a limit and not the stack's, and
resolve scalars by YAML 1.2's rules, so that `on`, `1:30` and `2012-05-07` stay the text that was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import yaml

from cepheid.language.errors import Diagnostic, Rejected, Source, Span

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"
Location: TypeAlias = tuple[str | int, ...]

#: A larger application file is refused: a hundred thousand operators take 10 MB.
MAX_BYTES: Final = 256 * 2**20
#: Deeper nesting is refused: no section needs more than eight.
MAX_DEPTH: Final = 64
#: More values are refused, aliases counted as often as they are used.
MAX_VALUES: Final = 3_000_000

_INT = re.compile(r"[-+]?[0-9]+$", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$", re.ASCII)
_VARIABLE = re.compile(r"\$(\$\{|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})")
_CONSTANTS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_CORE_TAGS: Final = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}

_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Text(str):
    """Text from a file, which remembers the folder of that file: paths in it are relative to it."""

    __slots__ = ("folder",)
    folder: Path


#: Line and column, from 0.
_Place: TypeAlias = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Scalar:
    start: _Place
    end: _Place
    value: str
    plain: bool
    style: str | None


@dataclass(slots=True, eq=False)
class _Sequence:
    start: _Place
    end: _Place
    items: list[_Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Mapping:
    start: _Place
    end: _Place
    items: list[_Node] = field(default_factory=list)  # names and values in turn

    def pairs(self, depth: int = 0) -> list[tuple[_Node, _Node]]:
        """Names and values, those merged with `<<` after its own."""
        own, merged = [], []
        for name, value in zip(self.items[::2], self.items[1::2], strict=True):
            if isinstance(name, _Scalar) and name.plain and name.value == "<<":
                parts = value.items if isinstance(value, _Sequence) else [value]
                if depth < MAX_DEPTH:  # a mapping can be made to merge itself
                    merged += [p for part in parts if isinstance(part, _Mapping) for p in part.pairs(depth + 1)]
            else:
                own.append((name, value))
        names = {name.value for name, _ in own if isinstance(name, _Scalar)} if merged else set()
        for name, value in merged:
            if isinstance(name, _Scalar) and name.value not in names:
                names.add(name.value)
                own.append((name, value))
        return own


_Node: TypeAlias = _Scalar | _Sequence | _Mapping


@dataclass(slots=True)
class Document:
    """One YAML file: its composed tree and its source."""

    path: Path
    source: Source
    root: _Node | None
    problems: list[Diagnostic] = field(default_factory=list)

    def span(self, location: Location, *, key: bool = False) -> Span | None:
        """The place of the value at a location, or with `key` of its name; if it isn't there, of what is above it."""
        node: _Node | None = self.root
        name_node: _Node | None = None
        for i, step in enumerate(location):
            found = _child(node, step)
            if found is None:
                # Tags that the schema adds to a location (the kind in a union) name no node: look past them.
                if any(_child(node, later) for later in location[i + 1 :]):
                    continue
                stays = isinstance(step, int) or isinstance(node, _Scalar)
                return self.span_of(node if stays else name_node or node)
            name_node, node = found
        return self.span_of(name_node if key and name_node is not None else node)

    def has(self, location: Location) -> bool:
        """Whether something stands at a location."""
        node = self.root
        for step in location:
            found = _child(node, step)
            if found is None:
                return False
            node = found[1]
        return True

    def span_of(self, node: _Node | None) -> Span:
        if node is None:
            return Span(self.source, 1, 1, 1, 1)
        (line, column), (end_line, end_column) = node.start, node.end
        return Span(self.source, line + 1, column + 1, end_line + 1, end_column + 1)

    def span_inside(self, location: Location, inside: Span) -> Span:
        """The place in this file of a place in the text at a location, however that text is quoted or folded."""
        node = self.root
        for step in location:
            found = _child(node, step)
            if found is not None:
                node = found[1]
        whole = self.span_of(node)
        if not isinstance(node, _Scalar):
            return whole
        places = _written(node, self.source)
        lines = node.value.split("\n")

        def before(line: int, column: int) -> int:
            return sum(len("".join(text.split())) for text in (*lines[: line - 1], lines[line - 1][: column - 1]))

        if not places or max(inside.line, inside.end_line) > len(lines):
            return whole
        first, last = before(inside.line, inside.column), before(inside.end_line, inside.end_column)
        stands = lines[inside.line - 1][inside.column - 1 : inside.column].strip()
        begins = stands or first == 0
        line, column = places[first] if begins else (places[first - 1][0], places[first - 1][1] + 1)
        end_line, end_column = places[last - 1] if last > first else (line, column)
        return Span(self.source, line + 1, column + 1, end_line + 1, end_column + 2)

    def values(self, environment: Mapping[str, str]) -> Plain:
        """The plain values, variables filled in. Faults go to `problems`."""
        return None if self.root is None else _Values(self, environment).of(self.root, ())


#: What stands for another character in text in quotes.
_ESCAPE: Final = {
    "'": re.compile("''"),
    '"': re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|$)", re.DOTALL),
}


def _written(node: _Scalar, source: Source) -> list[_Place]:
    """Where each character of a text that is no blank stands; none if that can't be told.

    Folding and indentation change nothing but blanks, so that the others follow each other as they are written.
    """
    wanted = "".join(node.value.split())
    line, column = node.start
    if node.style in ("|", ">"):
        line, column = line + 1, 0
    elif node.style:
        column += 1
    escape = _ESCAPE.get(node.style or "")
    places: list[_Place] = []
    for number in range(line, node.end[0] + 1):
        text = source.line(number + 1)
        while column < len(text) and len(places) < len(wanted):
            escaped = escape.match(text, column) if escape else None
            length = escaped.end() - column if escaped else 1
            meant = _meant(escaped.group()) if escaped else text[column]
            if not meant.isspace():
                if meant != wanted[len(places)]:
                    return []
                places.append((number, column))
            column += length
        column = 0
    return places if len(places) == len(wanted) else []


def _meant(escaped: str) -> str:
    """The character that an escape stands for; a blank for every kind of it."""
    if len(escaped) > 2:
        return chr(int(escaped[2:], 16))
    return " " if escaped[1:] in "ntrLNP_ " else escaped[1]


def _child(node: _Node | None, step: str | int) -> tuple[_Node | None, _Node] | None:
    if isinstance(node, _Mapping):
        for name, value in node.pairs():
            if isinstance(name, _Scalar) and name.value == str(step):
                return name, value
    elif isinstance(node, _Sequence) and isinstance(step, int) and step < len(node.items):
        return None, node.items[step]
    return None


def compose(path: Path, shown: str) -> Document:
    """Read a YAML file; Rejected if it can't be read or parsed. `shown` is its name in messages."""
    source = Source(shown, _read(path, shown))
    try:
        return Document(path, source, _compose(source))
    except yaml.MarkedYAMLError as problem:
        place = _place(problem.problem_mark or problem.context_mark)
        what = " ".join(part for part in (problem.problem, problem.context) if part)
        hint = next((hint for part, hint in _MENDED.items() if part in what), _FORM)
        if "\t" in source.line(place[0] + 1)[: place[1] + 1]:
            hint = "YAML is indented with spaces, not tabs"
        _reject(source, place, what, hint)
    except (yaml.YAMLError, ValueError) as problem:
        if isinstance(problem, Rejected):
            raise
        _reject(source, (0, 0), (str(problem).splitlines() or [type(problem).__name__])[0], _FORM)


def _place(mark: Any) -> _Place:
    """Of a mark, of which PyYAML has two classes and sometimes none."""
    return (mark.line, mark.column) if mark is not None else (0, 0)


_FORM: Final = "the form is `name: value`, indented by spaces; {a: 1, b: 2} and [a, b] on one line"
#: What to do about a message of the parser that has these words.
_MENDED: Final = {
    "cannot start any token": "quote text that begins with a special character",
    "',' or '}'": "close the braces, and put commas between what is in them; quote text that has : or , in it",
    "',' or ']'": "close the brackets, and put commas between what is in them; quote text that has : or , in it",
    "mapping values are not allowed": "put text that has a colon and a space in it into quotes",
    "end of stream": "close the quotes that begin here",
    "could not find expected ':'": "a name has a colon and a space after it: `name: value`",
    "block end": "names of one mapping begin in the same column",
    "alias": "an alias is *name; quote text that begins with *",
}


def _reject(source: Source, place: _Place, what: str, hint: str) -> NoReturn:
    line, column = place
    lines = source.text.rstrip().split("\n")
    if line >= len(lines):  # what is missing at the end follows the last words
        line, column = len(lines) - 1, len(lines[-1])
    span = Span(source, line + 1, column + 1, line + 1, column + 2)
    raise Rejected([Diagnostic("error", "not-yaml", f"not YAML: {what}", span, hint)]) from None


_APART: Final = "take out the ---, or put the rest into a file of its own and name it in `include`"


def _compose(source: Source) -> _Node | None:
    """The tree of the only document, from the parser's events."""
    root: _Node | None = None
    open_nodes: list[_Sequence | _Mapping] = []
    anchors: dict[str, _Node] = {}
    documents = 0
    for event in yaml.parse(source.text, Loader=_Parser):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                _reject(
                    source, _place(event.start_mark), "a second document begins here; an application is one", _APART
                )
        if isinstance(event, yaml.CollectionEndEvent):
            open_nodes.pop().end = _place(event.end_mark)
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        node = _node(source, event, anchors)
        if open_nodes:
            open_nodes[-1].items.append(node)
        else:
            root = node
        if isinstance(event, yaml.CollectionStartEvent):
            assert not isinstance(node, _Scalar)
            open_nodes.append(node)
            if len(open_nodes) > MAX_DEPTH:
                _reject(
                    source,
                    _place(event.start_mark),
                    f"nested more than {MAX_DEPTH} deep",
                    "no section needs more than eight",
                )
    return root


def _node(source: Source, event: yaml.NodeEvent, anchors: dict[str, _Node]) -> _Node:
    start, end = _place(event.start_mark), _place(event.end_mark)
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in anchors:
            hint = f"name it above: &{event.anchor}; or quote text that begins with *"
            _reject(source, start, f"nothing is called &{event.anchor} above", hint)
        return anchors[event.anchor]
    tag: str | None = getattr(event, "tag", None)
    if tag is not None and tag not in _CORE_TAGS:
        _reject(source, start, f"the tag {tag} has no meaning here", "quote text that begins with !")
    node: _Node
    if isinstance(event, yaml.ScalarEvent):
        node = _Scalar(start, end, event.value, not event.style and tag is None, event.style)
    else:
        node = (_Sequence if isinstance(event, yaml.SequenceStartEvent) else _Mapping)(start, end)
    if event.anchor is not None:
        anchors[event.anchor] = node
    return node


_ABSENT: Final = "an application is a YAML file; there is none in that folder"


def _read(path: Path, shown: str) -> str:
    def reject(message: str, hint: str) -> Rejected:
        return Rejected([Diagnostic("error", "unreadable", f"{shown}: {message}", None, hint)])

    try:
        if path.stat().st_size > MAX_BYTES:
            raise reject(f"larger than {MAX_BYTES // 2**20} MiB", "is this an application, and not data?")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise reject("no such file", f"here: {', '.join(sorted(near)[:8])}" if near else _ABSENT) from None
    except UnicodeDecodeError as error:
        hint = f"convert it: iconv -f latin1 -t utf-8 {path.name}"
        raise reject(f"not a text file (byte {error.start + 1} is not UTF-8)", hint) from None
    except OSError as error:
        raise reject(str(error.strerror or error), "an application is a YAML file that can be read") from None


class _Values:
    """Turns nodes into plain values."""

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document = document
        self._environment = environment
        self._folder = document.path.parent
        self._count = 0

    def of(self, node: _Node, location: Location) -> Plain:
        self._count += 1
        if self._count > MAX_VALUES:
            what = f"more than {MAX_VALUES:,} values, counting what aliases repeat"
            _reject(self._document.source, node.start, what, "write out what is needed of it instead of the alias")
        if len(location) > MAX_DEPTH:
            hint = "an alias stands for what was written before it: move it out of what it names"
            _reject(self._document.source, node.start, "an alias that contains itself", hint)
        if isinstance(node, _Scalar):
            return self._scalar(node, location)
        if isinstance(node, _Sequence):
            return [self.of(item, (*location, i)) for i, item in enumerate(node.items)]
        return self._mapping(node, location)

    def _mapping(self, node: _Mapping, location: Location) -> dict[str, Plain]:
        first: dict[str, _Node] = {}
        result: dict[str, Plain] = {}
        for name_node, value in node.pairs():
            if not isinstance(name_node, _Scalar):
                message = "a name must be text, not a list or a mapping"
                self._fault(name_node, "wrong-type", message, "such as `name: value`")
                continue
            name = name_node.value
            if name in first:
                line = first[name].start[0] + 1
                message = f"'{name}' is given twice; the first is on line {line}"
                self._fault(name_node, "duplicate-name", message, "rename one of them, or make them one")
                continue
            first[name] = name_node
            result[name] = self.of(value, (*location, name))
        return result

    def _scalar(self, node: _Scalar, location: Location) -> Plain:
        text = node.value
        if "\0" in text:
            self._fault(node, "wrong-form", "a null character has no meaning here", "take it out")
            text = text.replace("\0", "")
        # In a flow mapping a variable has to be quoted; alone in its quotes it may still mean a number.
        plain = node.plain or _VARIABLE.fullmatch(text) is not None
        # A query's text is the language's own; everywhere else a user may want the environment.
        if "${" in text and not (location[:1] == ("queries",) and location[-1:] == ("text",)):
            text = _VARIABLE.sub(lambda found: self._variable(node, found), text)
        if plain:
            if text in _CONSTANTS:
                return _CONSTANTS[text]
            if _INT.match(text) and len(text) < 400:
                return int(text)
            if _FLOAT.match(text) and len(text) < 400:
                return float(text)
        result = Text(text)
        result.folder = self._folder
        return result

    def _variable(self, node: _Node, found: re.Match[str]) -> str:
        if found[1] == "${":
            return "${"
        name, default = found[2], found[3]
        value = self._environment.get(name)
        if value:
            return value
        if default is not None:
            return default
        self._fault(
            node,
            "unset-variable",
            f"the environment variable {name} is not set",
            f"set it, or give a default: ${{{name}:-value}}",
        )
        return ""

    def _fault(self, node: _Node, code: str, message: str, hint: str) -> None:
        span = self._document.span_of(node)
        self._document.problems.append(Diagnostic("error", code, message, span, hint))


def environment() -> Mapping[str, str]:
    """The variables that `${NAME}` can take."""
    return os.environ
