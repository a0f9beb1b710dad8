//! Feeds an engine from the event log: a thread follows the log's tail in shared memory and pushes each record.
//!
//! If the intake is inside the same process, its own thread pushes what it has just written, so that no other need wake for it
//! (`Relay`); the feeder's thread then only sees to what that left. How far it has come is written down by a thread without a
//! priority: where real-time threads fill the cores, the file system takes its time, and nothing may wait for that.
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
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::log::follower::From;
use crate::log::{Error, Follower, StreamSchema, consumers};
use crate::record;
use crate::service::books::Fate;
use crate::service::derived::TO_LOG;
use crate::service::engine::{Accepted, Shared};
use crate::service::graph::Graph;
use crate::service::parts::{Consumer, Stream};
use crate::service::processor::Level;
use crate::service::scheduling::{Busy, HIGHEST_SHARE, Policy, WATCHDOG, adopt, monotonic, sleep_until};
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
/// Workers are woken when what came together is there; at the latest after so many events.
const TOGETHER: usize = 64;
/// Batches, or parts of large ones, that are pushed before it looks to something else.
const AT_ONCE: usize = 1024;

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
    pub heard: PiMutex<HashMap<String, (i64, Instant)>>,
    /// What is wrong with the log, if something is.
    pub trouble: PiMutex<Option<String>>,
}

impl Fed {
    fn say(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
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
            while feeding.lock().feed() == Rest::More {}
        }
    }
}

