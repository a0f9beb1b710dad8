"""Which bindings are matches: SEQ, JOIN and WINDOW (rules Q3, Q4 and S1 to S6), and every one of them (rule S8).

The variables of `?e`, `?e?`, ALL and ANY, and those outside SEQ, are bound to single events: every combination is
tried. What `?e+` and `?e{n,m}` bind follows from these, for they take all that qualify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cepheid.language import syntax
from cepheid.language.syntax import Query, Step, step_variables
from tests.reference.events import Binding, Bound, Event, Refused, bound_events, single_events
from tests.reference.values import is_true


def span(events: Iterable[Event]) -> int:
    """Greatest minus least time; of no events 0."""
    times = [event.time for event in events]
    return max(times) - min(times) if times else 0


@dataclass(frozen=True)
class Pattern:
    """A query without a moving window, and the events that qualify for each variable by itself, in E2's order."""

    query: Query
    qualifying: Mapping[str, Sequence[Event]]
    #: What else is said of events together, of those that are bound to one variable each.
    fit: Callable[[Mapping[str, Bound]], bool] = lambda binding: True

    def __post_init__(self) -> None:
        # S3, "Two such steps can't be adjacent": nor with only steps between them that may bind nothing. What each
        # takes would then depend on what the other takes.
        many = False
        for step in self.steps:
            if isinstance(step, syntax.Many) and many:
                raise Refused("two steps that take all that qualify can't be adjacent (rule S3)")
            if not isinstance(step, syntax.Maybe | syntax.Absent):
                many = isinstance(step, syntax.Many)

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.query.seq

    @property
    def windows(self) -> list[syntax.SpanWindow]:
        return [w for w in self.query.windows if isinstance(w, syntax.SpanWindow)]

    @property
    def outside(self) -> list[str]:
        """The variables that are not in SEQ."""
        inside = {v for step in self.steps for v in step_variables(step)}
        return [r.variable for r in self.query.ranges if r.variable not in inside]

    # every combination

    def matches(self) -> Iterator[Binding]:
        """MATCH ANY: every combination (rule S8)."""
        for singles in self.combinations():
            binding = self.with_lists(singles)
            if self.lists_hold(binding) and self.maybe_steps_hold(binding) and self.not_steps_hold(binding):
                yield binding

    def combinations(self) -> list[Binding]:
        """Every consistent binding of the variables that are bound to single events, one choice after the other."""
        found: list[Binding] = [{}]
        for choice in self.choices():
            found = [{**one, **more} for one in found for more in choice if self.consistent({**one, **more})]
        return found

    def choices(self) -> Iterator[list[Binding]]:
        """For each step, and each variable outside SEQ, what can be chosen for it."""
        for step in self.steps:
            match step:
                case syntax.One(variable):
                    yield [{variable: event} for event in self.qualifying[variable]]
                case syntax.Maybe(variable):
                    yield [{variable: event} for event in (None, *self.qualifying[variable])]
                case syntax.AllOf(variables):
                    for variable in variables:
                        yield [{variable: event} for event in self.qualifying[variable]]
                case syntax.AnyOf(variables):
                    nothing: Binding = dict.fromkeys(variables)
                    yield [{**nothing, v: event} for v in variables for event in self.qualifying[v]]
                case syntax.Many() | syntax.Absent():
                    pass
        for variable in self.outside:
            yield [{variable: event} for event in self.qualifying[variable]]

    # what holds for any binding, also for a part of one

    def consistent(self, binding: Binding) -> bool:
        """Whether nothing that is bound contradicts Q3, S1, a JOIN or a WINDOW. What is unbound contradicts nothing."""
        return (
            self.distinct(binding)
            and self.in_order(binding)
            and self.joins_hold(binding)
            and all(span(single_events(binding, w.variables)) <= w.width for w in self.windows)
        )

    def distinct(self, binding: Binding) -> bool:
        """Distinct variables bind distinct events (rule Q3)."""
        events = bound_events(binding)
        return len(set(events)) == len(events)

    def in_order(self, binding: Binding) -> bool:
        """The greatest time of a step is less than the least time of the next (rule S1).

        The next step is the next one that binds an event: NOT never does, and an unbound `?e?` has no time.
        """
        times = [[e.time for e in bound_events(binding, step_variables(step))] for step in self.steps]
        return all(max(one) < min(after) for one, after in pairwise(filter(None, times)))

    def joins_hold(self, binding: Binding) -> bool:
        """Every JOIN is true, of those whose variables are all bound to single events.

        S2: a JOIN that names an unbound variable says nothing about it; the parts of an AND are JOINs of their own (see
        `matcher.with_parts_apart`). S3: a JOIN that names a `+` variable judges that variable's events, each by itself:
        see `fits`, where the event that is judged is bound alone.
        """
        return all(
            is_true(join, binding, {})
            for join in self.query.joins
            if all(isinstance(binding.get(v), Event) for v in syntax.variables(join))
        ) and self.fit(binding)

    # `+`, `{n,m}`, `?` and NOT

    def with_lists(self, singles: Binding) -> Binding:
        """The binding with all that `+` and `{n,m}` take (rule S3)."""
        binding = dict(singles)
        for i in self._lists_in_order():
            (variable,) = step_variables(self.steps[i])
            binding[variable] = tuple(self.fitting(binding, i))
        return binding

    def _lists_in_order(self) -> list[int]:
        """The steps with lists: those inside first, for how far the ends reach depends on all that is bound (S4).

        Of two lists at the ends each would depend on the other; the first is taken without the last, then the last.
        """
        places = [i for i, step in enumerate(self.steps) if isinstance(step, syntax.Many)]
        return sorted(places, key=lambda i: 2 if i == len(self.steps) - 1 else 1 if i == 0 else 0)

    def lists_hold(self, binding: Binding) -> bool:
        """The numbers of the lists are in range, and the WINDOWs that bound their span do so (rule S3).

        A WINDOW that lists a single event does not: it judged each event by itself, and Q4 is not asked of all of them
        together. An unbound variable is no event, so it makes no difference here.
        """
        for step in self.steps:
            if isinstance(step, syntax.Many):
                number = len(bound_events(binding, [step.variable]))
                if number < step.least or (step.most is not None and number > step.most):
                    return False
        return all(
            span(bound_events(binding, window.variables)) <= window.width
            for window in self.windows
            if not single_events(binding, window.variables)
        )

    def maybe_steps_hold(self, binding: Binding) -> bool:
        """`?e?` is bound to an event that fits, or, if none does, unbound (rule S2).

        Each such step is judged with everything else in the binding as it is, other `?e?` and lists included.
        """
        for i, step in enumerate(self.steps):
            if isinstance(step, syntax.Maybe):
                fitting, bound = self.fitting(binding, i), binding[step.variable]
                if fitting if bound is None else bound not in fitting:
                    return False
        return True

    def not_steps_hold(self, binding: Binding) -> bool:
        """No event qualifies for a NOT variable where it stands (rule S5)."""
        return not any(self.fitting(binding, i) for i, step in enumerate(self.steps) if isinstance(step, syntax.Absent))

    def fitting(self, binding: Binding, i: int) -> list[Event]:
        """The events that qualify for the one variable of step i, with all else that is bound."""
        (variable,) = step_variables(self.steps[i])
        rest = {v: bound for v, bound in binding.items() if v != variable}
        return [event for event in self.qualifying[variable] if self.fits(rest, i, event)]

    def fits(self, rest: Binding, i: int, event: Event) -> bool:
        """Whether an event qualifies for the one variable of step i, with all else that is bound."""
        step = self.steps[i]
        (variable,) = step_variables(step)
        if not self.in_place(rest, i, event) or not self.joins_hold({**rest, variable: event}):
            return False
        listing = [w for w in self.windows if variable in w.variables]
        if isinstance(step, syntax.Absent):
            # NOT binds nothing, so an event that is bound outside SEQ counts as well (Q3 does not speak of it).
            return all(span([event, *bound_events(rest, w.variables)]) <= w.width for w in listing)
        # S3: each is judged by itself, so with single events only, not with the lists of others. And Q3: an event that
        # is bound to another variable is left out.
        return event not in bound_events(rest) and all(
            span([event, *single_events(rest, w.variables)]) <= w.width for w in listing
        )

    def in_place(self, rest: Binding, i: int, event: Event) -> bool:
        """Whether an event lies strictly between the nearest bound steps (S1, S3, S5), at an end within reach (S4)."""
        before = [e.time for e in self.nearest(rest, reversed(self.steps[:i]))]
        after = [e.time for e in self.nearest(rest, self.steps[i + 1 :])]
        if (before and event.time <= max(before)) or (after and event.time >= min(after)):
            return False
        start = self.start(rest) if i == 0 else None
        deadline = self.deadline(rest) if i == len(self.steps) - 1 else None
        return (start is None or start <= event.time) and (deadline is None or event.time <= deadline)

    def nearest(self, binding: Binding, steps: Iterable[Step]) -> list[Event]:
        """The events of the first of these steps that binds any."""
        return next(filter(None, (bound_events(binding, step_variables(step)) for step in steps)), [])

    def start(self, binding: Binding) -> int | None:
        """How far a first step reaches back: l - w (rule S4); None if there is no limit.

        l is of the other events that the WINDOW lists; of several WINDOWs, the latest start.
        """
        (variable,) = step_variables(self.steps[0])
        starts = []
        for window in self._ends(variable):
            times = [e.time for e in bound_events(binding, set(window.variables) - {variable})]
            if times:
                starts.append(max(times) - window.width)
        return max(starts, default=None)

    def deadline(self, binding: Binding) -> int | None:
        """How far a last step reaches: f + w (rule S4); None if there is no limit.

        f is of the other events that the WINDOW lists; of several WINDOWs, the earliest deadline.
        """
        (variable,) = step_variables(self.steps[-1])
        deadlines = []
        for window in self._ends(variable) or [
            w for w in self.windows if set(w.variables) & set(step_variables(self.steps[0]))
        ]:
            times = [e.time for e in bound_events(binding, set(window.variables) - {variable})]
            if times:
                deadlines.append(min(times) + window.width)
        return min(deadlines, default=None)

    def _ends(self, variable: str) -> list[syntax.SpanWindow]:
        """The WINDOWs that list a variable with others. One that lists it alone bounds the span of its events only."""
        return [w for w in self.windows if variable in w.variables and len(w.variables) > 1]

    def time(self, binding: Mapping[str, Bound]) -> int | None:
        """The time of a match: its last event's, or the deadline if that is later (rules Q6 and S4).

        None where there is to be a deadline and no WINDOW gives one, as none of the other variables it lists is bound:
        that time never comes, and so there is no match.
        """
        last = max(event.time for event in bound_events(binding))
        step = self.steps[-1] if self.steps else None
        waits = isinstance(step, syntax.Many | syntax.Absent) or (
            isinstance(step, syntax.Maybe) and binding[step.variable] is None
        )
        if not waits:
            return last
        deadline = self.deadline(dict(binding))
        return None if deadline is None else max(deadline, last)
