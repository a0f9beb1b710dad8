//! How levels become thread priorities, and how real-time threads leave time for the rest.
//!
//! Linux stops real-time threads that leave nothing to the others (by default 50 ms of each second, all of them at once), which
//! would hit the most important level as hard as the least. So the lowest level is not real-time, and the workers of the
//! others rest by themselves: each may be busy for a share of each period, those of the highest level a little longer, and then
//! has no priority until the next (rests.rs). Busy is by the clock, not by CPU time, so that what other real-time threads take
//! counts too; and all rest at the end of the same periods, so that the cores are free then for who is not real-time. No load on
//! one level then stops another.

use std::io;

/// Under which policy a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// SCHED_RR with this priority.
    RoundRobin(i32),
    /// SCHED_OTHER with this niceness.
    Nice(i32),
}

/// How the threads of a level run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelPolicy {
    /// Who delivers to the level's consumers: just above its workers, so that what is ready never waits for what is not.
    pub delivery: Policy,
    /// Workers.
    pub worker: Policy,
    /// Movers: just below the workers of their level, above those of the next.
    pub mover: Policy,
    /// The share of a period, in per mille, that a worker of the level may be busy.
    pub share: Option<u64>,
}

/// The highest priority of workers; suppliers and consumers that must never wait can be above all that the engine has.
pub const HIGHEST: i32 = 80;
/// The watchdog's, above all workers and those who deliver.
pub const WATCHDOG: i32 = HIGHEST + 2;

/// Shares of the highest level and of those below it. The kernel's limit is 950.
pub const HIGHEST_SHARE: u64 = 920;
const LOWER_SHARE: u64 = 850;

/// The policies of so many levels, highest first. `real_time` is the highest priority allowed, if any is.
pub fn policies(levels: usize, prioritised: bool, real_time: Option<i32>) -> Vec<LevelPolicy> {
    let plain = LevelPolicy {
        delivery: Policy::Nice(0),
        worker: Policy::Nice(0),
        mover: Policy::Nice(0),
        share: None,
    };
    if !prioritised {
        return vec![plain; levels];
    }
    let Some(highest) = real_time.filter(|allowed| *allowed >= 3) else {
        // Niceness goes to 19; workers and movers of a level are neighbours as far as that reaches.
        let nice = |place: usize| Policy::Nice((place * 19 / (2 * levels).max(1)) as i32);
        return (0..levels)
            .map(|level| LevelPolicy {
                delivery: nice(2 * level),
                worker: nice(2 * level),
                mover: nice(2 * level + 1),
                share: None,
            })
            .collect();
    };
    let highest = (highest - 1).min(HIGHEST);
    (0..levels)
        .map(|level| {
            if level > 0 && level + 1 == levels {
                return plain;
            }
            let worker = (highest - 3 * level as i32).max(2);
            LevelPolicy {
                delivery: Policy::RoundRobin(worker + 1),
                worker: Policy::RoundRobin(worker),
                mover: Policy::RoundRobin(worker - 1),
                share: Some(if level == 0 { HIGHEST_SHARE } else { LOWER_SHARE }),
            }
        })
        .collect()
}

/// Gives the calling thread a policy, and timers without slack.
pub fn adopt(policy: Policy) -> io::Result<()> {
    // SAFETY: takes numbers and concerns the calling thread only. Slack first: a real-time thread's can't be set.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
    match policy {
        Policy::RoundRobin(priority) => {
            let parameters = libc::sched_param {
                sched_priority: priority,
            };
            // SAFETY: pthread_self is always a live thread, and the parameters outlive the call.
            let status =
                unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_RR, &raw const parameters) };
            if status == 0 {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(status))
            }
        }
        Policy::Nice(0) => Ok(()),
        Policy::Nice(niceness) => {
            // SAFETY: takes numbers; on Linux niceness is a thread's, and 0 is the calling one.
            let status = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) };
            if status == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        }
    }
}

/// The same for a thread that had another policy; without the privilege it stays as it is.
pub fn adopt_anew(policy: Policy) {
    if let Policy::Nice(niceness) = policy {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: as above; takes the calling thread back from real-time priorities, and then its niceness.
        unsafe {
            libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_OTHER, &raw const parameters);
            libc::setpriority(libc::PRIO_PROCESS, 0, niceness);
        }
    } else {
        let _ = adopt(policy);
    }
}

/// The calling thread gets only the time that no other wants.
pub fn step_back() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: as above.
    unsafe { libc::pthread_setschedparam(libc::pthread_self(), libc::SCHED_IDLE, &raw const parameters) };
}

/// Gives a thread of this process, by the kernel's number, the real-time policy that it had.
pub fn give(thread: u32, policy: Policy) {
    let Policy::RoundRobin(priority) = policy else { return };
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: takes numbers, and the parameters outlive the call.
    unsafe { libc::sched_setscheduler(thread as libc::pid_t, libc::SCHED_RR, &raw const parameters) };
}

/// Takes a thread of this process, by the kernel's number, back from real-time priorities; whether it had one.
pub fn demote(thread: u32) -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    let thread = thread as libc::pid_t;
    // SAFETY: takes numbers, and the parameters outlive the call.
    unsafe {
        libc::sched_getscheduler(thread) & !libc::SCHED_RESET_ON_FORK == libc::SCHED_RR
            && libc::sched_setscheduler(thread, libc::SCHED_OTHER, &raw const parameters) == 0
    }
}

/// The first two levels that run at the same priority though one is above the other, if there are more than priorities.
pub fn alike(policies: &[LevelPolicy]) -> Option<usize> {
    policies.windows(2).position(|pair| pair[0].worker == pair[1].worker)
}

