//! Feeds an engine from the event log: a thread follows the log's tail in shared memory and pushes each record.
//!
//! If the intake is inside the same process, its own thread pushes what it has just written, so that no other need wake for it
//! (`Relay`); the feeder's thread then only sees to what that left, and to what is to be written down.
//!
//! An event that the engine has no room for is passed over and counted, never waited for: a flood on one stream must not
//! hold up what stands behind it in the log. The log keeps it in any case.
//!
//! But what operators produce for queries is never lost (rule G7): while too much of it waits for the log, the feeder reads no
//! further, as a lane does.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::log::follower::From;
use crate::log::{Error, Follower, StreamSchema, consumers};
use crate::record;
use crate::service::derived::TO_LOG;
use crate::service::engine::{Accepted, Shared};
use crate::service::graph::Graph;
use crate::service::parts::{Consumer, Stream};
use crate::service::processor::Level;
use crate::service::scheduling::{Policy, WATCHDOG, adopt};
use crate::service::sync::PiMutex;

/// Under this name the log knows how far the engine has come.
pub const CONSUMER: &str = "engine";
/// How often that is written down.
const COMMITTED_EVERY: Duration = Duration::from_secs(1);
/// So long it waits for the log before it looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// So many events of an operator may wait for the log before no more are read. Its queue has room for what is on its way then
/// (CAPACITY in src/cepheid/service/derived.py).
const UNLOGGED: usize = 8192;
/// So soon it looks again.
const SOON: Duration = Duration::from_millis(1);
/// Workers are woken when what came together is there; at the latest after so many events.
const TOGETHER: usize = 64;

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

impl Fed {
    fn say(&self, trouble: Option<String>) {
        if let Ok(mut said) = self.trouble.lock() {
            *said = trouble;
        }
    }
}

/// What an intake inside the process tells an engine by: that it has written something.
#[derive(Default)]
pub struct Relay {
    is_used: AtomicBool,
    feeding: ArcSwapOption<PiMutex<Feeding>>,
}

impl Relay {
    /// The intake will call `come`; said before the feeder begins.
    pub fn begin(&self) {
        self.is_used.store(true, Ordering::SeqCst);
    }

    /// Pushes what is new in the log, on the caller's thread.
    pub fn come(&self) {
        if let Some(feeding) = &*self.feeding.load() {
            feeding.lock().feed();
        }
    }
}

