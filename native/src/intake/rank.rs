//! The intake's priority: above the engine's workers, for as long as it takes its share and no more.
//!
//! What does not come in can't be judged, so the intake is above all levels. But a supplier that floods would then take a core
//! from the most important of them. So the intake may be busy for a share of each period (scheduling.rs). Beyond that patient
//! connections (pace.rs) wait for the next one, and what is left of the period is for the others, up to a larger share. Where that
//! is used up too, or there are no patient connections, it goes on as an ordinary thread until the next period, in the time that the
//! levels leave.

use std::time::Duration;

use super::pace::Patients;
use crate::service::scheduling::{Busy, monotonic};

/// The share of a period that the intake has at its priority, in per mille of one core.
const SHARE: u64 = 600;
/// The same while patient connections rest: what highest events need is not taken from them by those that can wait.
const URGENT_SHARE: u64 = 850;

/// Gives this thread a real-time priority, but none that it starts; whether it could.
pub(super) fn become_realtime(priority: i32) -> bool {
    // SAFETY: calls with numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    if schedule(libc::SCHED_RR, priority) {
        return true;
    }
    // SAFETY: as above.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
    false
}

fn schedule(policy: libc::c_int, priority: i32) -> bool {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: a call with a live struct; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &parameters) == 0 }
}

/// The priority of a thread that has it for a share of the time.
pub(super) struct Rank {
    priority: i32,
    busy: Busy,
    /// Until when it is an ordinary thread, in nanoseconds.
    ordinary_until: Option<u64>,
}

impl Rank {
    pub(super) fn new(priority: i32) -> Rank {
        Rank {
            priority,
            busy: Busy::default(),
            ordinary_until: None,
        }
    }

    /// A turn begins; what went before it was a wait, unless there was none.
    pub(super) fn begin(&mut self, at_once: bool) {
        let now = monotonic();
        if !at_once {
            self.busy.begin(SHARE, now);
        }
        if self.ordinary_until.is_some_and(|until| now >= until) && schedule(libc::SCHED_RR, self.priority) {
            self.ordinary_until = None;
            self.busy.begin(SHARE, now);
        }
    }

    /// So much of the turn was the engine's.
    pub(super) fn leave_out(&mut self, nanoseconds: u64) {
        self.busy.leave_out(nanoseconds);
    }

    /// A turn has ended.
    pub(super) fn account(&mut self, patients: Patients) -> Verdict {
        let now = monotonic();
        if self.ordinary_until.is_some() {
            // The time of an ordinary thread takes nothing from the levels.
            self.busy.begin(SHARE, now);
            return Verdict::GoOn;
        }
        let Some(until) = self.busy.account(SHARE, now) else {
            return Verdict::GoOn;
        };
        match patients {
            Patients::AtWork => return Verdict::Rest(Duration::from_nanos(until.saturating_sub(now))),
            Patients::Resting if !self.busy.is_beyond(URGENT_SHARE) => return Verdict::GoOn,
            Patients::Resting | Patients::Absent => {}
        }
        if schedule(libc::SCHED_OTHER, 0) {
            self.ordinary_until = Some(until);
            return Verdict::Ordinary;
        }
        Verdict::GoOn
    }
}

/// What follows from how long the intake has been busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing.
    GoOn,
    /// Patient connections are to rest for so long.
    Rest(Duration),
    /// It has become an ordinary thread until the next period.
    Ordinary,
}