/// A thread that feeds an engine; it ends with this, or with the engine.
pub struct Feeder {
    /// What became of the log's events.
    pub fed: Arc<Fed>,
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
        let end = Follower::open(&folder, From::End, false)?.offset();
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
            stop: Arc::clone(&stop),
            behind: end,
            slow_until: Instant::now() + CATCHING_UP,
        }));
        let mut keeper = Keeper {
            engine,
            folder,
            fed: Arc::clone(&fed),
            stop: Arc::clone(&stop),
            feeding,
            leaving: None,
        };
        let relay = relay.is_used.load(Ordering::SeqCst).then_some(relay);
        let thread = thread::Builder::new()
            .name("cep-keeper".into())
            .spawn(move || keeper.run(relay))
            .map_err(|error| Error::Io("start a thread for", PathBuf::new(), error))?;
        Ok(Feeder {
            fed,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
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

/// Why it pushes nothing more for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It was enough; there may be more.
    More,
    /// All was.
    End,
    /// Too much waits for the log.
    Unlogged,
    /// The log can't be read.
    Trouble,
}

/// Writes down how far the engine has come.
struct Keeper {
    engine: Arc<Shared>,
    folder: PathBuf,
    fed: Arc<Fed>,
    stop: Arc<AtomicBool>,
    feeding: Arc<PiMutex<Feeding>>,
    /// What is to be committed next, where operators' events go into the log.
    leaving: Option<Leaving>,
}

/// An offset whose events may not have left the graph, or what came of them may not be in the log.
struct Leaving {
    offset: u64,
    since: Instant,
    /// Once they have left: how many events each way is to have brought.
    ways: Option<Vec<(Arc<Consumer>, u64)>>,
}

/// The feeder's thread: pushes what comes, until it is told to end. An intake inside is given its part once what was in the log
/// before has come.
fn push_all(engine: &Shared, feeding: &Arc<PiMutex<Feeding>>, stop: &AtomicBool, mut relay: Option<Arc<Relay>>) {
    // Above the workers: what does not come in can't be judged. Without the privilege, or without levels, as it is.
    let is_real_time = engine.real_time.is_some() && adopt(Policy::RoundRobin(WATCHDOG)).is_ok();
    let mut busy = Busy::default();
    busy.begin(HIGHEST_SHARE, monotonic());
    let mut relayed: Option<Arc<Relay>> = None;
    while !stop.load(Ordering::SeqCst) && !engine.is_stopping() {
        let mut held = feeding.lock();
        let rest = held.feed();
        let pause = busy.account(HIGHEST_SHARE, monotonic()).filter(|_| is_real_time);
        if rest == Rest::End
            && held.follower.offset() >= held.behind
            && let Some(relay) = relay.take()
        {
            relay.feeding.store(Some(Arc::clone(feeding)));
            relayed = Some(relay);
            // What came meanwhile nobody was told of.
            continue;
        }
        if rest == Rest::End && relayed.is_none() {
            // Nobody else wants what is locked, but the keeper once a second.
            let _ = held.follower.wait(PATIENCE);
        }
        drop(held);
        match rest {
            Rest::Unlogged => thread::sleep(SOON),
            Rest::Trouble => thread::sleep(PATIENCE),
            Rest::End if relayed.is_some() => thread::sleep(PATIENCE),
            Rest::End | Rest::More => {}
        }
        if let Some(until) = pause {
            // As a worker does: a log that it has to catch up with leaves time to the others.
            sleep_until(until);
        }
        if rest != Rest::More || pause.is_some() {
            busy.begin(HIGHEST_SHARE, monotonic());
        }
    }
    if let Some(relay) = relayed {
        relay.feeding.store(None);
    }
}

impl Keeper {
    fn run(&mut self, relay: Option<Arc<Relay>>) {
        let (engine, feeding) = (Arc::clone(&self.engine), Arc::clone(&self.feeding));
        let (stop, keeper) = (Arc::clone(&self.stop), thread::current());
        let pushing = thread::Builder::new().name("cep-feeder".into()).spawn(move || {
            push_all(&engine, &feeding, &stop, relay);
            keeper.unpark();
        });
        match pushing {
            Ok(pushing) => {
                thread::park_timeout(COMMITTED_EVERY);
                while !self.stop.load(Ordering::SeqCst) && !self.engine.is_stopping() {
                    self.commit_what_left();
                    thread::park_timeout(COMMITTED_EVERY);
                }
                let _ = pushing.join();
            }
            Err(error) => self
                .fed
                .say(Some(format!("no thread could be started to read the log: {error}"))),
        }
        self.commit_at_the_end();
        *self.engine.fed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Commits how far it has come; where operators' events go into the log, how far the log has them.
    fn commit_what_left(&mut self) {
        let offset = self.fed.offset.load(Ordering::Acquire);
        let to_log = self.feeding.lock().to_log.clone();
        if to_log.is_empty() && self.leaving.is_none() {
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
                leaving.ways = Some(to_bring(&to_log));
            }
        }
        if leaving.ways.as_deref().is_some_and(have_brought) {
            let offset = leaving.offset;
            self.leaving = None;
            self.commit(offset);
        }
    }

    /// Waits a moment for what is on its way into the log, so that the next engine need not read it again.
    fn commit_at_the_end(&self) {
        let to_log = self.feeding.lock().to_log.clone();
        if !to_log.is_empty() {
            let deadline = Instant::now() + AT_THE_END;
            if !self.engine.settle(AT_THE_END) {
                return;
            }
            let ways = to_bring(&to_log);
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
    stop: Arc<AtomicBool>,
    /// Where the log ended when this began; what is before that comes one at a time, until then.
    behind: u64,
    slow_until: Instant,
}

impl Feeding {
    /// Pushes what is there, up to a bound.
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
            if together == AT_ONCE {
                break Rest::More;
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
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Some(Rest::End));
        }
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
        for (place, (offset, bytes)) in batch.records().enumerate().skip(pushed) {
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
            let wake = &mut |level: &Arc<Level>| {
                if !to_wake.iter().any(|known| Arc::ptr_eq(known, level)) {
                    to_wake.push(Arc::clone(level));
                }
            };
            let put = self.engine.put_to(graph, stream, &stream.spec.schema, bytes, wake);
            let counter = match put {
                Ok(Accepted::Yes) => &self.fed.accepted,
                Ok(Accepted::Full) => &self.fed.full,
                Ok(Accepted::Duplicate) => &self.fed.duplicate,
                Ok(Accepted::Unread) => &self.fed.unread,
                Ok(Accepted::Closed) => return Ok(Some(Rest::End)),
                Err(_) => &self.fed.unfit,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            if !self.to_log.is_empty() && offset < self.behind {
                to_wake.drain(..).for_each(|level| level.workers.wake());
                let_pass(&self.engine, &self.stop, self.slow_until);
            }
        }
        self.fed.offset.store(self.follower.offset(), Ordering::Release);
        Ok(None)
    }

    /// Notes how far the streams of what came have come.
    fn hear(&mut self) {
        if self.came.is_empty() {
            return;
        }
        let mut heard = self.fed.heard.lock();
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

/// Waits until what was fed has gone through the graph.
fn let_pass(engine: &Shared, stop: &AtomicBool, slow_until: Instant) {
    let until = slow_until.min(Instant::now() + FOR_ONE);
    while !is_quiet(engine) && Instant::now() < until && !stop.load(Ordering::Relaxed) {
        thread::sleep(VERY_SOON);
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
