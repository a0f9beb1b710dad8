"""Writes the reference of the application file and its JSON Schema: `python -m cepheid.app.reference` (make docs).

Both come from the schema in the code, so they can't say anything else than the program does; a test compares them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cepheid.app.schema import OperatorSection, json_schema
from cepheid.model.types import Type
from cepheid.plan.operators import KINDS

#: The sections of the reference, in reading order: heading, definition, and where it stands in the file.
_SECTIONS: Final = (
    ("The top level", None, ""),
    ("streams", "StreamSection", "streams.NAME"),
    ("graph", "OperatorSection", "graph.NAME"),
    ("consumers", "ConsumerSection", "consumers.NAME"),
    ("queries", "QuerySection", "queries.NAME"),
    ("knowledge", "KnowledgeSection", "knowledge"),
    ("knowledge.semantics", "SemanticsSection", "knowledge.semantics"),
    ("archive", "ArchiveSection", "archive"),
    ("service", "ServiceSection", "service"),
    ("service.log", "LogSection", "service.log"),
)
_SOURCES: Final = ("SocketSource", "MqttSource", "KafkaSource", "FilesSource", "RateSource", "PythonSource")


def reference() -> str:
    """The reference as Markdown."""
    return "\n".join(_lines(json_schema())) + "\n"


def _lines(schema: dict[str, Any]) -> Iterator[str]:
    definitions = schema["$defs"]
    yield "# The application file"
    yield ""
    yield "Generated from the schema in the code by `make docs`. An editor that knows JSON Schema checks and completes"
    yield "the file with [application.schema.json](application.schema.json): put"
    yield "`# yaml-language-server: $schema=application.schema.json` on its first line."
    yield ""
    yield "- Durations are a number and a unit: `us ms s min h d`, such as `10ms` or `1h30min`."
    yield f"- Types of attributes: {', '.join(f'`{t.value}`' for t in Type)}."
    yield "- `${NAME}` takes an environment variable, `${NAME:-default}` with a default, in any value but a query's"
    yield "  text; `$${` is a literal `${`."
    yield "- `include` adds the sections of other files. Paths are relative to the file they stand in."
    yield "- `cepheid check FILE` says everything that is wrong with a file."
    for heading, name, place in _SECTIONS:
        definition = schema if name is None else definitions.get(name) or _common_operator(definitions)
        yield ""
        yield f"## {heading}"
        yield ""
        yield definition["description"].splitlines()[0] + (f" At `{place}`." if place else "")
        yield ""
        yield from _table(definition, definitions)
        if name == "StreamSection":
            yield from _variants("source", "A stream's `source` is one of these kinds.", _SOURCES, definitions)
            yield from _subsection("semantics", "AnnotationSection", "A bare text is the property.", definitions)
        if name == "OperatorSection":
            names = [f"{kind.name.capitalize()}Operator" for kind in KINDS.values()]
            yield from _subsection("relative", "RelativeSection", "Each is a mapping.", definitions)
            yield from _variants("kinds", "Besides these, each kind has its own.", names, definitions)


def _common_operator(definitions: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = OperatorSection.model_json_schema()
    definitions.update(found.get("$defs", {}))
    return found


def _variants(
    heading: str, intro: str, names: list[str] | tuple[str, ...], definitions: dict[str, Any]
) -> Iterator[str]:
    common = {"inputs", "relative", "share", "fire", "kind"} if heading == "kinds" else {"kind"}
    yield ""
    yield f"### {heading}"
    yield ""
    yield intro
    for name in names:
        definition = definitions[name]
        kind = definition["properties"]["kind"]["const"]
        arity = f" Takes {KINDS[kind].arity}." if heading == "kinds" else ""
        yield ""
        yield f"**`{kind}`**: {definition['description']}{arity}"
        own = {**definition, "properties": {k: v for k, v in definition["properties"].items() if k not in common}}
        if own["properties"]:
            yield ""
            yield from _table(own, definitions)


def _subsection(heading: str, name: str, note: str, definitions: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield f"### {heading}"
    yield ""
    yield f"{definitions[name]['description']} {note}"
    yield ""
    yield from _table(definitions[name], definitions)


def _table(definition: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    required = set(definition.get("required", ()))
    yield "| name | value | default | |"
    yield "|---|---|---|---|"
    for name, field in definition["properties"].items():
        default = "required" if name in required else _default(field)
        yield f"| `{name}` | {_value(field, definitions)} | {default} | {field.get('description', '')} |"


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value is None or value in ([], {}):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _value(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """What a value looks like, in a few words."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        return _value(definitions[name], definitions) if "properties" not in definitions[name] else "mapping"
    for key in ("anyOf", "oneOf"):
        if key in field:
            words = [_value(option, definitions) for option in field[key] if option.get("type") != "null"]
            return " or ".join(dict.fromkeys(words))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    if field.get("examples") == ["10ms", "5min"]:
        return "duration"
    if field.get("examples") == ["500MB", "10GB"]:
        return "size"
    if field.get("type") == "array":
        return f"list of {_value(field['items'], definitions)}"
    if field.get("type") == "object":
        inner = next(iter(field.get("patternProperties", {}).values()), field.get("additionalProperties"))
        return f"mapping of {_value(inner, definitions)}" if isinstance(inner, dict) else "mapping"
    return _PLAIN.get(str(field.get("type")), "value")


_PLAIN: Final = {"string": "text", "integer": "whole number", "number": "number", "boolean": "`true` or `false`"}


def write(folder: Path) -> list[Path]:
    """Write both files into a folder."""
    files = {
        folder / "application.md": reference(),
        folder / "application.schema.json": json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
    }
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


if __name__ == "__main__":
    docs = Path("docs")
    docs.mkdir(exist_ok=True)
    for written in write(docs):
        print(written)
