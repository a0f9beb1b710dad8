//! Books: the fate of every event at each of its readers, and what happened at each operator. Counters only grow.

use std::sync::atomic::{AtomicU64, Ordering};

/// How an event ended. For a whole event the first of these that a reader says counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// An operator ran with it, or a consumer got it.
    Used,
    /// It was stale where that is shed.
    Expired,
    /// It was the earliest of a relative set that did not hold, or its reader was removed before the others came.
    Shed,
    /// A newer one came.
    Replaced,
}

/// All fates, in their order.
pub const FATES: [Fate; 4] = [Fate::Used, Fate::Expired, Fate::Shed, Fate::Replaced];

impl Fate {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Used => "used",
            Fate::Expired => "expired",
            Fate::Shed => "shed",
            Fate::Replaced => "replaced",
        }
    }
}

/// A counter that many threads raise and anyone reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Raises it.
    #[inline]
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Back to nothing, for what is counted anew.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// What it is now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What came to a reader, and how it ended there. What came and did not end is held.
#[derive(Debug, Default)]
pub struct EdgeBook {
    /// Events that came.
    pub came: Counter,
    fates: [Counter; 4],
}

impl EdgeBook {
    /// An event ended here.
    #[inline]
    pub fn end(&self, fate: Fate) {
        self.fates[fate as usize].add(1);
    }

    /// How many ended so.
    pub fn ended(&self, fate: Fate) -> u64 {
        self.fates[fate as usize].get()
    }

    /// How many came and did not end. Only exact while nothing moves.
    pub fn held(&self) -> u64 {
        let ended: u64 = FATES.iter().map(|fate| self.ended(*fate)).sum();
        self.came.get().saturating_sub(ended)
    }
}

/// What happened at an operator.
#[derive(Debug, Default)]
pub struct OperatorBook {
    /// Times that all inputs were bound and consistency was judged.
    pub invoked: Counter,
    /// Times that it ran.
    pub fired: Counter,
    /// Events that it produced.
    pub emitted: Counter,
    /// Inputs that were stale when it was invoked.
    pub stale: Counter,
    /// Relative sets that did not hold when it was invoked.
    pub relative: Counter,
    /// Times that it threw, or what it produced was no event.
    pub failed: Counter,
    /// Outputs that found no room in the EventStore.
    pub refused: Counter,
    /// By edge.
    pub edges: Box<[EdgeBook]>,
}

impl OperatorBook {
    /// With so many edges.
    pub fn new(edges: usize) -> OperatorBook {
        OperatorBook {
            edges: (0..edges).map(|_| EdgeBook::default()).collect(),
            ..OperatorBook::default()
        }
    }
}

/// What happened at a consumer.
#[derive(Debug, Default)]
pub struct ConsumerBook {
    /// What was pushed to it; used is what went into its queue.
    pub edge: EdgeBook,
    /// Events that were stale at the push.
    pub stale: Counter,
    /// Events that went from its full queue unread.
    pub lost: Counter,
    /// Events that it read.
    pub read: Counter,
}

/// What happened at a stream's door.
#[derive(Debug, Default)]
pub struct StreamBook {
    /// Its way through the InputQ; used is what was taken.
    pub queue: EdgeBook,
    /// Events that were not accepted, because the InputQ or the ring was full.
    pub refused: Counter,
    /// Duplicates, which are passed over (rule E4).
    pub duplicate: Counter,
    /// Events that nobody reads here.
    pub unread: Counter,
}

/// All books.
#[derive(Debug, Default)]
pub struct Books {
    /// By stream.
    pub streams: Box<[StreamBook]>,
    /// By operator.
    pub operators: Box<[OperatorBook]>,
    /// By consumer.
    pub consumers: Box<[ConsumerBook]>,
}

impl Books {
    /// Empty, for so many streams, edges by operator, and consumers.
    pub fn new(streams: usize, edges: impl Iterator<Item = usize>, consumers: usize) -> Books {
        Books {
            streams: (0..streams).map(|_| StreamBook::default()).collect(),
            operators: edges.map(OperatorBook::new).collect(),
            consumers: (0..consumers).map(|_| ConsumerBook::default()).collect(),
        }
    }
}
