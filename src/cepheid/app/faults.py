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
#: What such a value looks like.
_SUCH: Final = {
    "text": "such as plant",
    "a whole number": "such as 5",
    "a number": "such as 0.5",
    "true or false": "such as true",
    "a list": "such as [a, b]",
    "a mapping": "such as {name: value}",
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
            hint = suggestion(tag, kinds) or f"known: {', '.join(kinds)}"
            return error("unknown-kind", f"unknown kind '{tag}'", (*where, "kind"), hint)
        case "extra_forbidden":
            names = _names_at(where[:-1])
            hint = suggestion(str(where[-1]), names) or f"known: {', '.join(names)}"
            return error(
                "unknown-name", f"unknown name '{where[-1]}' in {_owner(where[:-1])}", where, hint, at_key=True
            )
        case "literal_error":
            choices = [choice.strip(" '") for choice in context["expected"].replace(" or ", ",").split(",")]
            hint = suggestion(str(given), choices) or f"known: {', '.join(choices)}"
            return error(
                "unknown-choice", f"expected one of {', '.join(choices)}, found {_describe(given)}", where, hint
            )
        case kind if kind in _EXPECTED:
            wanted = _EXPECTED[kind]
            return error(
                "wrong-type", f"expected {wanted}, found {_describe(given)}", where, _such(wanted, given, where)
            )
        case "string_pattern_mismatch":
            form = _description(where) or "letters, digits, _ and -"
            return error("wrong-form", f"{_describe(given)} does not have the right form", where, form)
        case "greater_than" | "greater_than_equal":
            message = fault["msg"].replace("Input should", "this number must")
            return error("out-of-range", message, where, _purpose(where) or "leave it out for the default")
        case "too_short" | "string_too_short":
            return error("empty", "this must not be empty", where, _purpose(where) or "leave it out, or fill it in")
        case kind:
            told = context.get("hint") or _purpose(where)
            return error(kind.replace("_", "-"), fault["msg"], where, told, at_key=at_key)


def _such(wanted: str, given: object, where: Path) -> str:
    """What to write instead, with what it is for."""
    form = _SUCH[wanted]
    if given is None:
        form = "fill it in"
    elif wanted == "text" and isinstance(given, int | float):
        form = f'write "{str(given).lower()}", in quotes'
    elif wanted == "a list" and isinstance(given, str | int | float):
        form = f"write [{given}]"
    purpose = _purpose(where)
    return form if purpose is None else f"{form} ({purpose.removesuffix('.')})"


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
