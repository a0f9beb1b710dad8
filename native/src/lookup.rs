//! Which patterns a record concerns, whatever number of them reads its stream.
//!
//! Of each variable's FILTERs one comparison with a constant is looked up: all equalities of an attribute in one table,
//! all bounds of an attribute in one sorted list. So queries that differ in a constant cost what their matches cost.
//! What is found that way is a superset; the conditions that are left are judged, each once a record.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::event::Row;
use crate::expr::{Alone, Expr, Sign, Slot};
use crate::matcher::Matcher;
use crate::plan::{Plan, Policy};
use crate::value::{Val, Value};

/// A stream that some of the queries read.
#[derive(Debug)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// The attributes that some query reads.
    pub attributes: Vec<String>,
    readers: Vec<Reader>,
    /// Readers, and the variables for which nothing can be looked up.
    always: Vec<(u32, u64)>,
    equal: Vec<Equal>,
    bounds: Vec<Bounds>,
    conditions: Conditions,
    /// By reader: the variables that an event can qualify for.
    masks: Vec<u64>,
    /// Readers that a record concerns, for the time being.
    marked: Vec<(u32, u64)>,
}

/// A pattern that reads a stream.
#[derive(Debug)]
struct Reader {
    pattern: u32,
    /// The stream's place in the pattern.
    stream: u16,
    /// The places of the pattern's attributes among the stream's.
    slots: Vec<usize>,
    /// Whether it counts events that qualify for nothing, as MATCH STRICT does.
    takes_all: bool,
    /// Its variables of this stream, and the conditions that each has.
    variables: Vec<(usize, Vec<u32>)>,
}

/// The different conditions that are asked of a stream's records, and what is known of the present one.
#[derive(Debug, Default)]
struct Conditions {
    /// Over the stream's attributes.
    expressions: Vec<Expr>,
    numbers: HashMap<String, u32>,
    /// The number of the record that each was last judged for, twice, and one more if it was true.
    verdicts: Vec<u64>,
    record: u64,
    judged: u64,
}

impl Conditions {
    /// The number of a condition of a pattern's, which is the same for equal ones.
    fn number(&mut self, condition: &Expr, (stream, place): (usize, usize), slots: &[usize]) -> u32 {
        let mut condition = condition.clone();
        condition.rewrite(&mut |part| {
            if let Expr::Attribute(attribute) = part {
                let slot = match attribute.slots.get(stream) {
                    Some(Slot::At(slot)) => Slot::At(slots[*slot]),
                    Some(other) => *other,
                    None => Slot::Missing,
                };
                attribute.variable = 0;
                attribute.slots = vec![Slot::Missing; place + 1].into();
                attribute.slots[place] = slot;
            }
        });
        let next = self.expressions.len() as u32;
        let number = *self.numbers.entry(format!("{condition:?}")).or_insert(next);
        if number == next {
            self.expressions.push(condition);
            self.verdicts.push(0);
        }
        number
    }

    /// Whether a condition is true of the present record.
    #[inline]
    fn holds(&mut self, number: u32, row: &impl Row) -> bool {
        let verdict = &mut self.verdicts[number as usize];
        if *verdict >> 1 != self.record {
            let holds = self.expressions[number as usize].holds(&Alone(row));
            *verdict = self.record << 1 | u64::from(holds);
            self.judged += 1;
        }
        *verdict & 1 == 1
    }
}

/// A reader, and its variables, for whom something is looked up.
#[derive(Clone, Debug)]
struct User {
    reader: u32,
    mask: u64,
    /// Another condition, that an attribute equals a constant: what fails here never touches the pattern.
    also: Option<u32>,
}

/// Those who ask that an attribute equals a constant.
#[derive(Debug)]
struct Equal {
    slot: usize,
    hasher: DefaultHashBuilder,
    users: HashTable<(Value, Vec<User>)>,
}

