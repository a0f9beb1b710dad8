//! Locks and sleep for threads of different priorities: a mutex whose holder inherits the waiter's, and a place to wait.
//!
//! Both are futexes of this process. Uncontended, a lock is one compare-exchange each way, and waking nobody costs one load.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// The kernel's number of the calling thread, which is the word of a lock that it holds.
#[inline]
pub fn thread() -> u32 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    // SAFETY: returns a number.
    let found = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    THREAD.set(found);
    found
}

fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: *const libc::timespec) -> i32 {
    // SAFETY: the word outlives the call; the timeout is null or points to a timespec of the caller's.
    let status = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
        )
    };
    if status == -1 {
        // SAFETY: errno is the calling thread's own.
        unsafe { *libc::__errno_location() }
    } else {
        0
    }
}

/// How often a lock that is held is looked at again before the kernel is asked, which takes well below a microsecond.
const SPINS: u32 = 40;

/// A mutex with priority inheritance: who holds it runs at the priority of the most important one that waits.
#[derive(Debug, Default)]
pub struct PiMutex<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and the lock gives one guard at a time.
unsafe impl<T: Send> Sync for PiMutex<T> {}

/// Holds a PiMutex.
#[derive(Debug)]
pub struct PiGuard<'m, T> {
    mutex: &'m PiMutex<T>,
}

