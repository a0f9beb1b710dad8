//! A bounded queue of numbers in which nobody ever waits for another: what the InputQ is made of.

use crate::service::atomics::{AtomicU32, AtomicUsize, Ordering};

/// Keeps what different threads write often on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Apart<T>(T);

/// A bounded queue of numbers that any threads push and one at a time pops, in which nobody ever waits for another.
///
/// Each place has a turn: place p takes its first push at turn p and is ready to be popped at p + 1. A push that was
/// interrupted midway hides what was pushed behind it, until it is complete; whoever pops meanwhile finds the queue empty
/// instead of waiting, as it may be what keeps the other from going on. Those who pop have a lock for other reasons, so that
/// popping needs no atomic operation that others would have to wait for.
#[derive(Debug)]
pub(crate) struct Numbers {
    places: Box<[(AtomicUsize, AtomicU32)]>,
    mask: usize,
    tail: Apart<AtomicUsize>,
    head: Apart<AtomicUsize>,
}

impl Numbers {
    /// With room for at least so many.
    pub(crate) fn new(room: usize) -> Numbers {
        let room = room.next_power_of_two();
        Numbers {
            places: (0..room)
                .map(|turn| (AtomicUsize::new(turn), AtomicU32::new(0)))
                .collect(),
            mask: room - 1,
            tail: Apart(AtomicUsize::new(0)),
            head: Apart(AtomicUsize::new(0)),
        }
    }

    /// How many it has room for.
    pub(crate) fn room(&self) -> usize {
        self.places.len()
    }

    /// False if it is full.
    #[inline]
    pub(crate) fn push(&self, number: u32) -> bool {
        let mut tail = self.tail.0.load(Ordering::Relaxed);
        loop {
            let (turn, place) = &self.places[tail & self.mask];
            let ahead = turn.load(Ordering::Acquire).wrapping_sub(tail) as isize;
            if ahead < 0 {
                return false;
            }
            let next = tail.wrapping_add(1);
            let taken = ahead == 0
                && self
                    .tail
                    .0
                    .compare_exchange_weak(tail, next, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if taken {
                place.store(number, Ordering::Relaxed);
                turn.store(next, Ordering::Release);
                return true;
            }
            tail = self.tail.0.load(Ordering::Relaxed);
        }
    }

    /// The next number.
    ///
    /// # Safety
    /// No other thread pops at the same time, and what the last one did is seen here, as by a lock that both had.
    #[inline]
    pub(crate) unsafe fn pop(&self) -> Option<u32> {
        let head = self.head.0.load(Ordering::Relaxed);
        let next = head.wrapping_add(1);
        let (turn, place) = &self.places[head & self.mask];
        if turn.load(Ordering::Acquire) != next {
            return None;
        }
        let number = place.load(Ordering::Relaxed);
        turn.store(head.wrapping_add(self.mask + 1), Ordering::Release);
        self.head.0.store(next, Ordering::Relaxed);
        Some(number)
    }

    /// Whether there is nothing to pop now.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let head = self.head.0.load(Ordering::SeqCst);
        let turn = self.places[head & self.mask].0.load(Ordering::SeqCst);
        (turn.wrapping_sub(head.wrapping_add(1)) as isize) < 0
    }

    /// How many there are, about.
    pub(crate) fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Relaxed);
        self.tail.0.load(Ordering::Relaxed).saturating_sub(head)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_popped_once_and_those_of_a_thread_in_order() {
        let queue = Numbers::new(8);
        let each = 30_000_u32;
        let (popped, turn) = (AtomicU32::new(0), std::sync::Mutex::new(()));
        let found: Vec<Vec<u32>> = std::thread::scope(|scope| {
            for thread in 0..2 {
                let queue = &queue;
                scope.spawn(move || {
                    for turn in 0..each {
                        while !queue.push(thread * each + turn) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut found = Vec::new();
                        while popped.load(Ordering::Relaxed) < 2 * each {
                            let one_at_a_time = turn.lock().unwrap();
                            // SAFETY: under the lock.
                            let next = unsafe { queue.pop() };
                            drop(one_at_a_time);
                            match next {
                                Some(number) => {
                                    popped.fetch_add(1, Ordering::Relaxed);
                                    found.push(number);
                                }
                                None => std::thread::yield_now(),
                            }
                        }
                        found
                    })
                })
                .collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        for numbers in &found {
            for thread in 0..2 {
                let own: Vec<&u32> = numbers.iter().filter(|number| **number / each == thread).collect();
                assert!(own.is_sorted());
            }
        }
        let mut all: Vec<u32> = found.concat();
        all.sort_unstable();
        assert_eq!(all, (0..2 * each).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn loom_what_is_pushed_is_popped_once() {
        loom::model(|| {
            let queue = Arc::new(Numbers::new(2));
            let pushers: Vec<_> = [7, 9]
                .map(|number| {
                    let queue = queue.clone();
                    thread::spawn(move || assert!(queue.push(number)))
                })
                .into();
            // SAFETY: only this thread pops.
            let pop = || unsafe { queue.pop() };
            let early = pop();
            pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
            let mut found: Vec<u32> = early.into_iter().chain(std::iter::from_fn(pop)).collect();
            found.sort_unstable();
            assert_eq!(found, [7, 9]);
        });
    }
}
