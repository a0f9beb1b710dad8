//! Load for experiments: suppliers that push on time, and consumers that say how long it took.
//!
//! Each runs in a process of its own, above the service under test, and as cheaply as it can: it shares the cores with it. What an
//! output's latency is counted from stands in its record: the time of the last supplier event that is in it, which the supplier took
//! from the clock at the push.

pub mod consumers;
pub mod suppliers;

use std::io;

use crate::service::scheduling::{Policy, adopt};

/// What went wrong, in words.
pub type Trouble = String;

/// Gives the thread a real-time priority; whether it could.
fn above_the_service(priority: i32) -> bool {
    adopt(Policy::RoundRobin(priority)).is_ok()
}

/// The CPU that this process has used, in seconds.
fn cpu() -> f64 {
    // SAFETY: a plain struct of numbers, for which zeros are fine.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills the struct that we own.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Waits until one of the descriptors is ready, for at most so many nanoseconds.
fn wait_for(descriptors: &mut [libc::pollfd], nanoseconds: u64) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as i64,
        tv_nsec: (nanoseconds % 1_000_000_000) as i64,
    };
    let count = descriptors.len() as libc::nfds_t;
    // SAFETY: the slice is ours and as long as said; no signal mask is given.
    let found = unsafe { libc::ppoll(descriptors.as_mut_ptr(), count, &raw const time, std::ptr::null()) };
    if found >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        Ok(())
    } else {
        Err(error)
    }
}
