//! What follows from a query's plan: what is kept of events, how they are found, in which order they are bound.

use crate::bounds::{self, FOREVER};
use crate::expr::{Attribute, Expr, Sign, Slot};
use crate::plan::{
    Index, Join, Place, Plan, Policy, Probe, RangeIndex, RangeProbe, Ranged, Role, Span, Step, Variable,
};
use crate::relation::Relation;
use crate::screen::Screened;

impl Plan {
    /// Finds what follows from what was read.
    pub(crate) fn derive(&mut self) {
        self.find_kept();
        self.find_once();
        self.find_homes();
        self.find_settled();
        self.find_screened();
        self.find_indexes();
        self.find_ranges();
        self.find_ranged_steps();
        self.places = self.find_places();
        self.orders = (0..self.places.len()).map(|first| self.order_from(first)).collect();
        let last_step = self.places.iter().filter_map(|place| place.step).max();
        self.completes = vec![Vec::new(); self.variables.len()];
        for (number, place) in self.places.iter().enumerate() {
            if place.step.is_none() || place.step == last_step {
                let own = place.variables.iter();
                own.for_each(|&v| self.completes[v].push((self.branch, number)));
            }
        }
        self.deadlines = self.find_deadlines();
        let trailing = self.trailing();
        let waits = trailing.map(|step| &self.steps[step]);
        self.wakes = waits
            .filter(|step| step.role == Role::Maybe)
            .map_or(0, |step| step.mask);
        let maybes = (1..self.steps.len()).chain((!self.steps.is_empty()).then_some(0));
        self.maybe_order = maybes
            .filter(|&step| self.steps[step].role == Role::Maybe && Some(step) != trailing)
            .collect();
        self.relate_open_steps();
        self.runs_only = self.policy == Policy::Next && !self.steps.iter().any(Step::is_open);
        self.furthest = bounds::furthest(self);
        let kept: Vec<i64> = (0..self.variables.len()).map(|v| bounds::kept(self, v)).collect();
        self.horizon = kept.iter().copied().max().unwrap_or(0);
        // A run of MATCH NEXT is rebuilt from all events since its first, so all are kept equally long; and from those
        // that an open first step looked at before it.
        let reach = if self.steps.first().is_some_and(Step::is_open) {
            2
        } else {
            1
        };
        let of_runs = self.horizon.saturating_mul(reach).min(FOREVER);
        for (variable, kept) in self.variables.iter_mut().zip(kept) {
            variable.kept = if self.policy == Policy::Next { of_runs } else { kept };
        }
    }

    /// What is read in FILTERs only need not be kept.
    fn find_kept(&mut self) {
        let mut kept: Vec<Vec<bool>> = self.streams.iter().map(|s| vec![false; s.attributes.len()]).collect();
        let mut mark = |attribute: &Attribute| {
            for (slots, slot) in kept.iter_mut().zip(&attribute.slots) {
                if let Slot::At(place) = slot
                    && let Some(kept) = slots.get_mut(*place)
                {
                    *kept = true;
                }
            }
        };
        self.joins.iter().for_each(|join| join.condition.visit(&mut mark));
        self.relations.iter().flat_map(Relation::attributes).for_each(&mut mark);
        for head in &self.heads {
            head.having.iter().for_each(|having| having.visit(&mut mark));
            for output in &head.outputs {
                output.expression.visit(&mut mark);
                output.condition.iter().for_each(|condition| condition.visit(&mut mark));
            }
        }
        let arguments = self
            .aggregates
            .iter()
            .filter_map(|aggregate| aggregate.argument.as_ref());
        arguments.for_each(|argument| argument.visit(&mut mark));
        self.group_by.iter().for_each(&mut mark);
        self.used.iter().for_each(|(_, value)| value.visit(&mut mark));
        let keys = self.variables.iter().filter_map(|v| v.key.as_ref());
        let keys = keys.chain(self.streams.iter().filter_map(|s| s.key.as_ref()));
        keys.flatten().for_each(&mut mark);
        for (stream, kept) in self.streams.iter_mut().zip(kept) {
            stream.kept = kept;
        }
    }

    fn find_once(&mut self) {
        for (number, part) in self.keys.iter_mut().enumerate() {
            let keys = self
                .variables
                .iter()
                .filter_map(|variable| variable.key.as_ref()?.get(number));
            part.once = keys
                .flat_map(|attribute| &attribute.slots)
                .all(|slot| *slot != Slot::Id);
        }
    }

