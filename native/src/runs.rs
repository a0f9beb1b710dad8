//! MATCH NEXT: each event that qualifies for the first step starts a run, and a run takes the first that fits (rule S9).

use std::ops::Range;

use crate::bounds::FOREVER;
use crate::event::{Events, Handle};
use crate::judge::{Judge, Sink};
use crate::plan::{Plan, Role};

/// A run: what is bound so far, and the step it waits for.
#[derive(Clone, Debug)]
pub struct Run {
    /// By variable.
    pub events: Box<[Option<Handle>]>,
    /// The step it waits for; plain, ALL or ANY.
    pub step: usize,
    /// After this time it can't go on.
    pub expires: i64,
    /// Where nothing is bound yet, because the first step takes many events: the time of the event that began the run.
    pub began: Option<i64>,
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
#[derive(Default)]
pub struct Changes {
    /// In order.
    pub gone: Vec<usize>,
    /// Runs that went on or began.
    pub new: Vec<Run>,
}

/// Gives an event, which qualifies for the variables of `mask` in this partition, to the runs; then starts new ones.
/// `judge` knows the partition's earlier events and has bound nothing.
pub fn next(
    plan: &Plan,
    events: &Events,
    judge: &mut Judge<'_>,
    runs: &[Run],
    (event, mask): (Handle, u64),
    sink: &mut Sink,
) -> Changes {
    let time = events.time(event);
    let mut changes = Changes::default();
    let mut taken = false;
    for (place, run) in runs.iter().enumerate() {
        if run.expires < time {
            changes.gone.push(place);
            continue;
        }
        if !plan.steps[run.step].variables.iter().any(|&v| mask >> v & 1 == 1) {
            continue;
        }
        judge.clear();
        for (variable, bound) in run.events.iter().enumerate() {
            if let Some(bound) = bound {
                judge.bind(variable, *bound);
            }
        }
        let (outcome, step) = extend(plan, judge, run, (event, time), mask);
        if outcome == Outcome::Waits {
            continue;
        }
        changes.gone.push(place);
        // Two runs that nothing is bound in go on as the same one.
        if run.began.is_some() && std::mem::replace(&mut taken, true) {
            continue;
        }
        if outcome == Outcome::Moved {
            changes.new.push(remember(plan, events, judge, step));
        } else {
            judge.complete(sink);
        }
    }
    let first = &plan.steps[0];
    if first.role == Role::Many && first.least > 0 {
        if mask >> first.variables[0] & 1 == 1 {
            begin(plan, runs, time, &mut changes);
            changes.gone.sort_unstable();
        }
    } else {
        start(plan, events, judge, (event, mask), &mut changes.new, sink);
    }
    changes
}

/// The steps between a step and the one before it that takes an event by itself.
fn gap(plan: &Plan, step: usize) -> Range<usize> {
    let previous = (0..step).rev().find(|&s| !plan.steps[s].is_open());
    previous.map_or(0, |previous| previous + 1)..step
}

/// Lets a run take an event: whether it waits on, went on (to which step), or is complete.
fn extend(plan: &Plan, judge: &mut Judge<'_>, run: &Run, (event, time): (Handle, i64), mask: u64) -> (Outcome, usize) {
    let step = &plan.steps[run.step];
    let waits = (Outcome::Waits, run.step);
    if run.began.is_some_and(|began| time <= began) {
        return waits;
    }
    let waited = || gap(plan, run.step).filter(|&s| plan.steps[s].role == Role::Many);
    let mut wanting = step
        .variables
        .iter()
        .copied()
        .filter(|&v| run.events[v].is_none() && mask >> v & 1 == 1);
    let taken = wanting.find(|&v| judge.accepts(v, event) && waited().all(|s| judge.has_enough(s, v, event)));
    let Some(variable) = taken else {
        return waits;
    };
    judge.bind(variable, event);
    let is_left = |&v: &usize| v != variable && run.events[v].is_none();
    if step.role == Role::One && step.variables.iter().any(is_left) {
        return (Outcome::Moved, run.step);
    }
    judge.take_between(gap(plan, run.step));
    match next_step(plan, run.step + 1) {
        Some(next) => (Outcome::Moved, next),
        None => (Outcome::Complete, run.step),
    }
}

fn start(
    plan: &Plan,
    events: &Events,
    judge: &mut Judge<'_>,
    (event, mask): (Handle, u64),
    kept: &mut Vec<Run>,
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
            kept.push(remember(plan, events, judge, first));
            continue;
        }
        judge.take_between(gap(plan, first));
        match next_step(plan, first + 1) {
            Some(next) => kept.push(remember(plan, events, judge, next)),
            None => judge.complete(sink),
        }
        if step.role == Role::Any {
            break;
        }
    }
}

/// The run that an event of a first step of many begins. Runs that began before can't differ from each other any more,
/// so of those one is enough.
fn begin(plan: &Plan, runs: &[Run], time: i64, changes: &mut Changes) {
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
    for (place, run) in runs.iter().enumerate() {
        match run.began {
            Some(began) if began == time => return,
            Some(began) if !changes.gone.contains(&place) => {
                changes.gone.push(place);
                if !earlier {
                    let run = Run {
                        began: Some(began),
                        expires,
                        ..run.clone()
                    };
                    changes.new.push(run);
                }
                earlier = true;
            }
            _ => {}
        }
    }
    changes.new.push(Run {
        events: vec![None; plan.variables.len()].into(),
        step,
        expires,
        began: Some(time),
    });
}

fn remember(plan: &Plan, events: &Events, judge: &Judge<'_>, step: usize) -> Run {
    let bound = judge.singles();
    let expires = expiry(plan, events, bound, step);
    Run {
        events: bound.into(),
        step,
        expires,
        began: None,
    }
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
