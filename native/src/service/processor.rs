//! The EventProcessor of a level: its workers run the level's operators, its movers share with lower levels (paper, section 4.1).
//!
//! A worker takes pending operators first, and a new supplier event only when no operator of the level waits to run. It pushes to
//! consumers itself. One thread at a time runs an operator, so that its outputs keep their order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::service::binding::{Bound, Found};
use crate::service::books::{Counter, Fate};
use crate::service::engine::Shared;
use crate::service::graph::{Graph, Place, Reader, Readers, Source};
use crate::service::histogram::Histogram;
use crate::service::parts::{Consumer, Operator, Stream};
use crate::service::queues::{InputQ, MovingQ, PendingQ, Pushed};
use crate::service::recorder::{Track, What};
use crate::service::scheduling::{Busy, LevelPolicy, adopt, adopt_anew, monotonic, now, policies, sleep_until};
use crate::service::store::{Head, Token};
use crate::service::sync::{PiMutex, Sleepers};
use crate::service::virtual_clock::judged_at_push;

/// So long it takes until another worker runs that is woken, on a core that slept, and what it costs; in nanoseconds.
const WAKING: u64 = 100_000;

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
    ending: AtomicBool,
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
}

/// What a worker or mover goes by.
pub struct Seat<'s> {
    /// The engine.
    pub shared: &'s Shared,
    /// Its level.
    pub level: &'s Level,
    /// Its place among the threads of the level.
    pub number: usize,
    /// Whether it is a worker.
    pub is_worker: bool,
}

enum Job {
    /// An operator, ready to run with these labels.
    Run(Arc<Operator>, u8),
    /// A supplier event was taken, or an operator let go of its inputs: look again.
    Again,
    Nothing,
}

/// The next supplier event of a level whose lock is held.
fn pop_input(place: &Place, state: &State) -> Option<Token> {
    let older = state.before.iter().find_map(|input| input.pop());
    older.or_else(|| place.input.pop())
}

fn has_input(place: &Place, state: &State) -> bool {
    !place.input.is_empty() || state.before.iter().any(|input| !input.is_empty())
}

fn input_length(place: &Place, state: &State) -> usize {
    place.input.len() + state.before.iter().map(|input| input.len()).sum::<usize>()
}

/// An operator of a locked level does not run any more.
fn free(state: &mut State, operator: Arc<Operator>) {
    // SAFETY: the caller has locked the operator's level.
    let node = unsafe { operator.node(state) };
    node.running = false;
    if node.binding.waiting() > 0 {
        state.pending.push(operator);
    }
}

impl Shared {
    /// Books an event that an operator let go of.
    pub(super) fn ended(&self, operator: &Operator, edge: usize, token: Token, fate: Fate) {
        operator.book.edges[edge].end(fate);
        self.store.release(token, fate);
    }

    /// Binds an event at an operator of a locked level.
    pub(super) fn bind(&self, state: &mut State, reader: &Reader, token: Token, head: Head) {
        let operator = &reader.operator;
        // SAFETY: the caller has locked the operator's level, and the node is held until the end of this call.
        let node = unsafe { operator.node(state) };
        let had = node.binding.waiting() > 0;
        let bound = Bound { token, head };
        node.binding
            .bind(reader.edge, bound, &mut |edge: usize, bound: Bound, fate| {
                self.ended(operator, edge, bound.token, fate);
            });
        if !had && node.binding.waiting() > 0 {
            state.backlog += 1;
            if !node.running {
                state.pending.push(Arc::clone(operator));
            }
        }
    }

