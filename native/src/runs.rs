//! MATCH NEXT: each event that qualifies for the first step starts a run, and a run takes the first that fits (rule S9).

use std::collections::BTreeSet;
use std::ops::{Bound, Range};

use crate::bounds::FOREVER;
use crate::event::{Events, Handle};
use crate::judge::Judge;
use crate::partial::Sink;
use crate::plan::{Plan, Role};
use crate::sorted::{Number, side};
use crate::value::Val;

/// A run: the step it waits for. What is bound so far is beside it, by variable.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The step it waits for; plain, ALL or ANY. `OVER` where there is no run.
    step: u32,
    /// After this time it can't go on.
    expires: i64,
    /// Where nothing is bound yet, because the first step takes many events: the time of the event that began the run;
    /// else `BOUND`.
    began: i64,
}

/// Stands for the step of a run that is no more.
const OVER: u32 = u32::MAX;
/// Stands for the beginning of a run in which something is bound.
const BOUND: i64 = i64::MIN;
/// From this many runs on they are found by what they wait for; below, it is quicker to ask each.
const INDEXED_FROM: usize = 64;
/// Below this many no longer.
const INDEXED_TO: usize = 16;

/// The runs of a partition, each a place: so many events to each.
#[derive(Debug, Default)]
pub struct Runs {
    runs: Vec<Run>,
    events: Vec<Option<Handle>>,
    free: Vec<u32>,
    index: Option<Box<Index>>,
}

/// Many runs, by what they wait for.
#[derive(Debug, Default)]
struct Index {
    by_expiry: BTreeSet<(i64, u32)>,
    /// Those whose step has a JOIN by `<` or `>` with a number that is bound: the step, and the number.
    by_number: BTreeSet<(u32, Number, u32)>,
    /// The others, by step.
    by_step: BTreeSet<(u32, u32)>,
}