/// Nanoseconds of a clock.
#[inline]
pub fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the struct that we own.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Microseconds since the epoch.
#[inline]
pub fn now() -> i64 {
    (clock(libc::CLOCK_REALTIME) / 1_000) as i64
}

/// Waits until a moment of the monotonic clock.
pub fn sleep_until(nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    };
    // SAFETY: reads the struct that we own. An interruption only shortens the wait, which callers check again.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
}

/// A period of the shares, in nanoseconds.
pub const PERIOD: u64 = 10_000_000;

/// How long a worker has been busy, in nanoseconds.
#[derive(Debug, Default)]
pub struct Busy {
    period: u64,
    spent: u64,
    /// Since when it has not been accounted.
    since: u64,
}

impl Busy {
    /// The worker has slept, or waited: that was no time of its.
    pub fn begin(&mut self, share: u64, now: u64) {
        self.turn(share, now);
        self.since = now;
    }

    /// Accounts the time since the last call; until when the worker must rest, if it must.
    pub fn account(&mut self, share: u64, now: u64) -> Option<u64> {
        self.spent += now.saturating_sub(self.since);
        self.since = now;
        self.turn(share, now);
        // Each period pays a budget of what is owed.
        (self.spent >= budget(share)).then(|| (self.period + self.spent / budget(share)) * PERIOD)
    }

    /// What came before a moment, at which a rest ended, was no time of its.
    pub fn begin_at(&mut self, moment: u64) {
        self.since = self.since.max(moment);
    }

    /// Whether it has spent a share of this period, as far as is accounted.
    pub fn is_beyond(&self, share: u64) -> bool {
        self.spent >= budget(share)
    }

    /// So much of the time since the last call was not its own.
    pub fn leave_out(&mut self, nanoseconds: u64) {
        self.since += nanoseconds;
    }

    /// What an operator that ran long took beyond the budgets of its periods is owed.
    fn turn(&mut self, share: u64, now: u64) {
        let period = now / PERIOD;
        let passed = period.saturating_sub(self.period).saturating_mul(budget(share));
        self.spent = self.spent.saturating_sub(passed);
        self.period = period;
    }
}

fn budget(share: u64) -> u64 {
    PERIOD * share / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn movers_are_between_their_workers_and_the_next_level() {
        let found = policies(4, true, Some(99));
        let priorities: Vec<i32> = found[..3]
            .iter()
            .flat_map(|level| [level.delivery, level.worker, level.mover])
            .map(|policy| match policy {
                Policy::RoundRobin(priority) => priority,
                Policy::Nice(_) => panic!("{policy:?}"),
            })
            .collect();
        assert!(priorities.windows(2).all(|pair| pair[0] > pair[1]), "{priorities:?}");
        assert_eq!(priorities[1], HIGHEST);
        assert!(priorities[0] < WATCHDOG);
        assert_eq!((found[3].worker, found[3].share), (Policy::Nice(0), None));
        assert!(found[0].share > found[1].share && found[0].share < Some(950));
    }

    #[test]
    fn levels_beyond_the_priorities_are_noticed() {
        assert_eq!(alike(&policies(28, true, Some(99))), None);
        assert_eq!(alike(&policies(30, true, Some(99))), Some(26));
        assert_eq!(alike(&policies(8, true, None)), None);
        assert!(alike(&policies(40, true, None)).is_some());
    }

    #[test]
    fn a_single_level_is_real_time() {
        let found = policies(1, true, Some(99));
        assert_eq!(found[0].worker, Policy::RoundRobin(HIGHEST));
    }

    #[test]
    fn without_the_privilege_levels_are_nice() {
        let found = policies(3, true, None);
        assert_eq!(found[0].worker, Policy::Nice(0));
        let Policy::Nice(lowest) = found[2].worker else {
            panic!()
        };
        assert!((10..=19).contains(&lowest));
        assert!(policies(3, false, Some(99)).iter().all(|l| l.worker == Policy::Nice(0)));
    }

    #[test]
    fn who_is_busy_beyond_its_share_rests_and_what_is_owed_is_paid() {
        let mut busy = Busy::default();
        let start = 1_000 * PERIOD;
        busy.begin(850, start);
        assert_eq!(busy.account(850, start + 8_000_000), None);
        // Slept for a while: that does not count.
        busy.begin(850, start + 9_000_000);
        assert_eq!(busy.account(850, start + 9_400_000), None);
        assert_eq!(busy.account(850, start + 9_600_000), Some(start + PERIOD));
        assert!(busy.is_beyond(860) && !busy.is_beyond(870));
        busy.begin(850, start + PERIOD);
        assert_eq!(busy.account(850, start + PERIOD + 1_000), None);
        // An operator that ran for 40 ms: 8.5 of each 10 were its share, so 6 are owed of the next period.
        assert_eq!(busy.account(850, start + 5 * PERIOD), None);
        assert_eq!(
            busy.account(850, start + 5 * PERIOD + 3_000_000),
            Some(start + 6 * PERIOD)
        );
        // What was not its own does not count.
        busy.begin(850, start + 6 * PERIOD);
        busy.leave_out(9_000_000);
        assert_eq!(busy.account(850, start + 7 * PERIOD - 1_000), None);
        // The highest level may be busy a little longer.
        let mut high = Busy::default();
        high.begin(920, start);
        assert_eq!(high.account(920, start + 9_000_000), None);
        assert_eq!(high.account(920, start + 9_300_000), Some(start + PERIOD));
    }
}
