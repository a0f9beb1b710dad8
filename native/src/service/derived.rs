//! Matches on their way into the log, because other queries or the graph read them (rule G7), and how far such streams
//! have come.
//!
//! None is lost: a match is kept until the intake has acknowledged it, and a lane reads no further while too many wait.
//!
//! A derived stream never follows the clock: who derives it knows what can still come. So its watermark is announced, and
//! holds for whoever has read the log as far as it stood then.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::service::matches::Delivery;
use crate::service::sync::{PiMutex, Sleepers};

/// A consumer whose name begins so is a way into the log, and nobody else's (src/cepheid/service/derived.py).
pub const TO_LOG: &str = "log:";
/// So many wait; then the lane does.
const WAITING: usize = 4096;

/// The matches of a query that the log does not have yet.
#[derive(Debug, Default)]
pub struct Unlogged {
    waiting: PiMutex<Waiting>,
    reader: Sleepers,
}

#[derive(Debug)]
struct Waiting {
    matches: VecDeque<Arc<Delivery>>,
    /// No match before this time comes any more.
    watermark: i64,
    /// What `first` last gave of it.
    known: i64,
    is_over: bool,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            matches: VecDeque::new(),
            watermark: i64::MIN,
            known: i64::MIN,
            is_over: false,
        }
    }
}

impl Unlogged {
    /// Puts a match in, whether or not there is room: the lane looks before it reads on.
    pub fn put(&self, found: Arc<Delivery>) {
        self.waiting.lock().matches.push_back(found);
        self.reader.wake();
    }

    /// No match before this time comes any more.
    pub fn pass(&self, watermark: i64) {
        let mut waiting = self.waiting.lock();
        if watermark > waiting.watermark {
            waiting.watermark = watermark;
            drop(waiting);
            self.reader.wake();
        }
    }

    /// Whether the lane is to wait.
    pub fn is_full(&self) -> bool {
        self.waiting.lock().matches.len() >= WAITING
    }

    /// Whether the log has them all.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().matches.is_empty()
    }

    /// The first ones, and the watermark behind all of them if that is so; waited for at most so long, until one of the
    /// two is new. They stay. None when there are none and the lane has ended.
    pub fn first(&self, most: usize, patience: Duration) -> Option<(Vec<Arc<Delivery>>, Option<i64>)> {
        let deadline = Instant::now() + patience;
        let mut waiting = loop {
            let seen = self.reader.enlist();
            let waiting = self.waiting.lock();
            let left = deadline.saturating_duration_since(Instant::now());
            let is_news = !waiting.matches.is_empty() || waiting.watermark != waiting.known || waiting.is_over;
            if is_news || left.is_zero() {
                self.reader.delist();
                break waiting;
            }
            drop(waiting);
            self.reader.sleep(seen, Some(left));
        };
        if waiting.matches.is_empty() && waiting.is_over {
            return None;
        }
        let is_all = waiting.matches.len() <= most && waiting.watermark > waiting.known;
        if is_all {
            waiting.known = waiting.watermark;
        }
        let first = waiting.matches.iter().take(most).cloned().collect();
        Some((first, is_all.then_some(waiting.watermark)))
    }

    /// The log has so many more.
    pub fn logged(&self, count: usize) {
        let mut waiting = self.waiting.lock();
        let count = count.min(waiting.matches.len());
        waiting.matches.drain(..count);
    }

    /// Nothing more comes.
    pub fn end(&self) {
        self.waiting.lock().is_over = true;
        self.reader.wake_all();
    }
}

/// How far derived streams have come, as those who derive them say.
#[derive(Debug, Default)]
pub struct Announced {
    streams: PiMutex<HashMap<String, (i64, u64)>>,
}

impl Announced {
    /// No event of a stream before this time comes at this offset of the log or behind it.
    pub fn announce(&self, stream: &str, watermark: i64, offset: u64) {
        let mut streams = self.streams.lock();
        streams.insert(stream.to_owned(), (watermark, offset));
    }

    /// The watermark of a stream for who has read the log up to an offset, if one was announced.
    pub fn watermark(&self, stream: &str, offset: u64) -> Option<i64> {
        let streams = self.streams.lock();
        let (watermark, from) = streams.get(stream)?;
        (offset >= *from).then_some(*watermark)
    }
}
