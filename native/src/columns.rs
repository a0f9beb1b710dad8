//! Rows of a batch of columns, for the matcher: what a query does not read of them is never touched.

use std::borrow::Cow;
use std::cell::Cell as Mutable;

use crate::arrow::{Batch, Cell, Column, Unfit};
use crate::event::Row;
use crate::expr::{Expr, Sign, Slot};
use crate::matcher::{Exhausted, Matcher};
use crate::plan::{Plan, Policy};
use crate::standing::Standing;
use crate::value::{Val, Value};

/// Why a batch was not taken, or not to its end.
pub enum Refused {
    /// The query's budget is used up.
    Exhausted(Exhausted),
    /// It has not what events have.
    Unfit(Unfit),
}

impl From<Unfit> for Refused {
    fn from(unfit: Unfit) -> Self {
        Refused::Unfit(unfit)
    }
}

/// A stream that is read, and its attributes.
type Wanted<'w> = (&'w str, &'w [String]);

/// The columns that a query reads: id, time, and by stream and slot the attributes.
struct Columns<'b> {
    id: Column<'b>,
    time: Column<'b>,
    slots: Vec<Vec<Option<Column<'b>>>>,
}

/// Stands for the slot of the id.
const ID: usize = usize::MAX;

struct BatchRow<'c, 'b> {
    columns: &'c Columns<'b>,
    place: usize,
    time: i64,
    stream: u16,
    /// The slot that holds no value, once one was read.
    fault: Mutable<Option<usize>>,
}

impl Row for BatchRow<'_, '_> {
    #[inline]
    fn time(&self) -> i64 {
        self.time
    }

    #[inline]
    fn stream(&self) -> u16 {
        self.stream
    }

    fn id(&self) -> Val<'_> {
        match self.columns.id.cell(self.place) {
            Cell::Int(id) => Val::Int(id),
            Cell::Text(id) => Val::Str(Cow::Borrowed(id)),
            _ => {
                self.fault.set(Some(ID));
                Val::Null
            }
        }
    }

    #[inline]
    fn value(&self, slot: usize) -> Val<'_> {
        let Some(Some(column)) = self.columns.slots[usize::from(self.stream)].get(slot) else {
            return Val::Null;
        };
        match column.cell(self.place) {
            Cell::Text(text) => Val::Str(Cow::Borrowed(text)),
            Cell::Float(x) if x.is_finite() => Val::Float(x),
            Cell::Int(x) => Val::Int(x),
            Cell::Bool(x) => Val::Bool(x),
            Cell::Bytes(bytes) => Val::Bytes(bytes),
            Cell::Floats(floats) if floats.iter().all(|x| x.is_finite()) => Val::Floats(floats),
            Cell::Float(_) | Cell::Floats(_) => {
                self.fault.set(Some(slot));
                Val::Null
            }
            Cell::Null => Val::Null,
        }
    }

    fn is_faulty(&self) -> bool {
        self.fault.get().is_some()
    }
}

impl Matcher {
    /// Takes the rows of a batch: columns `id`, `time` and those of the attributes; all of `stream`, or each of the one
    /// that the column `stream` names. Rows of streams that the query does not read are passed over. What was taken
    /// before a fault stays taken.
    pub fn push_batch(&mut self, batch: &Batch, stream: Option<&str>) -> Result<(), Refused> {
        let plan = std::sync::Arc::clone(self.plan());
        let wanted: Vec<Wanted> = plan
            .streams
            .iter()
            .map(|s| (s.name.as_ref(), s.attributes.as_slice()))
            .collect();
        let columns = Columns::of(batch, &wanted)?;
        let mut streams = Streams::of(batch, &wanted, stream)?;
        let (masks, are_judged) = masks(&plan, &columns, batch.len());
        let in_time = || columns.time.least().is_some_and(|least| least >= self.watermark);
        let skips = plan.policy != Policy::Strict && matches!(streams, Streams::All(Some(_))) && in_time();
        for place in 0..batch.len() {
            let candidates = masks.as_ref().map_or(u64::MAX, |masks| masks[place]);
            if candidates == 0 && skips {
                self.counters.events += 1;
                continue;
            }
            if let Some(row) = columns.row(&wanted, &mut streams, place)? {
                self.push_candidate(&row, candidates, are_judged)
                    .map_err(Refused::Exhausted)?;
                row.check(&wanted)?;
            }
        }
        Ok(())
    }
}

