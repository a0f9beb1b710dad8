//! The engine: a graph run by native threads, an EventProcessor a level.
//!
//! `push` is a supplier's, from any thread; it never waits. Consumers read their own queues. Nothing is allocated on the way
//! of an event once rings and buffers have met their largest.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::json::{Fault, fault};
use crate::machine;
use crate::record;
use crate::service::binding::Binding;
use crate::service::books::{Books, Counter, Fate};
use crate::service::consumer::ConsumerQueue;
use crate::service::histogram::Histogram;
use crate::service::instance::Instance;
use crate::service::operators::Given;
use crate::service::processor::{Level, Node, Seat, State, Working};
use crate::service::queues::{InputQ, MovingQ, PendingQ, Pushed};
use crate::service::recorder::Track;
use crate::service::scheduling::{Policy, WATCHDOG, adopt, monotonic, policies};
use crate::service::spec::Spec;
use crate::service::store::{MAX_SLOTS, Store, Token};
use crate::service::sync::{PiMutex, Sleepers};
use crate::service::topology::{Reader, Topology};
use crate::service::virtual_clock::{instances, rules, supplier_head};

/// An operator's instance, which only the worker that runs it touches.
pub struct InstanceCell(pub(crate) UnsafeCell<Instance>);

// SAFETY: a worker reaches the instance only while it has set `running` of the operator's node, under its level's lock.
unsafe impl Sync for InstanceCell {}

/// What all threads of an engine share.
pub struct Shared {
    /// What runs.
    pub spec: Spec,
    /// Its edges.
    pub topology: Topology,
    /// Its events.
    pub store: Store,
    /// Its books.
    pub books: Books,
    /// The levels that have something to run, highest first.
    pub levels: Vec<Level>,
    /// By rank, the place among `levels`.
    pub level_places: Vec<usize>,
    /// By operator, the place of its level, and its own in it.
    pub places: Vec<(usize, usize)>,
    /// By producer, the numbers of its edges to lower levels in the MovingQ.
    pub moving_edges: Vec<Vec<usize>>,
    /// By operator.
    pub instances: Vec<InstanceCell>,
    /// By consumer.
    pub consumers: Vec<ConsumerQueue>,
    /// How long operators run.
    pub run_times: Vec<Histogram>,
    /// From the push of the last supplier event to the push to a consumer, by consumer.
    pub latency: Vec<Histogram>,
    /// The same by the rank of the consumer's level.
    pub level_latency: Vec<Histogram>,
    /// What each operator failed of last.
    pub troubles: Vec<PiMutex<Option<String>>>,
    /// Times that workers waited to leave time for others, by place of their level.
    pub pauses: Vec<Counter>,
    /// The flight recorder, by thread.
    pub tracks: Vec<Track>,
    /// What each worker runs.
    pub workings: Vec<Working>,
    /// Operators that the watchdog found not to return, by position.
    pub stuck: Vec<Counter>,
    /// What the engine has to say of the machine.
    pub notices: Vec<String>,
    stopping: AtomicBool,
    running: AtomicUsize,
}

impl Shared {
    /// Whether threads should end.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// A supplier's record; it must fit its stream.
    pub fn push(&self, stream: usize, bytes: &[u8]) -> Result<Accepted, record::Fault> {
        let shared = self;
        let spec = shared.spec.streams.get(stream).ok_or(record::Fault::Stream)?;
        let length = record::check(bytes, &spec.schema)?;
        if shared.is_stopping() {
            return Ok(Accepted::Closed);
        }
        let book = &shared.books.streams[stream];
        if record::flags(bytes) & record::DUPLICATE != 0 {
            book.duplicate.add(1);
            return Ok(Accepted::Duplicate);
        }
        if shared.topology.readers[stream].count() == 0 {
            book.unread.add(1);
            return Ok(Accepted::Unread);
        }
        let Some(mut writer) = shared.store.claim(stream) else {
            book.refused.add(1);
            return Ok(Accepted::Full);
        };
        writer.body().copy(&bytes[..length]);
        let token = writer.publish(supplier_head(spec, bytes, monotonic()));
        let level = &shared.levels[shared.level_places[spec.level]];
        book.queue.came.add(1);
        match level.input.push(token, spec.replace) {
            Pushed::Waits => {}
            Pushed::Replaced(older) => {
                book.queue.end(Fate::Replaced);
                shared.store.release(older, Fate::Replaced);
            }
            // The queue has room for as many as the rings have slots, so this does not happen.
            Pushed::Refused(token) => {
                book.queue.end(Fate::Shed);
                shared.store.release(token, Fate::Shed);
            }
        }
        level.workers.wake();
        Ok(Accepted::Yes)
    }
}