/// Those who ask that an attribute is beyond a constant, in the order of the constants.
#[derive(Debug)]
struct Bounds {
    slot: usize,
    /// Whether above.
    above: bool,
    users: Vec<(f64, User)>,
}

/// A row as one of the patterns sees it.
pub(crate) struct Seen<'r, R> {
    row: &'r R,
    reader: &'r Reader,
}

impl<R: Row> Row for Seen<'_, R> {
    fn time(&self) -> i64 {
        self.row.time()
    }

    fn stream(&self) -> u16 {
        self.reader.stream
    }

    fn id(&self) -> Val<'_> {
        self.row.id()
    }

    fn value(&self, slot: usize) -> Val<'_> {
        self.reader
            .slots
            .get(slot)
            .map_or(Val::Null, |slot| self.row.value(*slot))
    }

    fn is_faulty(&self) -> bool {
        self.row.is_faulty()
    }
}

/// A comparison that can be looked up.
enum Lookup<'p> {
    Equal(usize, Vec<&'p Value>, &'p Expr),
    Beyond(usize, bool, f64),
}

impl Lookup<'_> {
    /// What is looked up in one place: the attribute, and how.
    fn place(&self) -> (usize, u8) {
        match self {
            Lookup::Equal(slot, ..) => (*slot, 0),
            Lookup::Beyond(slot, above, _) => (*slot, 1 + u8::from(*above)),
        }
    }
}

fn lookups<'p>(plan: &'p Plan, variable: usize, stream: usize) -> Vec<Lookup<'p>> {
    let filters = plan.variables[variable].filters.iter().flat_map(Expr::conjuncts);
    filters.filter_map(|filter| lookup(filter, stream)).collect()
}

fn lookup(filter: &Expr, stream: usize) -> Option<Lookup<'_>> {
    let slot = |expression: &Expr| match expression {
        Expr::Attribute(attribute) => match attribute.slots.get(stream) {
            Some(Slot::At(slot)) => Some(*slot),
            _ => None,
        },
        _ => None,
    };
    let constant = |expression: &'_ Expr| match expression {
        Expr::Constant(value) => value.view().number(),
        _ => None,
    };
    match filter {
        Expr::Compare(Sign::Equal, sides) => match sides.as_ref() {
            (own, Expr::Constant(value)) | (Expr::Constant(value), own) => {
                Some(Lookup::Equal(slot(own)?, vec![value], filter))
            }
            _ => None,
        },
        Expr::Compare(sign, sides) => {
            let (own, bound, turned) = match sides.as_ref() {
                (own, Expr::Constant(value)) => (own, value.view().number()?, false),
                (Expr::Constant(value), own) => (own, value.view().number()?, true),
                _ => return None,
            };
            let above = match sign {
                Sign::Greater | Sign::GreaterEqual => true,
                Sign::Less | Sign::LessEqual => false,
                Sign::Equal | Sign::Unequal => return None,
            };
            Some(Lookup::Beyond(slot(own)?, above != turned, bound))
        }
        Expr::Between(parts, false) => Some(Lookup::Beyond(slot(&parts.0)?, true, constant(&parts.1)?)),
        Expr::In(own, items, false) => {
            let constants = items.iter().map(|item| match item {
                Expr::Constant(value) => Some(value),
                _ => None,
            });
            Some(Lookup::Equal(slot(own)?, constants.collect::<Option<_>>()?, filter))
        }
        _ => None,
    }
}

impl Stream {
    /// One that nobody reads yet.
    pub(crate) fn new(name: &str) -> Self {
        Stream {
            name: name.to_string(),
            attributes: Vec::new(),
            readers: Vec::new(),
            always: Vec::new(),
            equal: Vec::new(),
            bounds: Vec::new(),
            conditions: Conditions::default(),
            masks: Vec::new(),
            marked: Vec::new(),
        }
    }

