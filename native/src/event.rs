//! Events as the matcher keeps them, and their one total order (rule E2).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::value::{Val, Value};

/// The id of an event: a number, or text compared bytewise; one kind a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// A number.
    Int(i64),
    /// Text.
    Str(Arc<str>),
}

impl Id {
    /// The id as a value, which `?e.id` reads.
    pub fn view(&self) -> Val<'_> {
        match self {
            Id::Int(x) => Val::Int(*x),
            Id::Str(x) => Val::Str(x.as_ref().into()),
        }
    }
}

/// A record as it comes, from Python objects or columns; what does not qualify never becomes an event.
pub trait Row {
    /// When it was created, in microseconds.
    fn time(&self) -> i64;
    /// The place of its stream among the query's.
    fn stream(&self) -> u16;
    /// Its id.
    fn id(&self) -> Val<'_>;
    /// What is in a slot of its stream.
    fn value(&self, slot: usize) -> Val<'_>;
    /// Whether something that was read of it is no value at all, so that it can't be taken.
    fn is_faulty(&self) -> bool {
        false
    }
}

impl Row for Event {
    fn time(&self) -> i64 {
        self.time
    }

    fn stream(&self) -> u16 {
        self.stream
    }

    fn id(&self) -> Val<'_> {
        self.id.view()
    }

    #[inline]
    fn value(&self, slot: usize) -> Val<'_> {
        self.values.get(slot).map_or(Val::Null, Value::view)
    }
}

/// An event with the attributes that the query reads.
#[derive(Clone, Debug)]
pub struct Event {
    /// When it was created, in microseconds.
    pub time: i64,
    /// The place of its stream among the query's, which are in the order of their names.
    pub stream: u16,
    /// Its id.
    pub id: Id,
    /// What the query reads of it, in the order of the stream's slots.
    pub values: Box<[Value]>,
    /// The variables that it qualifies for, a bit each.
    pub mask: u64,
    /// Its number among the events of its partition; only kept for MATCH STRICT.
    pub number: u64,
}

impl Event {
    /// Compares by time, stream name and id.
    #[inline]
    pub fn order(&self, other: &Event) -> Ordering {
        self.time
            .cmp(&other.time)
            .then_with(|| self.stream.cmp(&other.stream))
            .then_with(|| self.id.cmp(&other.id))
    }

    /// Whether it qualifies for a variable.
    #[inline]
    pub fn qualifies(&self, variable: usize) -> bool {
        self.mask >> variable & 1 == 1
    }
}
