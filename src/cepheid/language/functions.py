"""The functions of the language: their names, what they take, and what they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cepheid.model.types import Type


class ValueType(Enum):
    """The type of an expression. NULL is that of a bare NULL, which fits everywhere."""

    NULL = "null"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    BYTES = "bytes"
    UINT8_ARRAY = "array<uint8>"
    FLOAT_ARRAY = "array<float>"
    NODE = "node"  # what a PATH variable is bound to
    UNKNOWN = "unknown"  # of something at fault, about which nothing more is said

    @classmethod
    def of(cls, attribute: Type) -> ValueType:
        return cls(attribute.value)

    @property
    def is_number(self) -> bool:
        return self in (ValueType.INT, ValueType.FLOAT)

    @property
    def is_loose(self) -> bool:
        """Whether it goes with any type."""
        return self in (ValueType.NULL, ValueType.UNKNOWN)


#: Functions over several events.
AGGREGATES: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV", "FIRST", "LAST")

_T = ValueType
#: Sets of types that an argument may have.
NUMBER: Final = (_T.INT, _T.FLOAT)
ORDERED: Final = (_T.INT, _T.FLOAT, _T.STRING, _T.TIMESTAMP, _T.DURATION, _T.BOOL)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of single values.

    `arguments` are the types each argument may have; the last `optional` ones may be left out; with `repeats` the last
    may come again. `gives` None: the common type of the arguments. `zoned`: the last is the name of a time zone, which
    the text says.
    """

    arguments: tuple[tuple[ValueType, ...], ...]
    gives: ValueType | None
    optional: int = 0
    repeats: bool = False
    zoned: bool = False

    def takes(self, count: int) -> bool:
        least = len(self.arguments) - self.optional
        return count >= least and (self.repeats or count <= len(self.arguments))

    @property
    def count(self) -> str:
        least, most = len(self.arguments) - self.optional, len(self.arguments)
        if self.repeats:
            return f"{least} or more arguments"
        return f"{least} argument{'s' if least != 1 else ''}" if least == most else f"{least} or {most} arguments"

    @property
    def form(self) -> str:
        """What stands between its parentheses: `number, int`."""
        shown = [_FORMS.get(types, types[0].value) for types in self.arguments]
        shown[-1] = "zone" if self.zoned else shown[-1]
        least = len(shown) - self.optional
        optional = "".join(f"[, {name}]" for name in shown[least:])
        return ", ".join(shown[:least]) + optional + (", ..." if self.repeats else "")

    def types_of(self, position: int) -> Sequence[ValueType]:
        return self.arguments[min(position, len(self.arguments) - 1)]


_STRING, _TIME = (_T.STRING,), (_T.TIMESTAMP,)
_ANY: Final = tuple(t for t in ValueType if t not in (_T.NULL, _T.UNKNOWN))
_FORMS: Final = {NUMBER: "number", ORDERED: "value", _ANY: "value"}

_OF_TIME: Final = Function((_TIME, _STRING), _T.INT, optional=1, zoned=True)

FUNCTIONS: Final[Mapping[str, Function]] = {
    "ABS": Function((NUMBER,), None),
    "ROUND": Function((NUMBER, (_T.INT,)), _T.FLOAT, optional=1),
    "FLOOR": Function((NUMBER,), _T.FLOAT),
    "CEIL": Function((NUMBER,), _T.FLOAT),
    "SQRT": Function((NUMBER,), _T.FLOAT),
    "EXP": Function((NUMBER,), _T.FLOAT),
    "LN": Function((NUMBER,), _T.FLOAT),
    "LOG10": Function((NUMBER,), _T.FLOAT),
    "POWER": Function((NUMBER, NUMBER), _T.FLOAT),
    "LEAST": Function((ORDERED, ORDERED), None, repeats=True),
    "GREATEST": Function((ORDERED, ORDERED), None, repeats=True),
    "COALESCE": Function((_ANY, _ANY), None, repeats=True),
    "LENGTH": Function((_STRING,), _T.INT),
    "LOWER": Function((_STRING,), _T.STRING),
    "UPPER": Function((_STRING,), _T.STRING),
    "TRIM": Function((_STRING,), _T.STRING),
    "SUBSTRING": Function((_STRING, (_T.INT,), (_T.INT,)), _T.STRING, optional=1),
    "CONCAT": Function((_STRING, _STRING), _T.STRING, repeats=True),
    "CONTAINS": Function((_STRING, _STRING), _T.BOOL),
    "STARTS_WITH": Function((_STRING, _STRING), _T.BOOL),
    "ENDS_WITH": Function((_STRING, _STRING), _T.BOOL),
    "YEAR": _OF_TIME,
    "MONTH": _OF_TIME,
    "DAY": _OF_TIME,
    "HOUR": _OF_TIME,
    "MINUTE": _OF_TIME,
    "SECOND": _OF_TIME,
    "DAY_OF_WEEK": _OF_TIME,
}
