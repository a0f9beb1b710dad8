//! What is known of events changes while lanes run: from one point of the log on, the same for all of them.
//!
//! Whoever changes it says first that something comes, looks then where the log ends, and puts it there. A lane looks
//! whether something comes when it has a batch and before it judges it. So a batch that was judged without was in the
//! log before its end was looked for, and lies before that point: each event is judged by one version, in every lane.
//!
//! The point is written down before any lane goes by what came (src/cepheid/service/running/judged.py), so that events
//! which are gone through again after a crash are judged as they were.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::json::{Fault, Json, Reading};
use crate::known::{Entry, read_entries};
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

impl Update {
    /// Of a plan and what is known of keys by table, as JSON each.
    pub fn new(query: usize, version: u64, plan: Option<&str>, tables: &[(usize, String)]) -> Result<Update, Fault> {
        let entries = |(table, text): &(usize, String)| Ok((*table, read_entries(text)?));
        Ok(Update {
            query,
            version,
            plan: plan.map(Plan::read).transpose()?,
            tables: tables.iter().map(entries).collect::<Result<_, _>>()?,
        })
    }

    /// One that was written down, and the offset from which it holds.
    pub fn read(query: usize, json: &Json) -> Result<(u64, Update), Fault> {
        let tables = json.member("tables")?;
        let tables = tables.each(|item| Ok((item.at(0)?.index()?, item.at(1)?.text()?.to_owned())))?;
        let plan = json.member("plan")?.optional(|plan| Ok(plan.text()?.to_owned()))?;
        let version = json.member("version")?.index()? as u64;
        let update = Update::new(query, version, plan.as_deref(), &tables)?;
        Ok((json.member("from")?.index()? as u64, update))
    }
}

/// What comes to a lane, with the offset from which it holds.
#[derive(Debug, Default)]
pub struct Coming {
    has_some: AtomicBool,
    updates: PiMutex<Vec<(u64, Update)>>,
}

impl Coming {
    /// With what is known to come, in the order of its offsets.
    pub fn with(updates: Vec<(u64, Update)>) -> Coming {
        Coming {
            has_some: AtomicBool::new(!updates.is_empty()),
            updates: PiMutex::new(updates),
        }
    }

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

/// Puts updates in force for lanes over the log in a folder: the offset from which they hold, which is appended to a
/// file. One call at a time.
pub fn put_in_force(folder: &Path, file: &Path, updates: Vec<(&Coming, Vec<Update>)>) -> Result<u64, Error> {
    let io = |error| Error::Io("write", file.to_owned(), error);
    let mut written = OpenOptions::new().append(true).create(true).open(file).map_err(io)?;
    let mut held: Vec<_> = updates
        .into_iter()
        .map(|(coming, updates)| {
            let guard = coming.updates.lock();
            coming.has_some.store(true, Ordering::SeqCst);
            (guard, updates)
        })
        .collect();
    let from = Follower::open(folder, From::End, false)?.offset();
    written
        .write_all(format!("{{\"from\":{from}}}\n").as_bytes())
        .map_err(io)?;
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
