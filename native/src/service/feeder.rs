//! Feeds an engine from the event log: a thread follows the log's tail in shared memory and pushes each record.
//!
//! An event that the engine has no room for is passed over and counted, never waited for: a flood on one stream must not
//! hold up what stands behind it in the log. The log keeps it in any case.
//!
//! But what operators produce for queries is never lost (rule G7): while too much of it waits for the log, the feeder reads no
//! further, as a lane does. And it says that it is done with an offset only when the log has what came of it: after a crash
//! the rest is read again, and what comes of it has the ids that it had (identity.rs), so that the intake knows what it has.
//! What was in the log before it began comes all at once; so that nothing of that is replaced or finds no room, where
//! operators' events go into the log, one event goes through the graph at a time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::log::follower::From;
use crate::log::{Error, Follower, StreamSchema, consumers};
use crate::record;
use crate::service::books::Fate;
use crate::service::derived::TO_LOG;
use crate::service::engine::{Accepted, Shared};
use crate::service::graph::Graph;
use crate::service::parts::{Consumer, Stream};
use crate::service::scheduling::{Policy, WATCHDOG, adopt};

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
/// An event has left the graph when all was quiet a while after it came; and where it never is, after so long: every place in the
/// graph has a bound.
const LEFT_AFTER: Duration = Duration::from_secs(10);
/// What was in the log before comes one at a time, but no longer than so long; an operator that does not return is waited for
/// so long.
const CATCHING_UP: Duration = Duration::from_secs(10);
const FOR_ONE: Duration = Duration::from_secs(1);
/// So soon it looks whether one has gone through.
const VERY_SOON: Duration = Duration::from_micros(50);
/// So long what operators gave may take into the log when the engine ends in order.
const AT_THE_END: Duration = Duration::from_secs(1);

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
        let end = Follower::open(&folder, From::End, false)?.offset();
        let fed = Arc::new(Fed::default());
        let stop = Arc::new(AtomicBool::new(false));
        let mut feeding = Feeding {
            engine,
            folder,
            follower,
            fed: Arc::clone(&fed),
            stop: Arc::clone(&stop),
            streams: Vec::new(),
            seen: None,
            greatest: Vec::new(),
            to_log: Vec::new(),
            leaving: None,
            behind: end,
            slow_until: Instant::now() + CATCHING_UP,
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
#[derive(Debug)]
enum Known {
    As(Arc<Stream>),
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
    /// What that was found with: the engine's graph, and the log's streams.
    seen: Option<(Arc<Graph>, u64)>,
    /// By the log's number of a stream, the greatest time of the batch.
    greatest: Vec<i64>,
    /// The ways into the log.
    to_log: Vec<Arc<Consumer>>,
    /// What is to be committed next, where there are such.
    leaving: Option<Leaving>,
    /// Where the log ended when this began; what is before that comes one at a time, until then.
    behind: u64,
    slow_until: Instant,
}

/// An offset whose events may not have left the graph, or what came of them may not be in the log.
struct Leaving {
    offset: u64,
    since: Instant,
    /// Once they have left: how many events each way is to have brought.
    ways: Option<Vec<(Arc<Consumer>, u64)>>,
}

impl Feeding {
    fn run(&mut self) {
        // Above the workers: what does not come in can't be judged. Without the privilege, as it is.
        let _ = adopt(Policy::RoundRobin(WATCHDOG));
        let mut committed = Instant::now();
        while !self.stop.load(Ordering::SeqCst) && !self.engine.is_stopping() {
            self.look();
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
                self.commit_what_left();
                committed = Instant::now();
            }
        }
        self.commit_at_the_end();
        *self.engine.fed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Finds the engine's streams among the log's, if either has changed.
    fn look(&mut self) {
        let (graph, generation) = (self.engine.current.load(), self.follower.generation());
        let is_seen = |(seen, known): &(Arc<Graph>, u64)| Arc::ptr_eq(seen, &graph) && *known == generation;
        if !self.seen.as_ref().is_some_and(is_seen) {
            self.streams = self.matched(&graph);
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

    /// Pushes the next batch; whether there was one.
    fn feed(&mut self) -> Result<bool, Error> {
        if !self.follower.advance()? {
            return Ok(false);
        }
        self.look();
        let (Some(batch), Some((graph, _))) = (self.follower.batch(), &self.seen) else {
            return Ok(false);
        };
        self.greatest.clear();
        self.greatest.resize(self.streams.len(), i64::MIN);
        for (offset, bytes) in batch.records() {
            if let Some(greatest) = self.greatest.get_mut(usize::from(record::stream(bytes))) {
                *greatest = (*greatest).max(record::time(bytes));
            }
            let stream = match self.streams.get(usize::from(record::stream(bytes))) {
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
            while self.to_log.iter().any(|way| way.queue.len() > UNLOGGED) && !self.stop.load(Ordering::Relaxed) {
                thread::sleep(SOON);
            }
            let counter = match self.engine.push_to(graph, stream, &stream.spec.schema, bytes) {
                Ok(Accepted::Yes) => &self.fed.accepted,
                Ok(Accepted::Full) => &self.fed.full,
                Ok(Accepted::Duplicate) => &self.fed.duplicate,
                Ok(Accepted::Unread) => &self.fed.unread,
                Ok(Accepted::Closed) => return Ok(false),
                Err(_) => &self.fed.unfit,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            if !self.to_log.is_empty() && offset < self.behind {
                self.let_pass();
            }
        }
        self.fed.offset.store(self.follower.offset(), Ordering::Release);
        self.hear();
        Ok(true)
    }

    /// Waits until what was fed has gone through the graph.
    fn let_pass(&self) {
        let until = self.slow_until.min(Instant::now() + FOR_ONE);
        while !is_quiet(&self.engine) && Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            thread::sleep(VERY_SOON);
        }
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

    /// Commits how far it has come; where operators' events go into the log, how far the log has them.
    fn commit_what_left(&mut self) {
        let offset = self.fed.offset.load(Ordering::Acquire);
        if self.to_log.is_empty() && self.leaving.is_none() {
            self.commit(offset);
            return;
        }
        let leaving = self.leaving.get_or_insert_with(|| Leaving {
            offset,
            since: Instant::now(),
            ways: None,
        });
        if leaving.ways.is_none() {
            let waited = leaving.since.elapsed();
            if waited >= LEFT_AFTER || (waited >= COMMITTED_EVERY && is_quiet(&self.engine)) {
                leaving.ways = Some(to_bring(&self.to_log));
            }
        }
        if leaving.ways.as_deref().is_some_and(have_brought) {
            let offset = leaving.offset;
            self.leaving = None;
            self.commit(offset);
        }
    }

    /// Waits a moment for what is on its way into the log, so that the next engine need not read it again.
    fn commit_at_the_end(&mut self) {
        if !self.to_log.is_empty() {
            let deadline = Instant::now() + AT_THE_END;
            if !self.engine.settle(AT_THE_END) {
                return;
            }
            let ways = to_bring(&self.to_log);
            while !have_brought(&ways) {
                if Instant::now() >= deadline {
                    return;
                }
                thread::sleep(SOON);
            }
        }
        self.commit(self.fed.offset.load(Ordering::Acquire));
    }

    fn commit(&self, offset: u64) {
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

/// Whether nothing is on its way through the graph, at a look.
fn is_quiet(engine: &Shared) -> bool {
    engine.graph().levels().all(|place| engine.is_quiet(place))
}

/// How many events each way into the log is to have brought once it has brought all that it has now.
fn to_bring(ways: &[Arc<Consumer>]) -> Vec<(Arc<Consumer>, u64)> {
    let of = |way: &Arc<Consumer>| {
        let lost = way.book.lost.get();
        (Arc::clone(way), way.book.edge.ended(Fate::Used).saturating_sub(lost))
    };
    ways.iter().map(of).collect()
}

fn have_brought(ways: &[(Arc<Consumer>, u64)]) -> bool {
    let is_done = |way: &Consumer| way.closed.get().is_some() && way.queue.is_empty();
    let has_brought = |(way, count): &(Arc<Consumer>, u64)| way.logged.load(Ordering::SeqCst) >= *count || is_done(way);
    ways.iter().all(has_brought)
}
