//! The EventProcessor of a level (paper, section 4.1): what its threads share, and how an event goes from where it was made to who
//! reads it. What the threads do is in seat.rs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::service::binding::Bound;
use crate::service::books::{Counter, Fate};
use crate::service::engine::Shared;
use crate::service::graph::{Graph, Place, Reader, Readers, Source};
use crate::service::histogram::Histogram;
use crate::service::parts::{Consumer, Operator, Stream};
use crate::service::queues::{InputQ, MovingQ, PendingQ, Pushed};
use crate::service::recorder::Track;
use crate::service::scheduling::{demote, monotonic, now};
use crate::service::store::{Head, Token};
use crate::service::sync::{PiMutex, Sleepers};
use crate::service::virtual_clock::judged_at_push;

/// What the workers of a level share.
#[derive(Debug)]
pub struct State {
    /// Operators that are ready; those that run are not in it.
    pub pending: PendingQ<Arc<Operator>>,
    /// How many operators have something waiting, whether they run now or not.
    pub backlog: usize,
    /// InputQs that were too small for a change; what is in them comes first.
    pub before: Vec<Arc<InputQ>>,
}

/// One level.
#[derive(Debug)]
pub struct Level {
    /// Its name.
    pub name: String,
    /// Its number, which it keeps.
    pub number: usize,
    /// Operators.
    pub state: PiMutex<State>,
    /// Where workers wait.
    pub workers: Sleepers,
    /// Events for lower levels.
    pub moving: PiMutex<MovingQ<Reader>>,
    /// Where movers wait.
    pub movers: Sleepers,
    /// How many threads have something in hand.
    pub busy: AtomicUsize,
    /// From the push of the last supplier event to the push to a consumer of the level.
    pub latency: Histogram,
    /// Times that workers waited to leave time for others.
    pub pauses: Counter,
    /// The flight recorder: of workers, then of movers.
    pub tracks: Vec<Track>,
    /// What each of them runs.
    pub workings: Vec<Working>,
    /// Whether its workers and its movers have been started.
    pub started: [AtomicBool; 2],
    pub(super) ending: AtomicBool,
}

impl Level {
    /// Without threads, for so many cores.
    pub fn new(name: String, number: usize, cores: usize) -> Level {
        let track = |place: usize| {
            let (kind, place) = if place < cores {
                ("worker", place)
            } else {
                ("mover", place - cores)
            };
            Track::new(format!("{name} {kind} {place}"))
        };
        Level {
            tracks: (0..2 * cores).map(track).collect(),
            workings: (0..2 * cores).map(|_| Working::default()).collect(),
            name,
            number,
            state: PiMutex::new(State {
                pending: PendingQ::new(0),
                backlog: 0,
                before: Vec::new(),
            }),
            workers: Sleepers::default(),
            moving: PiMutex::default(),
            movers: Sleepers::default(),
            busy: AtomicUsize::new(0),
            latency: Histogram::default(),
            pauses: Counter::default(),
            started: Default::default(),
            ending: AtomicBool::new(false),
        }
    }

    /// Ends its threads; nothing may be left at it.
    pub fn end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Wakes its threads, to look at what has changed.
    pub fn wake_all(&self) {
        self.workers.wake_all();
        self.movers.wake_all();
    }
}

/// What a worker runs now, for the watchdog.
#[derive(Debug, Default)]
pub struct Working {
    /// The number of the operator's ring.
    pub operator: AtomicUsize,
    /// Since when, in nanoseconds of the monotonic clock; 0 if it runs none.
    pub since: AtomicU64,
    /// The kernel's number of the worker.
    pub thread: AtomicU32,
    /// Whether the watchdog took its real-time priority. Locked, so that it does not do so while the worker takes it back.
    is_demoted: PiMutex<bool>,
}

impl Working {
    /// Takes the worker's real-time priority, if it still runs what it began then and has one; whether that was done.
    pub fn demote(&self, since: u64) -> bool {
        let mut is_demoted = self.is_demoted.lock();
        *is_demoted |= self.since.load(Ordering::Acquire) == since && demote(self.thread.load(Ordering::Relaxed));
        *is_demoted
    }

