//! Rests: a thread that has used up its share of a period (scheduling.rs) goes on without a priority until it ends.
//!
//! It goes on, and does not wait, because nobody else may want the core: then the time would be lost to all. The kernel gives it
//! only what all others leave, so it may not come to run when its rest ends, and can't take its priority back itself. A
//! thread above all levels does that, at the ends of periods, while someone rests.

use crate::service::scheduling::{Busy, PERIOD, Policy, give, monotonic, sleep_until, step_back};
use crate::service::sync::{PiMutex, Sleepers, thread};

/// Room for so many threads that rest, beyond which it takes memory to rest.
const USUAL: usize = 256;

struct Rest {
    thread: u32,
    /// What the thread gets back.
    policy: Policy,
    until: u64,
}

/// Who rests.
pub struct Rests {
    /// Locked while a priority is given or taken, so that what is written here is what the kernel has.
    resting: PiMutex<Vec<Rest>>,
    keeper: Sleepers,
}

impl Default for Rests {
    fn default() -> Rests {
        Rests {
            resting: PiMutex::new(Vec::with_capacity(USUAL)),
            keeper: Sleepers::default(),
        }
    }
}

impl Rests {
    /// The calling thread rests until a moment of the monotonic clock, when it gets the policy back.
    pub fn begin(&self, policy: Policy, until: u64) {
        let mut resting = self.resting.lock();
        step_back();
        let thread = thread();
        resting.push(Rest { thread, policy, until });
        drop(resting);
        self.keeper.wake();
    }

    /// The calling thread's rest is over, if it is not yet; also where the thread ends.
    pub fn end(&self) {
        let own = thread();
        self.end_those(|rest| rest.thread == own);
    }

    fn end_those(&self, is_over: impl Fn(&Rest) -> bool) {
        let ended = |rest: &mut Rest| is_over(rest);
        for rest in self.resting.lock().extract_if(.., ended) {
            give(rest.thread, rest.policy);
        }
    }

    /// Ends rests when they are over, until it is told to stop.
    pub fn keep(&self, is_stopping: impl Fn() -> bool) {
        loop {
            let seen = self.keeper.enlist();
            if is_stopping() {
                self.keeper.delist();
                return;
            }
            if self.resting.lock().is_empty() {
                self.keeper.sleep(seen, None);
                continue;
            }
            self.keeper.delist();
            sleep_until((monotonic() / PERIOD + 1) * PERIOD);
            let now = monotonic();
            self.end_those(|rest| rest.until <= now);
        }
    }

    /// Has who keeps them look whether to stop.
    pub fn wake(&self) {
        self.keeper.wake_all();
    }
}

/// What a thread has used of its share, and whether it rests.
#[derive(Debug, Default)]
pub struct Used {
    busy: Busy,
    rests_until: Option<u64>,
}

/// What came of the account of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// It has its priority.
    Within,
    /// It has none from now on.
    Spent,
    /// It has none.
    Resting,
}

impl Used {
    /// The thread has slept, or waited: that was no time of its.
    pub fn begin(&mut self, share: u64, now: u64) {
        self.busy.begin(share, now);
    }

    /// Accounts the time since the last call. A thread that has used its share, in per mille, rests; then it gets the policy back.
    pub fn account(&mut self, rests: &Rests, share: u64, policy: Policy, now: u64) -> Account {
        if let Some(until) = self.rests_until {
            if now < until {
                // What nobody else wanted is not owed.
                self.busy.begin(share, now);
                return Account::Resting;
            }
            rests.end();
            self.rests_until = None;
            self.busy.begin_at(until);
        }
        let Some(until) = self.busy.account(share, now) else {
            return Account::Within;
        };
        rests.begin(policy, until);
        self.rests_until = Some(until);
        Account::Spent
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::service::scheduling::adopt;

    const OWN: Policy = Policy::RoundRobin(10);

    fn scheduler() -> i32 {
        // SAFETY: takes and returns a number; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    fn is_allowed() -> bool {
        let allowed = std::thread::spawn(|| adopt(OWN).is_ok()).join().unwrap();
        if !allowed {
            eprintln!("skipped: needs the privilege to use SCHED_RR");
        }
        allowed
    }

    #[test]
    fn who_rests_gets_its_priority_back_though_it_does_not_come_to_ask() {
        if !is_allowed() {
            return;
        }
        let (rests, is_over) = (Arc::new(Rests::default()), Arc::new(AtomicBool::new(false)));
        let (own, over) = (Arc::clone(&rests), Arc::clone(&is_over));
        let keeper = std::thread::spawn(move || own.keep(|| over.load(Ordering::SeqCst)));
        let own = Arc::clone(&rests);
        let resting = std::thread::spawn(move || {
            adopt(OWN).unwrap();
            for periods in [1, 3] {
                let until = (monotonic() / PERIOD + periods) * PERIOD;
                own.begin(OWN, until);
                // It may have been over already if this thread did not run for so long.
                assert!(scheduler() == libc::SCHED_IDLE || monotonic() >= until);
                while scheduler() != libc::SCHED_RR {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert!(monotonic() >= until);
            }
        });
        resting.join().unwrap();
        is_over.store(true, Ordering::SeqCst);
        rests.wake();
        keeper.join().unwrap();
    }

    #[test]
    fn time_that_nobody_else_wanted_is_not_owed() {
        if !is_allowed() {
            return;
        }
        // On a thread of its own, which has a priority to lose. Nobody keeps these rests: the clock is this test's.
        let checked = std::thread::spawn(|| {
            let (rests, mut used) = (Rests::default(), Used::default());
            adopt(OWN).unwrap();
            let start = 1_000 * PERIOD;
            used.begin(850, start);
            let mut account = |after: u64| used.account(&rests, 850, OWN, start + after);
            assert_eq!(account(8_000_000), Account::Within);
            assert_eq!(account(8_500_000), Account::Spent);
            assert_eq!(scheduler(), libc::SCHED_IDLE);
            assert_eq!(account(9_900_000), Account::Resting);
            // What was done until the period turned was done without a priority; 1 ms of the new one was not.
            assert_eq!(account(PERIOD + 1_000_000), Account::Within);
            assert_eq!(scheduler(), libc::SCHED_RR);
            assert_eq!(account(PERIOD + 8_400_000), Account::Within);
            assert_eq!(account(PERIOD + 8_500_000), Account::Spent);
            // An operator that went on for 30 ms after the rest: three budgets pay for 25.5, and 4.5 are owed.
            assert_eq!(account(5 * PERIOD), Account::Within);
            assert_eq!(account(5 * PERIOD + 4_000_000), Account::Spent);
            assert_eq!(account(6 * PERIOD - 1), Account::Resting);
            rests.end();
            assert_eq!(scheduler(), libc::SCHED_RR);
        });
        checked.join().unwrap();
    }
}
