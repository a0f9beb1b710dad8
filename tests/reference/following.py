"""MATCH NEXT: each step takes the first event that qualifies, without backtracking (rule S9).

The steps `?e`, ALL and ANY take an event each, one after the other. The others stand between them and do not: when such
a step has taken its event, each `?e?` before it takes its own; lists and NOT are judged at the end, with all JOINs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cepheid.language import syntax
from cepheid.language.syntax import step_variables
from tests.reference.events import Binding, Event, bound_events
from tests.reference.pattern import Pattern


def matches(pattern: Pattern, existing: Sequence[Event]) -> list[Binding]:
    """The match of each run that comes to its end."""
    found: list[Binding] = []
    for binding in Runs(pattern, existing).all():
        if binding not in found:  # two runs that began with events of one list can end in the same match
            found.append(binding)
    return found


class Runs:
    def __init__(self, pattern: Pattern, existing: Sequence[Event]) -> None:
        self.pattern = pattern
        self.existing = existing
        self.steps = pattern.steps
        #: The steps that take an event each.
        self.taking = [
            i for i, step in enumerate(self.steps) if isinstance(step, syntax.One | syntax.AllOf | syntax.AnyOf)
        ]

    def all(self) -> Iterator[Binding]:
        """Every run to its end."""
        for begun in self.begin():
            binding: Binding | None = self.take_maybes(begun, self.taking[0])
            for i in self.taking[1:]:
                if binding is not None:
                    binding = self.take(binding, i, self.existing)
                if binding is not None:
                    binding = self.take_maybes(binding, i)
            if binding is not None:
                complete = self.complete(binding)
                if self.pattern.lists_hold(complete) and self.pattern.not_steps_hold(complete):
                    yield complete

    def begin(self) -> Iterator[Binding]:
        """What the first step that takes an event can take, in each run.

        "For each event that qualifies for the first step": NOT, `?e?` and `?e{0,m}` delay nothing, so after them each
        event that qualifies for the second step begins a run. Each event of a first `?e+` or `?e{n,m}` begins one too,
        in which the second step takes the first event after it.
        """
        first = self.steps[0]
        if isinstance(first, syntax.Many) and first.least > 0:
            for event in self.pattern.qualifying[first.variable]:
                taken = self.take({}, 1, [e for e in self.existing if e.time > event.time])
                if taken is not None:
                    yield taken
            return
        i = self.taking[0]
        step = self.steps[i]
        for position, event in enumerate(self.existing):
            members = {v: own for v in step_variables(step) if (own := self.own(v, event)) is not None}
            if isinstance(step, syntax.AllOf):
                # One run for each member that the event qualifies for; the others take events after it, in E2's order.
                for member, own in members.items():
                    taken = self.take({member: own}, i, self.existing[position + 1 :])
                    if taken is not None:
                        yield taken
            elif members:
                first_written = next(iter(members))
                yield {**dict.fromkeys(step_variables(step)), first_written: members[first_written]}

    def own(self, variable: str, event: Event) -> Event | None:
        """The event as a variable reads it, if it qualifies for the variable."""
        return next((e for e in self.pattern.qualifying[variable] if e == event), None)

    def take(self, binding: Binding, i: int, events: Sequence[Event]) -> Binding | None:
        """The binding with what step i takes of these events, which are in E2's order; None if it finds nothing."""
        step = self.steps[i]
        binding = dict(binding)
        for event in events:
            # The member written first, of those that have no event yet. ALL: as the events come, each takes its first,
            # with what is bound so far, other members included.
            for member in step_variables(step):
                own = None if member in binding else self.own(member, event)
                if own is not None and self.qualifies(binding, i, member, own):
                    binding[member] = own
                    if isinstance(step, syntax.AnyOf):
                        return {**dict.fromkeys(step.variables), **binding}
                    break
            if all(member in binding for member in step_variables(step)):
                return binding
        return None

    def qualifies(self, binding: Binding, i: int, variable: str, event: Event) -> bool:
        """Whether an event qualifies for a variable of step i, after the previous step, with what is bound so far."""
        if not self.pattern.consistent({**binding, variable: event}):
            return False
        return all(
            len(self.counted(binding, k, variable, event)) >= step.least
            for k, step in enumerate(self.steps)
            if k in self.between(i) and isinstance(step, syntax.Many)
        )

    def between(self, i: int) -> range:
        """The steps between step i, which takes an event, and the one before it that does."""
        place = self.taking.index(i)
        return range(self.taking[place - 1] + 1 if place else 0, i)

    def counted(self, binding: Binding, k: int, variable: str, event: Event) -> list[Event]:
        """The events of the list of step k that are there before an event that a later step would bind to a variable.

        They are "counted by their JOINs with earlier steps": of what is bound now nothing is of a later step.
        """
        (many,) = step_variables(self.steps[k])
        earlier = {v: b for v, b in binding.items() if v in self.variables_before(k)}
        before = [e.time for e in self.pattern.nearest(earlier, reversed(self.steps[:k]))]
        start = self.pattern.start({**binding, variable: event}) if k == 0 else None
        return [
            e
            for e in self.pattern.qualifying[many]
            if e.time < event.time
            and (not before or e.time > max(before))
            and (start is None or e.time >= start)
            and e not in bound_events(earlier)
            and self.pattern.joins_hold({**earlier, many: e})
        ]

    def variables_before(self, k: int) -> list[str]:
        return [v for step in self.steps[:k] for v in step_variables(step)]

    def take_maybes(self, binding: Binding, i: int) -> Binding:
        """What each `?e?` before step i takes, now that step i has its event: the first that qualifies with all that
        is bound by now, else none. Steps after i then have to qualify with it too.

        Of several they take in the order written. One before a list takes an event before the list's first, one after
        a list an event once n are there, as any step after it.
        """
        for k in self.between(i):
            step = self.steps[k]
            if not isinstance(step, syntax.Maybe):
                continue
            trial = dict(binding)
            for later in self.between(i):
                if later > k and isinstance(many := self.steps[later], syntax.Many):
                    trial[many.variable] = tuple(self.pattern.fitting(binding, later))
            enough = [
                (earlier, many.least)
                for earlier in self.between(i)
                if earlier < k and isinstance(many := self.steps[earlier], syntax.Many)
            ]
            binding[step.variable] = next(
                (
                    event
                    for event in self.pattern.fitting(trial, k)
                    if all(len(self.counted(binding, m, step.variable, event)) >= least for m, least in enough)
                ),
                None,
            )
        return binding

    def complete(self, binding: Binding) -> Binding:
        """What a last `?e?` takes, and what the lists take, judged with all JOINs."""
        last = self.steps[-1]
        if isinstance(last, syntax.Maybe):
            known = self.pattern.with_lists({**binding, last.variable: None})  # its deadline may depend on lists
            binding[last.variable] = next(iter(self.pattern.fitting(known, len(self.steps) - 1)), None)
        return self.pattern.with_lists(binding)