    /// Whether the worker, which has returned, was demoted; then it takes its priority back.
    pub fn was_demoted(&self) -> bool {
        std::mem::take(&mut *self.is_demoted.lock())
    }
}

/// The next supplier event of a level whose lock is held.
pub(super) fn pop_input(place: &Place, state: &State) -> Option<Token> {
    // SAFETY: the caller has locked the level.
    let pop = |input: &InputQ| unsafe { input.pop() };
    let older = state.before.iter().find_map(|input| pop(input));
    older.or_else(|| pop(&place.input))
}

pub(super) fn has_input(place: &Place, state: &State) -> bool {
    !place.input.is_empty() || state.before.iter().any(|input| !input.is_empty())
}

/// How many supplier events wait at a level whose lock is held.
pub(super) fn input_length(place: &Place, state: &State) -> usize {
    place.input.len() + state.before.iter().map(|input| input.len()).sum::<usize>()
}

impl Shared {
    /// Books an event that an operator let go of.
    pub(super) fn ended(&self, operator: &Operator, edge: usize, token: Token, fate: Fate) {
        operator.book.edges[edge].end(fate);
        self.store.release(token, fate);
    }

    /// Binds an event at an operator of a locked level; whether there is something to run that was not there before.
    pub(super) fn bind(&self, state: &mut State, reader: &Reader, token: Token, head: Head) -> bool {
        let operator = &reader.operator;
        // SAFETY: the caller has locked the operator's level, and the node is held until the end of this call.
        let node = unsafe { operator.node(state) };
        let had = node.binding.waiting() > 0;
        let bound = Bound { token, head };
        node.binding
            .bind(reader.edge, bound, &mut |edge: usize, bound: Bound, fate| {
                self.ended(operator, edge, bound.token, fate);
            });
        let is_new = !had && node.binding.waiting() > 0;
        if is_new {
            state.backlog += 1;
            if !node.running {
                state.pending.push(Arc::clone(operator));
            }
        }
        is_new && !node.running
    }

    /// An operator has produced an event: consumers get it, operators of its level bind it, and it is to go on to others. Whether
    /// the MovingQ of level `own`, whose worker ran it, has it now: that is for this worker to see to.
    ///
    /// Only one thread runs the operator, so that its events come to each reader in their order.
    pub fn share(&self, operator: &Operator, token: Token, head: Head, own: usize) -> bool {
        if let Some(producer) = self.graph().producer(token.ring()) {
            self.push_to_consumers(&producer.readers, &token, &head, Some(producer.level));
            if producer.readers.local.is_empty() && producer.readers.remote.is_empty() {
                self.store.forget(token);
                return false;
            }
        }
        let moves = loop {
            // The level first: a graph that is looked at later has it.
            let number = operator.level.load(Ordering::SeqCst);
            let graph = self.graph();
            let Some(place) = graph.place(number) else { continue };
            let level = Arc::clone(&place.level);
            drop(graph);
            let mut state = level.state.lock();
            if operator.level.load(Ordering::SeqCst) != number {
                continue;
            }
            // A change of levels holds this lock, so that what is seen now is right until it is let go of.
            let graph = self.graph();
            let Some(producer) = graph.producer(token.ring()) else {
                break false;
            };
            self.bind_locally(&mut state, &producer.readers, &token, head);
            let moves = self.send_on(&level, &producer.readers, &token);
            drop(state);
            if moves && number != own {
                // The operator has gone to another level meanwhile.
                level.movers.wake();
            }
            break moves && number == own;
        };
        self.store.forget(token);
        moves
    }

    /// The same for a supplier event of a worker's own level, all under the lock under which it was taken: so two workers keep the
    /// order too.
    ///
    /// Locks are taken from the highest level down, in each its state before its MovingQ, and a consumer's queue last.
    pub(super) fn share_taken(&self, graph: &Graph, level: &Level, state: &mut State, token: Token) -> bool {
        let Some(producer) = graph.producer(token.ring()) else {
            self.store.forget(token);
            return false;
        };
        let Source::Stream(stream) = &producer.source else {
            self.store.forget(token);
            return false;
        };
        if producer.level != level.number {
            // Its stream is of another level now, where its readers are.
            self.forward(graph, stream, producer.level, token);
            return false;
        }
        let head = *self.store.read(&token).head;
        stream.book.queue.end(Fate::Used);
        self.push_to_consumers(&producer.readers, &token, &head, None);
        self.bind_locally(state, &producer.readers, &token, head);
        let moves = self.send_on(level, &producer.readers, &token);
        self.store.forget(token);
        moves
    }

