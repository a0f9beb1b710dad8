//! What is known of events besides their attributes (PATH): rows by the values of some attributes, found in one step.
//!
//! A lookup belongs to a variable and one of its streams. An event without a row does not qualify; of several rows each
//! makes a copy of the event, with the row's values in slots that no input fills. Copies are one event: where it
//! matters, `Plan::copies` says that there can be some.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::event::Row;
use crate::json::{self, Fault, Json, Reading, fault};
use crate::value::{Key, Val, Value};

/// The rows of a key: for each a value by column.
pub type Rows = Arc<[Box<[Value]>]>;
/// A key, and its rows unless it is to be forgotten.
pub type Entry = (Box<[Key]>, Option<Rows>);

/// Rows by key.
#[derive(Clone, Debug)]
pub struct Table {
    entries: HashTable<(Box<[Key]>, Rows)>,
    hasher: DefaultHashBuilder,
    /// Those of a key that is not there.
    otherwise: Rows,
}

impl Default for Table {
    fn default() -> Self {
        Table {
            entries: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            otherwise: Arc::from([]),
        }
    }
}

impl Table {
    fn read(json: &Json) -> Result<Table, Fault> {
        let mut table = Table {
            otherwise: read_rows(json.member("otherwise")?)?,
            ..Table::default()
        };
        // Many keys have the same rows.
        let rows = json.member("rows")?.each(read_rows)?;
        for entry in json.member("entries")?.list()? {
            let key = entry.at(0)?.each(read_value)?.into_iter().map(Key).collect();
            match rows.get(entry.at(1)?.index()?) {
                Some(rows) => table.set(key, Arc::clone(rows)),
                None => return fault("an entry of unknown rows"),
            }
        }
        Ok(table)
    }

    /// The rows of a key, and whether it is there.
    #[inline]
    pub fn get<'v>(&self, key: impl Iterator<Item = Val<'v>> + Clone) -> (&Rows, bool) {
        let mut state = self.hasher.build_hasher();
        key.clone().for_each(|part| part.hash_key(&mut state));
        let same = |entry: &(Box<[Key]>, Rows)| {
            let pairs = entry.0.iter().zip(key.clone());
            pairs
                .into_iter()
                .all(|(own, part)| own.0.view().order_key(&part).is_eq())
        };
        let found = self.entries.find(state.finish(), same);
        found.map_or((&self.otherwise, false), |(_, rows)| (rows, true))
    }

    /// Gives a key its rows, whatever it had.
    pub fn set(&mut self, key: Box<[Key]>, rows: Rows) {
        let hasher = &self.hasher;
        let hash_of = |key: &[Key]| {
            let mut state = hasher.build_hasher();
            key.iter().for_each(|part| part.0.view().hash_key(&mut state));
            state.finish()
        };
        let hash = hash_of(&key);
        match self.entries.find_mut(hash, |(own, _)| *own == key) {
            Some((_, own)) => *own = rows,
            None => {
                self.entries.insert_unique(hash, (key, rows), |(own, _)| hash_of(own));
            }
        }
    }

    /// Forgets a key.
    pub fn remove(&mut self, key: &[Key]) {
        let mut state = self.hasher.build_hasher();
        key.iter().for_each(|part| part.0.view().hash_key(&mut state));
        if let Ok(entry) = self.entries.find_entry(state.finish(), |(own, _)| own.as_ref() == key) {
            entry.remove();
        }
    }
}

/// How a variable's events of one stream are looked up.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The variable.
    pub variable: usize,
    /// The stream.
    pub stream: usize,
    /// The slots of the key.
    pub key: Vec<usize>,
    /// The slots that take a row's values.
    pub columns: Vec<usize>,
    /// The table.
    pub table: usize,
}

/// Reads a lookup.
pub(crate) fn read_lookup(json: &Json) -> Result<Lookup, Fault> {
    Ok(Lookup {
        variable: json.member("variable")?.index()?,
        stream: json.member("stream")?.index()?,
        key: json.member("key")?.each(Json::index)?,
        columns: json.member("columns")?.each(Json::index)?,
        table: json.member("table")?.index()?,
    })
}

/// Reads the tables of a plan.
pub(crate) fn read_tables(json: &Json) -> Result<Vec<Table>, Fault> {
    json.each(Table::read)
}

/// Reads rows.
pub fn read_rows(json: &Json) -> Result<Rows, Fault> {
    json.each(|row| row.each(read_value).map(Into::into)).map(Into::into)
}

/// Reads what is learned: keys and their rows.
pub fn read_entries(text: &str) -> Result<Vec<Entry>, Fault> {
    json::parse(text)?.each(|entry| {
        let key = entry.at(0)?.each(read_value)?.into_iter().map(Key).collect();
        Ok((key, entry.at(1)?.optional(read_rows)?))
    })
}

pub(crate) fn read_value(json: &Json) -> Result<Value, Fault> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(x) => Value::Bool(*x),
        Json::String(x) => Value::Str(x.as_str().into()),
        Json::Number(x) if x.is_f64() => Value::Float(json.float()?),
        Json::Number(_) => Value::Int(json.int()?),
        _ => return fault("a value of a table is of no kind"),
    })
}

/// A row with what is known of it in some slots.
pub struct Known<'r, R> {
    /// The row.
    pub row: &'r R,
    /// By slot.
    pub values: &'r [Option<Value>],
}

impl<R: Row> Row for Known<'_, R> {
    fn time(&self) -> i64 {
        self.row.time()
    }

    fn stream(&self) -> u16 {
        self.row.stream()
    }

    fn id(&self) -> Val<'_> {
        self.row.id()
    }

    #[inline]
    fn value(&self, slot: usize) -> Val<'_> {
        match self.values.get(slot) {
            Some(Some(value)) => value.view(),
            _ => self.row.value(slot),
        }
    }

    fn is_faulty(&self) -> bool {
        self.row.is_faulty()
    }
}
