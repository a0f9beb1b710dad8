//! Where partitions keep what is theirs: a place a key, in tables with a row of so many entries a place.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::event::{Events, Handle, Held, List};
use crate::expr::Attribute;
use crate::judge::{Desk, Judge};
use crate::partial::Pending;
use crate::plan::Plan;
use crate::runs::Runs;
use crate::sorted::Sorted;
use crate::value::{Key, Value};

/// The lists of one partition.
#[derive(Clone, Copy)]
pub struct Lists<'p> {
    /// The events of each variable.
    pub by_variable: &'p [List],
    /// By index of the plan: those with a value where the index looks.
    pub by_value: &'p [HashMap<Key, List>],
    /// The long ones by number, and the place of this partition in it.
    pub sorted: (&'p Sorted, u32),
}

/// What a partition waits with.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) runs: Runs,
    /// By when they are due, and a number that makes them differ.
    pub(super) pending: BTreeMap<(i64, u64), Pending>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.pending.is_empty()
    }
}

/// A partition is a place in these tables, each with a row of so many entries a place.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// The parts of its key.
    keys: Vec<Value>,
    /// Its events, by variable.
    lists: Vec<List>,
    /// Its events, by index of the plan.
    indexes: Vec<HashMap<Key, List>>,
    sorted: Sorted,
    pub(super) waiting: Vec<Option<Box<Waiting>>>,
    /// Some that are not used now: partitions begin and end to wait all the time.
    #[allow(clippy::vec_box)] // they move in and out as they are
    pub(super) spare: Vec<Box<Waiting>>,
    /// Places by the hash of their key.
    pub(super) places: HashTable<u32>,
    free: Vec<u32>,
}

/// The place of what is in no partition: the events of NOT variables that the key does not reach.
pub(super) const SHARED: u32 = 0;
/// Tables that have grown beyond this many places are let go of once they are empty.
pub(super) const SMALL: usize = 64;

impl Tables {
    pub(super) fn add_place(&mut self, plan: &Plan) -> u32 {
        let place = self.waiting.len();
        if place == self.waiting.capacity() {
            // Not for as many again.
            let more = place / 8 + 8;
            self.keys.reserve_exact(more * plan.keys.len());
            self.lists.reserve_exact(more * plan.variables.len());
            self.indexes.reserve_exact(more * plan.indexes.len());
            self.waiting.reserve_exact(more);
        }
        self.keys.resize((place + 1) * plan.keys.len(), Value::Null);
        self.lists
            .resize_with((place + 1) * plan.variables.len(), List::default);
        self.indexes.resize_with((place + 1) * plan.indexes.len(), HashMap::new);
        self.waiting.push(None);
        place as u32
    }

    pub(super) fn key(&self, plan: &Plan, place: u32) -> &[Value] {
        row(&self.keys, plan.keys.len(), place)
    }