impl<T> PiMutex<T> {
    /// Free.
    pub fn new(value: T) -> PiMutex<T> {
        PiMutex {
            word: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for it. A thread that holds it already would wait forever.
    #[inline]
    pub fn lock(&self) -> PiGuard<'_, T> {
        let taken = self
            .word
            .compare_exchange(0, thread(), Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            self.wait();
        }
        PiGuard { mutex: self }
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        let taken = self
            .word
            .compare_exchange(0, thread(), Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| PiGuard { mutex: self })
    }

    #[cold]
    fn wait(&self) {
        // Critical sections are shorter than a call of the kernel, so a holder on another core is mostly done at once.
        for _ in 0..SPINS {
            std::hint::spin_loop();
            let is_free = self.word.load(Ordering::Relaxed) == 0;
            let word = &self.word;
            if is_free
                && word
                    .compare_exchange(0, thread(), Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
        // The kernel makes the word ours before it returns, which orders us behind the unlock. It says EINTR or EAGAIN for
        // passing reasons; others (a holder that died) can't come about, as threads end without locks.
        while futex(&self.word, libc::FUTEX_LOCK_PI, 0, std::ptr::null()) != 0 {
            std::thread::yield_now();
        }
    }

    /// The value, of who has the mutex to itself.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Deref for PiGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for PiGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for PiGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let word = &self.mutex.word;
        if word
            .compare_exchange(thread(), 0, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            // Someone waits: the kernel gives it to the most important one.
            futex(word, libc::FUTEX_UNLOCK_PI, 0, std::ptr::null());
        }
    }
}

/// Where threads wait for work, and are woken one at a time.
///
/// A waiter first says that it will wait (`enlist`), then looks for work once more, then waits; who brings work looks for
/// waiters after it brought it. There is a full fence between the two steps of each, so that one of them sees the other.
#[derive(Debug, Default)]
pub struct Sleepers {
    idle: AtomicU32,
    signal: AtomicU32,
}

impl Sleepers {
    /// Says that the caller is about to wait; what it saw is for `sleep`. Look for work once more after this.
    pub fn enlist(&self) -> u32 {
        self.idle.fetch_add(1, Ordering::SeqCst);
        let seen = self.signal.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        seen
    }

    /// There was work after all.
    pub fn delist(&self) {
        self.idle.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until someone wakes, or has woken since `enlist`.
    pub fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        let span = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().min(1 << 30) as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let place = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        futex(&self.signal, libc::FUTEX_WAIT, seen, place);
        self.delist();
    }

    /// How often someone was called.
    #[cfg(test)]
    pub fn calls(&self) -> u32 {
        self.signal.load(Ordering::SeqCst)
    }

    /// Whether someone waits.
    #[inline]
    pub fn has_idle(&self) -> bool {
        self.idle.load(Ordering::SeqCst) > 0
    }

    /// Wakes one, if someone waits. Work must be there before.
    #[inline]
    pub fn wake(&self) {
        // The work may have been brought by a plain store, which must not come after the look for waiters.
        fence(Ordering::SeqCst);
        if self.has_idle() {
            self.signal.fetch_add(1, Ordering::SeqCst);
            futex(&self.signal, libc::FUTEX_WAKE, 1, std::ptr::null());
        }
    }

    /// Wakes all.
    pub fn wake_all(&self) {
        self.signal.fetch_add(1, Ordering::SeqCst);
        futex(&self.signal, libc::FUTEX_WAKE, i32::MAX as u32, std::ptr::null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn only_one_holds_it() {
        let mutex = Arc::new(PiMutex::new(0_u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mutex = mutex.clone();
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut value = mutex.lock();
                        let seen = *value;
                        std::hint::black_box(seen);
                        *value = seen + 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*mutex.lock(), 80_000);
    }

    #[test]
    fn what_is_held_is_not_taken() {
        let mutex = PiMutex::new(1);
        let guard = mutex.lock();
        std::thread::scope(|scope| scope.spawn(|| assert!(mutex.try_lock().is_none())).join().unwrap());
        drop(guard);
        *mutex.try_lock().unwrap() += 1;
        assert_eq!(*mutex.lock(), 2);
    }

    /// An unimportant thread holds the lock and needs the CPU to let go of it; threads of middle importance take all cores;
    /// an important one waits. With inheritance the holder runs at the important one's priority.
    #[test]
    fn a_holder_inherits_the_priority_of_who_waits() {
        use crate::service::scheduling::{Policy, adopt, clock};
        if let Err(reason) = crate::machine::probe().sched_rr {
            eprintln!("skipped: needs the privilege to use SCHED_RR ({reason})");
            return;
        }
        let (mutex, held, freed) = (PiMutex::new(()), AtomicBool::new(false), AtomicBool::new(false));
        let hogs_saw_it: Vec<bool> = std::thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = mutex.lock();
                held.store(true, Ordering::SeqCst);
                // By CPU time: on its own it would get a twentieth of the time beside the hogs.
                let start = clock(libc::CLOCK_THREAD_CPUTIME_ID);
                while clock(libc::CLOCK_THREAD_CPUTIME_ID) - start < 300_000_000 {
                    std::hint::spin_loop();
                }
            });
            while !held.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let waiter = scope.spawn(|| {
                adopt(Policy::RoundRobin(20)).unwrap();
                drop(mutex.lock());
                freed.store(true, Ordering::SeqCst);
            });
            let hog = || {
                adopt(Policy::RoundRobin(10)).unwrap();
                let start = std::time::Instant::now();
                while start.elapsed() < Duration::from_secs(3) && !freed.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                freed.load(Ordering::SeqCst)
            };
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let hogs: Vec<_> = (0..cores).map(|_| scope.spawn(hog)).collect();
            waiter.join().unwrap();
            hogs.into_iter().map(|hog| hog.join().unwrap()).collect()
        });
        assert!(
            hogs_saw_it.iter().all(|saw| *saw),
            "the important thread had to wait for the others"
        );
    }

    #[test]
    fn no_wake_up_is_lost() {
        let place = Arc::new((
            Sleepers::default(),
            AtomicU32::new(0),
            AtomicU32::new(0),
            AtomicBool::new(false),
        ));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let place = place.clone();
                std::thread::spawn(move || {
                    let (sleepers, work, done, stop) = &*place;
                    let take = || {
                        work.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                            .is_ok()
                    };
                    loop {
                        if take() {
                            done.fetch_add(1, Ordering::SeqCst);
                            continue;
                        }
                        let seen = sleepers.enlist();
                        if stop.load(Ordering::SeqCst) {
                            break;
                        }
                        if work.load(Ordering::SeqCst) > 0 {
                            sleepers.delist();
                            continue;
                        }
                        sleepers.sleep(seen, None);
                    }
                })
            })
            .collect();
        let (sleepers, work, done, stop) = &*place;
        for turn in 0..20_000 {
            work.fetch_add(1, Ordering::SeqCst);
            sleepers.wake();
            if turn % 64 == 0 {
                while done.load(Ordering::SeqCst) <= turn {
                    std::thread::yield_now();
                }
            }
        }
        while done.load(Ordering::SeqCst) < 20_000 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        sleepers.wake_all();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }
}