    fn find_homes(&mut self) {
        let like = |one: &Attribute, other: &Attribute| one.slots == other.slots && one.float == other.float;
        let same = |one: &Variable, other: &Variable| match (&one.key, &other.key) {
            (Some(one), Some(other)) => one.iter().zip(other).all(|(one, other)| like(one, other)),
            (one, other) => one.is_none() && other.is_none(),
        };
        for number in 0..self.variables.len() {
            let first = |v: &Variable| same(v, &self.variables[number]);
            self.variables[number].home = self.variables.iter().position(first).unwrap_or(number);
        }
    }

    /// An equality that the key says already need not be judged again: all events of a partition fulfil it.
    fn find_settled(&mut self) {
        let like = |one: &Attribute, other: &Attribute| one.slots == other.slots && one.float == other.float;
        let part_of = |attribute: &Attribute, number: usize| {
            let key = self.variables[attribute.variable].key.as_ref();
            key.and_then(|key| key.get(number))
                .is_some_and(|part| like(part, attribute))
        };
        let is_settled = |join: &Join| match &join.condition {
            Expr::Compare(Sign::Equal, sides) => match sides.as_ref() {
                (Expr::Attribute(one), Expr::Attribute(other)) => (0..self.keys.len())
                    .any(|number| !self.keys[number].nulls && part_of(one, number) && part_of(other, number)),
                _ => false,
            },
            _ => false,
        };
        let settled: Vec<bool> = self.joins.iter().map(is_settled).collect();
        for variable in &mut self.variables {
            variable.joins.retain(|join| !settled[*join]);
        }
    }

    fn find_screened(&mut self) {
        for (number, variable) in self.variables.iter_mut().enumerate() {
            let joins = variable.joins.iter().map(|join| &self.joins[*join].condition);
            variable.screened = match variable.streams.as_slice() {
                [stream] => joins.filter_map(|c| Screened::of(c, number, *stream)).collect(),
                _ => Vec::new(),
            };
        }
    }

    fn find_indexes(&mut self) {
        for join in &self.joins {
            let Expr::Compare(Sign::Equal, sides) = &join.condition else {
                continue;
            };
            let (Expr::Attribute(one), Expr::Attribute(other)) = (&sides.0, &sides.1) else {
                continue;
            };
            for (own, other) in [(one, other), (other, one)] {
                let variable = own.variable;
                let key = self.variables[variable].key.as_deref().unwrap_or_default();
                // What the partition's key says need not be said again.
                if variable == other.variable || key.iter().any(|part| part.slots == own.slots) {
                    continue;
                }
                let same = |index: &Index| index.variable == variable && index.attribute.slots == own.slots;
                let index = self.indexes.iter().position(same).unwrap_or_else(|| {
                    self.indexes.push(Index {
                        variable,
                        attribute: own.clone(),
                        float: false,
                    });
                    self.indexes.len() - 1
                });
                self.indexes[index].float |= own.float || other.float;
                self.variables[variable].probes.push(Probe {
                    index,
                    other: other.clone(),
                });
            }
        }
    }

    fn find_ranges(&mut self) {
        for join in &self.joins {
            let Expr::Compare(sign, sides) = &join.condition else {
                continue;
            };
            let (Expr::Attribute(one), Expr::Attribute(other)) = (&sides.0, &sides.1) else {
                continue;
            };
            let Some(turned) = sign.turned() else { continue };
            for (own, sign, other) in [(one, *sign, other), (other, turned, one)] {
                let variable = own.variable;
                // NEXT asks for the first by time, and finds its runs otherwise.
                if variable == other.variable || self.policy == Policy::Next {
                    continue;
                }
                let same = |index: &RangeIndex| index.variable == variable && index.attribute.slots == own.slots;
                let index = self.range_indexes.iter().position(same).unwrap_or_else(|| {
                    let attribute = own.clone();
                    self.range_indexes.push(RangeIndex { variable, attribute });
                    self.range_indexes.len() - 1
                });
                let other = other.clone();
                self.variables[variable].ranges.push(RangeProbe { index, sign, other });
            }
        }
    }

    fn find_ranged_steps(&mut self) {
        for number in 0..self.steps.len() {
            let [variable] = self.steps[number].variables.as_slice() else {
                continue;
            };
            let variable = *variable;
            self.steps[number].ranged = None;
            if self.steps[number].role != Role::One {
                continue;
            }
            // Every run that waits here has bound those of earlier steps that take one event.
            let is_before = |other: usize| {
                let step = self.variables[other].step;
                step.is_some_and(|step| step < number && self.steps[step].role == Role::One)
            };
            let ranged = self.joins.iter().find_map(|join| {
                let Expr::Compare(sign, sides) = &join.condition else {
                    return None;
                };
                let (Expr::Attribute(one), Expr::Attribute(other)) = (&sides.0, &sides.1) else {
                    return None;
                };
                // From the side of what is bound: `own sign other` is `other turned own`.
                let (own, sign, other) = match (one.variable == variable, other.variable == variable) {
                    (true, false) => (one, sign.turned()?, other),
                    (false, true) if sign.turned().is_some() => (other, *sign, one),
                    _ => return None,
                };
                is_before(other.variable).then(|| Ranged {
                    own: own.clone(),
                    sign,
                    other: other.clone(),
                })
            });
            self.steps[number].ranged = ranged;
        }
    }

