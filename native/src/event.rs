//! Events as a matcher keeps them, in one place and named by handles, and their one total order (rule E2).

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::num::NonZeroU32;

use arcstr::ArcStr;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::value::{Val, Value};

/// The id of an event: a number, or text compared bytewise; one kind a stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// A number.
    Int(i64),
    /// Text.
    Str(ArcStr),
}

impl Id {
    /// The id as a value, which `?e.id` reads.
    #[inline]
    pub fn view(&self) -> Val<'_> {
        match self {
            Id::Int(x) => Val::Int(*x),
            Id::Str(x) => Val::Str(x.as_str().into()),
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

/// What identifies an event and orders it: its time, the place of its stream among the query's, which are in the order
/// of their names, and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// When it was created, in microseconds.
    pub time: i64,
    /// Its stream.
    pub stream: u16,
    /// Its id.
    pub id: Id,
}

/// An event among those that a matcher keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(NonZeroU32);

impl Handle {
    /// Not after any other.
    pub const FIRST: Handle = Handle(NonZeroU32::MIN);
    /// Not before any other.
    pub const LAST: Handle = Handle(NonZeroU32::MAX);

    fn at(place: usize) -> Self {
        // 2^32 events would need hundreds of GiB: a budget ends that long before.
        Handle(NonZeroU32::new(place as u32 + 1).unwrap_or(NonZeroU32::MAX))
    }

    #[inline]
    fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The events that a matcher keeps, with the attributes that the query reads. An event stays as long as someone holds
/// it; there is no more to it than a line in two tables, so in a steady state nothing is allocated.
#[derive(Debug, Default)]
pub struct Events {
    names: Vec<Name>,
    /// How many hold each.
    holders: Vec<u32>,
    /// So many to an event.
    values: Vec<Value>,
    width: usize,
    /// MATCH STRICT: the number of an event among all of its partition; else empty.
    numbers: Vec<u64>,
    numbered: bool,
    free: Vec<Handle>,
    texts: Texts,
}

/// Tables that have grown beyond this many events are let go of once they are empty.
const SMALL: usize = 64;

impl Events {
    /// None yet. Each has so many values, and a number if asked for.
    pub fn new(width: usize, numbered: bool) -> Self {
        Events {
            width,
            numbered,
            ..Events::default()
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes an event, held by the caller. Values beyond those given are null.
    #[inline]
    pub fn add<'v>(&mut self, name: Name, values: impl Iterator<Item = Val<'v>>, number: u64) -> Handle {
        let handle = match self.free.pop() {
            Some(handle) => {
                self.names[handle.place()] = name;
                self.holders[handle.place()] = 1;
                handle
            }
            None => {
                let handle = Handle::at(self.names.len());
                self.make_room();
                self.names.push(name);
                self.holders.push(1);
                self.values.resize(self.names.len() * self.width, Value::Null);
                if self.numbered {
                    self.numbers.push(0);
                }
                handle
            }
        };
        let start = handle.place() * self.width;
        for (slot, value) in self.values[start..start + self.width].iter_mut().zip(values) {
            *slot = self.texts.value(value);
        }
        if self.numbered {
            self.numbers[handle.place()] = number;
        }
        handle
    }

    /// Room for some more, but not for as many again: these tables are most of what a matcher takes.
    fn make_room(&mut self) {
        if self.names.len() == self.names.capacity() {
            let more = self.names.len() / 8 + 8;
            self.names.reserve_exact(more);
            self.holders.reserve_exact(more);
            self.values.reserve_exact(more * self.width);
        }
    }

    /// One more holds it.
    #[inline]
    pub fn hold(&mut self, handle: Handle) {
        self.holders[handle.place()] += 1;
    }

    /// One less holds it; after the last the handle means nothing.
    #[inline]
    pub fn release(&mut self, handle: Handle) {
        let holders = &mut self.holders[handle.place()];
        *holders -= 1;
        if *holders > 0 {
            return;
        }
        self.names[handle.place()].id = Id::Int(0);
        let start = handle.place() * self.width;
        self.values[start..start + self.width].fill(Value::Null);
        self.free.push(handle);
        if self.names.len() > SMALL && self.is_empty() {
            *self = Events::new(self.width, self.numbered);
        }
    }

    /// Its time.
    #[inline]
    pub fn time(&self, handle: Handle) -> i64 {
        self.names[handle.place()].time
    }

    /// What identifies it.
    #[inline]
    pub fn name(&self, handle: Handle) -> &Name {
        &self.names[handle.place()]
    }

    /// Its number among the events of its partition; 0 if it is in none, or numbers are not kept.
    pub fn number(&self, handle: Handle) -> u64 {
        self.numbers.get(handle.place()).copied().unwrap_or(0)
    }

    /// Gives it its number.
    pub fn set_number(&mut self, handle: Handle, number: u64) {
        if let Some(place) = self.numbers.get_mut(handle.place()) {
            *place = number;
        }
    }

    /// Its values, by slot.
    #[inline]
    pub fn values(&self, handle: Handle) -> &[Value] {
        let start = handle.place() * self.width;
        &self.values[start..start + self.width]
    }

    /// The event as a row.
    #[inline]
    pub fn row(&self, handle: Handle) -> Held<'_> {
        Held {
            name: self.name(handle),
            values: self.values(handle),
        }
    }

