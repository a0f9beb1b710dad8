"""How a query about the past would be answered: each strategy's SQL and physical plan, its cost, and the choice."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame

from cepheid.history.answer import Answer
from cepheid.history.rewrite import rewritten_of
from cepheid.model.time import format_instant
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
        if estimate.strategy == "rewrite":
            yield "  SQL"
            yield from (f"    {line}" for line in rewritten_of(answer.layout).text.splitlines())
        yield "  physical plan"
        yield from (f"    {line}" for line in plan_of(answer.run(estimate.strategy)).splitlines() if line.strip())
    for name, why in choice.impossible.items():
        yield ""
        yield f"{name}: not possible, it can't give {why} exactly"


def plan_of(frame: DataFrame) -> str:
    """The physical plan of a DataFrame."""
    jvm = frame.sparkSession.sparkContext._jvm
    assert jvm is not None
    text: str = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "simple")
    return text.removeprefix("== Physical Plan ==\n")