impl Standing {
    /// Takes the rows of a batch, as `Matcher::push_batch` does.
    pub fn push_batch(&mut self, batch: &Batch, stream: Option<&str>) -> Result<(), Unfit> {
        let names: Vec<(String, Vec<String>)> = self
            .streams()
            .iter()
            .map(|s| (s.name.clone(), s.attributes.clone()))
            .collect();
        let wanted: Vec<Wanted> = names
            .iter()
            .map(|(name, own)| (name.as_str(), own.as_slice()))
            .collect();
        let columns = Columns::of(batch, &wanted)?;
        let mut streams = Streams::of(batch, &wanted, stream)?;
        for place in 0..batch.len() {
            if let Some(row) = columns.row(&wanted, &mut streams, place)? {
                self.push(&row);
                row.check(&wanted)?;
            }
        }
        Ok(())
    }
}

impl<'b> Columns<'b> {
    fn of(batch: &'b Batch, wanted: &[Wanted<'_>]) -> Result<Self, Unfit> {
        let needed = |name: &str| {
            let unfit = || Unfit(format!("the batch has no column '{name}'"));
            batch.column(name)?.ok_or_else(unfit)
        };
        let slots = |(_, names): &Wanted<'_>| names.iter().map(|name| batch.column(name)).collect();
        Ok(Columns {
            id: needed("id")?,
            time: needed("time")?,
            slots: wanted.iter().map(slots).collect::<Result<_, _>>()?,
        })
    }

    /// A row; None if its stream is not wanted.
    #[inline]
    fn row<'c>(
        &'c self,
        wanted: &[Wanted<'_>],
        streams: &mut Streams<'b>,
        place: usize,
    ) -> Result<Option<BatchRow<'c, 'b>>, Unfit> {
        let Some(stream) = streams.of_row(wanted, place) else {
            return Ok(None);
        };
        let Cell::Int(time) = self.time.cell(place) else {
            return Err(Unfit(format!("row {place} has no time")));
        };
        Ok(Some(BatchRow {
            columns: self,
            place,
            time,
            stream,
            fault: Mutable::new(None),
        }))
    }
}

