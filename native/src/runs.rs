//! MATCH NEXT: each event that qualifies for the first step starts a run, and a run takes the first that fits (rule S9).

use std::ops::Range;

use crate::bounds::FOREVER;
use crate::event::{Events, Handle};
use crate::judge::{Judge, Sink};
use crate::plan::{Plan, Role};

/// A run: the step it waits for. What is bound so far is beside it, by variable.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The step it waits for; plain, ALL or ANY.
    pub step: u32,
    /// After this time it can't go on.
    pub expires: i64,
    /// Where nothing is bound yet, because the first step takes many events: the time of the event that began the run;
    /// else `BOUND`.
    began: i64,
}

/// Stands for the beginning of a run in which something is bound.
const BOUND: i64 = i64::MIN;

/// The runs of a partition: so many events to each.
#[derive(Debug, Default)]
pub struct Runs {
    runs: Vec<Run>,
    events: Vec<Option<Handle>>,
}

impl Runs {
    /// How many.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// What a run has bound, by variable.
    fn bound(&self, plan: &Plan, place: usize) -> &[Option<Handle>] {
        let width = plan.variables.len();
        &self.events[place * width..(place + 1) * width]
    }

    fn push(&mut self, run: Run, bound: &[Option<Handle>]) {
        if self.runs.len() == self.runs.capacity() {
            // Most partitions have one or two: no room for many more than there are.
            let more = self.runs.len() / 2 + 1;
            self.runs.reserve_exact(more);
            self.events.reserve_exact(more * bound.len());
        }
        self.runs.push(run);
        self.events.extend_from_slice(bound);
    }

    /// Takes a run out, and lets go of its events; the last one takes its place.
    fn remove(&mut self, plan: &Plan, events: &mut Events, place: usize) {
        let width = plan.variables.len();
        let start = place * width;
        self.events[start..start + width]
            .iter()
            .flatten()
            .for_each(|event| events.release(*event));
        self.runs.swap_remove(place);
        let last = self.runs.len() * width;
        self.events.copy_within(last.., start.min(last));
        self.events.truncate(last);
    }

    /// Lets go of runs for which this is so.
    pub fn remove_if(&mut self, plan: &Plan, events: &mut Events, is_over: impl Fn(&Run, &[Option<Handle>]) -> bool) {
        for place in (0..self.runs.len()).rev() {
            if is_over(&self.runs[place], self.bound(plan, place)) {
                self.remove(plan, events, place);
            }
        }
    }

    /// Brings about what `next` found. What goes on is held before what it was is let go of.
    pub fn change(&mut self, plan: &Plan, events: &mut Events, changes: &mut Changes) {
        changes.events.iter().flatten().for_each(|event| events.hold(*event));
        changes.gone.sort_unstable();
        for place in changes.gone.drain(..).rev() {
            self.remove(plan, events, place);
        }
        for (run, bound) in changes.new.iter().zip(changes.events.chunks(plan.variables.len())) {
            self.push(*run, bound);
        }
        changes.new.clear();
        changes.events.clear();
    }
}

/// What an event did to a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Waits,
    Moved,
    Complete,
}

/// The first step at or after this one that takes an event by itself.
fn next_step(plan: &Plan, from: usize) -> Option<usize> {
    (from..plan.steps.len()).find(|&step| !plan.steps[step].is_open())
}

/// What an event changed: the places of runs that are over or went on, and the runs that are new.
#[derive(Debug, Default)]
pub struct Changes {
    gone: Vec<usize>,
    new: Vec<Run>,
    /// What those have bound, by variable.
    events: Vec<Option<Handle>>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty()
    }

    fn begin(&mut self, plan: &Plan, run: Run) {
        self.new.push(run);
        self.events.resize(self.new.len() * plan.variables.len(), None);
    }

    /// Remembers what a judge has bound as a run that waits for a step.
    fn remember(&mut self, plan: &Plan, events: &Events, judge: &Judge<'_>, step: usize) {
        let bound = judge.singles();
        self.new.push(Run {
            step: step as u32,
            expires: expiry(plan, events, bound, step),
            began: BOUND,
        });
        self.events.extend_from_slice(bound);
    }
}

/// Gives an event, which qualifies for the variables of `mask` in this partition, to the runs; then starts new ones.
/// `judge` knows the partition's earlier events and has bound nothing.
pub fn next(
    plan: &Plan,
    events: &Events,
    judge: &mut Judge<'_>,
    runs: &Runs,
    (event, mask): (Handle, u64),
    changes: &mut Changes,
    sink: &mut Sink,
) {
    let time = events.time(event);
    let mut taken = false;
    for (place, run) in runs.runs.iter().enumerate() {
        if run.expires < time {
            changes.gone.push(place);
            continue;
        }
        if plan.steps[run.step as usize].mask & mask == 0 {
            continue;
        }
        let bound = runs.bound(plan, place);
        judge.bind_all(bound);
        let (outcome, step) = extend(plan, judge, (run, bound), (event, time), mask);
        if outcome == Outcome::Waits {
            continue;
        }
        changes.gone.push(place);
        // Two runs that nothing is bound in go on as the same one.
        if run.began != BOUND && std::mem::replace(&mut taken, true) {
            continue;
        }
        if outcome == Outcome::Moved {
            changes.remember(plan, events, judge, step);
        } else {
            judge.complete(sink);
        }
    }
    let first = &plan.steps[0];
    if first.role == Role::Many && first.least > 0 {
        if first.mask & mask != 0 {
            begin(plan, runs, time, changes);
        }
    } else {
        start(plan, events, judge, (event, mask), changes, sink);
    }
}

