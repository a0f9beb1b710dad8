//! What a consumer elsewhere has not acknowledged of a query's matches: it is kept, and sent again to who comes back.
//!
//! Matches are numbered as they are put in, so one that is sent again has the number that it had. At the bound nothing more is
//! kept, and nobody waits: what comes then is found again in the log, once all that is kept is acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::service::matches::Delivery;
use crate::service::reads::Read;
use crate::service::scheduling::now;

/// So many are kept; and the rest of those that were found at the same point, so that all that is kept ends at one.
const KEPT: usize = 16_384;

/// What an acknowledgement means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// Its matches will not come again.
    Taken,
    /// And now nothing is kept any more, but there is more in the log: the query is to go through it again.
    Spent,
    /// Nothing with such a number was given.
    Unknown,
}

/// Matches that were not acknowledged, the oldest first.
#[derive(Debug)]
pub struct Kept {
    matches: VecDeque<Arc<Delivery>>,
    /// With which number this began: numbers of one that begins later are higher.
    pub began: u64,
    /// The number of the first that is kept, or the next.
    first: u64,
    /// How many of them were given to the client that is there.
    given: usize,
    /// All that was found up to this point is acknowledged, which is all before this number.
    acknowledged: (Read, u64),
    /// Where the last one was found that is acknowledged; others may have been found there.
    last: Option<Read>,
    /// Points that may not be on disk, and those numbers.
    points: VecDeque<(Read, u64)>,
    /// What is before this number does not come again, whoever dies.
    done: u64,
    /// Whether more was found than is kept.
    is_cut: bool,
    /// Whether it is on disk that somebody acknowledges: before that nothing is given.
    is_known: bool,
    /// When the client last came or acknowledged something, or this began.
    heard: Instant,
}

impl Kept {
    /// Begins with what was found up to a point acknowledged.
    pub fn new(acknowledged: Read, is_known: bool) -> Kept {
        let began = now().unsigned_abs();
        Kept {
            matches: VecDeque::new(),
            began,
            first: began,
            given: 0,
            acknowledged: (acknowledged, began),
            last: None,
            points: VecDeque::new(),
            done: began,
            is_cut: false,
            is_known,
            heard: Instant::now(),
        }
    }

    /// A match was found.
    pub fn put(&mut self, delivery: &Arc<Delivery>) {
        let is_new_point = self.matches.back().is_none_or(|last| last.at < delivery.at);
        self.is_cut |= self.matches.len() >= KEPT && is_new_point;
        if !self.is_cut {
            self.matches.push_back(Arc::clone(delivery));
        }
    }

    /// A client comes: it is given everything that is not acknowledged.
    pub fn begin(&mut self) {
        self.given = 0;
        self.heard = Instant::now();
    }

    /// Whether there is something to give.
    pub fn has_more(&self) -> bool {
        self.is_known && self.given < self.matches.len()
    }

    /// The next match, its number, and the number before which nothing comes again.
    pub fn give(&mut self) -> Option<(Arc<Delivery>, u64, u64)> {
        let next = self.matches.get(self.given).filter(|_| self.is_known)?;
        self.given += 1;
        Some((Arc::clone(next), self.first + self.given as u64 - 1, self.done))
    }

    /// The client has handled what is before a number.
    pub fn acknowledge(&mut self, number: u64) -> Acknowledged {
        let count = number.saturating_sub(self.first) as usize;
        if count > self.given {
            return Acknowledged::Unknown;
        }
        self.heard = Instant::now();
        for delivery in self.matches.drain(..count) {
            // Points are passed in order: nothing more is found at one that is behind.
            if let Some(last) = self.last.filter(|last| *last < delivery.at) {
                self.acknowledged = (last, self.first);
            }
            self.last = Some(delivery.at);
            self.first += 1;
        }
        self.given -= count;
        match self.spent() {
            Some(_) => Acknowledged::Spent,
            None => Acknowledged::Taken,
        }
    }

    /// If nothing is kept, but there is more in the log, the point up to which all is acknowledged.
    pub fn spent(&self) -> Option<Read> {
        let is_spent = self.is_cut && self.matches.is_empty();
        is_spent.then_some(self.last.unwrap_or(self.acknowledged.0))
    }