/// What became of a supplier's event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is in the engine.
    Yes,
    /// It was seen before, and is passed over.
    Duplicate,
    /// Nothing here reads its stream.
    Unread,
    /// Too many of its stream wait; it may be pushed again later.
    Full,
    /// The engine has stopped.
    Closed,
}

/// A graph at work.
pub struct Engine {
    shared: Arc<Shared>,
}

/// How long an operator may run before the watchdog names it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most events of each producer that can be held at once: one for each place that can hold one. See lowering.py.
fn bounds(spec: &Spec, topology: &Topology) -> Vec<(usize, usize)> {
    let producers = 0..spec.streams.len() + spec.operators.len();
    producers
        .map(|producer| {
            let readers = &topology.readers[producer];
            let (first, waiting) = match spec.streams.get(producer) {
                Some(stream) => (stream.ring, if stream.replace { 1 } else { stream.waiting }),
                None => (spec.operators[producer - spec.streams.len()].ring, 0),
            };
            // Bound, waiting and run with, at each operator; on the way to it too, if it is of another level.
            let at = |reader: &Reader| spec.operators[reader.operator].depth + 2;
            let local: usize = readers.local.iter().map(at).sum();
            let remote: usize = readers.remote.iter().map(|reader| 2 * at(reader)).sum();
            let consumers: usize = readers.consumers.iter().map(|c| spec.consumers[*c].capacity + 1).sum();
            // In the hands of suppliers, workers and movers.
            let hands = 4 * spec.cores + 4;
            let bound = (waiting + local + remote + consumers + hands).max(first);
            (first, bound.min(MAX_SLOTS))
        })
        .collect()
}

fn level(spec: &Spec, topology: &Topology, rank: usize, sizes: &[(usize, usize)], own: &mut Vec<Node>) -> Level {
    let streams = spec
        .streams
        .iter()
        .zip(sizes)
        .filter(|(stream, _)| stream.level == rank);
    let room = streams
        .map(|(stream, (_, bound))| if stream.replace { 1 } else { *bound })
        .sum();
    let mut edges = Vec::new();
    for (producer, readers) in topology.readers.iter().enumerate() {
        if spec.level_of(producer) == rank {
            for reader in &readers.remote {
                let operator = &spec.operators[reader.operator];
                edges.push((*reader, operator.level, operator.depth));
            }
        }
    }
    Level {
        rank,
        policy: policies(1, false, None)[0],
        input: InputQ::new(room, spec.streams.len()),
        state: PiMutex::new(State {
            pending: PendingQ::new(own.len()),
            backlog: 0,
            nodes: std::mem::take(own),
        }),
        workers: Sleepers::default(),
        moving: PiMutex::new(MovingQ::new(&edges, spec.levels.len())),
        movers: Sleepers::default(),
        busy: AtomicUsize::new(0),
    }
}

/// What the levels' threads may be, and what there is to say about it.
fn choose_policies(spec: &Spec, levels: &mut [Level]) -> Vec<String> {
    let mut notices = Vec::new();
    let mut real_time = None;
    if spec.prioritised {
        match machine::probe().sched_rr {
            Ok(highest) => real_time = Some(highest),
            Err(reason) => notices.push(format!(
                "no real-time priorities ({reason}): levels are nice values, so that an important event can wait for a \
                 time slice; grant CAP_SYS_NICE or an rtprio limit, see `cepheid doctor`"
            )),
        }
    }
    let chosen = policies(levels.len(), spec.prioritised, real_time);
    for (level, policy) in levels.iter_mut().zip(chosen) {
        level.policy = policy;
    }
    notices
}

impl Engine {
    /// Starts the threads of a graph. `given` are operators that are the program's own.
    pub fn start(spec: Spec, given: Given) -> Result<Engine, Fault> {
        let shared = Arc::new(Engine::assemble(spec, given)?);
        let engine = Engine { shared };
        engine.spawn()?;
        Ok(engine)
    }

