//! The engine: a graph run by native threads, an EventProcessor a level.
//!
//! `push` is a supplier's, from any thread; it never waits. Consumers read their own queues. Nothing is allocated on the way
//! of an event once rings and buffers have met their largest. What runs can be changed while it runs: see change.rs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};

use crate::json::{Fault, Json};
use crate::machine;
use crate::record::{self, Schema};
use crate::service::change::{Changes, Control, change};
use crate::service::graph::Graph;
use crate::service::operators::Given;
use crate::service::parts::{Consumer, Stream};
use crate::service::processor::Level;
use crate::service::removed::Removed;
use crate::service::report::{consumer_report, operator_report, stream_report};
use crate::service::rests::Rests;
use crate::service::scheduling::{alike, monotonic, policies};
use crate::service::spec::Spec;
use crate::service::store::{Store, Token};
use crate::service::sync::PiMutex;
use crate::service::threads;
use crate::service::virtual_clock::supplier_head;

/// What all threads of an engine share.
pub struct Shared {
    /// Its events.
    pub store: Store,
    /// What the engine has to say of the machine.
    pub notices: Vec<String>,
    /// The highest real-time priority that it may use.
    pub(super) real_time: Option<i32>,
    pub(super) current: ArcSwap<Graph>,
    pub(super) control: PiMutex<Control>,
    /// The rings of the streams that a log has, if one is followed: what was removed of them may still come.
    pub(super) fed: Mutex<Option<HashSet<usize>>>,
    /// Who of its threads has used up its share of the time.
    pub rests: Arc<Rests>,
    pub(super) running: AtomicUsize,
    stopping: AtomicBool,
}

impl Shared {
    /// Whether threads should end.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// What runs now. Hold it for a moment only: what was removed can't end before it is let go of.
    #[inline]
    pub fn graph(&self) -> Guard<Arc<Graph>> {
        self.current.load()
    }

    /// A supplier's record of the stream at a place of the spec; it must fit it.
    pub fn push(&self, stream: usize, bytes: &[u8]) -> Result<Accepted, record::Fault> {
        let graph = self.graph();
        let spec = graph.spec.streams.get(stream).ok_or(record::Fault::Stream)?;
        if record::stream(bytes) != spec.schema.stream {
            return Err(record::Fault::Stream);
        }
        self.push_to(&graph, &graph.parts.streams[stream], &spec.schema, bytes)
    }

    /// A supplier's record for a stream of a graph, whatever number of a stream is in it.
    pub fn push_to(
        &self,
        graph: &Graph,
        stream: &Stream,
        schema: &Schema,
        bytes: &[u8],
    ) -> Result<Accepted, record::Fault> {
        self.put_to(graph, stream, schema, bytes, &mut |level| level.workers.wake())
    }

    /// The same, but `wake` is given the level of whose workers one is to be woken: now, or when what comes with it is there.
    pub fn put_to(
        &self,
        graph: &Graph,
        stream: &Stream,
        schema: &Schema,
        bytes: &[u8],
        wake: &mut dyn FnMut(&Arc<Level>),
    ) -> Result<Accepted, record::Fault> {
        let length = record::check_but_stream(bytes, schema)?;
        if self.is_stopping() {
            return Ok(Accepted::Closed);
        }
        let book = &stream.book;
        if record::flags(bytes) & record::DUPLICATE != 0 {
            book.duplicate.add(1);
            return Ok(Accepted::Duplicate);
        }
        let Some(producer) = graph
            .producer(stream.ring)
            .filter(|producer| producer.readers.count() > 0)
        else {
            book.unread.add(1);
            return Ok(Accepted::Unread);
        };
        let Some(mut writer) = self.store.claim(stream.ring) else {
            book.refused.add(1);
            return Ok(Accepted::Full);
        };
        writer.body().copy(&bytes[..length]);
        let token = writer.publish(supplier_head(&stream.spec, bytes, monotonic()));
        let mut home = stream.home.load(Ordering::SeqCst);
        if home != producer.level && book.queue.held() == 0 {
            home = producer.level;
            stream.home.store(home, Ordering::SeqCst);
        }
        book.queue.came.add(1);
        // An older graph may not have the level that the stream has gone to.
        let level = if graph.place(home).is_some() {
            home
        } else {
            producer.level
        };
        if let Some(level) = self.enqueue(graph, stream, level, token) {
            wake(level);
        }
        Ok(Accepted::Yes)
    }

    /// The books of what was removed, by name: of what has ended, and of what is about to.
    pub(super) fn removed(&self) -> Json {
        let control = self.control.lock();
        let mut found = control.removed.clone();
        let graph = self.graph();
        self.add_leaving(&graph, &mut found);
        found.into_json()
    }

