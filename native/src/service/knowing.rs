//! What is known of events changes while lanes run: from one point of the log on, the same for all of them.
//!
//! Whoever changes it says first that something comes, looks then where the log ends, and puts it there. A lane looks
//! whether something comes when it has a batch and before it judges it. So a batch that was judged without was in the
//! log before its end was looked for, and lies before that point: each event is judged by one version, in every lane.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::known::Entry;
use crate::log::follower::From;
use crate::log::{Error, Follower};
use crate::plan::Plan;
use crate::service::sync::PiMutex;

/// What a query goes by from some point on.
#[derive(Debug)]
pub struct Update {
    /// The query's number in its lane.
    pub query: usize,
    /// The version of the knowledge.
    pub version: u64,
    /// Its plan, where more than tables has changed.
    pub plan: Option<Plan>,
    /// By table, what is known of keys.
    pub tables: Vec<(usize, Vec<Entry>)>,
}

/// What comes to a lane, with the offset from which it holds.
#[derive(Debug, Default)]
pub struct Coming {
    has_some: AtomicBool,
    updates: PiMutex<Vec<(u64, Update)>>,
}

impl Coming {
    /// What holds for a batch that begins here, in the order in which it came.
    pub fn due(&self, offset: u64) -> Vec<Update> {
        if !self.has_some.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut waiting = self.updates.lock();
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut *waiting)
            .into_iter()
            .partition(|(from, _)| *from <= offset);
        self.has_some.store(!later.is_empty(), Ordering::SeqCst);
        *waiting = later;
        drop(waiting);
        due.into_iter().map(|(_, update)| update).collect()
    }
}

/// Puts updates in force for lanes over the log in a folder: the offset from which they hold. One call at a time.
pub fn put_in_force(folder: &Path, updates: Vec<(&Coming, Vec<Update>)>) -> Result<u64, Error> {
    let mut held: Vec<_> = updates
        .into_iter()
        .map(|(coming, updates)| {
            let guard = coming.updates.lock();
            coming.has_some.store(true, Ordering::SeqCst);
            (guard, updates)
        })
        .collect();
    let from = Follower::open(folder, From::End, false)?.offset();
    for (guard, updates) in &mut held {
        guard.extend(updates.drain(..).map(|update| (from, update)));
    }
    Ok(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_holds_from_its_offset_on() {
        let coming = Coming::default();
        let update = |version| Update {
            query: 0,
            version,
            plan: None,
            tables: Vec::new(),
        };
        assert!(coming.due(9).is_empty());
        coming.updates.lock().extend([(5, update(2)), (8, update(3))]);
        coming.has_some.store(true, Ordering::SeqCst);
        assert!(coming.due(4).is_empty());
        let versions = |offset| coming.due(offset).iter().map(|u| u.version).collect::<Vec<_>>();
        assert_eq!(versions(5), [2]);
        assert!(coming.has_some.load(Ordering::SeqCst));
        assert_eq!(versions(20), [3]);
        assert!(!coming.has_some.load(Ordering::SeqCst));
    }
}
