//! The EventProcessor of a level: its workers run the level's operators, its movers share with lower levels (paper, section 4.1).
//!
//! A worker takes pending operators first, and a new supplier event only when no operator of the level waits to run. It pushes to
//! consumers itself. One thread at a time runs an operator, so that its outputs keep their order.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::service::binding::{Binding, Bound, Found};
use crate::service::books::Fate;
use crate::service::engine::Shared;
use crate::service::instance::Context;
use crate::service::queues::{InputQ, MovingQ, PendingQ};
use crate::service::recorder::{Track, What};
use crate::service::scheduling::{Busy, LevelPolicy, adopt, monotonic, now, sleep_until};
use crate::service::store::{Head, Token};
use crate::service::sync::{PiMutex, Sleepers};
use crate::service::topology::Reader;
use crate::service::virtual_clock::judged_at_push;

/// An operator as its level sees it.
#[derive(Debug)]
pub struct Node {
    /// Its inputs.
    pub binding: Binding,
    /// Whether a worker runs it now.
    pub running: bool,
}

/// What the workers of a level share.
#[derive(Debug)]
pub struct State {
    /// Operators that are ready, by their positions; those that run are not in it.
    pub pending: PendingQ,
    /// How many operators have something waiting, whether they run now or not.
    pub backlog: usize,
    /// The level's operators.
    pub nodes: Vec<Node>,
}

/// One level.
#[derive(Debug)]
pub struct Level {
    /// Its rank in the plan.
    pub rank: usize,
    /// How its threads run.
    pub policy: LevelPolicy,
    /// Supplier events.
    pub input: InputQ,
    /// Operators.
    pub state: PiMutex<State>,
    /// Where workers wait.
    pub workers: Sleepers,
    /// Events for lower levels.
    pub moving: PiMutex<MovingQ>,
    /// Where movers wait.
    pub movers: Sleepers,
    /// How many threads have something in hand.
    pub busy: AtomicUsize,
}

/// What a worker runs now, for the watchdog.
#[derive(Debug, Default)]
pub struct Working {
    /// The operator's position.
    pub operator: AtomicUsize,
    /// Since when, in nanoseconds of the monotonic clock; 0 if it runs none.
    pub since: AtomicU64,
}

/// What a worker or mover goes by.
pub struct Seat<'s> {
    /// The engine.
    pub shared: &'s Shared,
    /// The place of its level among those that run.
    pub level: usize,
    /// Its track of the flight recorder.
    pub track: &'s Track,
    /// What the watchdog looks at.
    pub working: &'s Working,
}

enum Job {
    /// An operator, ready to run with these labels.
    Run(usize, u8),
    /// A supplier event was taken, or an operator let go of its inputs: look again.
    Again,
    Nothing,
}

impl Shared {
    /// Books an event that an operator let go of.
    fn ended(&self, operator: usize, edge: usize, token: Token, fate: Fate) {
        self.books.operators[operator].edges[edge].end(fate);
        self.store.release(token, fate);
    }

    /// Binds an event at an operator of a locked level.
    fn bind(&self, state: &mut State, reader: Reader, token: Token, head: Head) {
        let node = &mut state.nodes[self.places[reader.operator].1];
        let had = node.binding.waiting() > 0;
        let bound = Bound { token, head };
        node.binding
            .bind(reader.edge, bound, &mut |edge: usize, bound: Bound, fate| {
                self.ended(reader.operator, edge, bound.token, fate);
            });
        if !had && node.binding.waiting() > 0 {
            state.backlog += 1;
            if !node.running {
                state.pending.push(reader.operator);
            }
        }
    }

    /// An operator has produced an event: consumers get it, operators of its level bind it, and it goes on to others.
    ///
    /// Only one thread runs the operator, so that its events come to each reader in their order.
    pub fn share(&self, token: Token, head: Head) {
        let readers = &self.topology.readers[token.ring()];
        for consumer in &readers.consumers {
            self.push_to_consumer(*consumer, &token, &head);
        }
        let level = &self.levels[self.level_places[self.spec.level_of(token.ring())]];
        if !readers.local.is_empty() {
            self.bind_locally(&mut level.state.lock(), &token, head);
        }
        self.send_on(level, &token);
        self.store.forget(token);
    }

