//! A consumer's queue: bounded, and when it is full the oldest goes, so that no worker ever waits for a reader to read.
//!
//! It is behind a lock with priority inheritance, held for a moment each way: were it lock-free, a reader that is preempted
//! while it takes an event could keep a worker of higher priority spinning.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::service::store::Token;
use crate::service::sync::{PiMutex, Sleepers};

/// Events that wait for a consumer.
#[derive(Debug)]
pub struct ConsumerQueue {
    /// With the labels of the push.
    events: PiMutex<VecDeque<(Token, u8)>>,
    capacity: usize,
    waiting: AtomicUsize,
    readers: Sleepers,
}

impl ConsumerQueue {
    /// With room for so many.
    pub fn new(capacity: usize) -> ConsumerQueue {
        ConsumerQueue {
            events: PiMutex::new(VecDeque::with_capacity(capacity)),
            capacity: capacity.max(1),
            waiting: AtomicUsize::new(0),
            readers: Sleepers::default(),
        }
    }

    /// Puts an event in; the oldest, if it had to go. Who waits is not woken: see `wake`.
    #[inline]
    pub fn push(&self, token: Token, marks: u8) -> Option<Token> {
        let mut events = self.events.lock();
        let is_full = events.len() == self.capacity;
        let lost = if is_full { events.pop_front() } else { None };
        events.push_back((token, marks));
        self.waiting.store(events.len(), Ordering::SeqCst);
        drop(events);
        lost.map(|(token, _)| token)
    }

    /// Wakes a reader, if one waits; after a push that nobody took at once.
    #[inline]
    pub fn wake(&self) {
        self.readers.wake();
    }

    /// The next event and its labels.
    pub fn pop(&self) -> Option<(Token, u8)> {
        if self.is_empty() {
            return None;
        }
        let mut events = self.events.lock();
        let found = events.pop_front();
        self.waiting.store(events.len(), Ordering::SeqCst);
        found
    }

    /// The next event, if one comes in time; None at the latest when `give_up` says so.
    pub fn wait(&self, timeout: Option<Duration>, give_up: impl Fn() -> bool) -> Option<(Token, u8)> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            if let Some(found) = self.pop() {
                return Some(found);
            }
            if !self.wait_for_one(deadline, &give_up) {
                return None;
            }
        }
    }

    /// Waits until there is an event, which it leaves there; false if none came in time, or `give_up` says so.
    pub fn wait_for_one(&self, deadline: Option<Instant>, give_up: impl Fn() -> bool) -> bool {
        loop {
            if !self.is_empty() {
                return true;
            }
            let seen = self.readers.enlist();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !self.is_empty() || give_up() || left == Some(Duration::ZERO) {
                self.readers.delist();
                return !self.is_empty();
            }
            self.readers.sleep(seen, left);
        }
    }

    /// Wakes who waits, to look whether it should give up.
    pub fn wake_all(&self) {
        self.readers.wake_all();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
