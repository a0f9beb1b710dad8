//! Matches on their way into the log, because other queries or the graph read them (rule G7).
//!
//! None is lost: a match is kept until the intake has acknowledged it, and a lane reads no further while too many wait.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::found::Match;

/// So many wait; then the lane does.
const WAITING: usize = 4096;

/// The matches of a query that the log does not have yet.
#[derive(Debug, Default)]
pub struct Unlogged {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    matches: VecDeque<Arc<Match>>,
    is_over: bool,
}

impl Unlogged {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a match in, whether or not there is room: the lane looks before it reads on.
    pub fn put(&self, found: Match) {
        self.lock().matches.push_back(Arc::new(found));
        self.changed.notify_one();
    }

    /// Whether the lane is to wait.
    pub fn is_full(&self) -> bool {
        self.lock().matches.len() >= WAITING
    }

    /// Whether the log has them all.
    pub fn is_empty(&self) -> bool {
        self.lock().matches.is_empty()
    }

    /// The first ones, waited for at most so long; they stay. None when there are none and the lane has ended.
    pub fn first(&self, most: usize, patience: Duration) -> Option<Vec<Arc<Match>>> {
        let waiting = self.lock();
        let none = |waiting: &mut Waiting| waiting.matches.is_empty() && !waiting.is_over;
        let waited = self.changed.wait_timeout_while(waiting, patience, none);
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if waiting.matches.is_empty() && waiting.is_over {
            return None;
        }
        Some(waiting.matches.iter().take(most).cloned().collect())
    }

    /// The log has so many more.
    pub fn logged(&self, count: usize) {
        let mut waiting = self.lock();
        let count = count.min(waiting.matches.len());
        waiting.matches.drain(..count);
    }

    /// Nothing more comes.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}
