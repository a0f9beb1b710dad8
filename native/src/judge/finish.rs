//! From single events that are bound to a match: lists, NOT, a last `?e?`, and the wait for a deadline.

use std::sync::Arc;

use crate::aggregate::aggregate;
use crate::event::Handle;
use crate::found::{Bound, Match};
use crate::judge::{Judge, within};
use crate::partial::{Part, Pending, Sink};
use crate::plan::{After, Policy, Role};
use crate::value::{Key, Value};

impl Judge<'_> {
    /// All singles are bound: the steps of many events, NOT, and then the match, or the wait for its deadline.
    pub fn complete(&mut self, sink: &mut Sink) {
        if !self.is_settled() {
            return;
        }
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
        let mut first = None;
        for event in self.between(variable, self.region(step)) {
            let is_over = first.is_some_and(|first| self.plan.policy == Policy::Next && !self.is_same(first, event));
            if !is_over && self.fits(variable, event) {
                first = first.or(Some(event));
                self.finish_with(variable, event, sink);
            }
        }
        first.is_some()
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
        if self.is_settled()
            && self.take_many(self.plan.trailing())
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

    pub(super) fn fill(&mut self, number: usize) -> bool {
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
