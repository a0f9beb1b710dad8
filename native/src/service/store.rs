//! The EventStore: one ring an event type, one instance an event, read in place by everyone who needs it.
//!
//! A ring begins with as many slots as the plan says can be valid at once. A slot is reclaimed lazily: what was in it stays
//! until its turn comes, and it is passed over while someone holds it. Where all are held the ring grows by a slot, up
//! to its bound; at the bound the new event is refused, never an old one overwritten. A slot keeps its buffer, so that
//! nothing is allocated once a ring has met its largest events and its slowest readers. Rings are opened and closed while
//! others are used: none ever moves, and a closed one is opened again for the next event type.
//!
//! Why this is sound, slot by slot. `refs` is 0 for a free slot, 1 while the last reader closes the books, and else the number
//! of tokens plus 1. Only who changes 0 to 2 (compare-exchange, acquire) may write, and it holds the only token until it
//! makes more from it; so while a token exists nobody writes, and a token is not `Copy`. The last release (from 2 to 1,
//! acquire-release) sees all that other readers did before theirs; it stores 0 with release, which the next writer's acquire sees.
//! The tests named loom_ run this protocol through every interleaving (atomics.rs says how).

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use crate::record::Encoder;
use crate::service::atomics::{AtomicU8, AtomicU32, Ordering, fence};
use crate::service::books::{Counter, FATES, Fate};
use crate::service::stable::Stable;

/// No ring has more slots: a token has 16 bits for one.
pub const MAX_SLOTS: usize = u16::MAX as usize;
/// Nor are there more rings: a token has 16 bits for one, and none of them is 0.
pub const MAX_RINGS: usize = u16::MAX as usize;

const CHUNK: usize = 16;

/// The label of an event that was stale.
pub const STALE: u8 = 1;
/// The label of an event whose inputs did not keep a relative set.
pub const RELATIVE: u8 = 2;
/// The label of a match that was found late, because the engine was not there when its events came.
pub const RECOVERED: u8 = 4;

/// What the service knows of an event besides its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// When its validity begins, in microseconds.
    pub begin: i64,
    /// When it ends; `i64::MAX` is never.
    pub end: i64,
    /// When the last supplier event in it was pushed, in nanoseconds of the monotonic clock.
    pub pushed: u64,
    /// STALE, RELATIVE.
    pub marks: u8,
}

/// A record's bytes: copied from a supplier, or built in place by an operator.
#[derive(Debug, Default)]
pub struct Body {
    copied: Vec<u64>,
    /// For operators.
    pub encoder: Encoder,
    is_copy: bool,
}

impl Body {
    /// Takes the bytes of a checked record.
    pub fn copy(&mut self, record: &[u8]) {
        self.copied.clear();
        self.copied.resize(record.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.copied)[..record.len()].copy_from_slice(record);
        self.is_copy = true;
    }

    /// An empty encoder for one record.
    pub fn build(&mut self) -> &mut Encoder {
        self.is_copy = false;
        self.encoder.clear();
        &mut self.encoder
    }

    fn bytes(&self) -> &[u8] {
        if self.is_copy {
            bytemuck::cast_slice(&self.copied)
        } else {
            self.encoder.bytes()
        }
    }
}

#[derive(Debug)]
struct Slot {
    refs: AtomicU32,
    /// A bit for each fate that some reader gave it.
    fates: AtomicU8,
    content: UnsafeCell<(Head, Body)>,
}

// SAFETY: `content` is written only by who claimed the slot and read only by who holds a token of it; `refs` keeps the
// two apart, with the orderings that the module's head explains.
unsafe impl Sync for Slot {}

impl Slot {
    fn new() -> Slot {
        let head = Head {
            begin: 0,
            end: 0,
            pushed: 0,
            marks: 0,
        };
        Slot {
            refs: AtomicU32::new(0),
            fates: AtomicU8::new(0),
            content: UnsafeCell::new((head, Body::default())),
        }
    }

    fn claim(&self) -> bool {
        let refs = &self.refs;
        refs.load(Ordering::Relaxed) == 0
            && refs
                .compare_exchange(0, 2, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }
}

/// The right to read one event; given back with `release`. Not `Copy`: one that exists is one that is counted.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a token that is dropped keeps its slot forever"]
pub struct Token(u32);

impl Token {
    fn new(ring: usize, slot: usize) -> Token {
        Token((ring as u32 + 1) << 16 | slot as u32)
    }