    /// The same for a supplier event, all under the lock under which it was taken: so two workers keep the order too.
    ///
    /// Locks are taken from the highest level down, in each its state before its MovingQ, and a consumer's queue last.
    fn share_taken(&self, level: &Level, state: &mut State, token: Token) {
        let head = *self.store.read(&token).head;
        self.books.streams[token.ring()].queue.end(Fate::Used);
        for consumer in &self.topology.readers[token.ring()].consumers {
            self.push_to_consumer(*consumer, &token, &head);
        }
        self.bind_locally(state, &token, head);
        self.send_on(level, &token);
        self.store.forget(token);
    }

    fn bind_locally(&self, state: &mut State, token: &Token, head: Head) {
        for reader in &self.topology.readers[token.ring()].local {
            self.books.operators[reader.operator].edges[reader.edge].came.add(1);
            self.bind(state, *reader, self.store.retain(token), head);
        }
    }

    /// Gives an event to the movers, if operators of lower levels read it.
    fn send_on(&self, level: &Level, token: &Token) {
        let readers = &self.topology.readers[token.ring()].remote;
        if readers.is_empty() {
            return;
        }
        let mut moving = level.moving.lock();
        for (reader, edge) in readers.iter().zip(&self.moving_edges[token.ring()]) {
            self.books.operators[reader.operator].edges[reader.edge].came.add(1);
            let room = self.spec.operators[reader.operator].depth;
            if let Some(older) = moving.push(*edge, room, self.store.retain(token)) {
                self.ended(reader.operator, reader.edge, older, Fate::Replaced);
            }
        }
        drop(moving);
        level.movers.wake();
    }

    fn push_to_consumer(&self, consumer: usize, token: &Token, head: &Head) {
        let book = &self.books.consumers[consumer];
        let spec = &self.spec.consumers[consumer];
        book.edge.came.add(1);
        let now = now();
        book.stale.add(u64::from(now >= head.end));
        let Some(marks) = judged_at_push(head, spec.stale, now) else {
            book.edge.end(Fate::Expired);
            self.store.release(self.store.retain(token), Fate::Expired);
            return;
        };
        let latency = monotonic().saturating_sub(head.pushed);
        self.latency[consumer].record(latency);
        self.level_latency[spec.level].record(latency);
        book.edge.end(Fate::Used);
        if let Some(oldest) = self.consumers[consumer].push(self.store.retain(token), marks) {
            book.lost.add(1);
            self.store.release(oldest, Fate::Used);
        }
    }

    /// Whether a level has nothing to do and nothing in hand.
    pub fn is_quiet(&self, level: &Level) -> bool {
        level.busy.load(Ordering::SeqCst) == 0 && level.input.is_empty() && level.moving.lock().is_empty() && {
            let state = level.state.lock();
            state.backlog == 0 && state.nodes.iter().all(|node| !node.running)
        }
    }
}

