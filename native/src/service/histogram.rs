//! Latency histograms that any thread records in without waiting: logarithmic, 32 steps an octave, so within 3.2%.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

const STEPS: u32 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Up to 2^41 ns, about 36 minutes; what is longer counts as that.
const OCTAVES: u32 = 42 - STEP_BITS;
const BUCKETS: usize = ((OCTAVES + 1) * STEPS) as usize;

/// Counts by duration.
#[derive(Debug)]
pub struct Histogram {
    buckets: Box<[AtomicU32]>,
    /// The buckets that have come round to zero, each time they did: small ones do for long, and an engine has many.
    rounds: Mutex<Vec<usize>>,
    count: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
}

/// What a histogram says, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Summary {
    pub count: u64,
    pub mean: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

/// All that a histogram has: the sum, and of each bucket with something in it the greatest value, in nanoseconds, and how many there were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub sum_ns: u64,
    pub buckets: Vec<(u64, u64)>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            rounds: Mutex::default(),
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }
}

fn bucket(nanoseconds: u64) -> usize {
    let octave = (64 - nanoseconds.leading_zeros()).saturating_sub(STEP_BITS + 1);
    let step = nanoseconds >> octave;
    // In octave 0 the steps are the values themselves, 0 to 63; each further one has 32 of them.
    ((u64::from(octave * STEPS) + step) as usize).min(BUCKETS - 1)
}

/// The greatest value of a bucket.
fn top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let steps = u64::from(STEPS);
    if bucket < 2 * steps {
        return bucket;
    }
    let octave = bucket / steps - 1;
    ((bucket - octave * steps + 1) << octave) - 1
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn record(&self, nanoseconds: u64) {
        let place = bucket(nanoseconds);
        if self.buckets[place].fetch_add(1, Ordering::Relaxed) == u32::MAX {
            self.round(place);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanoseconds, Ordering::Relaxed);
        self.max.fetch_max(nanoseconds, Ordering::Relaxed);
    }

    /// A bucket has come round.
    #[cold]
    fn round(&self, place: usize) {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner).push(place);
    }

    /// How many are in each bucket.
    fn counts(&self) -> impl Iterator<Item = u64> {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.buckets.iter().enumerate().map(move |(place, bucket)| {
            let full = rounds.iter().filter(|round| **round == place).count() as u64;
            (full << u32::BITS) + u64::from(bucket.load(Ordering::Relaxed))
        })
    }

    /// Forgets everything. What is recorded meanwhile may be lost.
    pub fn reset(&self) {
        self.buckets
            .iter()
            .for_each(|bucket| bucket.store(0, Ordering::Relaxed));
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for total in [&self.count, &self.sum, &self.max] {
            total.store(0, Ordering::Relaxed);
        }
    }

    /// The shortest duration that so many of 1,000 do not exceed.
    fn quantile(&self, count: u64, per_mille: u64) -> u64 {
        let wanted = (count * per_mille).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (place, counted) in self.counts().enumerate() {
            seen += counted;
            if seen >= wanted {
                return top(place).min(self.max.load(Ordering::Relaxed));
            }
        }
        self.max.load(Ordering::Relaxed)
    }

    /// What it says now.
    pub fn summary(&self) -> Summary {
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 {
            return Summary {
                count,
                mean: 0,
                p50: 0,
                p90: 0,
                p99: 0,
                p999: 0,
                max: 0,
            };
        }
        Summary {
            count,
            mean: self.sum.load(Ordering::Relaxed) / count,
            p50: self.quantile(count, 500),
            p90: self.quantile(count, 900),
            p99: self.quantile(count, 990),
            p999: self.quantile(count, 999),
            max: self.max.load(Ordering::Relaxed),
        }
    }

    /// All that it has now.
    pub fn spread(&self) -> Spread {
        let counted = self.counts().enumerate().filter(|(_, count)| *count > 0);
        Spread {
            sum_ns: self.sum.load(Ordering::Relaxed),
            buckets: counted.map(|(place, count)| (top(place), count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut before = 0;
        for value in (0..200_000).chain((0..40).map(|bit| (1_u64 << bit) + 3)) {
            let top = top(bucket(value));
            assert!(top >= value, "{value} {top}");
            assert!(top - value <= value / 31 + 1, "{value} {top}");
        }
        for bucket in 0..BUCKETS {
            assert!(bucket == 0 || top(bucket) > before);
            before = top(bucket);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_the_width_of_a_bucket() {
        let histogram = Histogram::default();
        (1..=10_000).for_each(|value| histogram.record(value * 100));
        let found = histogram.summary();
        assert_eq!((found.count, found.max), (10_000, 1_000_000));
        for (quantile, exact) in [(found.p50, 500_000), (found.p90, 900_000), (found.p99, 990_000)] {
            assert!(
                quantile >= exact && quantile <= exact + exact / 31,
                "{quantile} {exact}"
            );
        }
        assert_eq!(found.mean, 500_050);
        let spread = histogram.spread();
        assert_eq!(spread.sum_ns, 500_050 * 10_000);
        assert_eq!(spread.buckets.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert!(spread.buckets.is_sorted_by(|one, next| one.0 < next.0));
        histogram.reset();
        assert_eq!(histogram.spread().buckets, []);
        assert_eq!(histogram.summary().count, 0);
        histogram.record(7);
        assert_eq!(histogram.summary().p99, 7);
    }

    #[test]
    fn what_runs_for_months_is_counted_right() {
        let histogram = Histogram::default();
        histogram.buckets[bucket(1_000)].store(u32::MAX, Ordering::Relaxed);
        histogram.count.store(u64::from(u32::MAX), Ordering::Relaxed);
        for spans in [1_000, 1_000, 1_000_000] {
            histogram.record(spans);
        }
        let found = histogram.summary();
        assert!(found.p999 < 1_040, "{found:?}");
        let counts: Vec<u64> = histogram.spread().buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [(1 << 32) + 1, 1]);
        histogram.reset();
        assert_eq!(histogram.spread().buckets, []);
    }
}
