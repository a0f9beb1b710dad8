//! Many queries that stand together over the same events: an event is shown only to those that it can concern.
//!
//! Of each variable's FILTERs one comparison with a constant is looked up: all equalities of an attribute in one table,
//! all bounds of an attribute in one sorted list, whatever number of queries asks. So queries that differ in a constant
//! cost what their matches cost. What is found that way is a superset, and the query's matcher judges.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::event::Row;
use crate::expr::{Expr, Sign, Slot};
use crate::found::Match;
use crate::matcher::{Exhausted, Matcher};
use crate::plan::{Plan, Policy};
use crate::value::{Val, Value, compare};

/// The queries.
#[derive(Debug)]
pub struct Standing {
    matchers: Vec<Matcher>,
    streams: Vec<Stream>,
    /// The queries that have had an event since they were last advanced, each once.
    active: Vec<u32>,
    is_active: Vec<bool>,
    /// When which query has to be advanced even so.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    watermark: i64,
    /// Events that came when their time was past.
    late: u64,
    /// Queries that failed because their budget was used up; they get no more events.
    failed: Vec<Option<Exhausted>>,
    marked: Vec<(u32, u64)>,
}

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
    /// By reader: the variables that an event can qualify for.
    masks: Vec<u64>,
}

/// A query that reads a stream.
#[derive(Debug)]
struct Reader {
    query: u32,
    /// The stream's place in the query.
    stream: u16,
    /// The places of the query's attributes among the stream's.
    slots: Vec<usize>,
}

/// A reader, and its variables, for whom something is looked up.
#[derive(Clone, Debug)]
struct User {
    reader: u32,
    mask: u64,
    /// Another attribute that has to equal a constant: what fails here never touches the query.
    also: Option<(usize, Value)>,
}

impl User {
    #[inline]
    fn agrees(&self, row: &impl Row) -> bool {
        let Some((slot, wanted)) = &self.also else {
            return true;
        };
        compare(&row.value(*slot), &wanted.view()) == Some(Ordering::Equal)
    }
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

/// A row as one of the queries sees it.
struct Seen<'r, R> {
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
    Equal(usize, Vec<&'p Value>),
    Beyond(usize, bool, f64),
}

impl Lookup<'_> {
    /// What is looked up in one place: the attribute, and how.
    fn place(&self) -> (usize, u8) {
        match self {
            Lookup::Equal(slot, _) => (*slot, 0),
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
            (own, Expr::Constant(value)) | (Expr::Constant(value), own) => Some(Lookup::Equal(slot(own)?, vec![value])),
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
            Some(Lookup::Equal(slot(own)?, constants.collect::<Option<_>>()?))
        }
        _ => None,
    }
}

impl Standing {
    /// These queries, in this order.
    pub fn new(matchers: Vec<Matcher>) -> Self {
        let mut streams: Vec<Stream> = Vec::new();
        for (query, matcher) in matchers.iter().enumerate() {
            for (number, stream) in matcher.plan().streams.iter().enumerate() {
                let place = streams.iter().position(|known| *known.name == *stream.name);
                let known = match place {
                    Some(place) => &mut streams[place],
                    None => {
                        streams.push(Stream::new(&stream.name));
                        let last = streams.len() - 1;
                        &mut streams[last]
                    }
                };
                let slots = stream.attributes.iter().map(|name| known.slot(name)).collect();
                known.readers.push(Reader {
                    query: query as u32,
                    stream: number as u16,
                    slots,
                });
            }
        }
        for stream in &mut streams {
            stream.index(&matchers);
        }
        Standing {
            streams,
            active: Vec::new(),
            is_active: vec![false; matchers.len()],
            due: BinaryHeap::new(),
            watermark: i64::MIN,
            late: 0,
            failed: vec![None; matchers.len()],
            marked: Vec::new(),
            matchers,
        }
    }

