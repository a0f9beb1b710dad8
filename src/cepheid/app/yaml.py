"""YAML that knows where everything stands: plain values for the schema, and the place of each for the errors.

PyYAML composes the tree; we resolve scalars ourselves, by YAML 1.2's rules, so that `on`, `1:30` and `2012-05-07` stay
the text that was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from cepheid.language.errors import Diagnostic, Rejected, Source, Span

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"
Location: TypeAlias = tuple[str | int, ...]

#: A larger application file is refused: a hundred thousand operators take 10 MB.
MAX_BYTES: Final = 256 * 1024 * 1024

_MERGE: Final = "tag:yaml.org,2002:merge"
_INT = re.compile(r"[-+]?[0-9]+$", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$", re.ASCII)
_VARIABLE = re.compile(r"\$(\$\{|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})")
_CONSTANTS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}


class Text(str):
    """Text from a file, which remembers the folder of that file: paths in it are relative to it."""

    __slots__ = ("folder",)
    folder: Path


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Composes without resolving any scalar but the merge key."""


_Loader.yaml_implicit_resolvers = {"<": [(_MERGE, re.compile("<<$"))]}


@dataclass(slots=True)
class Document:
    """One YAML file: its composed tree and its source."""

    path: Path
    source: Source
    root: yaml.Node | None
    problems: list[Diagnostic] = field(default_factory=list)

    def span(self, location: Location, *, key: bool = False) -> Span | None:
        """The place of the value at a location, or with `key` of its name; if it isn't there, of what is above it."""
        node, name_node = self.root, None
        for i, step in enumerate(location):
            found = self._child(node, step)
            if found is None:
                # Tags that the schema adds to a location (the kind in a union) name no node: look past them.
                if any(self._child(node, later) for later in location[i + 1 :]):
                    continue
                stays = isinstance(step, int) or isinstance(node, yaml.ScalarNode)
                return self._span(node if stays else name_node or node)
            name_node, node = found
        return self._span(name_node if key and name_node is not None else node)

    def _child(self, node: yaml.Node | None, step: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
        if isinstance(node, yaml.MappingNode):
            return next((pair for pair in _pairs(node) if pair[0].value == str(step)), None)
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            return None, node.value[step]
        return None

    def _span(self, node: yaml.Node | None) -> Span | None:
        if node is None:
            return Span(self.source, 1, 1, 1, 1)
        start, end = node.start_mark, node.end_mark
        return Span(self.source, start.line + 1, start.column + 1, end.line + 1, end.column + 1)

    def values(self, environment: Mapping[str, str]) -> Plain:
        """The plain values, variables filled in. Faults go to `problems`."""
        return None if self.root is None else _Values(self, environment).of(self.root, ())


def compose(path: Path, shown: str) -> Document:
    """Read a YAML file; Rejected if it can't be read or parsed. `shown` is its name in messages."""
    text = _read(path, shown)
    source = Source(shown, text)
    try:
        return Document(path, source, yaml.compose(text, Loader=_Loader))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        what = " ".join(part for part in (problem.problem, problem.context) if part)
        hint = "quote text that begins with a special character" if "cannot start any token" in what else None
        if "'\\t'" in what or (mark and "\t" in source.line(mark.line + 1)[: mark.column + 1]):
            hint = "YAML is indented with spaces, not tabs"
        span = Span(source, mark.line + 1, mark.column + 1, mark.line + 1, mark.column + 2) if mark else None
        raise Rejected([Diagnostic("error", "not-yaml", f"not YAML: {what}", span, hint)]) from None
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        span = Span(source, 1, 1, 1, 1)
        raise Rejected([Diagnostic("error", "not-yaml", f"not YAML: {_first_line(problem)}", span)]) from None


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]


def _read(path: Path, shown: str) -> str:
    def reject(message: str, hint: str | None = None) -> Rejected:
        return Rejected([Diagnostic("error", "unreadable", f"{shown}: {message}", None, hint)])

    try:
        if path.stat().st_size > MAX_BYTES:
            raise reject(f"larger than {MAX_BYTES // 2**20} MiB")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        near = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise reject("no such file", f"here: {', '.join(sorted(near)[:8])}" if near else None) from None
    except UnicodeDecodeError as error:
        raise reject(f"not a text file (byte {error.start + 1} is not UTF-8)") from None
    except OSError as error:
        raise reject(str(error.strerror or error)) from None


def _pairs(node: yaml.MappingNode) -> list[tuple[yaml.Node, yaml.Node]]:
    """The pairs of a mapping, those merged with `<<` after its own."""
    own, merged = [], []
    for name, value in node.value:
        if name.tag == _MERGE:
            parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
            merged += [pair for part in parts if isinstance(part, yaml.MappingNode) for pair in part.value]
        else:
            own.append((name, value))
    if merged:
        names = {name.value for name, _ in own if isinstance(name, yaml.ScalarNode)}
        for name, value in merged:
            if isinstance(name, yaml.ScalarNode) and name.value not in names and name.tag != _MERGE:
                names.add(name.value)
                own.append((name, value))
    return own


class _Values:
    """Turns nodes into plain values."""

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self._document = document
        self._environment = environment
        self._folder = document.path.parent
        self._open: set[int] = set()

    def of(self, node: yaml.Node, location: Location) -> Plain:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, location)
        if id(node) in self._open:
            self._fault(node, "alias-loop", "an alias that contains itself")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.of(item, (*location, i)) for i, item in enumerate(node.value)]
            assert isinstance(node, yaml.MappingNode)
            return self._mapping(node, location)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Plain]:
        first: dict[str, yaml.Node] = {}
        result: dict[str, Plain] = {}
        for name_node, value in _pairs(node):
            if not isinstance(name_node, yaml.ScalarNode):
                self._fault(name_node, "wrong-type", "a name must be text, not a list or a mapping")
                continue
            name = name_node.value
            if name in first:
                line = first[name].start_mark.line + 1
                self._fault(name_node, "duplicate-name", f"'{name}' is given twice; the first is on line {line}")
                continue
            first[name] = name_node
            result[name] = self.of(value, (*location, name))
        return result

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Plain:
        text = node.value
        # In a flow mapping a variable has to be quoted; alone in its quotes it may still mean a number.
        plain = not node.style or _VARIABLE.fullmatch(text) is not None
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

    def _variable(self, node: yaml.Node, found: re.Match[str]) -> str:
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

    def _fault(self, node: yaml.Node, code: str, message: str, hint: str | None = None) -> None:
        span = self._document._span(node)
        self._document.problems.append(Diagnostic("error", code, message, span, hint))


def environment() -> Mapping[str, str]:
    """The variables that `${NAME}` can take."""
    return os.environ