    /// Puts a supplier event into the InputQ of a level, and wakes a worker.
    pub(super) fn forward(&self, graph: &Graph, stream: &Stream, level: usize, token: Token) {
        if let Some(level) = self.enqueue(graph, stream, level, token) {
            level.workers.wake();
        }
    }

    /// Puts a supplier event into the InputQ of a level: the one of whose workers one is to be woken.
    pub(super) fn enqueue<'g>(
        &self,
        graph: &'g Graph,
        stream: &Stream,
        level: usize,
        token: Token,
    ) -> Option<&'g Arc<Level>> {
        let book = &stream.book.queue;
        let Some(place) = graph.place(level) else {
            book.end(Fate::Shed);
            self.store.release(token, Fate::Shed);
            return None;
        };
        match place.input.push(token, stream.spec.replace) {
            Pushed::Waits => {}
            Pushed::Replaced(older) => {
                book.end(Fate::Replaced);
                self.store.release(older, Fate::Replaced);
            }
            // The queue has room for as many as the rings have slots, so this does not happen.
            Pushed::Refused(token) => {
                book.end(Fate::Shed);
                self.store.release(token, Fate::Shed);
            }
        }
        Some(&place.level)
    }

    fn bind_locally(&self, state: &mut State, readers: &Readers, token: &Token, head: Head) {
        for reader in &readers.local {
            reader.operator.book.edges[reader.edge].came.add(1);
            self.bind(state, reader, self.store.retain(token), head);
        }
    }

    /// Puts an event into the MovingQ, if operators of lower levels read it; whether they do.
    fn send_on(&self, level: &Level, readers: &Readers, token: &Token) -> bool {
        if readers.remote.is_empty() {
            return false;
        }
        let mut moving = level.moving.lock();
        for (reader, edge) in &readers.remote {
            reader.operator.book.edges[reader.edge].came.add(1);
            let room = reader.operator.spec.depth;
            if let Some(older) = moving.push(*edge, room, self.store.retain(token)) {
                self.ended(&reader.operator, reader.edge, older, Fate::Replaced);
            }
        }
        true
    }

    /// What consumers of level `own` get is delivered here and now, if that can be done without waiting; else a thread is woken.
    fn push_to_consumers(&self, readers: &Readers, token: &Token, head: &Head, own: Option<usize>) {
        for (consumer, level) in &readers.consumers {
            if self.push_to_consumer(consumer, level, token, head) {
                let pump = consumer.pump.load();
                let is_own = own == Some(level.number);
                if !(is_own && pump.as_ref().is_some_and(|pump| pump.deliver_now())) {
                    consumer.queue.wake();
                }
            }
        }
    }

    /// Whether it has got it.
    fn push_to_consumer(&self, consumer: &Consumer, level: &Level, token: &Token, head: &Head) -> bool {
        let book = &consumer.book;
        book.edge.came.add(1);
        let now = now();
        book.stale.add(u64::from(now >= head.end));
        let Some(marks) = judged_at_push(head, consumer.spec.stale, now) else {
            book.edge.end(Fate::Expired);
            self.store.release(self.store.retain(token), Fate::Expired);
            return false;
        };
        let latency = monotonic().saturating_sub(head.pushed);
        consumer.latency.record(latency);
        level.latency.record(latency);
        book.edge.end(Fate::Used);
        if let Some(oldest) = consumer.queue.push(self.store.retain(token), marks) {
            book.lost.add(1);
            self.store.release(oldest, Fate::Used);
        }
        true
    }

    /// Whether a level has nothing to do and nothing in hand.
    pub fn is_quiet(&self, place: &Place) -> bool {
        let level = &place.level;
        level.busy.load(Ordering::SeqCst) == 0 && level.moving.lock().is_empty() && {
            let state = level.state.lock();
            state.backlog == 0 && !has_input(place, &state)
        }
    }
}
