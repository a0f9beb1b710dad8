//! Long lists of events by the value of an attribute, so that a JOIN by `<` or `>` looks where it can hold.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use crate::event::{Events, Handle, List};
use crate::expr::Sign;
use crate::plan::RangeIndex;

/// From this many events on a list is kept in order of values too; below, it is quicker to go through it.
pub const SORTED_FROM: usize = 64;
/// Below this many no longer.
const SORTED_TO: usize = 16;

/// A number in the order of numbers. Integers are rounded to floats, so bounds are to be taken as included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(f64);

impl Number {
    /// Of a value that is one.
    pub fn new(x: f64) -> Self {
        Number(x + 0.0)
    }
}

impl Eq for Number {}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What lies on a side of a number, that number included.
pub fn side(sign: Sign, number: Number) -> (Bound<Number>, Bound<Number>) {
    match sign {
        Sign::Less | Sign::LessEqual => (Bound::Unbounded, Bound::Included(number)),
        Sign::Greater | Sign::GreaterEqual => (Bound::Included(number), Bound::Unbounded),
        Sign::Equal | Sign::Unequal => (Bound::Unbounded, Bound::Unbounded),
    }
}

/// The lists that are long, by partition and index of the plan. Events without a number are in none: a JOIN with them
/// does not hold.
#[derive(Debug, Default)]
pub struct Sorted(HashMap<(u32, usize), BTreeSet<(Number, Handle)>>);

impl Sorted {
    /// An event was added to a list of a partition.
    pub fn push(&mut self, events: &Events, key: (u32, usize), index: &RangeIndex, list: &List, event: Handle) {
        if list.len() < SORTED_FROM {
            // One that was made stays until the list is much shorter.
            if let Some(sorted) = self.0.get_mut(&key) {
                sorted.extend(index.number(events, event).map(|number| (number, event)));
            }
            return;
        }
        let sorted = self.0.entry(key).or_insert_with(|| {
            let all = list
                .from(0)
                .filter_map(|event| Some((index.number(events, event)?, event)));
            all.collect()
        });
        sorted.extend(index.number(events, event).map(|number| (number, event)));
    }

    /// An event was taken out of a list.
    pub fn pop(&mut self, events: &Events, key: (u32, usize), index: &RangeIndex, list: &List, event: Handle) {
        if list.len() < SORTED_TO {
            self.0.remove(&key);
        } else if let Some(sorted) = self.0.get_mut(&key)
            && let Some(number) = index.number(events, event)
        {
            sorted.remove(&(number, event));
        }
    }

    /// The events on a side of a number; None if the list is not kept in order.
    pub fn beside(&self, key: (u32, usize), sign: Sign, number: Number) -> Option<impl Iterator<Item = Handle>> {
        let sorted = self.0.get(&key)?;
        let (low, high) = side(sign, number);
        let low = match low {
            Bound::Included(low) => Bound::Included((low, Handle::FIRST)),
            _ => Bound::Unbounded,
        };
        let high = match high {
            Bound::Included(high) => Bound::Included((high, Handle::LAST)),
            _ => Bound::Unbounded,
        };
        Some(sorted.range((low, high)).map(|(_, event)| *event))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