    /// The point up to which all that was found is acknowledged, while the lane is here and finds nothing.
    pub fn point(&mut self, here: Read) -> Read {
        if self.matches.is_empty() && !self.is_cut {
            self.acknowledged = (here, self.first);
        } else if let Some(last) = self.last
            && self.matches.front().is_none_or(|next| last < next.at)
        {
            self.acknowledged = (last, self.first);
        }
        if self.points.back() != Some(&self.acknowledged) {
            self.points.push_back(self.acknowledged);
        }
        self.acknowledged.0
    }

    /// It is on disk that somebody acknowledges, and has up to a point.
    pub fn saved(&mut self, read: Read) {
        self.is_known = true;
        let saved = self.points.partition_point(|(point, _)| *point <= read);
        if let Some((_, number)) = self.points.drain(..saved).next_back() {
            self.done = number;
        }
    }

    /// How many are kept.
    pub fn count(&self) -> usize {
        self.matches.len()
    }

    /// Whether many wait for a client that acknowledges, or may just be coming back; who was not heard for so long does not.
    pub fn is_pressed(&self, present: Duration) -> bool {
        self.matches.len() >= KEPT / 2 && self.heard.elapsed() < present
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found::Match;

    fn at(offset: u64) -> Read {
        Read { offset, watermark: 0 }
    }

    fn put(kept: &mut Kept, offset: u64) {
        let found = Match {
            time: 0,
            select: Vec::new(),
            events: Vec::new(),
            row: None,
            key: None,
            head: 0,
            bindings: Vec::new(),
        };
        kept.put(&Arc::new(Delivery {
            found,
            end: None,
            marks: 0,
            delay: None,
            knowledge: None,
            at: at(offset),
        }));
    }

    fn numbers(kept: &mut Kept) -> Vec<u64> {
        let began = kept.began;
        std::iter::from_fn(|| kept.give())
            .map(|(_, number, _)| number - began)
            .collect()
    }

    #[test]
    fn what_is_not_acknowledged_is_given_again_with_its_number() {
        let mut kept = Kept::new(at(1), true);
        (2..5).for_each(|offset| put(&mut kept, offset));
        assert_eq!(numbers(&mut kept), [0, 1, 2]);
        assert_eq!(kept.acknowledge(kept.began + 1), Acknowledged::Taken);
        assert_eq!(kept.acknowledge(kept.began + 4), Acknowledged::Unknown);
        assert!(numbers(&mut kept).is_empty());
        kept.begin();
        assert_eq!(numbers(&mut kept), [1, 2]);
    }

    #[test]
    fn a_point_is_acknowledged_when_all_that_was_found_there_is() {
        let mut kept = Kept::new(at(1), false);
        [2, 3, 3].into_iter().for_each(|offset| put(&mut kept, offset));
        assert!(
            numbers(&mut kept).is_empty(),
            "not before it is on disk that somebody acknowledges"
        );
        kept.saved(at(0));
        assert_eq!(numbers(&mut kept), [0, 1, 2]);
        kept.acknowledge(kept.began + 2);
        assert_eq!(kept.point(at(9)), at(2));
        kept.acknowledge(kept.began + 3);
        assert_eq!(kept.point(at(9)), at(9));
        kept.saved(at(2));
        assert_eq!(kept.done, kept.began + 1);
        kept.saved(at(9));
        assert_eq!(kept.done, kept.began + 3);
    }

    #[test]
    fn at_the_bound_it_ends_at_a_point_and_is_spent_when_that_is_acknowledged() {
        let mut kept = Kept::new(at(1), true);
        for offset in 2..KEPT as u64 + 2 {
            put(&mut kept, offset);
        }
        put(&mut kept, KEPT as u64 + 1); // the last point has another one
        put(&mut kept, KEPT as u64 + 2);
        assert_eq!(numbers(&mut kept).len(), KEPT + 1);
        assert_eq!(kept.acknowledge(kept.began + KEPT as u64), Acknowledged::Taken);
        assert_eq!(kept.acknowledge(kept.began + KEPT as u64 + 1), Acknowledged::Spent);
        assert_eq!(kept.spent(), Some(at(KEPT as u64 + 1)));
        assert_eq!(kept.point(at(KEPT as u64 + 9)), at(KEPT as u64 + 1));
    }
}
