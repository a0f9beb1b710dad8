//! Judges which events go together: the search for combinations (MATCH ANY) and the steps that take what lies between.
//!
//! A match is built in this order: what must be one event (plain steps, ALL, ANY, variables outside SEQ); then `?e?`;
//! then `?e+` and `{n,m}`; then NOT. So each is judged with everything bound that can be.

use std::ops::Range;
use std::sync::Arc;

use crate::aggregate::aggregate;
use crate::event::{Events, Handle, List};
use crate::expr::Bindings;
use crate::found::{Bound, Match};
use crate::partial::{Part, Pending, Sink};
use crate::partition::Lists;
use crate::plan::{After, Plan, Policy, Role};
use crate::screen::Screen;
use crate::sorted::{Number, SORTED_FROM};
use crate::value::{Key, Value};

/// Who is bound to what, while a match is put together. Kept from one judge to the next, to allocate nothing.
#[derive(Debug, Default)]
pub struct Desk {
    bound: Vec<Option<Handle>>,
    many: Vec<Vec<Handle>>,
}

/// Puts matches together.
pub struct Judge<'p> {
    plan: &'p Plan,
    events: &'p Events,
    /// The partition's events.
    own: Lists<'p>,
    /// The events of NOT variables that the partition does not reach.
    shared: Lists<'p>,
    /// By variable, for those of one event.
    bound: Vec<Option<Handle>>,
    /// By variable, for those of many.
    many: Vec<Vec<Handle>>,
    /// The variables that are bound to one event and count, a bit each.
    mask: u64,
    /// The variables that are bound to one event, a bit each.
    present: u64,
}

impl<'p> Judge<'p> {
    /// A judge who has bound nothing.
    pub fn new(plan: &'p Plan, events: &'p Events, own: Lists<'p>, shared: Lists<'p>, desk: &mut Desk) -> Self {
        let mut desk = std::mem::take(desk);
        desk.bound.resize(plan.variables.len(), None);
        desk.many.resize(plan.variables.len(), Vec::new());
        Judge {
            plan,
            events,
            own,
            shared,
            bound: desk.bound,
            many: desk.many,
            mask: 0,
            present: 0,
        }
    }

    /// Goes on with another branch of the plan; no single event is bound.
    #[inline]
    pub fn turn_to(&mut self, branch: &'p Plan) {
        for step in self.plan.steps.iter().filter(|step| step.role == Role::Many) {
            self.many[step.variables[0]].clear();
        }
        self.plan = branch;
    }

    /// Gives back the desk, for the next judge.
    pub fn leave(mut self) -> Desk {
        self.clear();
        Desk {
            bound: self.bound,
            many: self.many,
        }
    }

    /// Binds a variable to one event.
    #[inline]
    pub fn bind(&mut self, variable: usize, event: Handle) {
        self.bound[variable] = Some(event);
        self.mask |= 1 << variable;
        self.present |= 1 << variable;
    }

    /// Binds what a run has bound, and nothing else.
    pub fn bind_all(&mut self, bound: &[Option<Handle>]) {
        self.clear();
        self.bound.copy_from_slice(bound);
        let bits = bound.iter().enumerate().filter(|(_, event)| event.is_some());
        self.mask = bits.fold(0, |mask, (variable, _)| mask | 1 << variable);
        self.present = self.mask;
    }

    /// Unbinds it.
    #[inline]
    pub fn unbind(&mut self, variable: usize) {
        self.bound[variable] = None;
        self.mask &= !(1 << variable);
        self.present &= !(1 << variable);
    }

    /// Unbinds everything.
    pub fn clear(&mut self) {
        self.bound.fill(None);
        self.many.iter_mut().for_each(Vec::clear);
        (self.mask, self.present) = (0, 0);
    }

