//! AFTER MATCH: which of the matches that KEEP would give are taken (rule S11).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::bounds::FOREVER;
use crate::event::Name;
use crate::found::Match;
use crate::plan::{After, Plan};
use crate::value::Key;

/// What was taken so far, as far as it can still matter.
#[derive(Debug, Default)]
pub struct Taken {
    /// CONSUME: the events of taken matches; SKIP TO NEXT: their first events. An event is in one partition only.
    pub events: BTreeSet<Name>,
    /// SKIP PAST LAST: the last event of the taken matches, by partition.
    pub last: HashMap<Arc<[Key]>, Name>,
}

impl Taken {
    /// Leaves those that are taken. All have been found whose time is less than that of any later call's.
    pub fn take(&mut self, plan: &Plan, matches: &mut Vec<Match>) {
        if plan.after == After::Keep {
            return;
        }
        let steps = step_order(plan);
        matches.sort_by(|a, b| a.taking_order(b, &steps));
        matches.retain(|found| self.takes(plan, found));
    }

    fn takes(&mut self, plan: &Plan, found: &Match) -> bool {
        let (Some(first), Some(last)) = (found.first(), found.last()) else {
            return true;
        };
        // What is in no partition is alone.
        let Some(key) = &found.key else {
            return true;
        };
        match plan.after {
            After::Keep => true,
            After::Consume => {
                let free = found.all().all(|event| !self.events.contains(event));
                if free {
                    self.events.extend(found.all().cloned());
                }
                free
            }
            After::SkipToNext => self.events.insert(first.clone()),
            After::SkipPastLast => {
                let free = self.last.get(key).is_none_or(|taken| first > taken);
                if free {
                    let entry = self.last.entry(Arc::clone(key)).or_insert_with(|| last.clone());
                    if *entry < *last {
                        *entry = last.clone();
                    }
                }
                free
            }
        }
    }

    /// Forgets what no match of this time or later can touch.
    pub fn forget(&mut self, plan: &Plan, time: i64) {
        if plan.horizon >= FOREVER {
            return;
        }
        let oldest = time.saturating_sub(plan.horizon.max(0));
        while self.events.first().is_some_and(|event| event.time < oldest) {
            self.events.pop_first();
        }
        if self.last.len() > 1024 {
            self.last.retain(|_, last| last.time >= oldest);
        }
    }
}

/// The variables, those of SEQ first, in its order.
fn step_order(plan: &Plan) -> Vec<usize> {
    let inside = plan.steps.iter().flat_map(|step| step.variables.iter().copied());
    let outside = (0..plan.variables.len()).filter(|&v| plan.variables[v].step.is_none());
    inside.chain(outside).collect()
}
