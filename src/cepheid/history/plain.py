"""A judged query as JSON and back: dataclasses, enumerations and collections, of the classes that a query is made of.

What is read makes nothing else, whatever a file says. JSON has no tuples, sets or keys that are not text: those, and
all classes, are objects with one entry, whose name says what they are.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from cepheid.knowledge import tables
from cepheid.language import checker, functions, partition, parts, scope, syntax
from cepheid.language.errors import Span
from cepheid.model import types


def _is_plain(found: object) -> bool:
    return isinstance(found, type) and (dataclasses.is_dataclass(found) or issubclass(found, Enum))


_CLASSES: Final[Mapping[str, type]] = {
    name: found
    for module in (checker, functions, parts, partition, scope, syntax, tables, types)
    for name, found in vars(module).items()
    if _is_plain(found)
}


class NotPlain(ValueError):
    """Something that can't be written so, or text that was not."""


def write(value: object) -> str:
    """A value as JSON."""
    return json.dumps(_written(value), ensure_ascii=False, separators=(",", ":"))


def read(text: str) -> object:
    """The value that `write` wrote."""
    try:
        return _read(json.loads(text))
    except NotPlain:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotPlain(f"not a query that was kept: {error}") from None


def _written(value: object) -> object:
    if isinstance(value, Span):
        return None  # what is kept has no place in a text any more
    if value is None or type(value) in (str, int, float, bool):
        return value
    name = type(value).__name__
    if isinstance(value, Enum) and _CLASSES.get(name) is type(value):
        return {name: value.name}
    if dataclasses.is_dataclass(value) and _CLASSES.get(name) is type(value):
        fields = (f.name for f in dataclasses.fields(value) if f.init)
        return {name: {field: _written(getattr(value, field)) for field in fields}}
    if isinstance(value, tuple | list):
        return {"list" if isinstance(value, list) else "tuple": [_written(each) for each in value]}
    if isinstance(value, set | frozenset):
        return {"set" if isinstance(value, set) else "frozenset": [_written(each) for each in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_written(key), _written(found)] for key, found in value.items()]}
    raise NotPlain(f"a {name} can't be kept")


_COLLECTIONS: Final[Mapping[str, type]] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def _read(value: Any) -> object:
    if not isinstance(value, dict):
        return value
    ((name, content),) = value.items()
    if name in _COLLECTIONS:
        return _COLLECTIONS[name](_read(each) for each in content)
    if name == "dict":
        return {_read(key): _read(found) for key, found in content}
    found = _CLASSES[name]
    if issubclass(found, Enum):
        return found[content]
    return found(**{field: _read(each) for field, each in content.items()})