    /// The queries.
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }

    /// Whether nothing that came matters any more.
    pub fn is_empty(&self) -> bool {
        let holds_nothing = |matcher: &Matcher| matcher.kept() == 0 && matcher.due().is_none();
        self.matchers.iter().all(holds_nothing)
    }

    /// The streams that they read.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// How many events came when their time was past.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The queries that failed, and why.
    pub fn failed(&self) -> impl Iterator<Item = (usize, Exhausted)> {
        let failed = self.failed.iter().enumerate();
        failed.filter_map(|(query, failed)| failed.map(|full| (query, full)))
    }

    /// Takes a record, whose stream and slots are those of `streams`.
    pub fn push(&mut self, row: &impl Row) {
        let Some(stream) = self.streams.get_mut(usize::from(row.stream())) else {
            return;
        };
        // A query that was not advanced for long would not know.
        if row.time() < self.watermark {
            self.late += 1;
            return;
        }
        self.marked.clear();
        stream.find(row, &mut self.marked);
        for (reader, mask) in self.marked.drain(..) {
            let reader = &stream.readers[reader as usize];
            let query = reader.query as usize;
            if self.failed[query].is_some() {
                continue;
            }
            if let Err(full) = self.matchers[query].push_candidate(&Seen { row, reader }, mask, false) {
                self.failed[query] = Some(full);
            }
            if !std::mem::replace(&mut self.is_active[query], true) {
                self.active.push(reader.query);
            }
        }
    }

    /// The watermark is now here (None: the input is complete). The matches of earlier times: query by query, those of
    /// each in order.
    pub fn advance(&mut self, watermark: Option<i64>) -> Vec<(usize, Vec<Match>)> {
        let limit = watermark.unwrap_or(i64::MAX).max(self.watermark);
        self.watermark = limit;
        while let Some(&Reverse((due, query))) = self.due.peek()
            && due <= limit
        {
            self.due.pop();
            if !std::mem::replace(&mut self.is_active[query as usize], true) {
                self.active.push(query);
            }
        }
        if watermark.is_none() {
            self.active = (0..self.matchers.len() as u32).collect();
        }
        self.active.sort_unstable();
        let mut found = Vec::new();
        for query in std::mem::take(&mut self.active) {
            let matcher = &mut self.matchers[query as usize];
            self.is_active[query as usize] = false;
            let matches = matcher.advance(watermark.map(|_| limit));
            if !matches.is_empty() {
                found.push((query as usize, matches));
            }
            // What is due by itself; and once more when all that it holds is past, to free it.
            if let Some(due) = [matcher.due(), matcher.past(limit)].into_iter().flatten().min()
                && watermark.is_some()
            {
                self.due.push(Reverse((due.max(limit.saturating_add(1)), query)));
            }
        }
        found
    }
}

impl Stream {
    fn new(name: &Arc<str>) -> Self {
        Stream {
            name: name.to_string(),
            attributes: Vec::new(),
            readers: Vec::new(),
            always: Vec::new(),
            equal: Vec::new(),
            bounds: Vec::new(),
            masks: Vec::new(),
        }
    }

    fn slot(&mut self, name: &str) -> usize {
        let known = self.attributes.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.attributes.push(name.to_string());
            self.attributes.len() - 1
        })
    }

    /// Decides for each variable what is looked up: what most differs between the queries.
    fn index(&mut self, matchers: &[Matcher]) {
        let mut asked: HashMap<(usize, u8), HashSet<String>> = HashMap::new();
        let own = |lookup: &Lookup<'_>, reader: &Reader| {
            let (slot, kind) = lookup.place();
            (reader.slots[slot], kind)
        };
        for reader in &self.readers {
            let plan = matchers[reader.query as usize].plan();
            for &variable in &plan.streams[usize::from(reader.stream)].variables {
                for lookup in lookups(plan, variable, usize::from(reader.stream)) {
                    let constants = asked.entry(own(&lookup, reader)).or_default();
                    match &lookup {
                        Lookup::Equal(_, values) => constants.extend(values.iter().map(|value| format!("{value:?}"))),
                        Lookup::Beyond(_, _, bound) => {
                            constants.insert(format!("{bound:?}"));
                        }
                    }
                }
            }
        }
        for (number, reader) in self.readers.iter().enumerate() {
            let plan = matchers[reader.query as usize].plan();
            let number = number as u32;
            for &variable in &plan.streams[usize::from(reader.stream)].variables {
                let mask = 1 << variable;
                let mut found = lookups(plan, variable, usize::from(reader.stream));
                found.sort_by_key(|lookup| {
                    let (slot, kind) = own(lookup, reader);
                    // Of equals an equality, which is true of fewer events.
                    (asked.get(&(slot, kind)).map_or(0, HashSet::len), Reverse(kind))
                });
                let best = found.pop();
                let also = found.iter().rev().find_map(|lookup| match lookup {
                    Lookup::Equal(slot, values) if values.len() == 1 => Some((reader.slots[*slot], values[0].clone())),
                    _ => None,
                });
                let user = User {
                    reader: number,
                    mask,
                    also,
                };
                match best {
                    // STRICT counts all events.
                    Some(Lookup::Equal(slot, values)) if plan.policy != Policy::Strict => {
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

    /// The readers that a row can concern, and the variables for which.
    fn find(&mut self, row: &impl Row, found: &mut Vec<(u32, u64)>) {
        let masks = &mut self.masks;
        let mut mark = |reader: u32, mask: u64| {
            let known = &mut masks[reader as usize];
            if *known == 0 {
                found.push((reader, 0));
            }
            *known |= mask;
        };
        self.always.iter().for_each(|(reader, mask)| mark(*reader, *mask));
        for equal in &self.equal {
            let users = equal.of(&row.value(equal.slot)).iter();
            users
                .filter(|user| user.agrees(row))
                .for_each(|user| mark(user.reader, user.mask));
        }
        for bounds in &self.bounds {
            if let Some(x) = row.value(bounds.slot).number() {
                let users = bounds.of(x).iter().map(|(_, user)| user);
                users
                    .filter(|user| user.agrees(row))
                    .for_each(|user| mark(user.reader, user.mask));
            }
        }
        for (reader, mask) in found {
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
