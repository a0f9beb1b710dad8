//! Feeds an engine from the event log: a thread follows the log's tail in shared memory and pushes each record.
//!
//! An event that the engine has no room for is passed over and counted, never waited for: a flood on one stream must not
//! hold up what stands behind it in the log. The log keeps it in any case.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::log::follower::From;
use crate::log::{Error, Follower, consumers};
use crate::record;
use crate::service::engine::{Accepted, Shared};
use crate::service::scheduling::{Policy, WATCHDOG, adopt};

/// Under this name the log knows how far the engine has come.
pub const CONSUMER: &str = "engine";
/// How often that is written down.
const COMMITTED_EVERY: Duration = Duration::from_secs(1);
/// So long it waits for the log before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// What became of the log's events.
#[derive(Debug, Default)]
pub struct Fed {
    /// The offset of the next record.
    pub offset: AtomicU64,
    /// Taken by the engine.
    pub accepted: AtomicU64,
    /// Passed over, because too many of their stream waited.
    pub full: AtomicU64,
    /// Seen before.
    pub duplicate: AtomicU64,
    /// Of streams that nothing here reads.
    pub unread: AtomicU64,
    /// Of streams that are not what the engine takes them for.
    pub unfit: AtomicU64,
    /// By stream, the greatest time seen, and when an event last came.
    pub heard: Mutex<HashMap<String, (i64, Instant)>>,
    /// What is wrong with the log, if something is.
    pub trouble: Mutex<Option<String>>,
}

/// A thread that feeds an engine; it ends with this, or with the engine.
#[derive(Debug)]
pub struct Feeder {
    /// What became of the log's events.
    pub fed: Arc<Fed>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    /// Follows the log in a folder: from where an engine last came to, or else from its beginning.
    pub fn start(engine: Arc<Shared>, folder: PathBuf) -> Result<Feeder, Error> {
        let from = match consumers::committed(&folder, CONSUMER)? {
            Some(offset) => From::Offset(offset),
            None => From::First,
        };
        let follower = match Follower::open(&folder, from, false) {
            // What it was to go on with is not kept any more.
            Err(Error::Gone { .. }) => Follower::open(&folder, From::First, false)?,
            other => other?,
        };
        let fed = Arc::new(Fed::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut feeding = Feeding {
            engine,
            folder,
            follower,
            fed: Arc::clone(&fed),
            stop: Arc::clone(&stop),
            streams: Vec::new(),
            generation: None,
            renumbered: Vec::new(),
            greatest: Vec::new(),
        };
        let thread = thread::Builder::new()
            .name("cep-feeder".into())
            .spawn(move || feeding.run());
        Ok(Feeder {
            fed,
            stop,
            thread: Some(thread.map_err(|error| Error::Io("start a thread for", PathBuf::new(), error))?),
        })
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A stream of the log, to the engine.
#[derive(Clone, Copy, Debug)]
enum Known {
    As(usize),
    /// Nothing here reads it: an operator's output, say.
    Unread,
    /// It is not what the engine takes it for.
    Unfit,
}

struct Feeding {
    engine: Arc<Shared>,
    folder: PathBuf,
    follower: Follower,
    fed: Arc<Fed>,
    stop: Arc<AtomicBool>,
    /// By the log's number of a stream, the engine's.
    streams: Vec<Known>,
    generation: Option<u64>,
    renumbered: Vec<u8>,
    /// By the log's number of a stream, the greatest time of the batch.
    greatest: Vec<i64>,
}

impl Feeding {
    fn run(&mut self) {
        // Above the workers: what does not come in can't be judged. Without the privilege, as it is.
        let _ = adopt(Policy::RoundRobin(WATCHDOG));
        let mut committed = Instant::now();
        while !self.stop.load(Ordering::SeqCst) && !self.engine.is_stopping() {
            match self.feed() {
                Ok(true) => {}
                Ok(false) => {
                    let _ = self.follower.wait(PATIENCE);
                }
                Err(error) => {
                    self.say(Some(error.to_string()));
                    thread::sleep(PATIENCE);
                }
            }
            if committed.elapsed() >= COMMITTED_EVERY {
                self.commit();
                committed = Instant::now();
            }
        }
        self.commit();
    }

    /// Pushes the next batch; whether there was one.
    fn feed(&mut self) -> Result<bool, Error> {
        if !self.follower.advance()? {
            return Ok(false);
        }
        if self.generation != Some(self.follower.generation()) {
            self.streams = self.matched();
            self.generation = Some(self.follower.generation());
        }
        let Some(batch) = self.follower.batch() else {
            return Ok(false);
        };
        self.greatest.clear();
        self.greatest.resize(self.streams.len(), i64::MIN);
        for (_, bytes) in batch.records() {
            if let Some(greatest) = self.greatest.get_mut(usize::from(record::stream(bytes))) {
                *greatest = (*greatest).max(record::time(bytes));
            }
            let stream = match self.streams.get(usize::from(record::stream(bytes))) {
                Some(Known::As(stream)) => *stream,
                Some(Known::Unread) => {
                    self.fed.unread.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Some(Known::Unfit) | None => {
                    self.fed.unfit.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            };
            let bytes = if usize::from(record::stream(bytes)) == stream {
                bytes
            } else {
                self.renumbered.clear();
                self.renumbered.extend_from_slice(bytes);
                record::set_stream(&mut self.renumbered, stream as u16);
                &self.renumbered
            };
            let counter = match self.engine.push(stream, bytes) {
                Ok(Accepted::Yes) => &self.fed.accepted,
                Ok(Accepted::Full) => &self.fed.full,
                Ok(Accepted::Duplicate) => &self.fed.duplicate,
                Ok(Accepted::Unread) => &self.fed.unread,
                Ok(Accepted::Closed) => return Ok(false),
                Err(_) => &self.fed.unfit,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.fed.offset.store(self.follower.offset(), Ordering::Release);
        self.hear();
        Ok(true)
    }

    /// Notes how far the streams of the batch have come.
    fn hear(&self) {
        let Ok(mut heard) = self.fed.heard.lock() else { return };
        for (stream, greatest) in self.follower.streams().iter().zip(&self.greatest) {
            if *greatest == i64::MIN {
                continue;
            }
            match heard.get_mut(&stream.name) {
                Some(known) => *known = (known.0.max(*greatest), Instant::now()),
                None => {
                    heard.insert(stream.name.clone(), (*greatest, Instant::now()));
                }
            }
        }
    }

    /// What the log's streams are to the engine.
    fn matched(&self) -> Vec<Known> {
        let known = &self.engine.spec.streams;
        let streams = self.follower.streams().iter().enumerate();
        streams
            .map(|(number, stream)| {
                let Some(place) = known.iter().position(|known| known.name == stream.name) else {
                    return Known::Unread;
                };
                let kinds = stream.layout(number as u16).map(|layout| layout.kinds);
                let mut names = stream.attributes.iter().map(|(name, _)| name);
                let same = kinds.is_ok_and(|kinds| kinds == known[place].schema.kinds);
                if same && names.by_ref().eq(&known[place].attributes) {
                    Known::As(place)
                } else {
                    Known::Unfit
                }
            })
            .collect()
    }

    fn commit(&self) {
        let offset = self.fed.offset.load(Ordering::Acquire);
        if offset > 0 {
            match consumers::commit(&self.folder, CONSUMER, offset) {
                Ok(()) => self.say(None),
                Err(error) => self.say(Some(error.to_string())),
            }
        }
    }

    fn say(&self, trouble: Option<String>) {
        if let Ok(mut said) = self.fed.trouble.lock() {
            *said = trouble;
        }
    }
}