    fn add_leaving(&self, graph: &Graph, found: &mut Removed) {
        for stream in &graph.leaving.streams {
            found.add("streams", &stream.spec.name, stream_report(self, stream, ""));
        }
        for operator in &graph.leaving.operators {
            found.add("operators", &operator.spec.name, operator_report(self, operator, ""));
        }
        for consumer in &graph.leaving.consumers {
            found.add("consumers", &consumer.spec.name, consumer_report(consumer, ""));
        }
    }

    /// The next event of a consumer and its labels, waiting for it at most so long; None as well when the engine stops or
    /// the consumer was removed. The token is the caller's to release.
    pub fn read(&self, consumer: &Consumer, timeout: Option<Duration>) -> Option<(Token, u8)> {
        let is_over = || self.is_stopping() || consumer.closed.get().is_some();
        let found = match timeout {
            Some(Duration::ZERO) => consumer.queue.pop(),
            _ => consumer.queue.wait(timeout, is_over),
        };
        if found.is_some() {
            consumer.book.read.add(1);
        }
        found
    }

    /// Waits until nothing is left to do; false if that was not within the time. For tests and orderly ends.
    pub fn settle(&self, timeout: Duration) -> bool {
        let moves = |graph: &Graph| -> u64 { graph.operators().map(|operator| operator.book.invoked.get()).sum() };
        let deadline = Instant::now() + timeout;
        let mut quiet = 0;
        let mut before = moves(&self.graph());
        while Instant::now() < deadline {
            let graph = self.graph();
            let is_quiet = graph.levels().all(|place| self.is_quiet(place)) && moves(&graph) == before;
            quiet = if is_quiet { quiet + 1 } else { 0 };
            before = moves(&graph);
            drop(graph);
            // Something on its way from one place to another may escape one look, hardly three.
            if quiet == 3 {
                return true;
            }
            thread::sleep(Duration::from_micros(500));
        }
        false
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

impl Engine {
    /// Starts the threads of a graph. `given` are operators that are the program's own.
    pub fn start(spec: Spec, given: Given) -> Result<Engine, Fault> {
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
        if spec.prioritised
            && let Some(level) = alike(&policies(spec.levels.len(), true, real_time))
        {
            notices.push(format!(
                "there are {} levels, more than thread priorities: from '{}' on, several share one, and do not preempt each \
                 other; use fewer levels",
                spec.levels.len(),
                spec.levels[level]
            ));
        }
        let shared = Arc::new(Shared {
            store: Store::new([]),
            notices,
            real_time,
            current: ArcSwap::from_pointee(Graph::empty(spec.cores, spec.prioritised)),
            control: PiMutex::default(),
            fed: Mutex::default(),
            rests: Arc::default(),
            running: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        });
        let engine = Engine { shared };
        engine.change(spec, given, &[])?;
        threads::watch(&engine.shared)?;
        threads::keep_rests(&engine.shared)?;
        Ok(engine)
    }

    /// Goes on with another spec: what is the same in both stays as it is, with its state, its queues and its books, and
    /// never stops; operators in `renewed` are taken for others even so. Nothing has changed if it is refused.
    pub fn change(&self, spec: Spec, given: Given, renewed: &[String]) -> Result<Changes, Fault> {
        change(&self.shared, spec, given, renewed)
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

    /// The next event of the consumer at a place of the spec; see `Shared::read`.
    pub fn read(&self, consumer: usize, timeout: Option<Duration>) -> Option<(Token, u8)> {
        let consumer = self.shared.graph().parts.consumers.get(consumer).cloned()?;
        self.shared.read(&consumer, timeout)
    }

    /// Begins the latencies and run times anew, as after a warm-up. The books go on.
    pub fn reset_latencies(&self) {
        let graph = self.shared.graph();
        graph
            .parts
            .operators
            .iter()
            .for_each(|operator| operator.run_times.reset());
        graph
            .parts
            .consumers
            .iter()
            .for_each(|consumer| consumer.latency.reset());
        graph.levels().for_each(|place| place.level.latency.reset());
    }

    /// Waits until nothing is left to do; see `Shared::settle`.
    pub fn settle(&self, timeout: Duration) -> bool {
        self.shared.settle(timeout)
    }

    /// Ends the threads; false if one did not end within the time, because an operator does not return.
    pub fn stop(&self, timeout: Duration) -> bool {
        let shared = &*self.shared;
        shared.stopping.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + timeout;
        loop {
            let graph = shared.graph();
            graph.levels().for_each(|place| place.level.wake_all());
            shared.rests.wake();
            let consumers = graph.parts.consumers.iter().chain(&graph.leaving.consumers);
            consumers.for_each(|consumer| consumer.queue.wake_all());
            drop(graph);
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