    fn relate_open_steps(&mut self) {
        let count = |role: Role| self.steps.iter().filter(|step| step.role == role).count();
        self.lone_maybe = count(Role::Maybe) == 1 && count(Role::Many) == 0;
        let Some(last) = self.trailing() else { return };
        let own = self.steps[last].variables[0];
        let is_open = |v: usize| v != own && self.variables[v].step.is_some_and(|s| self.steps[s].is_open());
        let joined = |variables: u64| {
            let names = |v: usize| variables >> v & 1 == 1;
            names(own) && (0..self.variables.len()).any(|v| names(v) && is_open(v))
        };
        let named = self.joins.iter().map(|join| join.variables);
        let mut named = named.chain(self.relations.iter().map(|relation| relation.variables));
        let listed = |w: &Span| w.variables.contains(&own) && w.variables.iter().any(|&v| is_open(v));
        self.trailing_matters = named.any(joined) || self.windows.iter().any(listed);
        self.judged_late = self.steps[last].role == Role::Many && self.windows.iter().any(listed);
    }

    fn find_places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            match step.role {
                Role::One => places.extend(step.variables.iter().map(|&v| Place {
                    variables: vec![v],
                    step: Some(number),
                })),
                Role::Any => places.push(Place {
                    variables: step.variables.clone(),
                    step: Some(number),
                }),
                _ => {}
            }
        }
        for (number, variable) in self.variables.iter().enumerate() {
            if variable.step.is_none() && variable.role != Role::Elsewhere {
                places.push(Place {
                    variables: vec![number],
                    step: None,
                });
            }
        }
        places
    }

    /// Binds next what is tied most to what is bound: an equality, another join, a window, a neighbouring step.
    fn order_from(&self, first: usize) -> Vec<usize> {
        let mask = |place: usize| self.places[place].variables.iter().fold(0u64, |m, &v| m | 1 << v);
        let mut bound = mask(first);
        let mut taken = vec![first];
        while taken.len() < self.places.len() {
            let tied = |place: &usize| {
                let with = bound | mask(*place);
                let joined = |join: &&Join| join.variables & !with == 0 && join.variables & mask(*place) != 0;
                let joins = self.joins.iter().filter(joined).map(|join| match join.condition {
                    Expr::Compare(Sign::Equal, _) => 8,
                    _ => 4,
                });
                let windows = self.windows.iter().filter(|window| {
                    let listed = window.variables.iter().fold(0u64, |m, &v| m | 1 << v);
                    listed & bound != 0 && listed & mask(*place) != 0
                });
                let steps = taken.iter().filter(|&&other| {
                    let (one, other) = (self.places[*place].step, self.places[other].step);
                    one.zip(other).is_some_and(|(one, other)| one.abs_diff(other) == 1)
                });
                let relations = self
                    .relations
                    .iter()
                    .filter(|r| r.variables & bound != 0 && r.variables & mask(*place) != 0);
                joins.sum::<usize>() + relations.count() * 4 + windows.count() * 3 + steps.count()
            };
            let rest = (0..self.places.len()).filter(|p| !taken.contains(p));
            // Of equals the last step, because its time is bounded closest.
            match rest.max_by_key(|p| (tied(p), self.places[*p].step)) {
                Some(next) => {
                    bound |= mask(next);
                    taken.push(next);
                }
                None => break,
            }
        }
        taken.remove(0);
        taken
    }

    fn find_deadlines(&self) -> Vec<usize> {
        let Some(last) = self.trailing() else {
            return Vec::new();
        };
        let own = self.variables[self.steps[last].variables[0]].windows.clone();
        // A window that lists nothing besides this step ends nothing.
        let useful = |w: &usize| {
            self.windows[*w]
                .variables
                .iter()
                .any(|v| !self.steps[last].variables.contains(v))
        };
        let own: Vec<usize> = own.into_iter().filter(useful).collect();
        if !own.is_empty() {
            return own;
        }
        let first = &self.steps[0].variables;
        (0..self.windows.len())
            .filter(|&w| self.windows[w].variables.iter().any(|v| first.contains(v)))
            .collect()
    }
}
