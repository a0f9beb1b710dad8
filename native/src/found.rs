//! What was found: a match with its events and values, its order among others (rule O2), and its id (rule Q6).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::digest::DIGEST;
use crate::event::{Id, Name};
use crate::plan::Plan;
use crate::value::{Key, Value};

/// What a variable is bound to.
#[derive(Clone, Debug)]
pub enum Bound {
    /// Nothing, or a NOT variable.
    Unbound,
    /// One event.
    One(Name),
    /// All that qualified, in E2's order.
    Many(Vec<Name>),
}

impl Bound {
    /// The events.
    pub fn events(&self) -> &[Name] {
        match self {
            Bound::Unbound => &[],
            Bound::One(event) => std::slice::from_ref(event),
            Bound::Many(events) => events,
        }
    }

    /// Unbound before bound, lists element by element.
    fn order(&self, other: &Bound) -> Ordering {
        let (one, two) = (self.events(), other.events());
        let unequal = one.iter().zip(two).map(|(a, b)| a.cmp(b)).find(|o| o.is_ne());
        unequal.unwrap_or_else(|| one.len().cmp(&two.len()))
    }
}

/// The row of a batch or session window.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its group's values.
    pub group: Vec<Key>,
    /// Its start.
    pub start: i64,
    /// Its end, not included.
    pub end: i64,
}

/// A match.
#[derive(Clone, Debug)]
pub struct Match {
    /// Its time.
    pub time: i64,
    /// By variable; empty for batch and session windows.
    pub events: Vec<Bound>,
    /// By output.
    pub select: Vec<Value>,
    /// For batch and session windows.
    pub row: Option<Row>,
    /// The partition of its first event (rule S7), where AFTER MATCH asks for it and there is one.
    pub key: Option<Arc<[Key]>>,
    /// The number of the plan's head that it is a match of.
    pub head: u32,
    /// The values of the PATH variables that are used, in the order of their names.
    pub bindings: Vec<Key>,
}

impl Match {
    /// The order of the output.
    pub fn order(&self, other: &Match) -> Ordering {
        let rows = || match (&self.row, &other.row) {
            (Some(a), Some(b)) => a.group.cmp(&b.group).then(a.start.cmp(&b.start)),
            _ => Ordering::Equal,
        };
        self.time
            .cmp(&other.time)
            .then_with(|| order_of(self.events.iter(), other.events.iter()))
            .then_with(rows)
            .then_with(|| self.bindings.cmp(&other.bindings))
    }

    /// The order in which AFTER MATCH takes matches (rule S11); `steps` are the variables, in step order.
    ///
    /// Which variable of an ANY has the event decides only between matches of the same events: the one written first.
    pub fn taking_order<'a>(&'a self, other: &'a Match, steps: &'a [usize]) -> Ordering {
        let last = || match (self.last(), other.last()) {
            (Some(a), Some(b)) => a.cmp(b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        let bound = |of: &'a Match| steps.iter().map(move |&v| &of.events[v]);
        let in_steps = || {
            let (own, others) = (
                bound(self).flat_map(Bound::events),
                bound(other).flat_map(Bound::events),
            );
            own.cmp(others)
        };
        let by_variable = || {
            let unbound = |of| bound(of).map(|one| one.events().is_empty());
            unbound(self)
                .cmp(unbound(other))
                .then_with(|| order_of(bound(self), bound(other)))
        };
        self.time
            .cmp(&other.time)
            .then_with(last)
            .then_with(in_steps)
            .then_with(by_variable)
            .then_with(|| self.bindings.cmp(&other.bindings))
    }

    /// All its events.
    pub fn all(&self) -> impl Iterator<Item = &Name> {
        self.events.iter().flat_map(|bound| bound.events())
    }

    /// Its first event under E2.
    pub fn first(&self) -> Option<&Name> {
        self.all().min()
    }

    /// Its last event under E2.
    pub fn last(&self) -> Option<&Name> {
        self.all().max()
    }

    /// Its id; the bytes are described in src/cepheid/model/matches.py.
    pub fn id(&self, plan: &Plan) -> [u8; DIGEST] {
        let mut hash = plan.hash.clone();
        let mut bytes = Vec::with_capacity(128);
        if let Some(row) = &self.row {
            bytes.push(b'w');
            count(&mut bytes, row.group.len());
            for key in &row.group {
                put_value(&mut bytes, &key.0);
            }
            bytes.extend(row.start.to_le_bytes());
        } else {
            bytes.push(b'e');
            count(&mut bytes, plan.shown().count());
            let absent = |v: &&usize| plan.variables[**v].role != crate::plan::Role::Absent;
            for &v in plan.by_name.iter().filter(absent) {
                put_text(&mut bytes, &plan.variables[v].name);
                put_bound(&mut bytes, plan, &self.events[v]);
            }
            count(&mut bytes, self.bindings.len());
            for ((name, _), value) in plan.used.iter().zip(&self.bindings) {
                put_text(&mut bytes, name);
                match &value.0 {
                    Value::Str(text) => put_text(&mut bytes, text),
                    other => {
                        bytes.extend([0xff; 4]); // no text is so long
                        put_value(&mut bytes, other);
                    }
                }
            }
        }
        hash.update(&bytes);
        hash.finish()
    }
}

fn order_of<'a>(one: impl Iterator<Item = &'a Bound>, other: impl Iterator<Item = &'a Bound>) -> Ordering {
    one.zip(other)
        .map(|(a, b)| a.order(b))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn count(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend((number as u32).to_le_bytes());
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    count(bytes, text.len());
    bytes.extend(text.as_bytes());
}

fn put_bound(bytes: &mut Vec<u8>, plan: &Plan, bound: &Bound) {
    match bound {
        Bound::Unbound => bytes.push(b'n'),
        Bound::One(event) => {
            bytes.push(b'1');
            put_event(bytes, plan, event);
        }
        Bound::Many(events) => {
            bytes.push(b'm');
            count(bytes, events.len());
            events.iter().for_each(|event| put_event(bytes, plan, event));
        }
    }
}

fn put_event(bytes: &mut Vec<u8>, plan: &Plan, event: &Name) {
    put_text(bytes, &plan.streams[usize::from(event.stream)].name);
    match &event.id {
        Id::Int(id) => {
            bytes.push(b'i');
            bytes.extend(id.to_le_bytes());
        }
        Id::Str(id) => {
            bytes.push(b's');
            put_text(bytes, id);
        }
    }
}

fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(b'n'),
        Value::Bool(x) => bytes.push(if *x { b't' } else { b'f' }),
        Value::Int(x) => {
            bytes.push(b'i');
            bytes.extend(x.to_le_bytes());
        }
        Value::Str(x) => {
            bytes.push(b's');
            put_text(bytes, x);
        }
        Value::Bytes(x) => {
            bytes.push(b'x');
            count(bytes, x.len());
            bytes.extend(x.iter());
        }
        Value::Float(x) => {
            bytes.push(b'd');
            bytes.extend((x + 0.0).to_le_bytes());
        }
        Value::Floats(x) => {
            bytes.push(b'a');
            count(bytes, x.len());
            x.iter().for_each(|x| bytes.extend((x + 0.0).to_le_bytes()));
        }
    }
}

/// Brings matches into the order of the output. Those that several copies of their events gave, and that are the same in
/// all that is used, are one.
pub fn put_in_order(plan: &Plan, matches: &mut Vec<Match>) {
    matches.sort_by(Match::order);
    if plan.copies {
        matches.dedup_by(|a, b| a.order(b).is_eq());
    }
}
