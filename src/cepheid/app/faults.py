"""What the schema finds wrong with an application, in the words of its users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import ErrorDetails

from cepheid.app.schema import json_schema
from cepheid.model.names import suggestion
from cepheid.plan.problems import Path, Problem, error

_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_OWNER: Final = {
    "streams": "stream",
    "graph": "operator",
    "consumers": "consumer",
    "queries": "query",
}


def problem(fault: ErrorDetails) -> Problem:
    """The problem that a fault of the schema means."""
    raw_where: Path = fault["loc"]
    at_key = raw_where[-1:] == ("[key]",)
    where = raw_where[:-1] if at_key else raw_where
    context = fault.get("ctx", {})
    given = fault["input"]
    match fault["type"]:
        case "missing":
            return error(
                "missing", f"{_owner(where[:-1])} has no '{where[-1]}'", where[:-1], _purpose(where), at_key=True
            )
        case "union_tag_not_found":
            return error("missing", f"{_owner(where)} has no 'kind'", where, _kinds(where), at_key=True)
        case "union_tag_invalid":
            kinds = [kind.strip(" '") for kind in context["expected_tags"].split(",")]
            tag = context["tag"]
            return error("unknown-kind", f"unknown kind '{tag}'", (*where, "kind"), suggestion(tag, kinds))
        case "extra_forbidden":
            hint = suggestion(str(where[-1]), _names_at(where[:-1]))
            return error(
                "unknown-name", f"unknown name '{where[-1]}' in {_owner(where[:-1])}", where, hint, at_key=True
            )
        case "literal_error":
            choices = [choice.strip(" '") for choice in context["expected"].replace(" or ", ",").split(",")]
            hint = suggestion(str(given), choices)
            return error(
                "unknown-choice", f"expected one of {', '.join(choices)}, found {_describe(given)}", where, hint
            )
        case kind if kind in _EXPECTED:
            return error("wrong-type", f"expected {_EXPECTED[kind]}, found {_describe(given)}", where)
        case "string_pattern_mismatch":
            hint = _description(where)
            return error("wrong-form", f"{_describe(given)} does not have the right form", where, hint)
        case "greater_than" | "greater_than_equal":
            return error("out-of-range", fault["msg"].replace("Input should", "this number must"), where)
        case "too_short" | "string_too_short":
            return error("empty", "this must not be empty", where)
        case kind:
            return error(kind.replace("_", "-"), fault["msg"], where, context.get("hint"), at_key=at_key)


def _describe(given: object) -> str:
    match given:
        case None:
            return "nothing"
        case bool():
            return str(given).lower()
        case int() | float():
            return f"the number {given}"
        case str():
            return f"'{given if len(given) <= 60 else given[:57] + '...'}'"
        case list() | tuple():
            return "a list"
        case _:
            return "a mapping"


def _owner(where: Path) -> str:
    if len(where) >= 2 and where[0] in _OWNER:
        return f"{_OWNER[str(where[0])]} '{where[1]}'" + _rest([p for p in where[2:] if isinstance(p, str)])
    return "the application" + _rest([p for p in where if isinstance(p, str)])


def _rest(parts: list[str]) -> str:
    named = [part for part in parts if part not in _TAGS]
    return f", {'.'.join(named)}" if named else ""


def _kinds(where: Path) -> str | None:
    node = _schema_at(where)
    mapping = node.get("discriminator", {}).get("mapping", {})
    return "kind is one of " + ", ".join(mapping) if mapping else None


def _purpose(where: Path) -> str | None:
    text = _description(where)
    return f"{where[-1]}: {text}" if text else None


def _description(where: Path) -> str | None:
    text = _schema_at(where).get("description")
    return str(text) if text else None


def _names_at(where: Path) -> list[str]:
    return list(_schema_at(where).get("properties", {}))


_SCHEMA: Final = json_schema()
_TAGS: Final = {
    tag
    for definition in _SCHEMA["$defs"].values()
    if "kind" in definition.get("properties", {})
    for tag in [definition["properties"]["kind"].get("const")]
}


def _schema_at(where: Path) -> Mapping[str, Any]:
    """The JSON Schema of what stands at a path. Tags of unions, which pydantic puts in paths, choose the branch."""
    node = _resolve(_SCHEMA)
    for step in where:
        node = _resolve(_step(node, step))
    return node


def _resolve(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follows references, keeping a description that stands beside one."""
    while "$ref" in node or len(node.get("anyOf", ())) == 2 or len(node.get("allOf", ())) == 1:
        beside = {key: value for key, value in node.items() if key == "description"}
        if "$ref" in node:
            found = _SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        else:
            options = [o for o in node.get("anyOf", node.get("allOf", ())) if o.get("type") not in ("null", "string")]
            if not options:
                break
            found = options[0]
        node = {**found, **beside}
    return node


def _step(node: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
    if isinstance(step, int):
        items: Mapping[str, Any] = node.get("items", {})
        return items
    if step in node.get("properties", {}):
        inner: Mapping[str, Any] = node["properties"][step]
        return inner
    mapping = node.get("discriminator", {}).get("mapping", {})
    if step in mapping:
        return {"$ref": mapping[step]}
    patterns = node.get("patternProperties", {})
    extra = next(iter(patterns.values()), None) or node.get("additionalProperties")
    return extra if isinstance(extra, dict) else {}