/// A thread that feeds an engine; it ends with this, or with the engine.
pub struct Feeder {
    /// What became of the log's events.
    pub fed: Arc<Fed>,
    relay: Arc<Relay>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    /// Follows the log in a folder: from where an engine last came to, or else from its beginning.
    pub fn start(engine: Arc<Shared>, folder: PathBuf, relay: Arc<Relay>) -> Result<Feeder, Error> {
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
        let feeding = Arc::new(PiMutex::new(Feeding {
            engine: Arc::clone(&engine),
            follower,
            fed: Arc::clone(&fed),
            pushed: None,
            streams: Vec::new(),
            seen: None,
            greatest: Vec::new(),
            came: Vec::new(),
            to_log: Vec::new(),
            to_wake: Vec::new(),
        }));
        let keeper = Keeper {
            engine,
            folder,
            fed: Arc::clone(&fed),
            stop: Arc::clone(&stop),
            is_relayed: relay.is_used.load(Ordering::SeqCst),
            feeding: Arc::clone(&feeding),
        };
        let thread = thread::Builder::new()
            .name("cep-feeder".into())
            .spawn(move || keeper.run())
            .map_err(|error| Error::Io("start a thread for", PathBuf::new(), error))?;
        if relay.is_used.load(Ordering::SeqCst) {
            relay.feeding.store(Some(feeding));
        }
        Ok(Feeder {
            fed,
            relay,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.relay.feeding.store(None);
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A stream of the log, to the engine.
#[derive(Debug)]
enum Known {
    As(Arc<Stream>),
    /// Nothing here reads it: an operator's output, say.
    Unread,
    /// It is not what the engine takes it for.
    Unfit,
}

/// Why there is nothing to push now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// All was.
    End,
    /// Too much waits for the log.
    Unlogged,
    /// The log can't be read.
    Trouble,
}

/// The feeder's thread.
struct Keeper {
    engine: Arc<Shared>,
    folder: PathBuf,
    fed: Arc<Fed>,
    stop: Arc<AtomicBool>,
    is_relayed: bool,
    feeding: Arc<PiMutex<Feeding>>,
}

impl Keeper {
    fn run(&self) {
        // Above the workers: what does not come in can't be judged. Without the privilege, as it is.
        let _ = adopt(Policy::RoundRobin(WATCHDOG));
        let mut committed = Instant::now();
        while !self.stop.load(Ordering::SeqCst) && !self.engine.is_stopping() {
            let mut feeding = self.feeding.lock();
            let rest = feeding.feed();
            if rest == Rest::End && !self.is_relayed {
                // Nobody else wants what is locked.
                let _ = feeding.follower.wait(PATIENCE);
                drop(feeding);
            } else {
                drop(feeding);
                thread::sleep(if rest == Rest::Unlogged { SOON } else { PATIENCE });
            }
            if committed.elapsed() >= COMMITTED_EVERY {
                self.commit();
                committed = Instant::now();
            }
        }
        self.commit();
        *self.engine.fed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn commit(&self) {
        let offset = self.fed.offset.load(Ordering::Acquire);
        if offset > 0 {
            match consumers::commit(&self.folder, CONSUMER, offset) {
                Ok(()) => self.fed.say(None),
                Err(error) => self.fed.say(Some(error.to_string())),
            }
        }
    }
}

/// How far the log was pushed.
struct Feeding {
    engine: Arc<Shared>,
    follower: Follower,
    fed: Arc<Fed>,
    /// How many records of the batch that the follower stands at were pushed, if not all were.
    pushed: Option<usize>,
    /// By the log's number of a stream, the engine's.
    streams: Vec<Known>,
    /// What that was found with: the engine's graph, and the log's streams.
    seen: Option<(Arc<Graph>, u64)>,
    /// By the log's number of a stream, the greatest time of what came together, and of which streams that is.
    greatest: Vec<i64>,
    came: Vec<u16>,
    /// The ways into the log.
    to_log: Vec<Arc<Consumer>>,
    /// The levels of whose workers one is to be woken.
    to_wake: Vec<Arc<Level>>,
}

impl Feeding {
    /// Pushes all that is there.
    fn feed(&mut self) -> Rest {
        self.look();
        let mut together = 0_usize;
        let rest = loop {
            match self.push_some() {
                Ok(None) => {}
                Ok(Some(rest)) => break rest,
                Err(error) => {
                    self.fed.say(Some(error.to_string()));
                    break Rest::Trouble;
                }
            }
            together += 1;
            if self.pushed.is_some() || together.is_multiple_of(TOGETHER) {
                self.wake();
            }
        };
        self.wake();
        self.hear();
        rest
    }

    fn wake(&mut self) {
        self.to_wake.drain(..).for_each(|level| level.workers.wake());
    }

    /// Finds the engine's streams among the log's, if either has changed.
    fn look(&mut self) {
        let (graph, generation) = (self.engine.current.load(), self.follower.generation());
        let is_seen = |(seen, known): &(Arc<Graph>, u64)| Arc::ptr_eq(seen, &graph) && *known == generation;
        if !self.seen.as_ref().is_some_and(is_seen) {
            // Before the numbers mean others.
            self.hear();
            self.streams = self.matched(&graph);
            self.greatest.clear();
            self.greatest.resize(self.streams.len(), i64::MIN);
            let leaving = graph.leaving.consumers.iter();
            let is_way = |consumer: &&Arc<Consumer>| consumer.spec.name.starts_with(TO_LOG);
            self.to_log = graph
                .parts
                .consumers
                .iter()
                .chain(leaving)
                .filter(is_way)
                .cloned()
                .collect();
            let known = self.streams.iter().filter_map(|known| match known {
                Known::As(stream) => Some(stream.ring),
                Known::Unread | Known::Unfit => None,
            });
            let rings = known.collect();
            *self.engine.fed.lock().unwrap_or_else(PoisonError::into_inner) = Some(rings);
            // Last: while it holds the graph of before, nothing of that is cleared away.
            self.seen = Some((Arc::clone(&graph), generation));
        }
    }

    /// Pushes some of the next batch, or what is left of the last; or says why it has nothing to push.
    fn push_some(&mut self) -> Result<Option<Rest>, Error> {
        if self.pushed.is_none() {
            if !self.follower.advance()? {
                return Ok(Some(Rest::End));
            }
            self.look();
        }
        let pushed = self.pushed.take().unwrap_or(0);
        let (Some(batch), Some((graph, _))) = (self.follower.batch(), &self.seen) else {
            return Ok(Some(Rest::End));
        };
        let to_wake = &mut self.to_wake;
        let mut wake = |level: &Arc<Level>| {
            if !to_wake.iter().any(|known| Arc::ptr_eq(known, level)) {
                to_wake.push(Arc::clone(level));
            }
        };
        for (place, (_, bytes)) in batch.records().enumerate().skip(pushed) {
            if place == pushed + TOGETHER {
                self.pushed = Some(place);
                return Ok(None);
            }
            if self.to_log.iter().any(|way| way.queue.len() > UNLOGGED) {
                self.pushed = Some(place);
                return Ok(Some(Rest::Unlogged));
            }
            let number = record::stream(bytes);
            if let Some(greatest) = self.greatest.get_mut(usize::from(number)) {
                if *greatest == i64::MIN {
                    self.came.push(number);
                }
                *greatest = (*greatest).max(record::time(bytes));
            }
            let stream = match self.streams.get(usize::from(number)) {
                Some(Known::As(stream)) => stream,
                Some(Known::Unread) => {
                    self.fed.unread.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Some(Known::Unfit) | None => {
                    self.fed.unfit.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            };
            let put = self.engine.put_to(graph, stream, &stream.spec.schema, bytes, &mut wake);
            let counter = match put {
                Ok(Accepted::Yes) => &self.fed.accepted,
                Ok(Accepted::Full) => &self.fed.full,
                Ok(Accepted::Duplicate) => &self.fed.duplicate,
                Ok(Accepted::Unread) => &self.fed.unread,
                Ok(Accepted::Closed) => return Ok(Some(Rest::End)),
                Err(_) => &self.fed.unfit,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.fed.offset.store(self.follower.offset(), Ordering::Release);
        Ok(None)
    }

    /// Notes how far the streams of what came have come.
    fn hear(&mut self) {
        if self.came.is_empty() {
            return;
        }
        let Ok(mut heard) = self.fed.heard.lock() else { return };
        let now = Instant::now();
        for number in self.came.drain(..) {
            let place = usize::from(number);
            let greatest = std::mem::replace(&mut self.greatest[place], i64::MIN);
            let Some(stream) = self.follower.streams().get(place) else {
                continue;
            };
            match heard.get_mut(&stream.name) {
                Some(known) => *known = (known.0.max(greatest), now),
                None => {
                    heard.insert(stream.name.clone(), (greatest, now));
                }
            }
        }
    }

    /// What the log's streams are to the engine; removed ones are known until the log does not have them any more either.
    fn matched(&self, graph: &Graph) -> Vec<Known> {
        let streams = self.follower.streams().iter().enumerate();
        let known = |(number, stream): (usize, &StreamSchema)| {
            let leaving = graph.leaving.streams.iter().rev();
            let mut named = graph.parts.streams.iter().chain(leaving);
            let mut named = named.by_ref().filter(|known| known.spec.name == stream.name).peekable();
            if named.peek().is_none() {
                return Known::Unread;
            }
            let kinds = stream.layout(number as u16).map(|layout| layout.kinds);
            let fits = |known: &&Arc<Stream>| {
                let names = stream.attributes.iter().map(|(name, _)| name);
                kinds.as_ref().is_ok_and(|kinds| *kinds == known.spec.schema.kinds) && names.eq(&known.spec.attributes)
            };
            named
                .find(fits)
                .map_or(Known::Unfit, |known| Known::As(Arc::clone(known)))
        };
        streams.map(known).collect()
    }
}