    fn assemble(spec: Spec, given: Given) -> Result<Shared, Fault> {
        let topology = Topology::new(&spec);
        let sizes = bounds(&spec, &topology);
        let ranks = (0..spec.levels.len()).filter(|rank| {
            spec.streams.iter().any(|s| s.level == *rank) || spec.operators.iter().any(|o| o.level == *rank)
        });
        let ranks: Vec<usize> = ranks.collect();
        let mut level_places = vec![0; spec.levels.len()];
        let mut places = vec![(0, 0); spec.operators.len()];
        let mut levels = Vec::new();
        let mut moving_edges = vec![Vec::new(); topology.readers.len()];
        for (place, rank) in ranks.iter().enumerate() {
            level_places[*rank] = place;
            let mut own = Vec::new();
            for position in (0..spec.operators.len()).filter(|o| spec.operators[*o].level == *rank) {
                places[position] = (place, own.len());
                own.push(Node {
                    binding: Binding::new(rules(&spec, &topology, position)),
                    running: false,
                });
            }
            levels.push(level(&spec, &topology, *rank, &sizes, &mut own));
            let mut edge = 0;
            for (producer, readers) in topology.readers.iter().enumerate() {
                if spec.level_of(producer) == *rank {
                    moving_edges[producer] = (edge..edge + readers.remote.len()).collect();
                    edge += readers.remote.len();
                }
            }
        }
        let notices = choose_policies(&spec, &mut levels);
        let mut tracks = Vec::new();
        let mut workings = Vec::new();
        for level in &mut levels {
            let name = &spec.levels[level.rank];
            for number in 0..spec.cores {
                tracks.push(Track::new(format!("{name} worker {number}")));
                workings.push(Working::default());
            }
            for number in 0..spec.cores {
                tracks.push(Track::new(format!("{name} mover {number}")));
                workings.push(Working::default());
            }
        }
        let made = instances(&spec, &topology, given)?;
        let edges = topology.inputs.iter().map(|inputs| inputs.sources.len());
        let histograms = |count: usize| (0..count).map(|_| Histogram::default()).collect::<Vec<_>>();
        Ok(Shared {
            store: Store::new(sizes),
            books: Books::new(spec.streams.len(), edges, spec.consumers.len()),
            instances: made
                .into_iter()
                .map(|made| InstanceCell(UnsafeCell::new(made)))
                .collect(),
            consumers: spec.consumers.iter().map(|c| ConsumerQueue::new(c.capacity)).collect(),
            run_times: histograms(spec.operators.len()),
            latency: histograms(spec.consumers.len()),
            level_latency: histograms(spec.levels.len()),
            troubles: spec.operators.iter().map(|_| PiMutex::new(None)).collect(),
            pauses: levels.iter().map(|_| Counter::default()).collect(),
            stuck: spec.operators.iter().map(|_| Counter::default()).collect(),
            level_places,
            places,
            levels,
            moving_edges,
            tracks,
            workings,
            notices,
            topology,
            spec,
            stopping: AtomicBool::new(false),
            running: AtomicUsize::new(0),
        })
    }

    fn spawn(&self) -> Result<(), Fault> {
        let cores = self.shared.spec.cores;
        for level in 0..self.shared.levels.len() {
            let has_movers = {
                let rank = self.shared.levels[level].rank;
                let readers = self.shared.topology.readers.iter().enumerate();
                let mut own = readers.filter(|(producer, _)| self.shared.spec.level_of(*producer) == rank);
                own.any(|(_, readers)| !readers.remote.is_empty())
            };
            for number in 0..2 * cores {
                let is_worker = number < cores;
                if is_worker || has_movers {
                    self.spawn_one(level, level * 2 * cores + number, is_worker)?;
                }
            }
        }
        self.spawn_watchdog()
    }

    fn spawn_one(&self, level: usize, track: usize, is_worker: bool) -> Result<(), Fault> {
        let shared = self.shared.clone();
        let kind = if is_worker { "work" } else { "move" };
        let name = format!("cep-{kind}-{level}");
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        let spawned = thread::Builder::new().name(name).spawn(move || {
            let seat = Seat {
                shared: &shared,
                level,
                track: &shared.tracks[track],
                working: &shared.workings[track],
            };
            // The probe has shown that it may; if it may not now, the thread runs as it is.
            let _ = seat.adopt(is_worker);
            if is_worker {
                seat.work();
            } else {
                seat.move_on();
            }
            shared.running.fetch_sub(1, Ordering::SeqCst);
        });
        self.spawned(spawned)
    }