    /// The number of its producer.
    pub fn ring(&self) -> usize {
        (self.0 >> 16) as usize - 1
    }

    fn slot(&self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// As a number that is not 0, for cells that are swapped.
    pub fn into_raw(self) -> u32 {
        self.0
    }

    /// The token that was that number.
    ///
    /// # Safety
    /// The number came from `into_raw`, and is made a token again only once.
    pub unsafe fn from_raw(raw: u32) -> Token {
        Token(raw)
    }
}

/// The events of one type.
#[derive(Debug)]
struct Ring {
    /// Slots are made, CHUNK at a time, when the ring first grows to them.
    chunks: Stable<Box<[Slot]>>,
    bound: AtomicU32,
    /// How many of them are in use so far.
    active: AtomicU32,
    next: AtomicU32,
    created: Counter,
    fates: [Counter; 4],
    refused: Counter,
}

/// How the events of a type fared. `held` is what was created and has no fate yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingBook {
    /// Events that were put in.
    pub created: u64,
    /// By fate, in the order of FATES.
    pub fates: [u64; 4],
    /// Events for which there was no room.
    pub refused: u64,
    /// Slots in use so far.
    pub slots: usize,
    /// Slots that there can be.
    pub bound: usize,
}

impl RingBook {
    /// What was created and has no fate yet.
    pub fn held(&self) -> u64 {
        self.created.saturating_sub(self.fates.iter().sum())
    }
}

/// All rings, by the numbers of the producers.
#[derive(Debug)]
pub struct Store {
    rings: Stable<Ring>,
}

/// A slot that was claimed and is being written.
#[derive(Debug)]
pub struct Writer<'s> {
    store: &'s Store,
    token: Token,
    /// Writes through a shared store, so it must not be shared itself.
    not_sync: PhantomData<*mut ()>,
}

/// An event, while someone holds a token of it.
#[derive(Clone, Copy, Debug)]
pub struct Event<'t> {
    /// What the service knows of it.
    pub head: &'t Head,
    /// Its record.
    pub bytes: &'t [u8],
}

impl Store {
    /// For rings of (slots to begin with, the most slots).
    pub fn new(sizes: impl IntoIterator<Item = (usize, usize)>) -> Store {
        let store = Store {
            rings: Stable::new(MAX_RINGS),
        };
        for (number, (first, most)) in sizes.into_iter().enumerate() {
            store.open(number, first, most);
        }
        store
    }

    /// Begins a ring of an event type under a number that is not in use: its books begin at nothing.
    pub fn open(&self, number: usize, first: usize, most: usize) {
        let ring = self.rings.get_or_make(number, Ring::default);
        let most = most.clamp(1, MAX_SLOTS);
        ring.bound.store(most as u32, Ordering::Relaxed);
        ring.active.store(first.clamp(1, most) as u32, Ordering::Relaxed);
        ring.fates.iter().for_each(Counter::reset);
        ring.created.reset();
        ring.refused.reset();
    }

    /// Lets a ring grow to so many slots.
    pub fn widen(&self, number: usize, most: usize) {
        let most = most.clamp(1, MAX_SLOTS) as u32;
        self.ring(number).bound.fetch_max(most, Ordering::Relaxed);
    }

    #[inline]
    fn ring(&self, number: usize) -> &Ring {
        // A token or a producer has its number, so that it was opened.
        self.rings.get_or_make(number, Ring::default)
    }

    fn slot(&self, token: &Token) -> &Slot {
        self.ring(token.ring()).slot(token.slot())
    }

