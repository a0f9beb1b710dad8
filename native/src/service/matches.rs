//! The matches of a query in the fast lane, on their way to who reads them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::found::Match;
use crate::service::histogram::Histogram;
use crate::service::kept::{Acknowledged, Kept};
use crate::service::reads::Read;
use crate::service::store::{RECOVERED, RELATIVE, STALE};
use crate::service::sync::{PiGuard, PiMutex, Sleepers};

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
    /// Where its lane was then.
    pub at: Read,
}

/// The matches of a query that were not read yet.
#[derive(Debug, Default)]
pub struct Matches {
    waiting: PiMutex<Waiting>,
    readers: Sleepers,
    /// From the arrival in the log of the event that was read last, to the moment that a match is there to be read; of those that
    /// are not recovered.
    pub latency: Histogram,
    /// The same of those that are.
    pub delay: Histogram,
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
    /// Whether somebody elsewhere listens who does not acknowledge.
    is_listened: bool,
    /// What is not acknowledged, if somebody does that, be it that nobody is there now.
    kept: Option<Kept>,
    is_over: bool,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            matches: VecDeque::new(),
            counts: Counts::default(),
            taken: Instant::now(),
            is_on_its_way: false,
            is_listened: false,
            kept: None,
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
    /// A match was found.
    pub fn put(&self, delivery: Arc<Delivery>, sheds: bool) {
        let mut waiting = self.waiting.lock();
        let counts = &mut waiting.counts;
        counts.found += 1;
        counts.stale += u64::from(delivery.marks & STALE != 0);
        counts.relative += u64::from(delivery.marks & RELATIVE != 0);
        counts.recovered += u64::from(delivery.marks & RECOVERED != 0);
        if delivery.marks & (STALE | RELATIVE) != 0 && sheds {
            counts.shed += 1;
            return;
        }
        if let Some(kept) = &mut waiting.kept {
            kept.put(&delivery);
        }
        if waiting.matches.len() >= WAITING {
            waiting.matches.pop_front();
            // Where somebody acknowledges, that is who is to get them.
            waiting.counts.lost += u64::from(waiting.kept.is_none() || waiting.is_listened);
        }
        waiting.matches.push_back(delivery);
        let has_two_readers = waiting.kept.is_some();
        drop(waiting);
        if has_two_readers {
            self.readers.wake_all();
        } else {
            self.readers.wake();
        }
    }

    /// The next match, waited for at most so long; None also when the lane has ended.
    pub fn next(&self, timeout: Option<Duration>) -> Option<Arc<Delivery>> {
        self.take(timeout, false)
    }

    /// The next match for somebody elsewhere, if there is one: it is read when `sent` says so.
    pub fn next_to_send(&self) -> Option<Arc<Delivery>> {
        self.take(Some(Duration::ZERO), true)
    }

    /// What was taken to be sent was sent, all of it.
    pub fn sent(&self) {
        self.waiting.lock().is_on_its_way = false;
    }

    fn take(&self, timeout: Option<Duration>, is_to_send: bool) -> Option<Arc<Delivery>> {
        let mut waiting = self.some(timeout)?;
        waiting.taken = Instant::now();
        waiting.is_on_its_way |= is_to_send;
        waiting.matches.pop_front()
    }

    /// Waits until there is one, at most so long, and leaves it there.
    pub fn wait(&self, timeout: Duration) {
        drop(self.some(Some(timeout)));
    }

    /// What waits, as soon as something does.
    fn some(&self, timeout: Option<Duration>) -> Option<PiGuard<'_, Waiting>> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let seen = self.readers.enlist();
            let waiting = self.waiting.lock();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let is_empty = waiting.matches.is_empty();
            if !is_empty || waiting.is_over || left.is_some_and(|left| left.is_zero()) {
                self.readers.delist();
                return (!is_empty).then_some(waiting);
            }
            drop(waiting);
            self.readers.sleep(seen, left);
        }
    }

    /// Somebody elsewhere listens, who does not acknowledge; or nobody does any more.
    pub fn listen(&self, is_listened: bool) {
        self.waiting.lock().is_listened = is_listened;
    }

    /// From now on matches are kept until they are acknowledged, those that wait too; unless they are already. The number that this
    /// began with.
    pub fn keep(&self) -> u64 {
        let waiting = &mut *self.waiting.lock();
        let kept = waiting.kept.get_or_insert_with(|| {
            let mut kept = Kept::new(Read::default(), false);
            waiting.matches.iter().for_each(|delivery| kept.put(delivery));
            kept
        });
        kept.began
    }

    /// Matches are kept from the beginning, with what was found up to a point acknowledged before.
    pub fn kept_from(acknowledged: Read) -> Matches {
        let found = Matches::default();
        found.waiting.lock().kept = Some(Kept::new(acknowledged, true));
        found
    }

    /// Whether somebody acknowledges.
    pub fn is_kept(&self) -> bool {
        self.waiting.lock().kept.is_some()
    }

    /// What is kept, or nothing.
    pub fn with_kept<T: Default>(&self, of: impl FnOnce(&mut Kept) -> T) -> T {
        self.waiting.lock().kept.as_mut().map(of).unwrap_or_default()
    }

    /// It is on disk that somebody acknowledges, and has up to a point.
    pub fn saved(&self, read: Read) {
        self.with_kept(|kept| kept.saved(read));
        self.readers.wake_all();
    }

    /// The client has handled what is before a number.
    pub fn acknowledge(&self, number: u64) -> Acknowledged {
        let found = self.waiting.lock().kept.as_mut().map(|kept| kept.acknowledge(number));
        found.unwrap_or(Acknowledged::Unknown)
    }

    /// Waits until something is there to be given to who acknowledges, at most so long.
    pub fn wait_to_give(&self, timeout: Duration) {
        let seen = self.readers.enlist();
        let waiting = self.waiting.lock();
        let is_there = waiting.is_over || waiting.kept.as_ref().is_some_and(Kept::has_more);
        drop(waiting);
        if is_there {
            self.readers.delist();
        } else {
            self.readers.sleep(seen, Some(timeout));
        }
    }

    /// Whether nothing more comes to who acknowledges.
    pub fn is_ended(&self) -> bool {
        self.waiting.lock().is_over
    }

    /// Up to where all was read, with its lane here: acknowledged where somebody does that, and taken by others who listen.
    pub fn read_to(&self, here: Read) -> Option<Read> {
        let mut waiting = self.waiting.lock();
        let is_read = waiting.matches.is_empty() && !waiting.is_on_its_way;
        match &mut waiting.kept {
            None => is_read.then_some(here),
            Some(kept) => Some(kept.point(here)).filter(|_| is_read || !waiting.is_listened),
        }
    }

    /// What became of its matches.
    pub fn counts(&self) -> Counts {
        self.waiting.lock().counts
    }

    /// Whether many wait for somebody who reads, or may just be coming back.
    pub fn is_pressed(&self) -> bool {
        let waiting = self.waiting.lock();
        let is_behind = waiting.matches.len() >= WAITING / 2 && waiting.taken.elapsed() < PRESENT;
        let is_kept = waiting.kept.as_ref().is_some_and(|kept| kept.is_pressed(PRESENT));
        (is_behind || is_kept) && !waiting.is_over
    }

    /// Whether nothing more comes, and all was read.
    pub fn is_over(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.is_over && waiting.matches.is_empty()
    }

    /// Nothing more comes.
    pub fn end(&self) {
        self.waiting.lock().is_over = true;
        self.readers.wake_all();
    }
}
