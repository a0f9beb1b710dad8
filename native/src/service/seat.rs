//! The threads of a level: its workers run the level's operators, its movers share with lower levels (paper, section 4.1).
//!
//! A worker takes pending operators first, and a new supplier event only when no operator of the level waits to run. It pushes to
//! consumers itself. One thread at a time runs an operator, so that its outputs keep their order.
//!
//! Sharing comes after all processing of the level, so a worker that finds nothing to run moves what it has to share itself,
//! before it sleeps: waking a mover would take far longer than the moving. A mover is woken where the worker goes on.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::service::binding::{Bound, Found};
use crate::service::books::Fate;
use crate::service::engine::Shared;
use crate::service::graph::Place;
use crate::service::parts::Operator;
use crate::service::processor::{Level, State, has_input, input_length, pop_input};
use crate::service::recorder::{Track, What};
use crate::service::rests::{Account, Used};
use crate::service::scheduling::{LevelPolicy, adopt, adopt_anew, monotonic, now, policies};
use crate::service::sync::thread;
use crate::service::threads::PATIENCE;

/// So long it takes until another worker runs that is woken, on a core that slept, and what it costs; in nanoseconds.
const WAKING: u64 = 100_000;

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
    /// Since when the level's MovingQ has something of this worker's that nobody was woken for, in nanoseconds of the monotonic
    /// clock.
    pub to_move: Cell<Option<u64>>,
}

enum Job {
    /// An operator, ready to run with these labels.
    Run(Arc<Operator>, u8),
    /// A supplier event was taken, or an operator let go of its inputs: look again.
    Again,
    Nothing,
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
        level.workings[self.number].thread.store(thread(), Ordering::Relaxed);
        let mut share = policy.share.unwrap_or(0);
        let mut used = Used::default();
        used.begin(share, monotonic());
        let mut done: Option<Arc<Operator>> = None;
        loop {
            let job = self.next_job(done.take(), &mut policy);
            match job {
                Job::Run(operator, marks) => {
                    let ended = self.run(&operator, marks, policy);
                    done = Some(operator);
                    self.rest(&mut used, policy, ended);
                }
                Job::Again => {}
                Job::Nothing if self.to_move.get().is_some() => match self.move_one() {
                    Some(begun) => self.rest(&mut used, policy, begun),
                    None => self.to_move.set(None),
                },
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
                    used.begin(share, now);
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
            // What it would get back is not its policy any more.
            shared.rests.end();
            adopt_anew(policy.worker);
        }
        let job = match state.pending.pop() {
            Some(operator) => self.invoke(state, operator, now),
            None if state.backlog == 0 => match pop_input(place, state) {
                Some(token) => {
                    self.track().note(monotonic(), What::Take, token.ring());
                    if shared.share_taken(&graph, level, state, token) {
                        self.is_to_move();
                    }
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
            let usual = operator.usual.load(Ordering::Relaxed);
            if left > 0 && usual.saturating_mul(left + 1) > WAKING {
                level.workers.wake();
            }
            // What is to be moved does not wait longer than a mover needs to come.
            if let Some(since) = self.to_move.get()
                && monotonic().saturating_sub(since).saturating_add(usual) > WAKING
            {
                self.leave_to_movers();
            }
        }
        job
    }

    /// The MovingQ has something of this worker's.
    fn is_to_move(&self) {
        if self.to_move.get().is_none() {
            self.to_move.set(Some(monotonic()));
        }
    }

    fn leave_to_movers(&self) {
        if self.to_move.take().is_some() {
            self.level.movers.wake();
        }
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
    fn run(&self, operator: &Operator, marks: u8, policy: LevelPolicy) -> u64 {
        let (shared, working) = (self.shared, &self.level.workings[self.number]);
        // SAFETY: `running` was set for this worker under the level's lock, and is reset only when it is done.
        let instance = unsafe { operator.instance() };
        let begun = monotonic();
        self.track().note(begun, What::Begin, operator.ring);
        working.operator.store(operator.ring, Ordering::Relaxed);
        working.since.store(begun, Ordering::Release);
        let share = &mut |token, head| {
            if shared.share(operator, token, head, self.level.number) {
                self.is_to_move();
            }
        };
        let outcome = instance.run(&shared.store, &operator.book, marks, share);
        working.since.store(0, Ordering::Release);
        let ended = monotonic();
        if ended - begun > PATIENCE && working.was_demoted() {
            adopt_anew(policy.worker);
        }
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

    /// Leaves time for threads that are not real-time, between one thing and the next.
    fn rest(&self, used: &mut Used, policy: LevelPolicy, now: u64) {
        let Some(share) = policy.share else { return };
        let own = if self.is_worker { policy.worker } else { policy.mover };
        let account = used.account(&self.shared.rests, share, own, now);
        if account == Account::Spent {
            self.track().note(now, What::Pause, 0);
            self.level.pauses.add(1);
        }
        if account != Account::Within {
            // Others may have the core soon, and what is to be moved does not wait for them.
            self.leave_to_movers();
        }
    }

    /// Moves the event whose turn it is to where it goes; when it began, if there was one.
    fn move_one(&self) -> Option<u64> {
        let shared = self.shared;
        let mut moving = self.level.moving.lock();
        let (reader, token) = moving.pop()?;
        let now = monotonic();
        self.track().note(now, What::Move, reader.operator.ring);
        // A change of levels holds this MovingQ's lock, so that the operator stays where it is.
        let graph = shared.graph();
        let Some(place) = graph.place(reader.operator.level.load(Ordering::SeqCst)) else {
            shared.ended(&reader.operator, reader.edge, token, Fate::Shed);
            return Some(now);
        };
        let destination = &place.level;
        let head = *shared.store.read(&token).head;
        // Under both locks, so that nobody else who moves can overtake on the same edge.
        let is_new = shared.bind(&mut destination.state.lock(), &reader, token, head);
        drop(moving);
        if is_new {
            destination.workers.wake();
        }
        Some(now)
    }

    /// A mover's life.
    pub fn move_on(&self) {
        let (shared, level) = (self.shared, self.level);
        let mut policy = self.adopt();
        let mut used = Used::default();
        used.begin(policy.share.unwrap_or(0), monotonic());
        while !self.is_over() {
            let graph = shared.graph();
            if let Some(place) = graph.place(level.number)
                && place.policy != policy
            {
                policy = place.policy;
                shared.rests.end();
                adopt_anew(policy.mover);
            }
            drop(graph);
            if let Some(begun) = self.move_one() {
                self.rest(&mut used, policy, begun);
                continue;
            }
            let seen = level.movers.enlist();
            if self.is_over() || !level.moving.lock().is_empty() {
                level.movers.delist();
                continue;
            }
            level.movers.sleep(seen, None);
            used.begin(policy.share.unwrap_or(0), monotonic());
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