    /// Compares two by time, stream name and id.
    #[inline]
    pub fn order(&self, one: Handle, other: Handle) -> Ordering {
        self.name(one).cmp(self.name(other))
    }
}

/// An event that is kept, to be read.
#[derive(Clone, Copy, Debug)]
pub struct Held<'e> {
    /// What identifies it.
    pub name: &'e Name,
    /// Its values, by slot.
    pub values: &'e [Value],
}

impl Row for Held<'_> {
    #[inline]
    fn time(&self) -> i64 {
        self.name.time
    }

    #[inline]
    fn stream(&self) -> u16 {
        self.name.stream
    }

    #[inline]
    fn id(&self) -> Val<'_> {
        self.name.id.view()
    }

    #[inline]
    fn value(&self, slot: usize) -> Val<'_> {
        self.values.get(slot).map_or(Val::Null, Value::view)
    }
}

/// The events of one variable, oldest first: most are few, and then take no space of their own.
#[derive(Debug)]
pub enum List {
    /// Up to three.
    Few(u8, [Handle; 3]),
    /// More.
    Many(Box<VecDeque<Handle>>),
}

impl Default for List {
    fn default() -> Self {
        List::Few(0, [Handle::at(0); 3])
    }
}

impl List {
    /// How many.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            List::Few(count, _) => usize::from(*count),
            List::Many(handles) => handles.len(),
        }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The one at a place.
    #[inline]
    pub fn get(&self, place: usize) -> Option<Handle> {
        match self {
            List::Few(count, few) => few[..usize::from(*count)].get(place).copied(),
            List::Many(handles) => handles.get(place).copied(),
        }
    }

    /// From a place on.
    pub fn from(&self, place: usize) -> impl Iterator<Item = Handle> + use<'_> {
        (place..self.len()).filter_map(|place| self.get(place))
    }

    /// The place of the first that is not before a time.
    pub fn since(&self, events: &Events, time: i64) -> usize {
        let is_before = |handle: &Handle| events.time(*handle) < time;
        match self {
            List::Few(count, few) => few[..usize::from(*count)].iter().take_while(|h| is_before(h)).count(),
            List::Many(handles) => handles.partition_point(is_before),
        }
    }

    /// Adds a newer one.
    pub fn push(&mut self, handle: Handle) {
        match self {
            List::Few(count, few) if usize::from(*count) < few.len() => {
                few[usize::from(*count)] = handle;
                *count += 1;
            }
            List::Few(_, few) => {
                let mut handles = VecDeque::with_capacity(8);
                handles.extend(few.iter().copied());
                handles.push_back(handle);
                *self = List::Many(Box::new(handles));
            }
            List::Many(handles) => handles.push_back(handle),
        }
    }

    /// Takes the oldest.
    pub fn pop(&mut self) -> Option<Handle> {
        match self {
            List::Few(0, _) => None,
            List::Few(count, few) => {
                let oldest = few[0];
                few.rotate_left(1);
                *count -= 1;
                Some(oldest)
            }
            List::Many(handles) => {
                let oldest = handles.pop_front();
                if handles.is_empty() {
                    *self = List::default();
                }
                oldest
            }
        }
    }
}

/// The texts of events, each once: two of them are equal if they are the same. One that no event has is forgotten when
/// there are many of those.
#[derive(Debug)]
pub struct Texts {
    texts: HashTable<ArcStr>,
    hasher: DefaultHashBuilder,
    /// When the table has so many, the forgotten ones are taken out.
    limit: usize,
}

const FEW_TEXTS: usize = 64;

impl Default for Texts {
    fn default() -> Self {
        Texts {
            texts: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            limit: FEW_TEXTS,
        }
    }
}

impl Texts {
    /// A text to keep.
    #[inline]
    pub fn keep(&mut self, text: &str) -> ArcStr {
        let hash = self.hasher.hash_one(text);
        if let Some(known) = self.texts.find(hash, |known| known.as_str() == text) {
            return known.clone();
        }
        self.add(text, hash)
    }

    fn add(&mut self, text: &str, hash: u64) -> ArcStr {
        let rehash = |text: &ArcStr| self.hasher.hash_one(text.as_str());
        if self.texts.len() >= self.limit {
            self.texts.retain(|text| ArcStr::strong_count(text) != Some(1));
            self.limit = (self.texts.len() * 2).max(FEW_TEXTS);
            self.texts.shrink_to(self.limit, rehash);
        }
        let text = ArcStr::from(text);
        self.texts.insert_unique(hash, text.clone(), rehash);
        text
    }

    /// A value to keep.
    #[inline]
    pub fn value(&mut self, value: Val<'_>) -> Value {
        match value {
            Val::Str(text) => Value::Str(self.keep(&text)),
            other => other.into_value(),
        }
    }
}