    /// The ring's next free slot; None, and counted, if all are held and there can be no more.
    pub fn claim(&self, ring_number: usize) -> Option<Writer<'_>> {
        let ring = self.ring(ring_number);
        let found = ring.claim();
        if found.is_none() {
            ring.refused.add(1);
        }
        found.map(|slot| Writer {
            store: self,
            token: Token::new(ring_number, slot),
            not_sync: PhantomData,
        })
    }

    /// Another token of the same event.
    #[inline]
    pub fn retain(&self, token: &Token) -> Token {
        // Relaxed is enough, as for Arc: who has a token can give one away only by something that synchronises.
        self.slot(token).refs.fetch_add(1, Ordering::Relaxed);
        Token(token.0)
    }

    /// The event of a token.
    #[inline]
    pub fn read<'t>(&'t self, token: &'t Token) -> Event<'t> {
        // SAFETY: the token is borrowed for as long as the event is, so `refs` stays above 1 and nobody writes.
        let (head, body) = unsafe { &*self.slot(token).content.get() };
        Event {
            head,
            bytes: body.bytes(),
        }
    }

    /// A reader is done with an event, for this reason.
    #[inline]
    pub fn release(&self, token: Token, fate: Fate) {
        self.slot(&token).fates.fetch_or(1 << fate as u8, Ordering::Relaxed);
        self.forget(token);
    }

    /// Gives a token back that stood for no reader.
    #[inline]
    pub fn forget(&self, token: Token) {
        let slot = self.slot(&token);
        // Release: what this reader did comes before what the last one, and then the next writer, does.
        if slot.refs.fetch_sub(1, Ordering::Release) != 2 {
            return;
        }
        fence(Ordering::Acquire);
        let fates = slot.fates.load(Ordering::Relaxed);
        let fate = FATES.into_iter().find(|fate| fates >> *fate as u8 & 1 == 1);
        // An event that nobody reads was of as much use as it could be.
        self.ring(token.ring()).fates[fate.unwrap_or(Fate::Used) as usize].add(1);
        slot.refs.store(0, Ordering::Release);
    }

    /// The books of a ring.
    pub fn book(&self, ring: usize) -> RingBook {
        let ring = self.ring(ring);
        RingBook {
            created: ring.created.get(),
            fates: [0, 1, 2, 3].map(|fate: usize| ring.fates[fate].get()),
            refused: ring.refused.get(),
            slots: ring.active.load(Ordering::Relaxed) as usize,
            bound: ring.bound.load(Ordering::Relaxed) as usize,
        }
    }
}

impl Default for Ring {
    fn default() -> Ring {
        Ring {
            chunks: Stable::new(MAX_SLOTS.div_ceil(CHUNK)),
            bound: AtomicU32::new(1),
            active: AtomicU32::new(1),
            next: AtomicU32::new(0),
            created: Counter::default(),
            fates: Default::default(),
            refused: Counter::default(),
        }
    }
}

impl Ring {
    #[inline]
    fn slot(&self, number: usize) -> &Slot {
        let make = || (0..CHUNK).map(|_| Slot::new()).collect();
        let chunk = self.chunks.get_or_make(number / CHUNK, make);
        &chunk[number % CHUNK]
    }

    fn claim(&self) -> Option<usize> {
        loop {
            let active = self.active.load(Ordering::Relaxed);
            let first = self.next.fetch_add(1, Ordering::Relaxed);
            let free = (0..active).find(|step| self.slot((first.wrapping_add(*step) % active) as usize).claim());
            if let Some(step) = free {
                if step > 0 {
                    self.next.store(first.wrapping_add(step + 1), Ordering::Relaxed);
                }
                return Some((first.wrapping_add(step) % active) as usize);
            }
            if active >= self.bound.load(Ordering::Relaxed) {
                return None;
            }
            // Who loses this race finds a larger ring.
            let _ = self
                .active
                .compare_exchange(active, active + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Writer<'_> {
    /// Where the record goes.
    pub fn body(&mut self) -> &mut Body {
        &mut self.content().1
    }

    fn content(&mut self) -> &mut (Head, Body) {
        // SAFETY: this is the only token of a slot that this writer claimed, and it is borrowed mutably with the writer.
        unsafe { &mut *self.store.slot(&self.token).content.get() }
    }

    /// The event is complete; the first token of it.
    pub fn publish(mut self, head: Head) -> Token {
        self.content().0 = head;
        let store = self.store;
        store.slot(&self.token).fates.store(0, Ordering::Relaxed);
        store.ring(self.token.ring()).created.add(1);
        // Dropping the writer would free the slot; its token goes on instead.
        let token = Token(self.token.0);
        std::mem::forget(self);
        token
    }
}

impl Drop for Writer<'_> {
    /// Nothing came of it: the slot is free again.
    fn drop(&mut self) {
        self.store.slot(&self.token).refs.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "store_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "store_loom.rs"]
mod loom_tests;
