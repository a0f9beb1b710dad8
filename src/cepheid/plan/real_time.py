"""Whether a query can run in Spark's Real-Time Mode, whose plans have operators of the JVM only.

Such a query is about single events: filters, what is known of one attribute, and attributes to select.

    SELECT ?e.sensorID FILTER (?e.flowrate > 500) PATH {...}        qualifies
    SELECT ?e.sensorID FILTER (?e.flowrate * 2 > 500)               FILTER: arithmetic ...
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Final

from cepheid.knowledge.tables import FLAG, TERM, VALUE, Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.syntax import Expression, Kind, conjuncts
from cepheid.model.streams import Stream
from cepheid.model.types import Type

#: What is said of a query that nothing hinders.
QUALIFIES: Final = "qualifies"
#: The types whose values can be judged in the JVM (spark/jvm_records.py).
_JUDGED: Final = (Type.BOOL, Type.INT, Type.FLOAT, Type.STRING, Type.TIMESTAMP)
#: A name that can stand in the path of a variant.
_PLAIN: Final = re.compile(r"[^'\"`\\\]]+")


def verdict(name: str, checked: Checked, streams: Mapping[str, Stream], topics: Collection[str]) -> str:
    """Whether a query can run in Real-Time Mode, and what is missing for it.

    `topics` are the streams that Spark reads from topics of Kafka itself, and the queries whose matches go to one.
    """
    if reason := hindrance(checked):
        return reason
    (source,) = checked.streams
    if source in streams and (reason := why_not(streams[source])):
        return f"FROM: {reason}"
    missing = []
    if source not in topics:
        missing.append(f"'{source}' came from a topic of Kafka (in an application without a log of its own)")
    if name not in topics:
        missing.append("its sink were one" if missing else "its sink were a topic of Kafka")
    return f"{QUALIFIES}, if {' and '.join(missing)}" if missing else QUALIFIES


def why_not(stream: Stream) -> str | None:
    """Why records of a stream can't be judged in the JVM; None if they can."""
    if stream.id_kind == "string":
        return f"the ids of '{stream.name}' are text"
    for name, kind in stream.attributes.items():
        if kind not in _JUDGED:
            return f"'{name}' of '{stream.name}' is {kind.value}"
        if not all(map(_PLAIN.fullmatch, (name, *stream.spellings.get(name, ())))):
            return f"'{name}' of '{stream.name}', or a spelling of it, has quotes, backslashes or brackets in its name"
    return None


def hindrance(checked: Checked) -> str | None:
    """The clause that keeps a query from Real-Time Mode, and why; None if it qualifies."""
    query = checked.query
    if query.seq:
        return "SEQ: events of one match have to be kept"
    if query.windows:
        return "WINDOW: events have to be kept"
    if len(query.ranges) > 1:
        return "FROM: several variables, whose events have to be kept"
    if len(query.ranges[0].streams) > 1:
        return "FROM: several streams"
    if checked.id_kinds[query.ranges[0].streams[0]] != "int":
        return "FROM: the stream's ids are text, and ids of matches are computed from integers there"
    if query.path is not None:
        return "PATH: nothing is known to judge it by"
    if query.having is not None:
        return "HAVING: left to the matcher"
    for condition in chain.from_iterable(map(conjuncts, (*query.filters, *query.joins))):
        if syntax.variables(condition) != (query.ranges[0].variable,):
            return "FILTER: a condition that is about no event"
        if not is_plain(condition):
            return "FILTER: arithmetic, functions and CASE are left to the matcher, which is no operator of the JVM"
    for chosen in query.select:
        if not isinstance(chosen.expression, syntax.Attribute) or chosen.expression.name[0] in (VALUE, TERM, FLAG):
            return "SELECT: only attributes"
    if checked.used:
        return "PATH: a variable of it is used outside"
    for lookup in checked.lookups:
        if isinstance(lookup, Lookup) and (len(lookup.key) > 1 or lookup.columns):
            return "PATH: it depends on more than one attribute"
    return None


def is_plain(e: Expression) -> bool:
    """Whether a condition is one that Catalyst judges as the matcher does (spark/filters.py)."""
    match e:
        case syntax.Compare(_, left, right):
            return _is_value(left) and _is_value(right)
        case syntax.IsNull(operand, _):
            return _is_value(operand)
        case syntax.Between(operand, low, high, _):
            return all(map(_is_value, (operand, low, high)))
        case syntax.In(operand, items, _):
            return all(map(_is_value, (operand, *items)))
        case syntax.Not(operand):
            return is_plain(operand)
        case syntax.Logical(_, operands):
            return all(map(is_plain, operands))
        case _:
            return isinstance(e, syntax.Attribute) and _is_value(e)


def _is_value(e: Expression) -> bool:
    if isinstance(e, syntax.Attribute):
        return e.name[0] not in (VALUE, TERM, FLAG)
    return isinstance(e, syntax.Constant) and e.kind not in (Kind.NULL, Kind.NAME)