    /// The variables that are bound to one event, and the events.
    #[inline]
    fn singly(&self) -> impl Iterator<Item = (usize, Handle)> {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let variable = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some((variable, self.bound[variable]?))
        })
    }

    fn is_bound(&self, variable: usize) -> bool {
        self.mask >> variable & 1 == 1
    }

    #[inline]
    fn time(&self, event: Handle) -> i64 {
        self.events.time(event)
    }

    fn scope<'a>(&'a self, tried: Option<(usize, Handle)>, aggregates: &'a [Value]) -> Bindings<'a> {
        Bindings {
            events: self.events,
            bound: &self.bound,
            tried,
            aggregates,
        }
    }

    /// The times (both included) that SEQ and the WINDOWs leave for a variable, with the single events bound now.
    fn range(&self, variable: usize) -> (i64, i64) {
        let furthest = &self.plan.furthest;
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        for (other, event) in self.singly() {
            if other != variable {
                let time = self.time(event);
                low = low.max(time.saturating_sub(furthest[variable][other]));
                high = high.min(time.saturating_add(furthest[other][variable]));
            }
        }
        (low, high)
    }

    /// The times (both included) that the WINDOWs that list a variable leave for it.
    fn windows_of(&self, variable: usize) -> (i64, i64) {
        let (mut low, mut high) = (i64::MIN, i64::MAX);
        for &number in &self.plan.variables[variable].windows {
            let window = &self.plan.windows[number];
            for event in window
                .variables
                .iter()
                .filter(|&&v| v != variable)
                .filter_map(|&v| self.bound[v])
            {
                low = low.max(self.time(event).saturating_sub(window.width));
                high = high.min(self.time(event).saturating_add(window.width));
            }
        }
        (low, high)
    }

    /// The shortest list that has all events that can fit a variable; None if there are none.
    fn list(&self, variable: usize) -> Option<&'p List> {
        let plan = &self.plan.variables[variable];
        let lists = if plan.key.is_none() { self.shared } else { self.own };
        let mut best = Some(&lists.by_variable[variable]);
        for probe in &plan.probes {
            let Some(event) = self.bound[probe.other.variable].filter(|_| self.is_bound(probe.other.variable)) else {
                continue;
            };
            let key = self.plan.indexes[probe.index].key(probe.other.kept(self.events.row(event)));
            let found = key.and_then(|key| lists.by_value[probe.index].get(&key));
            best = match (best, found) {
                (Some(one), Some(other)) if other.len() < one.len() => Some(other),
                (one, Some(_)) => one,
                (_, None) => None,
            };
        }
        best
    }

    /// The events that can fit a variable, of these times (both included).
    fn between(&self, variable: usize, (low, high): (i64, i64)) -> impl Iterator<Item = Handle> + use<'p> {
        let events = self.events;
        let found = self.list(variable).map(|list| list.from(list.since(events, low)));
        found
            .into_iter()
            .flatten()
            .take_while(move |event| events.time(*event) <= high)
    }

    /// Whether the JOINs hold that name this variable and otherwise only bound ones; and it is another event.
    fn fits(&self, variable: usize, event: Handle) -> bool {
        let role = self.plan.variables[variable].role;
        if role != Role::Absent && self.singly().any(|(_, bound)| self.is_same(bound, event)) {
            return false;
        }
        let bound = self.mask | 1 << variable;
        let scope = self.scope(Some((variable, event)), &[]);
        self.plan.variables[variable].joins.iter().all(|&join| {
            let join = &self.plan.joins[join];
            join.variables & !bound != 0 || join.condition.holds(&scope)
        })
    }

    /// Whether two are one event.
    #[inline]
    fn is_same(&self, one: Handle, other: Handle) -> bool {
        one == other || (self.plan.copies && self.events.name(one) == self.events.name(other))
    }

    /// Whether an event can be bound to a variable with what is bound.
    pub fn accepts(&self, variable: usize, event: Handle) -> bool {
        within(self.range(variable), self.time(event)) && self.fits(variable, event)
    }

    /// MATCH ANY: every combination whose last event is this one, bound to this place.
    pub fn search(&mut self, place: usize, variable: usize, event: Handle, sink: &mut Sink) {
        let order = &self.plan.orders[place];
        // Most events find nothing to go with: see that before anything else is done.
        let empty = |&other: &usize| {
            self.plan.places[other]
                .variables
                .iter()
                .all(|&v| self.own.by_variable[v].is_empty())
        };
        if order.iter().any(empty) || !self.fits(variable, event) {
            return;
        }
        self.bind(variable, event);
        self.combine(order, sink);
        self.unbind(variable);
    }

    fn combine(&mut self, order: &'p [usize], sink: &mut Sink) {
        let Some((&place, rest)) = order.split_first() else {
            return self.take_maybe(0, sink);
        };
        for &variable in &self.plan.places[place].variables {
            let range = self.range(variable);
            let screen = Screen::new(self.plan, self.events, variable, &self.bound, self.mask);
            let events = self.events;
            let passes = move |event: &Handle| screen.passes(events, *event);
            match self.beside(variable, range) {
                Some(found) => found
                    .filter(passes)
                    .for_each(|event| self.go_on(variable, event, rest, sink)),
                None => {
                    let found = self.between(variable, range).filter(passes);
                    found.for_each(|event| self.go_on(variable, event, rest, sink));
                }
            }
        }
    }

    fn go_on(&mut self, variable: usize, event: Handle, rest: &'p [usize], sink: &mut Sink) {
        if self.is_near(event) && self.fits(variable, event) {
            self.bind(variable, event);
            self.combine(rest, sink);
            self.unbind(variable);
        }
    }

    /// The events of these times (both included) that a JOIN by `<` or `>` leaves, where the list is long and that is
    /// known without going through it.
    fn beside(&self, variable: usize, (low, high): (i64, i64)) -> Option<impl Iterator<Item = Handle> + use<'p>> {
        let own = &self.plan.variables[variable];
        let lists = if own.key.is_none() { self.shared } else { self.own };
        let list = &lists.by_variable[variable];
        let events = self.events;
        // Where an equality is known, few are left anyway.
        if own.ranges.is_empty() || !own.probes.is_empty() || list.len() < SORTED_FROM {
            return None;
        }
        if list.since(events, high.saturating_add(1)) - list.since(events, low) < SORTED_FROM {
            return None;
        }
        let (sorted, place) = lists.sorted;
        own.ranges.iter().find_map(|probe| {
            let other = self.bound[probe.other.variable].filter(|_| self.is_bound(probe.other.variable))?;
            let number = probe.other.seen(events.row(other)).number()?;
            let found = sorted.beside((place, probe.index), probe.sign, Number::new(number))?;
            Some(found.filter(move |event| within((low, high), events.time(*event))))
        })
    }

    /// MATCH STRICT without steps of varying number: no two bound events are further apart than there are steps.
    fn is_near(&self, event: Handle) -> bool {
        if self.plan.policy != Policy::Strict || self.plan.steps.iter().any(|s| s.role.is_single() && s.is_open()) {
            return true;
        }
        if self.plan.steps.iter().any(|step| step.role == Role::Many) {
            return true;
        }
        let most = self.plan.places.len() as u64;
        let number = self.events.number(event);
        let mut others = self.bound.iter().flatten();
        others.all(|other| self.events.number(*other).abs_diff(number) < most)
    }

    /// Binds the `?e?` steps but the last, in every way; what is unbound is judged when all else is known.
    fn take_maybe(&mut self, from: usize, sink: &mut Sink) {
        let Some(&step) = self.plan.maybe_order.get(from) else {
            return self.complete(sink);
        };
        let variable = self.plan.steps[step].variables[0];
        let mut any = false;
        for event in self.between(variable, self.range(variable)) {
            if self.fits(variable, event) {
                any |= within(self.region(step), self.time(event));
                self.bind(variable, event);
                self.take_maybe(from + 1, sink);
                self.unbind(variable);
            }
        }
        if !any || !self.plan.lone_maybe {
            self.take_maybe(from + 1, sink);
        }
    }

    /// Each `?e?` but the last is bound to an event in its place or, if none fits there, unbound (rule S2).
    fn maybes_hold(&mut self) -> bool {
        self.plan.maybe_order.iter().all(|&step| {
            let variable = self.plan.steps[step].variables[0];
            let region = self.region(step);
            match self.bound[variable] {
                Some(event) => within(region, self.time(event)),
                None => !self.between(variable, region).any(|event| self.fits(variable, event)),
            }
        })
    }

    /// MATCH NEXT: when a step has its event, each `?e?` of the gap before it takes the first event that fits, if there
    /// is one: before the first event of a list that follows it, and once a list before it has enough.
    pub fn take_between(&mut self, gap: Range<usize>) {
        let steps = &self.plan.steps;
        for step in gap.clone().filter(|&s| steps[s].role == Role::Maybe) {
            for later in (step + 1..gap.end).filter(|&s| steps[s].role == Role::Many) {
                self.fill(later);
            }
            let variable = steps[step].variables[0];
            let taken = self.between(variable, self.region(step)).find(|&event| {
                let mut earlier = (gap.start..step).filter(|&s| steps[s].role == Role::Many);
                self.fits(variable, event) && earlier.all(|s| self.has_enough(s, variable, event))
            });
            self.many.iter_mut().for_each(Vec::clear);
            if let Some(event) = taken {
                self.bind(variable, event);
            }
        }
    }

    /// The events bound to variables of one event, by variable.
    pub fn singles(&self) -> &[Option<Handle>] {
        &self.bound
    }

    /// MATCH NEXT: whether a step of many events has enough before an event that a later step would bind to a variable,
    /// counted by their JOINs with earlier steps.
    pub fn has_enough(&mut self, step: usize, variable: usize, event: Handle) -> bool {
        let steps = &self.plan.steps;
        let counted = steps[step].variables[0];
        let before = (0..step)
            .rev()
            .find_map(|s| self.extent(steps[s].variables.iter().copied()));
        let low = match before {
            Some((_, greatest)) => greatest.saturating_add(1),
            None if self.is_bound(variable) => self.reach_back(counted),
            None => {
                self.bind(variable, event);
                let low = self.reach_back(counted);
                self.unbind(variable);
                low
            }
        };
        let earlier = steps[..step]
            .iter()
            .flat_map(|s| &s.variables)
            .fold(0u64, |mask, &v| mask | 1 << v);
        let all = self.mask;
        self.mask &= earlier;
        let range = (low, self.time(event).saturating_sub(1));
        let mut last = None;
        let mut is_next = |event: &Handle| {
            let is_copy = last.is_some_and(|last| self.is_same(last, *event));
            last = Some(*event);
            !is_copy
        };
        let fitting = self.between(counted, range).filter(|&event| self.fits(counted, event));
        let fitting = fitting.filter(|event| is_next(event));
        let enough = fitting.take(steps[step].least).count() == steps[step].least;
        self.mask = all;
        enough
    }

    /// The times of the events bound to the variables, least and greatest.
    fn extent(&self, variables: impl Iterator<Item = usize>) -> Option<(i64, i64)> {
        let mut found: Option<(i64, i64)> = None;
        for variable in variables {
            let many = &self.many[variable];
            let ends = self.bound[variable].iter().chain(many.first()).chain(many.last());
            for time in ends.map(|event| self.time(*event)) {
                let (low, high) = found.unwrap_or((time, time));
                found = Some((low.min(time), high.max(time)));
            }
        }
        found
    }

    /// The times (both included) that an open step can take: between the nearest bound events, or to where S4 says.
    fn region(&self, step: usize) -> (i64, i64) {
        let steps = &self.plan.steps;
        let variable = steps[step].variables[0];
        let (low, high) = self.windows_of(variable);
        let extent = |&s: &usize| self.extent(steps[s].variables.iter().copied());
        let before = (0..step).rev().find_map(|s| extent(&s));
        let after = (step + 1..steps.len()).find_map(|s| extent(&s));
        let low = low.max(match before {
            Some((_, greatest)) => greatest.saturating_add(1),
            None => self.reach_back(variable),
        });
        let high = high.min(match after {
            Some((least, _)) => least.saturating_sub(1),
            None => self.deadline(),
        });
        (low, high)
    }

    /// Where an open first step begins: l - w, of several the latest.
    fn reach_back(&self, variable: usize) -> i64 {
        let starts = self.plan.variables[variable].windows.iter().filter_map(|&number| {
            let window = &self.plan.windows[number];
            let (_, last) = self.extent(window.variables.iter().copied().filter(|&v| v != variable))?;
            Some(last.saturating_sub(window.width))
        });
        starts.max().unwrap_or(i64::MIN)
    }

    /// Where an open last step ends: f + w, of several the earliest.
    fn deadline(&self) -> i64 {
        let last = self.plan.steps.len() - 1;
        let own = &self.plan.steps[last].variables;
        let ends = self.plan.deadlines.iter().filter_map(|&number| {
            let window = &self.plan.windows[number];
            let (first, _) = self.extent(window.variables.iter().copied().filter(|v| !own.contains(v)))?;
            Some(first.saturating_add(window.width))
        });
        ends.min().unwrap_or(i64::MAX)
    }

    /// All singles are bound: the steps of many events, NOT, and then the match, or the wait for its deadline.
    pub fn complete(&mut self, sink: &mut Sink) {
        let trailing = self.plan.trailing();
        let next = self.plan.policy == Policy::Next;
        let holds = self.take_many(trailing) && (self.plan.judged_late || self.others_hold());
        let Some((_, last)) = self.extent(self.plan.own.iter().copied()) else {
            return;
        };
        let Some(step) = trailing else {
            if holds {
                self.finish(last, sink);
            }
            return;
        };
        let waits_anyway = self.plan.steps[step].role == Role::Maybe && self.plan.trailing_matters;
        if !holds && !waits_anyway {
            return;
        }
        let deadline = self.deadline();
        let mut pending = Pending {
            events: self.parts(),
            holds,
            due: if deadline == i64::MAX {
                i64::MAX
            } else {
                deadline.max(last)
            },
            found: false,
            branch: self.plan.branch,
        };
        if self.plan.steps[step].role == Role::Maybe {
            // With variables outside SEQ some of its events may have come before the last one.
            pending.found = self.take_last(step, sink);
            if pending.found && next {
                return;
            }
        } else if deadline == i64::MAX {
            return; // that time never comes
        }
        sink.pending.push(pending);
    }

    /// Binds a last `?e?` to each event that is there; says whether there was one. With NEXT only to the first.
    fn take_last(&mut self, step: usize, sink: &mut Sink) -> bool {
        let variable = self.plan.steps[step].variables[0];
        let mut found = false;
        for event in self.between(variable, self.region(step)) {
            if self.fits(variable, event) {
                found = true;
                self.finish_with(variable, event, sink);
                if self.plan.policy == Policy::Next {
                    break;
                }
            }
        }
        found
    }

    /// A pending match gets an event for its last step, a `?e?`, if it fits; says whether.
    pub fn arrive(&mut self, pending: &Pending, event: Handle, sink: &mut Sink) -> bool {
        self.restore(pending);
        let Some(step) = self.plan.trailing() else {
            return false;
        };
        let variable = self.plan.steps[step].variables[0];
        if !within(self.region(step), self.time(event)) || !self.fits(variable, event) {
            return false;
        }
        self.finish_with(variable, event, sink);
        true
    }

    fn finish_with(&mut self, variable: usize, event: Handle, sink: &mut Sink) {
        self.bind(variable, event);
        // What lies between was judged without this event; where a JOIN names both, it counts.
        let saved = self.many.clone();
        self.many.iter_mut().for_each(Vec::clear);
        if self.take_many(self.plan.trailing())
            && self.others_hold()
            && let Some((_, last)) = self.extent(self.plan.own.iter().copied())
        {
            self.finish(last, sink);
        }
        self.many = saved;
        self.unbind(variable);
    }

    /// The deadline of a pending match has passed.
    pub fn resolve(&mut self, pending: &Pending, sink: &mut Sink) {
        self.restore(pending);
        let Some(number) = self.plan.trailing() else {
            return;
        };
        let step = &self.plan.steps[number];
        let kept = match step.role {
            Role::Maybe => pending.holds && !pending.found && pending.due < i64::MAX,
            Role::Many => {
                let late = self.plan.judged_late;
                self.fill(number) && self.spans_hold() && (!late || self.others_hold())
            }
            Role::Absent => self.is_absent(number),
            Role::One | Role::Any | Role::Elsewhere => true,
        };
        if kept {
            let last = self
                .extent(self.plan.own.iter().copied())
                .map_or(i64::MIN, |(_, last)| last);
            let time = if pending.due == i64::MAX {
                last
            } else {
                pending.due.max(last)
            };
            self.finish(time, sink);
        }
    }

    fn restore(&mut self, pending: &Pending) {
        self.clear();
        for (variable, part) in pending.events.iter().enumerate() {
            match part {
                Part::Unbound => {}
                Part::One(event) => self.bind(variable, *event),
                Part::Many(events) => self.many[variable].extend(events.iter()),
            }
        }
    }

    /// Fills the steps of many events but the last; false if a number is out of range.
    fn take_many(&mut self, trailing: Option<usize>) -> bool {
        // Those inside first: how far a first one reaches back may depend on them.
        let inside = 1..self.plan.steps.len();
        for step in inside.chain((!self.plan.steps.is_empty()).then_some(0)) {
            if self.plan.steps[step].role == Role::Many && Some(step) != trailing && !self.fill(step) {
                return false;
            }
        }
        self.spans_hold()
    }

    fn fill(&mut self, number: usize) -> bool {
        let step = &self.plan.steps[number];
        let variable = step.variables[0];
        let mut taken = std::mem::take(&mut self.many[variable]);
        taken.clear();
        let region = self.region(number);
        for event in self.between(variable, region) {
            let is_copy = taken.last().is_some_and(|last| self.is_same(*last, event));
            if !is_copy && self.fits(variable, event) {
                taken.push(event);
                if taken.len() > step.most {
                    break;
                }
            }
        }
        // An eager matcher keeps events of one time as they came.
        let events = self.events;
        if !taken.is_sorted_by(|a, b| events.order(*a, *b).is_le()) {
            taken.sort_by(|a, b| events.order(*a, *b));
        }
        let fine = taken.len() >= step.least && taken.len() <= step.most;
        self.many[variable] = taken;
        fine
    }

    /// A WINDOW that lists no single event bounds the span of the others (rule S3).
    fn spans_hold(&self) -> bool {
        self.plan.windows.iter().all(|window| {
            let single = window.variables.iter().any(|&v| self.is_bound(v));
            let extent = self.extent(window.variables.iter().copied());
            single || extent.is_none_or(|(low, high)| high.saturating_sub(low) <= window.width)
        })
    }

    /// The `?e?` and NOT steps but the last are right with all else that is bound. (In MATCH NEXT a `?e?` took what it
    /// took.)
    fn others_hold(&mut self) -> bool {
        let trailing = self.plan.trailing();
        let judged = |step: &usize| self.plan.steps[*step].role == Role::Absent && Some(*step) != trailing;
        let absent: Vec<usize> = (0..self.plan.steps.len()).filter(judged).collect();
        (self.plan.policy == Policy::Next || self.maybes_hold()) && absent.into_iter().all(|s| self.is_absent(s))
    }

    /// No event qualifies for a NOT step where it looks.
    fn is_absent(&mut self, step: usize) -> bool {
        let variable = self.plan.steps[step].variables[0];
        let (mut low, mut high) = self.region(step);
        for &number in &self.plan.variables[variable].windows {
            let window = &self.plan.windows[number];
            if let Some((first, last)) = self.extent(window.variables.iter().copied()) {
                low = low.max(last.saturating_sub(window.width));
                high = high.min(first.saturating_add(window.width));
            }
        }
        let mut candidates = self.between(variable, (low, high));
        !candidates.any(|event| self.fits(variable, event))
    }

    fn parts(&self) -> Box<[Part]> {
        let part = |variable: usize| match (self.bound[variable], self.plan.variables[variable].role) {
            (Some(event), _) => Part::One(event),
            (None, Role::Many) => Part::Many(self.many[variable].as_slice().into()),
            (None, _) => Part::Unbound,
        };
        (0..self.plan.variables.len()).map(part).collect()
    }

    fn bounds(&self) -> Vec<Bound> {
        let bound = |variable: usize| match (self.bound[variable], self.plan.variables[variable].role) {
            (Some(event), _) => Bound::One(self.events.name(event).clone()),
            (None, Role::Many) => {
                let many = self.many[variable].iter();
                Bound::Many(many.map(|event| self.events.name(*event).clone()).collect())
            }
            (None, _) => Bound::Unbound,
        };
        self.plan.own.iter().map(|&variable| bound(variable)).collect()
    }

    /// STRICT: the bound events are neighbours among all events of the partition.
    fn is_strict(&self) -> bool {
        let bound = self.bound.iter().flatten().chain(self.many.iter().flatten());
        // Number 0: in no partition.
        let (mut least, mut greatest, mut count) = (u64::MAX, 0, 0);
        for number in bound.map(|event| self.events.number(*event)) {
            least = least.min(number);
            greatest = greatest.max(number);
            count += 1;
        }
        count > 0 && least > 0 && greatest - least + 1 == count
    }

    /// The partition of the first event, which AFTER MATCH asks for.
    fn key(&self) -> Option<Arc<[Key]>> {
        if self.plan.after == After::Keep {
            return None;
        }
        let bound = self.bound.iter().flatten().chain(self.many.iter().flatten());
        let first = bound.min_by(|a, b| self.events.order(**a, **b))?;
        self.plan.partition(self.events.row(*first))
    }

    fn finish(&mut self, time: i64, sink: &mut Sink) {
        if self.plan.policy == Policy::Strict && !self.is_strict() {
            return;
        }
        let over = |a: &crate::plan::Aggregate| {
            aggregate(a, self.many[a.variable].iter().map(|event| self.events.row(*event)))
        };
        let aggregates: Vec<Value> = self.plan.aggregates.iter().map(over).collect();
        let bindings = self.plan.bindings(&self.scope(None, &aggregates));
        for (head, select) in self.plan.select(&self.scope(None, &aggregates)) {
            sink.matches.push(Match {
                bindings: bindings.clone(),
                time,
                events: self.bounds(),
                select,
                row: None,
                key: self.key(),
                head: self.plan.first_head as u32 + head,
            });
        }
    }
}

fn within((low, high): (i64, i64), time: i64) -> bool {
    low <= time && time <= high
}
