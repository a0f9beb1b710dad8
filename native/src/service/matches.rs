//! The matches of a query in the fast lane, on their way to who reads them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::found::Match;
use crate::service::histogram::Histogram;
use crate::service::store::{RELATIVE, STALE};

/// How many wait for who reads them; then the oldest go, counted.
const WAITING: usize = 4096;

/// A match on its way to who reads it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The match.
    pub found: Match,
    /// When its validity ends; None: never.
    pub end: Option<i64>,
    /// What was wrong with it when it was delivered: STALE, RELATIVE.
    pub marks: u8,
    /// The version of the knowledge by which events were judged when it was found, if it has PATHs.
    pub knowledge: Option<u64>,
}

/// The matches of a query that were not read yet.
#[derive(Debug, Default)]
pub struct Matches {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// From the arrival in the log of the event that was read last, to the moment that a match is there to be read.
    pub latency: Histogram,
}

/// What waits, and what became of the rest.
#[derive(Debug, Default)]
struct Waiting {
    matches: VecDeque<Arc<Delivery>>,
    counts: Counts,
    is_over: bool,
}

/// What became of matches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Found, since the lane began.
    pub found: u64,
    /// Of those, stale.
    pub stale: u64,
    /// Of those, with events further apart than ALIGN says.
    pub relative: u64,
    /// Not delivered, because they were stale or not aligned and that is shed.
    pub shed: u64,
    /// Lost, because nobody read them.
    pub lost: u64,
}

impl Matches {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A match was found.
    pub fn put(&self, delivery: Arc<Delivery>, sheds: bool) {
        let mut waiting = self.lock();
        let counts = &mut waiting.counts;
        counts.found += 1;
        counts.stale += u64::from(delivery.marks & STALE != 0);
        counts.relative += u64::from(delivery.marks & RELATIVE != 0);
        if delivery.marks != 0 && sheds {
            counts.shed += 1;
            return;
        }
        if waiting.matches.len() >= WAITING {
            waiting.matches.pop_front();
            waiting.counts.lost += 1;
        }
        waiting.matches.push_back(delivery);
        drop(waiting);
        self.changed.notify_one();
    }

    /// The next match, waited for at most so long; None also when the lane has ended.
    pub fn next(&self, timeout: Option<Duration>) -> Option<Arc<Delivery>> {
        self.some(timeout)?.matches.pop_front()
    }

    /// Waits until there is one, at most so long, and leaves it there.
    pub fn wait(&self, timeout: Duration) {
        drop(self.some(Some(timeout)));
    }

    /// What waits, as soon as something does.
    fn some(&self, timeout: Option<Duration>) -> Option<MutexGuard<'_, Waiting>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut waiting = self.lock();
        loop {
            if !waiting.matches.is_empty() {
                return Some(waiting);
            }
            if waiting.is_over {
                return None;
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                return None;
            }
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What became of its matches.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.lock().matches.is_empty()
    }

    /// Whether nothing more comes, and all was read.
    pub fn is_over(&self) -> bool {
        let waiting = self.lock();
        waiting.is_over && waiting.matches.is_empty()
    }

    /// Nothing more comes.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}
