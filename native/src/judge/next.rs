//! MATCH NEXT: what the steps between two that take events by themselves take.

use std::ops::Range;

use crate::event::Handle;
use crate::judge::Judge;
use crate::plan::Role;

impl Judge<'_> {
    /// MATCH NEXT: when a step has its event, each `?e?` of the gap before it takes the first event that fits, if there
    /// is one: before the first event of a list that follows it, and once a list before it has enough. Goes on with each
    /// way in which what is known of that event fits.
    pub fn take_between(&mut self, gap: Range<usize>, go_on: &mut dyn FnMut(&mut Self)) {
        self.take_from(gap.start, &gap, go_on);
    }

    fn take_from(&mut self, from: usize, gap: &Range<usize>, go_on: &mut dyn FnMut(&mut Self)) {
        let steps = &self.plan.steps;
        let Some(step) = (from..gap.end).find(|&s| steps[s].role == Role::Maybe) else {
            return go_on(self);
        };
        self.chooses = true;
        for later in (step + 1..gap.end).filter(|&s| steps[s].role == Role::Many) {
            self.fill(later);
        }
        self.chooses = false;
        let variable = steps[step].variables[0];
        let region = self.region(step);
        let taken = self.between(variable, region).find(|&event| {
            let mut earlier = (gap.start..step).filter(|&s| steps[s].role == Role::Many);
            self.fits(variable, event) && earlier.all(|s| self.has_enough(s, variable, event))
        });
        // What a copy fits is judged with the lists that the first one was judged with.
        let taken: Vec<Handle> = taken.map_or_else(Vec::new, |first| self.copies(variable, first, region));
        self.many.iter_mut().for_each(Vec::clear);
        for &event in &taken {
            self.bind(variable, event);
            self.take_from(step + 1, gap, go_on);
            self.unbind(variable);
        }
        if taken.is_empty() {
            self.take_from(step + 1, gap, go_on);
        }
    }

    /// Of an event that fits a variable, all that is known of it and fits: its copies, itself included.
    fn copies(&self, variable: usize, event: Handle, (low, high): (i64, i64)) -> Vec<Handle> {
        if !self.plan.copies {
            return vec![event];
        }
        let time = self.time(event);
        let same = self.between(variable, (low.max(time), high.min(time)));
        same.filter(|&other| self.is_same(event, other) && self.fits(variable, other))
            .collect()
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
        self.chooses = true;
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
        (self.mask, self.chooses) = (all, false);
        enough
    }
}
