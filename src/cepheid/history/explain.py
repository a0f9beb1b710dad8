"""How a query about the past would be answered: each strategy's SQL and physical plan, its cost, and the choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from pyspark.sql import DataFrame

from cepheid.history.answer import Answer
from cepheid.history.cost import Strategy
from cepheid.history.follow import hindrance_of
from cepheid.history.frames import Layout
from cepheid.history.rewrite import rewritten_of
from cepheid.history.sql import NotExact, expression, quoted
from cepheid.knowledge.tables import Lookup
from cepheid.language import syntax
from cepheid.language.checker import Checked
from cepheid.language.functions import ValueType
from cepheid.model.streams import Stream
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT, format_duration, format_instant
from cepheid.plan.division import is_alone
from cepheid.plan.implied import implied
from cepheid.plan.placement import place


def explained(answer: Answer, name: str | None = None) -> Iterator[str]:
    """The lines of the explanation; with the name that the application has for the query, if it was asked by that."""
    times, choice = answer.asked.times, answer.choice
    yield f"asked      {format_instant(times.low)} to {format_instant(times.high)}, {', '.join(answer.layout.names)}"
    key = [" = ".join(dict.fromkeys(part.values())) for part in answer.layout.keys]
    yield f"key        {', '.join(key) or _without_key(answer.layout)}"
    yield f"chosen     {answer.strategy}" + (" (as asked for)" if answer.wanted == answer.strategy else "")
    yield f"why        {choice.reason}"
    yield f"live       {_live(answer, name)}"
    for estimate in choice.estimates:
        yield ""
        events = f"about {estimate.events:,} events, {estimate.related:,} of them related to others"
        yield f"{estimate.strategy}: {events}, {estimate.seconds:.1f} s"
        yield "  SQL"
        yield from (f"    {line}" for line in _sql(answer, estimate.strategy).splitlines())
        yield "  physical plan"
        yield from (f"    {line}" for line in plan_of(answer.run(estimate.strategy)).splitlines() if line.strip())
    for name, why in choice.impossible.items():
        yield ""
        yield f"{name}: not possible, it can't give {why} exactly"


def _live(answer: Answer, name: str | None) -> str:
    """Where what comes is related to others, of this question and of the query that the application has."""
    hindrance, tail = hindrance_of(answer), answer.past.tail
    if hindrance is None and tail is not None:
        text = f"with --follow, in the process that asks, over the log from offset {tail.end} on"
    else:
        text = f"--follow would go on with the log, and {hindrance}"
    if name is not None:
        engine = place(answer.asked.app.graph)[name].engine
        text += f"; {name} itself runs {'in the service' if engine == 'service' else 'on Spark'}, for its own readers"
    return text


def _without_key(layout: Layout) -> str:
    """How events are divided that have no key."""
    if is_alone(layout.checked):
        return "each event is a match by itself"
    if isinstance(layout.reach, int):
        return f"none: hybrid divides by time, into slices that read {format_duration(layout.reach)} of the one before"
    return f"none: related in one task, since {layout.reach}"


def possible(checked: Checked, streams: Mapping[str, Stream]) -> dict[str, str | None]:
    """By strategy, what of a query it can't give exactly; None if it gives all. Known without asking anything."""
    found: dict[str, str | None] = {"hybrid": None, "replay": None, "rewrite": None}
    try:
        rewritten_of(Layout(checked, {name: streams[name] for name in checked.streams}))
    except NotExact as fault:
        found["rewrite"] = str(fault)
    return found


def _sql(answer: Answer, strategy: Strategy) -> str:
    """What Spark is asked: of rewrite all, of the others the events that go to the matcher."""
    if strategy == "rewrite":
        return rewritten_of(answer.layout).text
    parts = [_events(answer, stream, strategy) for stream in answer.layout.names]
    return "\nUNION ALL\n".join(parts) + "\nORDER BY time"


def _events(answer: Answer, stream: str, strategy: Strategy) -> str:
    layout, times = answer.layout, answer.asked.times
    columns = ", ".join(["id", "time", *map(quoted, layout.attributes[stream])])
    where = [f"time >= timestamp_micros({times.low}L)"] if times.low > MIN_INSTANT else []
    where += [f"time <= timestamp_micros({times.high}L)"] if times.high < MAX_INSTANT else []
    known = ""
    if strategy == "hybrid" and layout.checked.query.match != "STRICT":
        ways = [_qualifies(answer, given.variable, stream) for given in _ranges(answer, stream)]
        where += [] if [] in ways else [" OR ".join(f"({' AND '.join(way)})" for way in ways)]
        keys = [(name, look.key) for name, look in _known(answer, stream) if look.key]
        known = "".join(f" LEFT JOIN {name} ON {name}.key = ({', '.join(map(quoted, key))})" for name, key in keys)
    return f"SELECT {columns}\nFROM {quoted(f'events_{stream}')}{known}" + (
        "\nWHERE " + "\n  AND ".join(where) if where else ""
    )


def _ranges(answer: Answer, stream: str) -> list[syntax.Range]:
    return [given for given in answer.layout.checked.query.ranges if stream in given.streams]


def _known(answer: Answer, stream: str) -> list[tuple[str, Lookup]]:
    lookups = [look for look in answer.layout.checked.lookups if isinstance(look, Lookup) and look.stream == stream]
    return [(f"known_{number}", lookup) for number, lookup in enumerate(lookups)]


def _qualifies(answer: Answer, variable: str, stream: str) -> list[str]:
    """What is demanded of a variable's events before they go to the matcher, which judges all again."""
    checked = answer.layout.checked

    def column_of(attribute: syntax.Attribute) -> tuple[str, ValueType]:
        resolved = checked.attributes[attribute.variable, attribute.name]
        return quoted(resolved.names.get(stream, attribute.name)), resolved.type

    found = [f"{name}.found" for name, lookup in _known(answer, stream) if lookup.variable == variable and lookup.key]
    for condition in (*(p for f in checked.query.filters for p in syntax.conjuncts(f)), *implied(checked)):
        if syntax.variables(condition) == (variable,):
            with suppress(NotExact):  # left to the matcher
                found.append(expression(condition, column_of).text)
    return found


def plan_of(frame: DataFrame) -> str:
    """The physical plan of a DataFrame."""
    jvm = frame.sparkSession.sparkContext._jvm
    assert jvm is not None
    text: str = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple")
    return text.removeprefix("== Physical Plan ==\n")