    fn spawned(&self, spawned: std::io::Result<thread::JoinHandle<()>>) -> Result<(), Fault> {
        match spawned {
            Ok(_) => Ok(()),
            Err(error) => {
                self.shared.running.fetch_sub(1, Ordering::SeqCst);
                self.shared.stopping.store(true, Ordering::SeqCst);
                fault(format!("can't start a thread: {error}"))
            }
        }
    }

    fn spawn_watchdog(&self) -> Result<(), Fault> {
        let shared = self.shared.clone();
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        let spawned = thread::Builder::new().name("cep-watchdog".to_owned()).spawn(move || {
            let _ = adopt(Policy::RoundRobin(WATCHDOG));
            let mut named = vec![0_u64; shared.workings.len()];
            while !shared.is_stopping() {
                thread::sleep(Duration::from_millis(50));
                for (working, named) in shared.workings.iter().zip(&mut named) {
                    let since = working.since.load(Ordering::Acquire);
                    let operator = working.operator.load(Ordering::Relaxed);
                    let ran = monotonic().saturating_sub(since);
                    if since != 0 && since != *named && ran > PATIENCE.as_nanos() as u64 {
                        *named = since;
                        shared.stuck[operator].add(1);
                        let name = &shared.spec.operators[operator].name;
                        eprintln!("cepheid: operator '{name}' has not returned for {} ms", ran / 1_000_000);
                    }
                }
            }
            shared.running.fetch_sub(1, Ordering::SeqCst);
        });
        self.spawned(spawned)
    }

    /// What the threads share, for who reports it.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The same, for a thread of its own.
    pub fn share(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// A supplier's record; it must fit its stream.
    pub fn push(&self, stream: usize, bytes: &[u8]) -> Result<Accepted, record::Fault> {
        self.shared.push(stream, bytes)
    }

    /// Records that lie one behind another, each of whichever stream it names: how many became what, in the order of
    /// `Accepted`. Those before one that does not fit are pushed; then its place comes back with what is wrong.
    pub fn push_all(&self, records: &[u8]) -> Result<[usize; 5], (usize, record::Fault)> {
        let mut found = [0; 5];
        let mut at = 0;
        while at < records.len() {
            let rest = &records[at..];
            let length = record::length(rest).ok_or((at, record::Fault::Length))?;
            let accepted = self.push(usize::from(record::stream(rest)), rest);
            found[accepted.map_err(|fault| (at, fault))? as usize] += 1;
            at += length;
        }
        Ok(found)
    }

    /// The next event of a consumer and its labels, waiting for it at most so long; None as well when the engine stops.
    /// The token is the caller's to release.
    pub fn read(&self, consumer: usize, timeout: Option<Duration>) -> Option<(Token, u8)> {
        let queue = &self.shared.consumers[consumer];
        let found = match timeout {
            Some(Duration::ZERO) => queue.pop(),
            _ => queue.wait(timeout, || self.shared.is_stopping()),
        };
        if found.is_some() {
            self.shared.books.consumers[consumer].read.add(1);
        }
        found
    }

    /// Begins the latencies and run times anew, as after a warm-up. The books go on.
    pub fn reset_latencies(&self) {
        let shared = &*self.shared;
        let all = shared
            .run_times
            .iter()
            .chain(&shared.latency)
            .chain(&shared.level_latency);
        all.for_each(Histogram::reset);
    }

    /// Waits until nothing is left to do; false if that was not within the time. For tests and orderly ends.
    pub fn settle(&self, timeout: Duration) -> bool {
        let shared = &*self.shared;
        let moves = || -> u64 { shared.books.operators.iter().map(|book| book.invoked.get()).sum() };
        let deadline = Instant::now() + timeout;
        let mut quiet = 0;
        let mut before = moves();
        while Instant::now() < deadline {
            let is_quiet = shared.levels.iter().all(|level| shared.is_quiet(level)) && moves() == before;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            before = moves();
            // Something on its way from one place to another may escape one look, hardly three.
            if quiet == 3 {
                return true;
            }
            thread::sleep(Duration::from_micros(500));
        }
        false
    }

    /// Ends the threads; false if one did not end within the time, because an operator does not return.
    pub fn stop(&self, timeout: Duration) -> bool {
        let shared = &*self.shared;
        shared.stopping.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + timeout;
        loop {
            for level in &shared.levels {
                level.workers.wake_all();
                level.movers.wake_all();
            }
            shared.consumers.iter().for_each(ConsumerQueue::wake_all);
            if shared.running.load(Ordering::SeqCst) == 0 {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(1));
    }
}