    /// An operator has produced an event: consumers get it, operators of its level bind it, and it goes on to others.
    ///
    /// Only one thread runs the operator, so that its events come to each reader in their order.
    pub fn share(&self, operator: &Operator, token: Token, head: Head) {
        if let Some(producer) = self.graph().producer(token.ring()) {
            self.push_to_consumers(&producer.readers, &token, &head, Some(producer.level));
            if producer.readers.local.is_empty() && producer.readers.remote.is_empty() {
                self.store.forget(token);
                return;
            }
        }
        loop {
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
                break;
            };
            self.bind_locally(&mut state, &producer.readers, &token, head);
            let moved = self.send_on(&level, &producer.readers, &token);
            drop(state);
            if moved {
                level.movers.wake();
            }
            break;
        }
        self.store.forget(token);
    }

    /// The same for a supplier event, all under the lock under which it was taken: so two workers keep the order too.
    ///
    /// Locks are taken from the highest level down, in each its state before its MovingQ, and a consumer's queue last.
    fn share_taken(&self, graph: &Graph, level: &Level, state: &mut State, token: Token) {
        let Some(producer) = graph.producer(token.ring()) else {
            self.store.forget(token);
            return;
        };
        let Source::Stream(stream) = &producer.source else {
            self.store.forget(token);
            return;
        };
        if producer.level != level.number {
            // Its stream is of another level now, where its readers are.
            self.forward(graph, stream, producer.level, token);
            return;
        }
        let head = *self.store.read(&token).head;
        stream.book.queue.end(Fate::Used);
        self.push_to_consumers(&producer.readers, &token, &head, None);
        self.bind_locally(state, &producer.readers, &token, head);
        if self.send_on(level, &producer.readers, &token) {
            level.movers.wake();
        }
        self.store.forget(token);
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

    /// Gives an event to the movers, if operators of lower levels read it; whether they do.
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

impl Seat<'_> {
    fn is_over(&self) -> bool {
        self.shared.is_stopping() || self.level.ending.load(Ordering::SeqCst)
    }

    fn track(&self) -> &Track {
        &self.level.tracks[self.number]
    }

    /// A worker's life.
    pub fn work(&self) {
        let level = self.level;
        let mut policy = self.adopt();
        let mut share = policy.share.unwrap_or(0);
        let mut busy = Busy::default();
        busy.begin(share, monotonic());
        let mut done: Option<Arc<Operator>> = None;
        loop {
            let job = self.next_job(done.take(), &mut policy);
            match job {
                Job::Run(operator, marks) => {
                    let ended = self.run(&operator, marks);
                    done = Some(operator);
                    self.rest(&mut busy, policy, ended);
                }
                Job::Again => {}
                Job::Nothing => {
                    let seen = level.workers.enlist();
                    if self.is_over() {
                        level.workers.delist();
                        return;
                    }
                    if self.has_work() {
                        level.workers.delist();
                        continue;
                    }
                    self.track().note(monotonic(), What::Sleep, 0);
                    level.workers.sleep(seen, None);
                    let now = monotonic();
                    share = policy.share.unwrap_or(0);
                    busy.begin(share, now);
                    self.track().note(now, What::Wake, 0);
                }
            }
            if self.is_over() && done.is_none() {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        let state = self.level.state.lock();
        let graph = self.shared.graph();
        let has_input = |place: &Place| has_input(place, &state);
        !state.pending.is_empty() || (state.backlog == 0 && graph.place(self.level.number).is_some_and(has_input))
    }

    /// An operator that was run is free again, at another level, to which it was moved meanwhile.
    fn put_back(&self, operator: Arc<Operator>) {
        loop {
            // The level first: a graph that is looked at later has it.
            let number = operator.level.load(Ordering::SeqCst);
            let place = self.shared.graph().place(number).cloned();
            let Some(place) = place else { continue };
            let mut state = place.level.state.lock();
            if operator.level.load(Ordering::SeqCst) == number {
                free(&mut state, operator);
                drop(state);
                place.level.workers.wake();
                return;
            }
        }
    }

    /// What to do next, after the operator that was run last is free again.
    fn next_job(&self, done: Option<Arc<Operator>>, policy: &mut LevelPolicy) -> Job {
        let (shared, level) = (self.shared, self.level);
        let now = now();
        let mut state = level.state.lock();
        if let Some(operator) = done {
            if operator.level.load(Ordering::SeqCst) == level.number {
                free(&mut state, operator);
            } else {
                drop(state);
                self.put_back(operator);
                state = level.state.lock();
            }
            level.busy.fetch_sub(1, Ordering::SeqCst);
        }
        let state = &mut *state;
        if self.is_over() {
            return Job::Nothing;
        }
        let graph = shared.graph();
        let Some(place) = graph.place(level.number) else {
            return Job::Nothing;
        };
        if place.policy != *policy {
            *policy = place.policy;
            adopt_anew(policy.worker);
        }
        let job = match state.pending.pop() {
            Some(operator) => self.invoke(state, operator, now),
            None if state.backlog == 0 => match pop_input(place, state) {
                Some(token) => {
                    self.track().note(monotonic(), What::Take, token.ring());
                    shared.share_taken(&graph, level, state, token);
                    // What it made ready is this worker's to run, and the next event's turn is after that.
                    match state.pending.pop() {
                        Some(operator) => self.invoke(state, operator, now),
                        None => Job::Again,
                    }
                }
                None => Job::Nothing,
            },
            None => Job::Nothing,
        };
        // Who takes something and leaves something passes the word on, if another would come before it is done by itself.
        if let Job::Run(operator, _) = &job {
            let taken = if state.backlog == 0 {
                input_length(place, state)
            } else {
                0
            };
            let left = (state.pending.len() + taken) as u64;
            if left > 0 && operator.usual.load(Ordering::Relaxed).saturating_mul(left + 1) > WAKING {
                level.workers.wake();
            }
        }
        job
    }

    /// An operator's turn: its inputs are judged, and it runs or lets go of some.
    fn invoke(&self, state: &mut State, operator: Arc<Operator>, now: i64) -> Job {
        let (shared, level) = (self.shared, self.level);
        let book = &operator.book;
        // SAFETY: the operator was in this level's PendingQ, so that this is its level, which is locked.
        let node = unsafe { operator.node(state) };
        let mut found = Found::default();
        // SAFETY: it was in the PendingQ, so that no worker runs it; `running` keeps it out until this one is done.
        let instance = unsafe { operator.instance() };
        let marks = node.binding.invoke(
            now,
            &mut instance.inputs,
            &mut found,
            &mut |edge: usize, bound: Bound, fate| {
                shared.ended(&operator, edge, bound.token, fate);
            },
        );
        book.invoked.add(1);
        book.stale.add(found.stale);
        book.relative.add(found.relative);
        let waits = node.binding.waiting() > 0;
        if !waits {
            state.backlog -= 1;
        }
        match marks {
            Some(marks) => {
                node.running = true;
                level.busy.fetch_add(1, Ordering::SeqCst);
                Job::Run(operator, marks)
            }
            None => {
                self.track().note(monotonic(), What::Shed, operator.ring);
                if waits {
                    state.pending.push(operator);
                }
                Job::Again
            }
        }
    }

    /// Runs an operator; when it returned.
    fn run(&self, operator: &Operator, marks: u8) -> u64 {
        let (shared, working) = (self.shared, &self.level.workings[self.number]);
        // SAFETY: `running` was set for this worker under the level's lock, and is reset only when it is done.
        let instance = unsafe { operator.instance() };
        let begun = monotonic();
        self.track().note(begun, What::Begin, operator.ring);
        working.operator.store(operator.ring, Ordering::Relaxed);
        working.since.store(begun, Ordering::Release);
        let share = &mut |token, head| shared.share(operator, token, head);
        let outcome = instance.run(&shared.store, &operator.book, marks, share);
        working.since.store(0, Ordering::Release);
        let ended = monotonic();
        self.track().note(ended, What::End, operator.ring);
        operator.run_times.record(ended - begun);
        // Nobody else runs it now.
        let usual = operator.usual.load(Ordering::Relaxed);
        operator
            .usual
            .store((7 * usual + (ended - begun)) / 8, Ordering::Relaxed);
        if let Err(trouble) = outcome {
            *operator.trouble.lock() = Some(trouble.to_string());
        }
        ended
    }

    /// Leaves time for threads that are not real-time.
    fn rest(&self, busy: &mut Busy, policy: LevelPolicy, mut now: u64) {
        let Some(share) = policy.share else { return };
        while let Some(until) = busy.account(share, now) {
            if self.is_over() {
                return;
            }
            self.track().note(now, What::Pause, 0);
            self.level.pauses.add(1);
            sleep_until(until);
            now = monotonic();
            busy.begin(share, now);
        }
    }

    /// A mover's life.
    pub fn move_on(&self) {
        let (shared, level) = (self.shared, self.level);
        let mut policy = self.adopt();
        while !self.is_over() {
            let mut moving = level.moving.lock();
            let graph = shared.graph();
            if let Some(place) = graph.place(level.number)
                && place.policy != policy
            {
                policy = place.policy;
                adopt_anew(policy.mover);
            }
            if let Some((reader, token)) = moving.pop() {
                self.track().note(monotonic(), What::Move, reader.operator.ring);
                // A change of levels holds this MovingQ's lock, so that the operator stays where it is.
                let Some(place) = graph.place(reader.operator.level.load(Ordering::SeqCst)) else {
                    shared.ended(&reader.operator, reader.edge, token, Fate::Shed);
                    continue;
                };
                let destination = &place.level;
                let head = *shared.store.read(&token).head;
                // Under both locks, so that another mover can't overtake on the same edge.
                shared.bind(&mut destination.state.lock(), &reader, token, head);
                drop(moving);
                destination.workers.wake();
                continue;
            }
            drop(moving);
            drop(graph);
            let seen = level.movers.enlist();
            if self.is_over() || !level.moving.lock().is_empty() {
                level.movers.delist();
                continue;
            }
            level.movers.sleep(seen, None);
        }
    }

    /// Becomes what the thread is to be. The probe has shown that it may; if it may not now, the thread runs as it is.
    fn adopt(&self) -> LevelPolicy {
        let plain = policies(1, false, None)[0];
        let graph = self.shared.graph();
        let policy = graph.place(self.level.number).map_or(plain, |place| place.policy);
        let _ = adopt(if self.is_worker { policy.worker } else { policy.mover });
        policy
    }
}
