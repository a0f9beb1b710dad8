"""Hypothesis strategies for syntax trees: every production of the grammar, right or wrong in meaning."""

from __future__ import annotations

from hypothesis import strategies as st

from cepheid.language import syntax
from cepheid.language.functions import AGGREGATES, FUNCTIONS
from cepheid.language.syntax import Expression, Kind
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT
from cepheid.model.types import INT64_MAX

names = st.sampled_from(["e", "f", "e1", "e2", "a", "long_name", "é"])
attributes = st.sampled_from(["x", "time", "id", "select", "hvc:airflow", "flowrate", "last", "päth"])
words = st.sampled_from(["s", "airflowReport", "batch", "last", "next", "streetName"])
widths = st.integers(0, 10**15)
instants = st.integers(MIN_INSTANT, MAX_INSTANT)


@st.composite
def constants(draw: st.DrawFn) -> syntax.Constant:
    kind = draw(st.sampled_from(Kind))
    value: object = None
    match kind:
        case Kind.BOOL:
            value = draw(st.booleans())
        case Kind.INT:
            value = draw(st.integers(-INT64_MAX, INT64_MAX))
        case Kind.FLOAT:
            value = draw(st.floats(allow_nan=False, allow_infinity=False))
        case Kind.STRING:
            value = draw(st.text(st.characters(codec="utf-8")))
        case Kind.DURATION:
            value = draw(st.integers(-(10**15), 10**15))
        case Kind.TIMESTAMP:
            value = draw(instants)
        case Kind.NAME:
            value = draw(st.sampled_from(["bd:Office", ":x", "<http://example.org/a#b>"]))
    return syntax.Constant(kind, value)  # type: ignore[arg-type]


attribute_nodes = st.builds(syntax.Attribute, names, attributes)


def _bigger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    pairs = st.lists(st.tuples(inner, inner), min_size=1, max_size=2).map(tuple)
    items = st.lists(inner, min_size=1, max_size=3).map(tuple)
    signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(syntax.Compare, signs, inner, inner),
        st.builds(syntax.Arithmetic, st.sampled_from(["+", "-", "*", "/", "%"]), inner, inner),
        st.builds(syntax.Negative, inner.filter(lambda e: not _signed(e))),
        st.builds(syntax.Not, inner),
        st.builds(_logical, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
        st.builds(syntax.In, inner, items, st.booleans()),
        st.builds(syntax.Between, inner, inner, inner, st.booleans()),
        st.builds(syntax.IsNull, inner, st.booleans()),
        st.builds(syntax.Case, pairs, st.none() | inner),
        st.builds(syntax.Call, st.sampled_from(sorted(FUNCTIONS)), st.lists(inner, max_size=3).map(tuple)),
        st.builds(syntax.Aggregate, st.sampled_from(AGGREGATES), inner),
    )


def _signed(e: Expression) -> bool:
    """The parser folds a sign into a number, so there is no tree for the sign of one."""
    return isinstance(e, syntax.Constant) and e.kind in (Kind.INT, Kind.FLOAT, Kind.DURATION)


def _logical(word: str, operands: list[Expression]) -> syntax.Logical:
    """AND of ANDs is one AND, as the parser makes it."""
    flat: list[Expression] = []
    for operand in operands:
        flat += operand.operands if isinstance(operand, syntax.Logical) and operand.word == word else [operand]
    return syntax.Logical(word, tuple(flat))  # type: ignore[arg-type]


expressions: st.SearchStrategy[Expression] = st.recursive(
    st.one_of(constants(), attribute_nodes, st.builds(syntax.Variable, names)), _bigger, max_leaves=12
)


def _many(variable: str, least: int, more: int | None) -> syntax.Many:
    return syntax.Many(variable, least, None if more is None else least + more)


several = st.lists(names, min_size=1, max_size=3, unique=True).map(tuple)
steps = st.one_of(
    st.builds(syntax.One, names),
    st.builds(syntax.Maybe, names),
    st.builds(syntax.Absent, names),
    st.builds(syntax.AllOf, several),
    st.builds(syntax.AnyOf, several),
    st.builds(_many, names, st.integers(0, 9), st.none() | st.integers(0, 9)),
)
windows = st.one_of(
    st.builds(syntax.SpanWindow, several, widths),
    st.builds(syntax.EventWindow, names, st.sampled_from(["sliding", "batch", "session"]), st.integers(1, 10**15)),
    st.builds(syntax.EventWindow, names, st.just("length"), st.integers(1, 1000)),
)
groups = st.builds(
    syntax.PathGroup,
    st.sampled_from(["?e a bd:Office", "{?a ?b '}'} UNION {?c <http://x#y> ?d}", "?e p ?x # } \n"]).map(str.strip),
)


def _path_logical(operands: list[syntax.Path], word: str) -> syntax.PathLogical:
    return syntax.PathLogical(word, tuple(operands))  # type: ignore[arg-type]


@st.composite
def paths(draw: st.DrawFn) -> syntax.Path:
    if draw(st.booleans()):
        return draw(groups)
    word = draw(st.sampled_from(["AND", "OR"]))
    other = "OR" if word == "AND" else "AND"
    inner = st.one_of(groups, st.lists(groups, min_size=2, max_size=2).map(lambda g: _path_logical(list(g), other)))
    return _path_logical(list(draw(st.lists(inner, min_size=2, max_size=3))), word)


moments = st.one_of(
    st.none(),
    st.builds(syntax.Instant, instants),
    st.builds(syntax.Instant, st.integers(-(10**12), 10**12), st.just(True)),
)
queries = st.builds(
    syntax.Query,
    select=st.lists(st.builds(syntax.Selected, expressions, st.none() | words), min_size=1, max_size=3).map(tuple),
    prefixes=st.lists(st.tuples(st.sampled_from(["bd", "hvc", ""]), st.just("http://example.org/x#")), max_size=2).map(
        tuple
    ),
    ranges=st.lists(st.builds(syntax.Range, names, st.lists(words, min_size=1, max_size=2).map(tuple)), max_size=2).map(
        tuple
    ),
    within=st.none() | st.builds(syntax.Within, moments, moments, st.booleans(), st.booleans()),
    filters=st.lists(expressions, max_size=2).map(tuple),
    joins=st.lists(expressions, max_size=2).map(tuple),
    seq=st.lists(steps, max_size=4).map(tuple),
    windows=st.lists(windows, max_size=2).map(tuple),
    path=st.none() | paths(),
    group_by=st.lists(attribute_nodes, max_size=2).map(tuple),
    having=st.none() | expressions,
    match=st.sampled_from(["ANY", "NEXT", "STRICT"]),
    after=st.sampled_from(["KEEP", "CONSUME", "SKIP PAST LAST", "SKIP TO NEXT"]),
    priority=st.none() | words,
    valid=st.none() | st.integers(1, 10**15),
    align=st.lists(st.builds(syntax.Align, several, st.integers(1, 10**15)), max_size=1).map(tuple),
    stale=st.sampled_from([None, "MARK", "SHED"]),
)
