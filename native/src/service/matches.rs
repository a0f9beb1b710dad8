//! The matches of a query in the fast lane, on their way to who reads them.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::found::Match;
use crate::service::histogram::Histogram;
use crate::service::store::{RECOVERED, RELATIVE, STALE};

/// How many wait for who reads them; then the oldest go, counted.
const WAITING: usize = 4096;
/// Who has not read for so long is not there.
const PRESENT: Duration = Duration::from_secs(2);

/// A match on its way to who reads it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The match.
    pub found: Match,
    /// When its validity ends; None: never.
    pub end: Option<i64>,
    /// What was wrong with it when it was delivered: STALE, RELATIVE, RECOVERED.
    pub marks: u8,
    /// How long it was found after its events came, in microseconds, if it is recovered.
    pub delay: Option<i64>,
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
#[derive(Debug)]
struct Waiting {
    matches: VecDeque<Arc<Delivery>>,
    counts: Counts,
    /// When one was last taken, or this began.
    taken: Instant,
    /// Whether some were taken to be sent, and may not have been.
    is_on_its_way: bool,
    is_over: bool,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            matches: VecDeque::new(),
            counts: Counts::default(),
            taken: Instant::now(),
            is_on_its_way: false,
            is_over: false,
        }
    }
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
    /// Of those found, late, because the engine was not there when their events came.
    pub recovered: u64,
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
        counts.recovered += u64::from(delivery.marks & RECOVERED != 0);
        if delivery.marks & (STALE | RELATIVE) != 0 && sheds {
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
        self.take(timeout, false)
    }

    /// The next match for somebody elsewhere: it is read when `sent` says so.
    pub fn next_to_send(&self, timeout: Duration) -> Option<Arc<Delivery>> {
        self.take(Some(timeout), true)
    }

    /// What was taken to be sent was sent, all of it.
    pub fn sent(&self) {
        self.lock().is_on_its_way = false;
    }

    fn take(&self, timeout: Option<Duration>, is_to_send: bool) -> Option<Arc<Delivery>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut waiting = self.lock();
        loop {
            if let Some(found) = waiting.matches.pop_front() {
                waiting.taken = Instant::now();
                waiting.is_on_its_way |= is_to_send;
                return Some(found);
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

    /// Whether many wait for somebody who reads, or may just be coming back.
    pub fn is_pressed(&self) -> bool {
        let waiting = self.lock();
        waiting.matches.len() >= WAITING / 2 && waiting.taken.elapsed() < PRESENT && !waiting.is_over
    }

    /// Whether all was read: taken, and if it was to be sent, sent.
    pub fn is_read(&self) -> bool {
        let waiting = self.lock();
        waiting.matches.is_empty() && !waiting.is_on_its_way
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
