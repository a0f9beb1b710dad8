"""What the constants of `history/cost.py` are on this machine: slopes between a short range and a long one.

They are seconds of one core, so it is the processor time of all processes that is looked at, not the clock: that is
much the same whatever else the machine does.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Final

from scepter.past_world import NOW, RATE, SENSORS, asked, cpu_seconds

from cepheid.app import Application
from cepheid.history import cost
from cepheid.history.answer import Answer, query
from cepheid.history.cost import Strategy

#: Nothing passes, which no statistics of files can tell: readings have one decimal.
_NOTHING: Final = "SELECT ?e.sensorID FILTER (?e.flowrate > 440.01 AND ?e.flowrate < 440.09)"
#: All are put together, and there are few matches.
_TOGETHER: Final = "SELECT COUNT(?e) AS count WINDOW (?e, batch, 1h) GROUP BY ?e.sensorID"
#: Each is related to the others of its sensor, and to none.
_RELATED: Final = (
    "SELECT ?a.sensorID JOIN (?b.sensorID = ?a.sensorID) JOIN (?b.flowrate - ?a.flowrate > 5000) "
    "SEQ (?a, ?b) WINDOW (?a, ?b, 1ms)"
)


def calibrated(app: Application, short: int, long: int, repeats: int) -> dict[str, tuple[float, float]]:
    """By name, what a constant is and what was measured."""

    def seconds(text: str, minutes: float, strategy: Strategy) -> float:
        found = []
        for _ in range(repeats):
            answer, began = query(app, _within(text, minutes), strategy=strategy, now=NOW), cpu_seconds()
            _consumed(answer)
            found.append(cpu_seconds() - began)
        return statistics.median(found)

    def slope(text: str, strategy: Strategy, low: float = short, high: float = long) -> float:
        """Seconds an event more takes."""
        seconds(text, low, strategy)  # warm
        return (seconds(text, high, strategy) - seconds(text, low, strategy)) / ((high - low) * 60 * RATE)

    read = slope(_NOTHING, "hybrid")
    match = slope(_RELATED, "hybrid") - read
    replayed = slope(_RELATED, "replay") - read
    together = slope(_TOGETHER, "rewrite") - read
    return {
        "_JOB": (cost._JOB, seconds(_NOTHING, 1 / 60, "hybrid")),
        "_READ": (cost._READ, read),
        "_MATCH": (cost._MATCH, match),
        "_REPLAY": (cost._REPLAY, replayed),
        "_SQL": (cost._SQL, together),
        "_PAIR": (cost._PAIR, _pairs(seconds)),
        "_ADD": (cost._ADD, _added(seconds)),
    }


def _pairs(seconds: Callable[[str, float, Strategy], float]) -> float:
    """For a pair that a join looks at: twice the time is four times the pairs."""
    one, two = seconds(_RELATED, 5, "rewrite"), seconds(_RELATED, 10, "rewrite")
    each = 5 * 60 * RATE // SENSORS
    return max(0.0, two - one) / (SENSORS * ((2 * each) ** 2 - each**2))


def _added(seconds: Callable[[str, float, Strategy], float]) -> float:
    """For an event of a window that is added up anew; with a condition that leaves few matches."""
    few = "SELECT AVG(?e.flowrate) > 5000 AS mean WINDOW (?e, length, {})"
    one, many = (seconds(few.format(size), 1, "rewrite") for size in (1, 501))
    return max(0.0, many - one) / (500 * 60 * RATE)


def _within(text: str, minutes: float) -> str:
    return f"{text}\n{asked(5, minutes).rpartition(chr(10))[2]}"


def _consumed(answer: Answer) -> None:
    answer.run().write.format("noop").mode("overwrite").save()