    /// Adds a pattern that reads it, as its stream of this number.
    pub(crate) fn read_by(&mut self, pattern: usize, plan: &Plan, number: usize) {
        let attributes = plan.streams[number].attributes.iter();
        let slots = attributes.map(|name| self.slot(name)).collect();
        self.readers.push(Reader {
            pattern: pattern as u32,
            stream: number as u16,
            slots,
            takes_all: plan.policy == Policy::Strict,
            variables: Vec::new(),
        });
    }

    /// How many different conditions there are, and how often one was judged.
    pub fn judged(&self) -> (usize, u64) {
        (self.conditions.expressions.len(), self.conditions.judged)
    }

    fn slot(&mut self, name: &str) -> usize {
        let known = self.attributes.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.attributes.push(name.to_string());
            self.attributes.len() - 1
        })
    }

    /// Decides for each variable what is looked up: what most differs between the patterns. `place` is this stream's.
    pub(crate) fn index(&mut self, place: usize, matchers: &[&Matcher]) {
        let mut asked: HashMap<(usize, u8), HashSet<String>> = HashMap::new();
        let own = |lookup: &Lookup<'_>, reader: &Reader| {
            let (slot, kind) = lookup.place();
            (reader.slots[slot], kind)
        };
        for reader in &self.readers {
            let plan = matchers[reader.pattern as usize].plan();
            for &variable in &plan.streams[usize::from(reader.stream)].variables {
                for lookup in lookups(plan, variable, usize::from(reader.stream)) {
                    let constants = asked.entry(own(&lookup, reader)).or_default();
                    match &lookup {
                        Lookup::Equal(_, values, _) => {
                            constants.extend(values.iter().map(|value| format!("{value:?}")))
                        }
                        Lookup::Beyond(_, _, bound) => {
                            constants.insert(format!("{bound:?}"));
                        }
                    }
                }
            }
        }
        for (number, reader) in self.readers.iter_mut().enumerate() {
            let plan = matchers[reader.pattern as usize].plan();
            let number = number as u32;
            let at = (usize::from(reader.stream), place);
            for &variable in &plan.streams[usize::from(reader.stream)].variables {
                let mask = 1 << variable;
                let mut found = lookups(plan, variable, usize::from(reader.stream));
                found.sort_by_key(|lookup| {
                    let (slot, kind) = own(lookup, reader);
                    // Of equals an equality, which is true of fewer events.
                    (asked.get(&(slot, kind)).map_or(0, HashSet::len), Reverse(kind))
                });
                let best = found.pop();
                let filters = plan.variables[variable].filters.iter().flat_map(Expr::conjuncts);
                let numbers = filters.map(|filter| self.conditions.number(filter, at, &reader.slots));
                reader.variables.push((variable, numbers.collect()));
                let also = found.iter().rev().find_map(|lookup| match lookup {
                    Lookup::Equal(_, values, filter) if values.len() == 1 => Some(filter),
                    _ => None,
                });
                let also = also.map(|filter| self.conditions.number(filter, at, &reader.slots));
                let user = User {
                    reader: number,
                    mask,
                    also,
                };
                match best {
                    // STRICT counts all events.
                    Some(Lookup::Equal(slot, values, _)) if plan.policy != Policy::Strict => {
                        let slot = reader.slots[slot];
                        let place = self.equal.iter().position(|equal| equal.slot == slot);
                        let place = place.unwrap_or_else(|| {
                            self.equal.push(Equal {
                                slot,
                                hasher: DefaultHashBuilder::default(),
                                users: HashTable::new(),
                            });
                            self.equal.len() - 1
                        });
                        values.iter().for_each(|value| self.equal[place].add(value, &user));
                    }
                    Some(Lookup::Beyond(slot, above, bound)) if plan.policy != Policy::Strict => {
                        let slot = reader.slots[slot];
                        let same = |bounds: &Bounds| bounds.slot == slot && bounds.above == above;
                        let place = self.bounds.iter().position(same).unwrap_or_else(|| {
                            self.bounds.push(Bounds {
                                slot,
                                above,
                                users: Vec::new(),
                            });
                            self.bounds.len() - 1
                        });
                        self.bounds[place].users.push((bound, user));
                    }
                    _ => self.always.push((number, mask)),
                }
            }
        }
        for bounds in &mut self.bounds {
            bounds.users.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        self.masks = vec![0; self.readers.len()];
    }

    /// Shows a record to each pattern that it concerns, with the variables that it qualifies for.
    #[inline]
    pub(crate) fn show<R: Row>(&mut self, row: &R, mut to: impl FnMut(u32, &Seen<'_, R>, u64)) {
        self.conditions.record += 1;
        self.find(row);
        for (number, candidates) in self.marked.drain(..) {
            let reader = &self.readers[number as usize];
            let mut mask = 0;
            for (variable, conditions) in &reader.variables {
                if candidates >> variable & 1 == 1 && conditions.iter().all(|c| self.conditions.holds(*c, row)) {
                    mask |= 1 << variable;
                }
            }
            if mask != 0 || reader.takes_all {
                to(reader.pattern, &Seen { row, reader }, mask);
            }
        }
    }

    /// Marks the readers that a row can concern, and the variables for which.
    fn find(&mut self, row: &impl Row) {
        let (masks, marked, conditions) = (&mut self.masks, &mut self.marked, &mut self.conditions);
        let mut mark = |reader: u32, mask: u64| {
            let known = &mut masks[reader as usize];
            if *known == 0 {
                marked.push((reader, 0));
            }
            *known |= mask;
        };
        let mut agrees = |user: &User| user.also.is_none_or(|also| conditions.holds(also, row));
        self.always.iter().for_each(|(reader, mask)| mark(*reader, *mask));
        for equal in &self.equal {
            let users = equal.of(&row.value(equal.slot)).iter();
            users
                .filter(|user| agrees(user))
                .for_each(|user| mark(user.reader, user.mask));
        }
        for bounds in &self.bounds {
            if let Some(x) = row.value(bounds.slot).number() {
                let users = bounds.of(x).iter().map(|(_, user)| user);
                users
                    .filter(|user| agrees(user))
                    .for_each(|user| mark(user.reader, user.mask));
            }
        }
        for (reader, mask) in marked {
            *mask = std::mem::take(&mut masks[*reader as usize]);
        }
    }
}