impl Seat<'_> {
    fn level(&self) -> &Level {
        &self.shared.levels[self.level]
    }

    /// A worker's life.
    pub fn work(&self) {
        let level = self.level();
        let share = level.policy.share.unwrap_or(0);
        let mut busy = Busy::default();
        busy.begin(share, monotonic());
        let mut done: Option<usize> = None;
        loop {
            let job = self.next_job(done.take());
            match job {
                Job::Run(operator, marks) => {
                    let ended = self.run(operator, marks);
                    done = Some(operator);
                    self.rest(&mut busy, ended);
                }
                Job::Again => {}
                Job::Nothing => {
                    let seen = level.workers.enlist();
                    if self.shared.is_stopping() {
                        level.workers.delist();
                        return;
                    }
                    if self.has_work() {
                        level.workers.delist();
                        continue;
                    }
                    self.track.note(monotonic(), What::Sleep, 0);
                    level.workers.sleep(seen, None);
                    let now = monotonic();
                    busy.begin(share, now);
                    self.track.note(now, What::Wake, 0);
                }
            }
            if self.shared.is_stopping() && done.is_none() {
                return;
            }
        }
    }

    fn has_work(&self) -> bool {
        let state = self.level().state.lock();
        !state.pending.is_empty() || (state.backlog == 0 && !self.level().input.is_empty())
    }

    /// What to do next, after the operator that was run last is free again.
    fn next_job(&self, done: Option<usize>) -> Job {
        let (shared, level) = (self.shared, self.level());
        let now = now();
        let mut state = level.state.lock();
        let state = &mut *state;
        if let Some(operator) = done {
            let node = &mut state.nodes[shared.places[operator].1];
            node.running = false;
            if node.binding.waiting() > 0 {
                state.pending.push(operator);
            }
            level.busy.fetch_sub(1, Ordering::SeqCst);
        }
        if shared.is_stopping() {
            return Job::Nothing;
        }
        let job = match state.pending.pop() {
            Some(operator) => self.invoke(state, operator, now),
            None if state.backlog == 0 => match level.input.pop() {
                Some(token) => {
                    self.track.note(monotonic(), What::Take, token.ring());
                    shared.share_taken(level, state, token);
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
        // Who takes something and leaves something passes the word on.
        let leaves = !state.pending.is_empty() || (state.backlog == 0 && !level.input.is_empty());
        if leaves && matches!(job, Job::Run(..)) {
            level.workers.wake();
        }
        job
    }

    /// An operator's turn: its inputs are judged, and it runs or lets go of some.
    fn invoke(&self, state: &mut State, operator: usize, now: i64) -> Job {
        let (shared, level) = (self.shared, self.level());
        let book = &shared.books.operators[operator];
        let node = &mut state.nodes[shared.places[operator].1];
        let mut found = Found::default();
        // SAFETY: it was in the PendingQ, so that no worker runs it; `running` keeps it out until this one is done.
        let instance = unsafe { &mut *shared.instances[operator].0.get() };
        let marks = node.binding.invoke(
            now,
            &mut instance.inputs,
            &mut found,
            &mut |edge: usize, bound: Bound, fate| {
                shared.ended(operator, edge, bound.token, fate);
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
                if waits {
                    state.pending.push(operator);
                }
                self.track.note(monotonic(), What::Shed, operator);
                Job::Again
            }
        }
    }

    /// Runs an operator; when it returned.
    fn run(&self, operator: usize, marks: u8) -> u64 {
        let shared = self.shared;
        let book = &shared.books.operators[operator];
        // SAFETY: `running` was set for this worker under the level's lock, and is reset only when it is done.
        let instance = unsafe { &mut *shared.instances[operator].0.get() };
        let context = Context {
            spec: &shared.spec,
            topology: &shared.topology,
            store: &shared.store,
        };
        let begun = monotonic();
        self.track.note(begun, What::Begin, operator);
        self.working.operator.store(operator, Ordering::Relaxed);
        self.working.since.store(begun, Ordering::Release);
        let outcome = instance.run(context, book, marks, &mut |token, head| shared.share(token, head));
        self.working.since.store(0, Ordering::Release);
        let ended = monotonic();
        self.track.note(ended, What::End, operator);
        shared.run_times[operator].record(ended - begun);
        if let Err(trouble) = outcome {
            *shared.troubles[operator].lock() = Some(trouble.to_string());
        }
        ended
    }

    /// Leaves time for threads that are not real-time.
    fn rest(&self, busy: &mut Busy, mut now: u64) {
        let Some(share) = self.level().policy.share else { return };
        while let Some(until) = busy.account(share, now) {
            if self.shared.is_stopping() {
                return;
            }
            self.track.note(now, What::Pause, 0);
            self.shared.pauses[self.level].add(1);
            sleep_until(until);
            now = monotonic();
            busy.begin(share, now);
        }
    }

    /// A mover's life.
    pub fn move_on(&self) {
        let (shared, level) = (self.shared, self.level());
        while !shared.is_stopping() {
            let mut moving = level.moving.lock();
            if let Some((reader, token)) = moving.pop() {
                self.track.note(monotonic(), What::Move, reader.operator);
                let destination = &shared.levels[shared.places[reader.operator].0];
                let head = *shared.store.read(&token).head;
                // Under both locks, so that another mover can't overtake on the same edge.
                shared.bind(&mut destination.state.lock(), reader, token, head);
                drop(moving);
                destination.workers.wake();
                continue;
            }
            drop(moving);
            let seen = level.movers.enlist();
            if shared.is_stopping() || !level.moving.lock().is_empty() {
                level.movers.delist();
                continue;
            }
            level.movers.sleep(seen, None);
        }
    }

    /// Becomes what the thread is to be; the reason if that is refused.
    pub fn adopt(&self, is_worker: bool) -> std::io::Result<()> {
        let policy = self.level().policy;
        adopt(if is_worker { policy.worker } else { policy.mover })
    }
}
