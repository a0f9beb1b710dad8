//! How long ago something was that the wall clock has dated, though that clock may have stepped since.
//!
//! The log says by the wall clock when an event came, because who reads it may be on another machine, or there tomorrow. How long
//! a match took is told by the monotonic clock, which does not step; so the distance of the two is looked at, and kept from before
//! the last step as well.

/// The wall clock has stepped if its distance from the monotonic one has changed by more than this, in microseconds. Clocks that
/// are corrected slowly, and a thread that loses its core between two looks at clocks, stay below it, or do no harm.
const STEP: i64 = 10_000;

/// The distance of the wall clock from the monotonic one, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// At the last look, and when that was by the monotonic clock.
    distance: i64,
    looked: i64,
    /// Before the last step, and when that was noticed.
    before: Option<(i64, i64)>,
}

impl Steps {
    /// Looks at the clocks, of which the monotonic one was read first.
    pub(super) fn look(&mut self, monotonic: i64, wall: i64) {
        let distance = wall - monotonic;
        if self.looked != 0 && (distance - self.distance).abs() > STEP {
            self.before = Some((self.distance, monotonic));
        }
        (self.looked, self.distance) = (monotonic, distance);
    }

    /// The nanoseconds between a moment that the wall clock has dated and the last look. If that can have been before the step or
    /// after it, it was when it is less long ago, as steps are longer than most things take.
    pub(super) fn since(&self, dated: i64) -> u64 {
        let before = self.before.filter(|(distance, until)| dated - distance <= *until);
        let distances = [Some(self.distance), before.map(|(distance, _)| distance)];
        let spans = distances
            .into_iter()
            .flatten()
            .map(|distance| self.looked - (dated - distance));
        spans.filter(|span| *span >= 0).min().unwrap_or(0) as u64 * 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_between_an_arrival_and_its_match_is_no_time_that_has_passed() {
        const HOUR: i64 = 3_600_000_000;
        for step in [HOUR, -HOUR] {
            let mut steps = Steps::default();
            steps.look(1_000_000, 5 * HOUR);
            assert_eq!(steps.since(5 * HOUR - 300), 300_000);
            // The clock has stepped, and what is found now came before that, or after it.
            steps.look(1_000_700, 5 * HOUR + step + 700);
            assert_eq!(steps.since(5 * HOUR - 300), 1_000_000);
            assert_eq!(steps.since(5 * HOUR + step + 600), 100_000);
            // What comes long after it does not go by what was before.
            steps.look(2 * HOUR, 7 * HOUR + step - 1_000_000);
            assert_eq!(steps.since(6 * HOUR + step - 1_000_000), HOUR as u64 * 1_000);
            // What is to come was just now.
            assert_eq!(steps.since(50 * HOUR), 0);
        }
    }
}