impl BatchRow<'_, '_> {
    /// What was found wrong with it while it was read.
    #[inline]
    fn check(&self, wanted: &[Wanted<'_>]) -> Result<(), Unfit> {
        let Some(slot) = self.fault.get() else {
            return Ok(());
        };
        let place = self.place;
        Err(Unfit(match wanted[usize::from(self.stream)].1.get(slot) {
            Some(name) => format!("row {place}: '{name}' has NaN or infinity, which is no reading"),
            None => format!("row {place} has no id"),
        }))
    }
}

/// For each row the variables that it may qualify for, a bit each, by those FILTERs that can be judged a column at a
/// time, and whether these are all; None if there are none, or a float is no number, which is for the rows to find.
fn masks(plan: &Plan, columns: &Columns<'_>, rows: usize) -> (Option<Vec<u64>>, bool) {
    let mut all = true;
    let masks = some_masks(plan, columns, rows, &mut all);
    let are_judged = all && masks.is_some();
    (masks, are_judged)
}

fn some_masks(plan: &Plan, columns: &Columns<'_>, rows: usize, all: &mut bool) -> Option<Vec<u64>> {
    let [slots] = columns.slots.as_slice() else {
        return None;
    };
    let mut masks = vec![0; rows];
    let mut flags = Vec::new();
    let mut any = false;
    for (number, variable) in plan.variables.iter().enumerate() {
        flags.clear();
        flags.resize(rows, true);
        for filter in variable.filters.iter().flat_map(Expr::conjuncts) {
            let kept = keep(filter, slots, &mut flags)?;
            any |= kept;
            *all &= kept;
        }
        for (mask, flag) in masks.iter_mut().zip(&flags) {
            *mask |= u64::from(*flag) << number;
        }
    }
    any.then_some(masks)
}

/// Clears the flags of rows for which a comparison with a constant is not true; says whether it is one. None if a float
/// is no number.
fn keep(filter: &Expr, slots: &[Option<Column<'_>>], flags: &mut [bool]) -> Option<bool> {
    let Expr::Compare(sign, sides) = filter else {
        return Some(false);
    };
    let (Expr::Attribute(attribute), Expr::Constant(constant)) = sides.as_ref() else {
        return Some(false);
    };
    let Some(Slot::At(slot)) = attribute.slots.first() else {
        return Some(false);
    };
    let Some(Some(column)) = slots.get(*slot) else {
        return Some(false);
    };
    match constant {
        Value::Str(wanted) if *sign == Sign::Equal => {
            let (wanted, last) = (wanted.as_bytes(), wanted.as_bytes().last());
            // Names of a kind have their differences at the end.
            let holds = |text: &[u8]| text.len() == wanted.len() && text.last() == last && text == wanted;
            Some(column.keep_texts(flags, holds))
        }
        Value::Str(wanted) => {
            let wanted = wanted.as_bytes();
            Some(column.keep_texts(flags, |text| sign.holds(text.cmp(wanted))))
        }
        Value::Float(wanted) => {
            let holds = |x: f64| x.partial_cmp(wanted).is_some_and(|order| sign.holds(order));
            column.keep_numbers(flags, |x| holds(x as f64), holds)
        }
        Value::Int(wanted) => {
            let float = *wanted as f64;
            let holds = |x: f64| x.partial_cmp(&float).is_some_and(|order| sign.holds(order));
            let integers = |x: i64| match attribute.float {
                true => holds(x as f64),
                false => sign.holds(x.cmp(wanted)),
            };
            column.keep_numbers(flags, integers, holds)
        }
        _ => Some(false),
    }
}

/// Which stream a row belongs to.
enum Streams<'b> {
    All(Option<u16>),
    /// By name; the last name is remembered, because rows of a stream come together.
    Each(Column<'b>, Option<(&'b str, Option<u16>)>),
}

impl<'b> Streams<'b> {
    fn of(batch: &'b Batch, wanted: &[Wanted<'_>], stream: Option<&str>) -> Result<Self, Unfit> {
        match (stream, batch.column("stream")?) {
            (Some(name), _) => Ok(Streams::All(place_of(wanted, name))),
            (None, Some(column)) => Ok(Streams::Each(column, None)),
            (None, None) if wanted.len() == 1 => Ok(Streams::All(Some(0))),
            (None, None) => Err(Unfit(
                "several streams are read, and the batch has no column 'stream'".into(),
            )),
        }
    }

    #[inline]
    fn of_row(&mut self, wanted: &[Wanted<'_>], row: usize) -> Option<u16> {
        match self {
            Streams::All(place) => *place,
            Streams::Each(column, known) => {
                let Cell::Text(name) = column.cell(row) else {
                    return None;
                };
                match known {
                    Some((last, place)) if *last == name => *place,
                    _ => {
                        let place = place_of(wanted, name);
                        *known = Some((name, place));
                        place
                    }
                }
            }
        }
    }
}

fn place_of(wanted: &[Wanted<'_>], name: &str) -> Option<u16> {
    let place = wanted.iter().position(|(stream, _)| *stream == name);
    place.map(|place| place as u16)
}
