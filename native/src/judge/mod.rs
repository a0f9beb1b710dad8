//! Judges which events go together: who is bound, and what that leaves for others.
//!
//! A match is built in this order: what must be one event (plain steps, ALL, ANY, variables outside SEQ); then `?e?`;
//! then `?e+` and `{n,m}`; then NOT. So each is judged with everything bound that can be.

mod finish;
mod next;
mod search;

use crate::event::{Events, Handle, List};
use crate::expr::Bindings;
use crate::partition::Lists;
use crate::plan::{Plan, Role};
use crate::relation::{Relation, When};
use crate::value::Value;

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
    /// Whether lists are only looked at to choose single events.
    chooses: bool,
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
            chooses: false,
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
        }) && self.is_related(variable, event)
    }

    /// Whether an event shares with the single events that are bound what PATHs say they share.
    fn is_related(&self, variable: usize, event: Handle) -> bool {
        let single = self.plan.variables[variable].role.is_single();
        let judged = match single || self.chooses {
            true => When::Chosen,
            false => When::Settled,
        };
        let relations = self.plan.relations.iter();
        relations
            .filter(|relation| relation.variables >> variable & 1 == 1)
            .filter(|relation| relation.when == When::Always || relation.when == judged)
            .all(|relation| self.relates(relation, Some((variable, event))))
    }

    /// Whether the single events that are bound go together in all that the match says of them.
    fn is_settled(&self) -> bool {
        let relations = self.plan.relations.iter();
        relations
            .filter(|relation| relation.when == When::Settled)
            .all(|relation| self.relates(relation, None))
    }

    fn relates(&self, relation: &Relation, tried: Option<(usize, Handle)>) -> bool {
        relation.holds(|attribute| {
            let event = match tried {
                Some((variable, event)) if variable == attribute.variable => event,
                _ => self.bound[attribute.variable].filter(|_| self.is_bound(attribute.variable))?,
            };
            Some(attribute.seen(self.events.row(event)))
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
}

fn within((low, high): (i64, i64), time: i64) -> bool {
    low <= time && time <= high
}