impl Runs {
    /// How many.
    pub fn len(&self) -> usize {
        self.runs.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a run has bound, by variable.
    fn bound(&self, plan: &Plan, place: u32) -> &[Option<Handle>] {
        let width = plan.variables.len();
        &self.events[place as usize * width..][..width]
    }

    fn live(&self) -> impl Iterator<Item = (u32, &Run)> {
        let places = self.runs.iter().enumerate();
        places
            .filter(|(_, run)| run.step != OVER)
            .map(|(place, run)| (place as u32, run))
    }

    fn push(&mut self, plan: &Plan, events: &Events, run: Run, bound: &[Option<Handle>]) {
        let place = match self.free.pop() {
            Some(place) => {
                self.runs[place as usize] = run;
                self.events[place as usize * bound.len()..][..bound.len()].copy_from_slice(bound);
                place
            }
            None => {
                if self.runs.len() == self.runs.capacity() {
                    // Most partitions have one or two: no room for many more than there are.
                    let more = self.runs.len() / 2 + 1;
                    self.runs.reserve_exact(more);
                    self.events.reserve_exact(more * bound.len());
                }
                self.runs.push(run);
                self.events.extend_from_slice(bound);
                self.runs.len() as u32 - 1
            }
        };
        if self.index.is_some() {
            self.enter(plan, events, place, true);
        } else if self.len() >= INDEXED_FROM {
            self.index = Some(Box::default());
            let all: Vec<u32> = self.live().map(|(place, _)| place).collect();
            all.into_iter().for_each(|place| self.enter(plan, events, place, true));
        }
    }

    /// Enters a run into the index, or takes it out.
    fn enter(&mut self, plan: &Plan, events: &Events, place: u32, enters: bool) {
        let run = self.runs[place as usize];
        let value = plan.steps[run.step as usize].ranged.as_ref().map(|ranged| {
            let bound = self.bound(plan, place)[ranged.other.variable];
            bound.map_or(Val::Null, |event| ranged.other.seen(events.row(event)))
        });
        let number = value.as_ref().and_then(Val::number).map(Number::new);
        let Some(index) = &mut self.index else { return };
        let expiry = (run.expires, place);
        match (number, value) {
            (Some(number), _) if enters => index.by_number.insert((run.step, number, place)),
            (Some(number), _) => index.by_number.remove(&(run.step, number, place)),
            // Nothing compares with null: it waits for its end.
            (None, Some(Val::Null)) => false,
            (None, _) if enters => index.by_step.insert((run.step, place)),
            (None, _) => index.by_step.remove(&(run.step, place)),
        };
        match enters {
            true => index.by_expiry.insert(expiry),
            false => index.by_expiry.remove(&expiry),
        };
    }

    /// Takes a run out, and lets go of its events.
    pub fn remove(&mut self, plan: &Plan, events: &mut Events, place: u32) {
        if self.index.is_some() {
            self.enter(plan, events, place, false);
        }
        let bound = self.bound(plan, place);
        bound.iter().flatten().for_each(|event| events.release(*event));
        if self.len() == 1 {
            // The room stays, for the next.
            self.runs.clear();
            self.events.clear();
            self.free.clear();
            return;
        }
        self.runs[place as usize].step = OVER;
        self.free.push(place);
        if self.len() < INDEXED_TO {
            self.index = None;
        }
    }

    /// Lets go of the runs that can't go on at this time.
    pub fn expire(&mut self, plan: &Plan, events: &mut Events, time: i64) {
        if let Some(index) = &self.index {
            let over = index.by_expiry.iter().take_while(|(expires, _)| *expires < time);
            let over: Vec<u32> = over.map(|(_, place)| *place).collect();
            over.into_iter().for_each(|place| self.remove(plan, events, place));
        } else {
            self.remove_if(plan, events, |run, _| run.expires < time);
        }
    }

    /// Lets go of runs for which this is so.
    pub fn remove_if(&mut self, plan: &Plan, events: &mut Events, is_over: impl Fn(&Run, &[Option<Handle>]) -> bool) {
        for place in (0..self.runs.len() as u32).rev() {
            // Once all are gone, so are their places.
            if let Some(run) = self.runs.get(place as usize)
                && run.step != OVER
                && is_over(run, self.bound(plan, place))
            {
                self.remove(plan, events, place);
            }
        }
    }

    /// The runs that an event can concern.
    fn concerned(&self, plan: &Plan, events: &Events, (event, mask): (Handle, u64), found: &mut Vec<u32>) {
        let Some(index) = &self.index else {
            found.extend(self.live().map(|(place, _)| place));
            return;
        };
        for (number, step) in plan.steps.iter().enumerate().filter(|(_, step)| step.mask & mask != 0) {
            let number = number as u32;
            let waiting = index.by_step.range((number, 0)..=(number, u32::MAX));
            found.extend(waiting.map(|(_, place)| *place));
            let Some(ranged) = &step.ranged else {
                continue;
            };
            let Some(x) = ranged.own.seen(events.row(event)).number() else {
                continue;
            };
            let (low, high) = match side(ranged.sign, Number::new(x)) {
                (Bound::Included(low), _) => (low, Number::new(f64::INFINITY)),
                (_, Bound::Included(high)) => (Number::new(f64::NEG_INFINITY), high),
                _ => continue,
            };
            let waiting = index.by_number.range((number, low, 0)..=(number, high, u32::MAX));
            found.extend(waiting.map(|(_, _, place)| *place));
        }
    }

    /// Brings about what `next` found. What goes on is held before what it was is let go of.
    pub fn change(&mut self, plan: &Plan, events: &mut Events, changes: &mut Changes) {
        changes.events.iter().flatten().for_each(|event| events.hold(*event));
        for place in changes.gone.drain(..) {
            self.remove(plan, events, place);
        }
        for (run, bound) in changes.new.iter().zip(changes.events.chunks(plan.variables.len())) {
            self.push(plan, events, *run, bound);
        }
        changes.new.clear();
        changes.events.clear();
    }
}

/// The first step at or after this one that takes an event by itself.
fn next_step(plan: &Plan, from: usize) -> Option<usize> {
    (from..plan.steps.len()).find(|&step| !plan.steps[step].is_open())
}

/// What an event changed: the places of runs that are over or went on, and the runs that are new.
#[derive(Debug, Default)]
pub struct Changes {
    /// The runs that an event concerned.
    concerned: Vec<u32>,
    /// Runs that went on, and stay until all copies of the event have had them.
    pub spent: Vec<u32>,
    gone: Vec<u32>,
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
    let mut concerned = std::mem::take(&mut changes.concerned);
    runs.concerned(plan, events, (event, mask), &mut concerned);
    for place in concerned.drain(..) {
        let run = &runs.runs[place as usize];
        if run.expires < time {
            changes.gone.push(place);
            continue;
        }
        if plan.steps[run.step as usize].mask & mask == 0 {
            continue;
        }
        let bound = runs.bound(plan, place);
        judge.bind_all(bound);
        let Some(is_full) = take(plan, judge, (run, bound), (event, time), mask) else {
            continue;
        };
        match plan.copies {
            true => changes.spent.push(place),
            false => changes.gone.push(place),
        }
        // Two runs that nothing is bound in go on as the same one.
        if run.began != BOUND && std::mem::replace(&mut taken, true) {
            continue;
        }
        if is_full {
            go_on(plan, events, judge, run.step as usize, changes, sink);
        } else {
            changes.remember(plan, events, judge, run.step as usize);
        }
    }
    changes.concerned = concerned;
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

/// Lets a run take an event: whether its step has all its events then; None if it waits on.
fn take(
    plan: &Plan,
    judge: &mut Judge<'_>,
    (run, bound): (&Run, &[Option<Handle>]),
    (event, time): (Handle, i64),
    mask: u64,
) -> Option<bool> {
    let number = run.step as usize;
    let step = &plan.steps[number];
    if run.began != BOUND && time <= run.began {
        return None;
    }
    let waited = || gap(plan, number).filter(|&s| plan.steps[s].role == Role::Many);
    let mut wanting = step
        .variables
        .iter()
        .copied()
        .filter(|&v| bound[v].is_none() && mask >> v & 1 == 1);
    let variable = wanting.find(|&v| judge.accepts(v, event) && waited().all(|s| judge.has_enough(s, v, event)))?;
    judge.bind(variable, event);
    let is_left = |&v: &usize| v != variable && bound[v].is_none();
    Some(step.role != Role::One || !step.variables.iter().any(is_left))
}

/// A step has all its events: what stands before it takes its own, in each way, and the run waits for the next step or is
/// complete.
fn go_on(plan: &Plan, events: &Events, judge: &mut Judge<'_>, step: usize, changes: &mut Changes, sink: &mut Sink) {
    judge.take_between(gap(plan, step), &mut |judge| match next_step(plan, step + 1) {
        Some(next) => changes.remember(plan, events, judge, next),
        None => judge.complete(sink),
    });
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
        go_on(plan, events, judge, first, changes, sink);
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
    for (place, run) in runs.live() {
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
