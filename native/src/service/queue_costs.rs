//! What the queues cost, as the engine uses them: for `bench/cpep/run_6.py`, the paper's Table 2.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::service::queues::{Edge, InputQ, MovingQ, PendingQ, Pushed};
use crate::service::scheduling::monotonic;
use crate::service::store::{Head, Store, Token};
use crate::service::sync::PiMutex;

/// Nanoseconds an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// To put in.
    pub enqueue: f64,
    /// To take out.
    pub dequeue: f64,
}

/// Events at a time in a queue.
const BATCH: usize = 256;

/// A queue of tokens, as any thread uses it.
trait Queue: Sync {
    /// Puts a token in; the token, if there was no room.
    fn put(&self, token: Token) -> Option<Token>;
    fn take(&self) -> Option<Token>;
}

/// Who takes has the level's lock, which it takes anyhow, for its PendingQ too; so that counts only where two take.
struct Input(InputQ, Option<PiMutex<()>>);
/// Readers are shared, as the engine's operators are.
struct Moving(PiMutex<MovingQ<Arc<usize>>>, usize);

impl Queue for Input {
    #[inline]
    fn put(&self, token: Token) -> Option<Token> {
        match self.0.push(token, false) {
            Pushed::Waits => None,
            Pushed::Replaced(token) | Pushed::Refused(token) => Some(token),
        }
    }

    #[inline]
    fn take(&self) -> Option<Token> {
        let _locked = self.1.as_ref().map(PiMutex::lock);
        // SAFETY: one thread takes, or each has the lock.
        unsafe { self.0.pop() }
    }
}

impl Queue for Moving {
    #[inline]
    fn put(&self, token: Token) -> Option<Token> {
        self.0.lock().push(0, self.1, token)
    }

    #[inline]
    fn take(&self) -> Option<Token> {
        self.0.lock().pop().map(|(_, token)| token)
    }
}

/// The PendingQ holds operators; here the tokens are kept aside and count as such.
struct Pending(PiMutex<(PendingQ<Arc<usize>>, Vec<Token>)>, Arc<usize>);

impl Queue for Pending {
    #[inline]
    fn put(&self, token: Token) -> Option<Token> {
        let mut state = self.0.lock();
        state.0.push(Arc::clone(&self.1));
        state.1.push(token);
        None
    }

    #[inline]
    fn take(&self) -> Option<Token> {
        let mut state = self.0.lock();
        state.0.pop()?;
        state.1.pop()
    }
}

fn tokens(store: &Store, count: usize) -> Vec<Token> {
    let head = Head {
        begin: 0,
        end: 0,
        pushed: 0,
        marks: 0,
    };
    (0..count).filter_map(|_| Some(store.claim(0)?.publish(head))).collect()
}

fn alone(queue: &impl Queue, store: &Store, operations: usize) -> Cost {
    let mut held = tokens(store, BATCH);
    let mut taken = Vec::with_capacity(BATCH);
    let (mut enqueue, mut dequeue, mut count) = (0, 0, 0);
    while count < operations {
        let start = monotonic();
        while let Some(token) = held.pop() {
            black_box(queue.put(token));
        }
        let middle = monotonic();
        while let Some(token) = queue.take() {
            taken.push(token);
        }
        let end = monotonic();
        enqueue += middle - start;
        dequeue += end - middle;
        count += taken.len().max(1);
        std::mem::swap(&mut held, &mut taken);
    }
    let each = |total: u64| total as f64 / count as f64;
    Cost {
        enqueue: each(enqueue),
        dequeue: each(dequeue),
    }
}

/// Two threads put in and two take out, all at once; an operation's time includes the waits for each other.
fn contended(queue: &impl Queue, store: &Store, operations: usize) -> Cost {
    let (enqueue, dequeue) = (AtomicU64::new(0), AtomicU64::new(0));
    let taken = AtomicU64::new(0);
    let each = operations / 2;
    let total = 2 * each as u64;
    thread::scope(|scope| {
        for _ in 0..2 {
            // Each supplier has tokens of its own, taken anew: what is measured is the queue.
            scope.spawn(|| {
                let mut put = 0;
                while put < each {
                    let mut held = tokens(store, BATCH.min(each - put));
                    if held.is_empty() {
                        thread::yield_now();
                    }
                    put += held.len();
                    let start = monotonic();
                    while let Some(token) = held.pop() {
                        let mut left = queue.put(token);
                        while let Some(token) = left.take() {
                            thread::yield_now();
                            left = queue.put(token);
                        }
                    }
                    enqueue.fetch_add(monotonic() - start, Ordering::Relaxed);
                }
            });
            scope.spawn(|| {
                while taken.load(Ordering::Relaxed) < total {
                    let mut found = Vec::with_capacity(BATCH);
                    let start = monotonic();
                    while found.len() < BATCH {
                        match queue.take() {
                            Some(token) => found.push(token),
                            None => break,
                        }
                    }
                    if found.is_empty() {
                        thread::yield_now();
                        continue;
                    }
                    dequeue.fetch_add(monotonic() - start, Ordering::Relaxed);
                    taken.fetch_add(found.len() as u64, Ordering::Relaxed);
                    found.into_iter().for_each(|token| store.forget(token));
                }
            });
        }
    });
    let each = |total_ns: AtomicU64| total_ns.into_inner() as f64 / total as f64;
    Cost {
        enqueue: each(enqueue),
        dequeue: each(dequeue),
    }
}

/// The costs of (InputQ, PendingQ, MovingQ), uncontended and with two threads at each end.
pub fn measure(operations: usize) -> Vec<(&'static str, Cost, Cost)> {
    const ROOM: usize = 4 * BATCH;
    let store = || Store::new([(ROOM, ROOM)]);
    let moving = || {
        let mut queue = MovingQ::new(1, &[ROOM], vec![0]);
        queue.set_edge(0, Edge::new(Arc::new(0), 0, ROOM));
        Moving(PiMutex::new(queue), ROOM)
    };
    let pending = || {
        Pending(
            PiMutex::new((PendingQ::new(ROOM), Vec::with_capacity(ROOM))),
            Arc::new(0),
        )
    };
    let input = |lock| Input(InputQ::new(ROOM, 1), lock);
    vec![
        (
            "InputQ",
            alone(&input(None), &store(), operations),
            contended(&input(Some(PiMutex::default())), &store(), operations),
        ),
        (
            "PendingQ",
            alone(&pending(), &store(), operations),
            contended(&pending(), &store(), operations),
        ),
        (
            "MovingQ",
            alone(&moving(), &store(), operations),
            contended(&moving(), &store(), operations),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_queue_is_measured() {
        let found = measure(2_000);
        assert_eq!(found.len(), 3);
        for (name, alone, contended) in found {
            for cost in [alone.enqueue, alone.dequeue, contended.enqueue, contended.dequeue] {
                assert!(cost > 0.0 && cost.is_finite(), "{name} {cost}");
            }
        }
    }
}