impl Equal {
    fn hash(&self, value: &Val<'_>) -> u64 {
        let mut state = self.hasher.build_hasher();
        value.hash_key(&mut state);
        state.finish()
    }

    fn add(&mut self, value: &Value, user: &User) {
        // Numbers as floats: an integer that a float can't hold finds too many, and the matcher judges.
        let value = value.clone().into_float();
        let hash = self.hash(&value.view());
        let same = |(known, _): &(Value, _)| known.view().order_key(&value.view()).is_eq();
        match self.users.find_mut(hash, same) {
            Some((_, users)) => users.push(user.clone()),
            None => {
                let hasher = &self.hasher;
                let rehash = |(value, _): &(Value, _)| {
                    let mut state = hasher.build_hasher();
                    value.view().hash_key(&mut state);
                    state.finish()
                };
                self.users.insert_unique(hash, (value, vec![user.clone()]), rehash);
            }
        }
    }

    fn of(&self, value: &Val<'_>) -> &[User] {
        let value = value.clone().into_float();
        let same = |(known, _): &(Value, _)| known.view().order_key(&value).is_eq();
        self.users.find(self.hash(&value), same).map_or(&[], |(_, users)| users)
    }
}

impl Bounds {
    /// Those whose bound a number reaches.
    fn of(&self, x: f64) -> &[(f64, User)] {
        if self.above {
            &self.users[..self.users.partition_point(|(bound, ..)| *bound <= x)]
        } else {
            &self.users[self.users.partition_point(|(bound, ..)| *bound < x)..]
        }
    }
}
