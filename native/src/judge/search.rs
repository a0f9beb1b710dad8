//! MATCH ANY and STRICT: every combination of single events, the newest one bound first.

use crate::event::Handle;
use crate::judge::{Judge, within};
use crate::partial::Sink;
use crate::plan::{Policy, Role};
use crate::screen::Screen;
use crate::sorted::{Number, SORTED_FROM};

impl<'p> Judge<'p> {
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
    pub(super) fn maybes_hold(&mut self) -> bool {
        self.plan.maybe_order.iter().all(|&step| {
            let variable = self.plan.steps[step].variables[0];
            let region = self.region(step);
            match self.bound[variable] {
                Some(event) => within(region, self.time(event)),
                None => !self.between(variable, region).any(|event| self.fits(variable, event)),
            }
        })
    }
}
