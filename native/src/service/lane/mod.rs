//! The fast lane: queries that stand together at a level, on a thread of that level's priority, over the event log.
//!
//! A lane follows the log by itself. So nothing that a query reads is ever replaced or shed on the way (rule G7), late and
//! duplicate are what the log says they are (E4), and after a restart the same log gives the same matches: the lane goes
//! through it again from where its queries hold nothing older (restart.rs), and is silent up to where it had come before.

mod group;
mod running;
mod spec;
mod steps;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::json::Fault;
use crate::log::follower::From;
use crate::log::{Error, Follower};
use crate::service::derived::{Announced, Unlogged};
use crate::service::knowing::{Coming, Update};
use crate::service::matches::Matches;
use crate::service::reads::{Read, Reads};
use crate::service::recorder::Track;
use crate::service::restart::{Marks, Point};
use crate::service::rests::Rests;
use crate::service::scheduling::LevelPolicy;

use group::groups;
use running::Running;
pub use spec::LaneSpec;
use steps::Steps;

/// A lane at work; it ends when it is dropped.
#[derive(Debug)]
pub struct Lane {
    /// By query.
    pub matches: Arc<Vec<Matches>>,
    /// By query, what the log is to have; nothing of those that nobody reads.
    pub unlogged: Arc<Vec<Unlogged>>,
    /// By query, whether it was taken out.
    removed: Arc<Vec<AtomicBool>>,
    /// What comes to be known.
    pub coming: Arc<Coming>,
    /// By query, the version of the knowledge that is in force; 0: it has no PATHs.
    pub versions: Arc<Vec<AtomicU64>>,
    /// By query, how many events had a value of which nothing is known.
    pub strangers: Arc<Vec<AtomicU64>>,
    /// What it did last.
    pub track: Arc<Track>,
    /// The log's.
    pub folder: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why a lane could not begin.
#[derive(Debug)]
pub enum Refused {
    /// A plan is not right.
    Plan(Fault),
    /// The log can't be read.
    Log(Error),
}

impl Lane {
    /// Begins to follow the log in a folder.
    pub fn start(
        mut spec: LaneSpec,
        policy: LevelPolicy,
        rests: Arc<Rests>,
        folder: PathBuf,
        announced: Arc<Announced>,
    ) -> Result<Lane, Refused> {
        let mut groups = groups(&spec).map_err(Refused::Plan)?;
        let plans = groups.iter().flat_map(|group| {
            let numbered = group.queries.iter().enumerate();
            numbered.map(|(place, number)| (&**group.standing.plan(place), spec.queries[*number].limit.is_some()))
        });
        let mut marks = Marks::new(plans, &folder, &spec.consumer, spec.is_archived);
        let end = Follower::open(&folder, From::End, false)
            .map_err(Refused::Log)?
            .offset();
        // What the log has lost with its machine, because it was not safe yet, comes anew from those who sent it.
        for query in &mut spec.queries {
            if query.read.offset > end {
                query.read = Read {
                    offset: end,
                    watermark: i64::MIN,
                };
            }
        }
        let point = marks.read().filter(|point| point.offset <= end);
        // What new queries do not find is not their loss.
        let had_read = spec.queries.iter().any(|query| query.read != Read::default());
        let is_needed = point.is_some() || had_read;
        let begin = point.unwrap_or_default();
        let mut follower = Follower::open(&folder, From::First, false).map_err(Refused::Log)?;
        let since = spec
            .since
            .filter(|_| begin.offset < follower.offset() && begin.offset == 0);
        if begin.offset >= follower.offset() || since.is_some() || (is_needed && spec.is_archived) {
            match follower.seek(begin.offset) {
                Ok(()) | Err(Error::Gone { .. }) => {} // then it is asked for
                Err(error) => return Err(Refused::Log(error)),
            }
        } else if is_needed {
            eprintln!(
                "{}: the events of offsets {} to {} are not in the log any more, and there is no archive: what they \
                 would have matched is lost",
                spec.consumer,
                begin.offset,
                follower.offset() - 1
            );
        }
        // A full disk: then it is written with the next point.
        let _ = marks.begin(Point {
            offset: follower.offset(),
            streams: begin.streams.clone(),
        });
        for clock in groups.iter_mut().flat_map(|group| &mut group.clocks) {
            let known = begin.streams.iter().find(|(name, _)| *name == clock.stream.name);
            clock.greatest = known.map_or(i64::MIN, |(_, time)| *time);
        }
        let known = spec.queries.iter().map(|query| (query.key.clone(), query.read));
        let reads = Reads::new(known.collect(), &folder, &spec.consumer);
        let is_loud = spec.queries.iter().map(|query| query.read == Read::default()).collect();
        let matches = spec.queries.iter().map(|query| {
            if query.has_acks {
                Matches::kept_from(query.read)
            } else {
                Matches::default()
            }
        });
        let matches: Arc<Vec<Matches>> = Arc::new(matches.collect());
        let unlogged: Arc<Vec<Unlogged>> = Arc::new(spec.queries.iter().map(|_| Unlogged::default()).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let removed: Arc<Vec<AtomicBool>> = Arc::new(spec.queries.iter().map(|_| AtomicBool::new(false)).collect());
        let versions: Arc<Vec<AtomicU64>> =
            Arc::new(spec.queries.iter().map(|q| AtomicU64::new(q.knowledge)).collect());
        let strangers: Arc<Vec<AtomicU64>> = Arc::new(spec.queries.iter().map(|_| AtomicU64::new(0)).collect());
        let mut later: Vec<(u64, Update)> = spec
            .queries
            .iter_mut()
            .flat_map(|query| query.later.drain(..))
            .collect();
        later.sort_by_key(|(from, _)| *from); // of one query they keep their order
        let coming = Arc::new(Coming::with(later));
        let track = Arc::new(Track::new(spec.consumer.clone()));
        let mut running = Running {
            spec,
            policy,
            rests,
            track: Arc::clone(&track),
            folder: folder.clone(),
            coming: Arc::clone(&coming),
            versions: Arc::clone(&versions),
            strangers: Arc::clone(&strangers),
            removed: Arc::clone(&removed),
            follower,
            groups,
            matches: Arc::clone(&matches),
            unlogged: Arc::clone(&unlogged),
            stop: Arc::clone(&stop),
            reads,
            is_loud,
            end,
            arrived: None,
            since,
            is_wanting: false,
            told: None,
            marks,
            announced,
            announced_from: end,
            layouts: Vec::new(),
            generation: None,
            steps: Steps::default(),
        };
        let thread = thread::Builder::new()
            .name("cep-lane".into())
            .spawn(move || running.run());
        let thread = thread.map_err(|error| Refused::Log(Error::Io("start a thread for", PathBuf::new(), error)))?;
        Ok(Lane {
            matches,
            unlogged,
            removed,
            coming,
            versions,
            strangers,
            track,
            folder,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends it, and waits until it has.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Takes a query out: it finds nothing more, and who reads it comes to an end. Whether the lane has others left.
    pub fn remove(&self, number: usize) -> bool {
        self.removed[number].store(true, Ordering::SeqCst);
        self.matches[number].end();
        self.unlogged[number].end();
        self.removed.iter().any(|removed| !removed.load(Ordering::SeqCst))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop();
    }
}