/// The steps between a step and the one before it that takes an event by itself.
fn gap(plan: &Plan, step: usize) -> Range<usize> {
    let previous = (0..step).rev().find(|&s| !plan.steps[s].is_open());
    previous.map_or(0, |previous| previous + 1)..step
}

/// Lets a run take an event: whether it waits on, went on (to which step), or is complete.
fn extend(
    plan: &Plan,
    judge: &mut Judge<'_>,
    (run, bound): (&Run, &[Option<Handle>]),
    (event, time): (Handle, i64),
    mask: u64,
) -> (Outcome, usize) {
    let number = run.step as usize;
    let step = &plan.steps[number];
    let waits = (Outcome::Waits, number);
    if run.began != BOUND && time <= run.began {
        return waits;
    }
    let waited = || gap(plan, number).filter(|&s| plan.steps[s].role == Role::Many);
    let mut wanting = step
        .variables
        .iter()
        .copied()
        .filter(|&v| bound[v].is_none() && mask >> v & 1 == 1);
    let taken = wanting.find(|&v| judge.accepts(v, event) && waited().all(|s| judge.has_enough(s, v, event)));
    let Some(variable) = taken else {
        return waits;
    };
    judge.bind(variable, event);
    let is_left = |&v: &usize| v != variable && bound[v].is_none();
    if step.role == Role::One && step.variables.iter().any(is_left) {
        return (Outcome::Moved, number);
    }
    judge.take_between(gap(plan, number));
    match next_step(plan, number + 1) {
        Some(next) => (Outcome::Moved, next),
        None => (Outcome::Complete, number),
    }
}

fn start(
    plan: &Plan,
    events: &Events,
    judge: &mut Judge<'_>,
    (event, mask): (Handle, u64),
    changes: &mut Changes,
    sink: &mut Sink,
) {
    let Some(first) = next_step(plan, 0) else {
        return;
    };
    let step = &plan.steps[first];
    for &variable in step.variables.iter().filter(|&&v| mask >> v & 1 == 1) {
        judge.clear();
        if !judge.accepts(variable, event) {
            continue;
        }
        judge.bind(variable, event);
        if step.role == Role::One && step.variables.len() > 1 {
            changes.remember(plan, events, judge, first);
            continue;
        }
        judge.take_between(gap(plan, first));
        match next_step(plan, first + 1) {
            Some(next) => changes.remember(plan, events, judge, next),
            None => judge.complete(sink),
        }
        if step.role == Role::Any {
            break;
        }
    }
}

/// The run that an event of a first step of many begins. Runs that began before can't differ from each other any more,
/// so of those one is enough.
fn begin(plan: &Plan, runs: &Runs, time: i64, changes: &mut Changes) {
    let first = &plan.steps[0].variables[0];
    let Some(step) = next_step(plan, 1) else { return };
    let limits = plan.steps[step]
        .variables
        .iter()
        .map(|&v| match plan.furthest[*first][v] {
            FOREVER => i64::MAX,
            most => time.saturating_add(most),
        });
    let expires = limits.max().unwrap_or(i64::MAX);
    let mut earlier = false;
    for (place, run) in runs.runs.iter().enumerate() {
        if run.began == BOUND {
            continue;
        }
        if run.began == time {
            return;
        }
        if !changes.gone.contains(&place) {
            changes.gone.push(place);
            if !earlier {
                changes.begin(plan, Run { expires, ..*run });
            }
            earlier = true;
        }
    }
    let step = step as u32;
    changes.begin(
        plan,
        Run {
            step,
            expires,
            began: time,
        },
    );
}

/// The last time at which the step can still take an event.
fn expiry(plan: &Plan, events: &Events, bound: &[Option<Handle>], step: usize) -> i64 {
    let limit = |v: usize| {
        let times = bound
            .iter()
            .enumerate()
            .filter_map(|(other, event)| event.map(|event| (other, events.time(event))));
        let limits = times.map(|(other, time)| match plan.furthest[other][v] {
            FOREVER => i64::MAX,
            most => time.saturating_add(most),
        });
        limits.min().unwrap_or(i64::MAX)
    };
    let step = &plan.steps[step];
    let open = step.variables.iter().copied().filter(|&v| bound[v].is_none());
    if step.role == Role::Any {
        open.map(limit).max().unwrap_or(i64::MAX)
    } else {
        open.map(limit).min().unwrap_or(i64::MAX)
    }
}
