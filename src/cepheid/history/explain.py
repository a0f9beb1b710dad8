"""How a query about the past would be answered: each strategy's SQL and physical plan, its cost, and the choice."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame

from cepheid.history.answer import Answer
from cepheid.history.cost import Strategy
from cepheid.history.frames import prefilter
from cepheid.history.rewrite import rewritten_of
from cepheid.history.sql import quoted
from cepheid.model.time import MAX_INSTANT, MIN_INSTANT, format_instant
from cepheid.plan.division import is_alone


def explained(answer: Answer) -> Iterator[str]:
    """The lines of the explanation."""
    times, choice = answer.asked.times, answer.choice
    yield f"asked      {format_instant(times.low)} to {format_instant(times.high)}, {', '.join(answer.layout.names)}"
    key = [" = ".join(dict.fromkeys(part.values())) for part in answer.layout.keys]
    alone = "each event is a match by itself" if is_alone(answer.layout.checked) else "none: related in one task"
    yield f"key        {', '.join(key) or alone}"
    yield f"chosen     {answer.strategy}" + (" (as asked for)" if answer.wanted == answer.strategy else "")
    yield f"why        {choice.reason}"
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
        condition, lookups = prefilter(layout, stream)
        known = "".join(f" LEFT JOIN {name} ON {name}.key = {quoted(key)}" for name, key in lookups)
        where.append(condition)
    return f"SELECT {columns}\nFROM {quoted(f'events_{stream}')}{known}" + (
        "\nWHERE " + "\n  AND ".join(where) if where else ""
    )


def plan_of(frame: DataFrame) -> str:
    """The physical plan of a DataFrame."""
    jvm = frame.sparkSession.sparkContext._jvm
    assert jvm is not None
    text: str = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple")
    return text.removeprefix("== Physical Plan ==\n")
