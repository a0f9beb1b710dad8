//! The wall clock for decisions that can't be taken back: one that does not follow a step ahead before it has stayed.
//!
//! What a watermark has passed, and a segment that was removed, do not come back. A clock that is wrong by hours for a
//! moment (a bad answer of a time server, somebody's typing) must not decide either. So a step ahead is followed only when
//! the clock has kept to it for `TRUST` by the monotonic clock; until then time passes at its usual pace. A step back is
//! followed at once: it decides nothing. So is what a clock is slewed by.

use std::sync::{Mutex, PoisonError};

use crate::service::scheduling::{monotonic, now as wall};

/// A step is more than this, in microseconds.
const STEP: i64 = 100_000;
/// So long a step ahead has to stay, in microseconds.
const TRUST: i64 = 10_000_000;

/// How the wall clock is ahead of the monotonic one, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Steady {
    offset: i64,
    /// A step ahead: the offset that it leads to, and when it was seen.
    step: Option<(i64, i64)>,
}

impl Steady {
    fn read(&mut self, wall: i64, monotonic: i64) -> i64 {
        let offset = wall - monotonic;
        let stayed = match self.step {
            Some((to, since)) if (offset - to).abs() <= STEP => monotonic - since >= TRUST,
            _ => {
                self.step = Some((offset, monotonic));
                false
            }
        };
        if offset - self.offset <= STEP || stayed {
            *self = Steady { offset, step: None };
        }
        monotonic + self.offset
    }
}

static CLOCK: Mutex<Option<Steady>> = Mutex::new(None);

/// Microseconds since the epoch.
pub fn now() -> i64 {
    let (wall, monotonic) = (wall(), (monotonic() / 1_000) as i64);
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Steady {
        offset: wall - monotonic,
        step: None,
    };
    clock.get_or_insert(begun).read(wall, monotonic)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    #[test]
    fn a_step_ahead_counts_once_it_has_stayed() {
        let mut clock = Steady {
            offset: 1_000,
            step: None,
        };
        assert_eq!(clock.read(1_500, 500), 1_500);
        // Slewed.
        assert_eq!(clock.read(2_700, 1_000), 2_700);
        // Ahead, back again after a while, and ahead: time goes on as before.
        for (ahead, monotonic) in [(HOUR, 2_000), (HOUR, 9_000_000), (0, 10_000_000), (HOUR, 11_000_000)] {
            assert_eq!(clock.read(monotonic + 1_700 + ahead, monotonic), monotonic + 1_700);
        }
        // Another step is not the same one.
        assert_eq!(clock.read(22_001_700 + 2 * HOUR, 22_000_000), 22_001_700);
        assert_eq!(clock.read(31_001_700 + 2 * HOUR, 31_000_000), 31_001_700);
        assert_eq!(clock.read(32_001_700 + 2 * HOUR, 32_000_000), 32_001_700 + 2 * HOUR);
        // Back counts at once.
        assert_eq!(clock.read(33_001_700, 33_000_000), 33_001_700);
    }
}