    pub(super) fn lists(&self, plan: &Plan, place: u32) -> Lists<'_> {
        Lists {
            by_variable: row(&self.lists, plan.variables.len(), place),
            by_value: row(&self.indexes, plan.indexes.len(), place),
            sorted: (&self.sorted, place),
        }
    }

    pub(super) fn judge<'p>(&'p self, plan: &'p Plan, events: &'p Events, place: u32, desk: &mut Desk) -> Judge<'p> {
        Judge::new(plan, events, self.lists(plan, place), self.lists(plan, SHARED), desk)
    }

    /// The place of the partition of an event, if there is one, and the hash of its key; None if a null excludes it.
    #[inline]
    pub(super) fn find(
        &self,
        plan: &Plan,
        hasher: &DefaultHashBuilder,
        attributes: &[Attribute],
        event: Held<'_>,
    ) -> Option<(u64, Option<u32>)> {
        let mut state = hasher.build_hasher();
        for (part, kind) in plan.key(attributes, event).zip(&plan.keys) {
            part?.hash_part(kind.once, &mut state);
        }
        let hash = state.finish();
        let same = |place: &u32| {
            let known = self.key(plan, *place).iter().zip(&plan.keys);
            let wanted = plan.key(attributes, event).flatten();
            known.zip(wanted).all(|((a, kind), b)| a.is_part(kind.once, &b))
        };
        Some((hash, self.places.find(hash, same).copied()))
    }

    /// The place of the partition of an event, made if need be; None if a null in its key excludes it.
    #[inline]
    pub(super) fn place(
        &mut self,
        plan: &Plan,
        hasher: &DefaultHashBuilder,
        attributes: &[Attribute],
        event: Held<'_>,
    ) -> Option<u32> {
        let (hash, found) = self.find(plan, hasher, attributes, event)?;
        if found.is_some() {
            return found;
        }
        let place = match self.free.pop() {
            Some(place) => place,
            None => self.add_place(plan),
        };
        let width = plan.keys.len();
        let start = place as usize * width;
        let parts = plan.key(attributes, event).flatten();
        for (slot, part) in self.keys[start..start + width].iter_mut().zip(parts) {
            *slot = part.into_owned();
        }
        let keys = &self.keys;
        let rehash = |place: &u32| hash_row(plan, hasher, row(keys, width, *place));
        self.places.insert_unique(hash, place, rehash);
        Some(place)
    }

    pub(super) fn is_empty(&self, plan: &Plan, place: u32) -> bool {
        self.waiting[place as usize].is_none() && self.lists(plan, place).by_variable.iter().all(List::is_empty)
    }

    pub(super) fn remove(&mut self, plan: &Plan, hasher: &DefaultHashBuilder, place: u32) {
        let hash = hash_row(plan, hasher, self.key(plan, place));
        if let Ok(entry) = self.places.find_entry(hash, |other| *other == place) {
            entry.remove();
            self.free.push(place);
        }
    }

    /// Puts back what a partition waits with.
    pub(super) fn wait(&mut self, place: u32, waiting: Box<Waiting>) {
        if !waiting.is_empty() {
            self.waiting[place as usize] = Some(waiting);
        } else if self.spare.len() < SMALL {
            self.spare.push(waiting);
        }
    }

    pub(super) fn push(&mut self, plan: &Plan, events: &Events, place: u32, variable: usize, event: Handle) {
        let list = &mut self.lists[place as usize * plan.variables.len() + variable];
        list.push(event);
        for (number, index) in plan.range_indexes.iter().enumerate() {
            if index.variable == variable {
                self.sorted.push(events, (place, number), index, list, event);
            }
        }
        for (number, index) in plan.indexes.iter().enumerate().filter(|(_, i)| i.variable == variable) {
            if let Some(key) = index.key(index.attribute.kept(events.row(event))) {
                let lists = &mut self.indexes[place as usize * plan.indexes.len() + number];
                lists.entry(key).or_default().push(event);
            }
        }
    }

    /// Takes the oldest event of a variable out of a partition; the caller holds it still.
    pub(super) fn pop(&mut self, plan: &Plan, events: &Events, place: u32, variable: usize) {
        let list = &mut self.lists[place as usize * plan.variables.len() + variable];
        let Some(event) = list.pop() else {
            return;
        };
        for (number, index) in plan.range_indexes.iter().enumerate() {
            if index.variable == variable {
                self.sorted.pop(events, (place, number), index, list, event);
            }
        }
        for (number, index) in plan.indexes.iter().enumerate().filter(|(_, i)| i.variable == variable) {
            let lists = &mut self.indexes[place as usize * plan.indexes.len() + number];
            if let Some(key) = index.key(index.attribute.kept(events.row(event)))
                && let Some(list) = lists.get_mut(&key)
            {
                list.pop();
                if list.is_empty() {
                    lists.remove(&key);
                }
            }
        }
    }
}

fn row<T>(table: &[T], width: usize, place: u32) -> &[T] {
    &table[place as usize * width..][..width]
}

fn hash_row(plan: &Plan, hasher: &DefaultHashBuilder, key: &[Value]) -> u64 {
    let mut state = hasher.build_hasher();
    let parts = key.iter().zip(&plan.keys);
    parts.for_each(|(part, kind)| part.hash_part(kind.once, &mut state));
    state.finish()
}
