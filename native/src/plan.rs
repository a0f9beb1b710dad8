//! A query ready to run: what src/cepheid/plan/compile.py wrote, and what follows from it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::arrow_build::ColumnType;
use crate::bounds::FOREVER;
use crate::digest::{DIGEST, Hash};
use crate::event::{Events, Handle, Held};
use crate::expr::{Attribute, Expr, Named, Sign};
use crate::json::{self, Fault, Reading, fault};
use crate::known::{Lookup, Table, read_lookup, read_tables};
use crate::plan_parts::{
    read_after, read_aggregate, read_attribute, read_column_type, read_join, read_key_part, read_moving, read_output,
    read_policy, read_span, read_step, read_stream, read_variable,
};
use crate::relation::{Relation, read_relation};
use crate::screen::Screened;
use crate::sorted::Number;
use crate::value::{Key, Value};
use crate::zone::read_zones;

/// Variables are bits of a mask.
pub const MAX_VARIABLES: usize = 64;
/// The personalisation of match ids (src/cepheid/model/matches.py).
const PERSON: &[u8] = b"cepheid-match-1";

/// What a variable is in the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One event: a plain step, a member of ALL, or a variable outside SEQ.
    One,
    /// A member of ANY: one event, or none.
    Any,
    /// `?e?`
    Maybe,
    /// `?e+`, `?e{n,m}`
    Many,
    /// NOT
    Absent,
    /// Of another branch of the plan alone: never bound in this one (branches.rs).
    Elsewhere,
}

impl Role {
    /// Whether the variable stands for at most one event.
    pub fn is_single(self) -> bool {
        matches!(self, Role::One | Role::Any | Role::Maybe)
    }
}

/// A stream that the query reads.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its name; streams are in the order of their names.
    pub name: Arc<str>,
    /// Whether its ids are text.
    pub text_id: bool,
    /// The attributes that are read, by slot.
    pub attributes: Vec<String>,
    /// Which of them are read after the FILTERs, and so kept.
    pub kept: Vec<bool>,
    /// The variables that range over it.
    pub variables: Vec<usize>,
    /// What makes the key of all its events, for MATCH STRICT and AFTER MATCH; None if they are in no partition.
    pub key: Option<Vec<Attribute>>,
}

/// A variable; they are in the order of the output.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name, without '?'.
    pub name: Arc<str>,
    /// The streams it ranges over.
    pub streams: Vec<usize>,
    /// What it is.
    pub role: Role,
    /// Its step in SEQ.
    pub step: Option<usize>,
    /// What makes an event qualify.
    pub filters: Vec<Expr>,
    /// The same, where it reads what a lookup found.
    pub late_filters: Vec<Expr>,
    /// The joins that name it, but for those that the key settles.
    pub joins: Vec<usize>,
    /// Those of them that are judged in advance.
    pub screened: Vec<Screened>,
    /// The windows that list it.
    pub windows: Vec<usize>,
    /// The attributes by whose values its events are divided; None if they are with all.
    pub key: Option<Vec<Attribute>>,
    /// The ways to find its events once another variable is bound.
    pub probes: Vec<Probe>,
    /// The same by `<` and `>`.
    pub ranges: Vec<RangeProbe>,
    /// How long an event is kept after its time; negative: not at all.
    pub kept: i64,
    /// The first variable with the same key, whose events are divided like its own.
    pub home: usize,
}

/// A step of SEQ.
#[derive(Clone, Debug)]
pub struct Step {
    /// What its variables are.
    pub role: Role,
    /// Its variables.
    pub variables: Vec<usize>,
    /// Its variables, a bit each.
    pub mask: u64,
    /// The least number of events of a Many step.
    pub least: usize,
    /// The greatest.
    pub most: usize,
    /// MATCH NEXT: a JOIN by `<` or `>` of its event with what is bound before, if there is one.
    pub ranged: Option<Ranged>,
}

/// A JOIN that orders an attribute of a step's only variable and one of an earlier step's.
#[derive(Clone, Debug)]
pub struct Ranged {
    /// The step's.
    pub own: Attribute,
    /// How what it is compared with lies beside it: on which side to look, from its value.
    pub sign: Sign,
    /// The earlier one's.
    pub other: Attribute,
}

impl Step {
    /// Whether the step takes its extent from its neighbours.
    pub fn is_open(&self) -> bool {
        matches!(self.role, Role::Maybe | Role::Many | Role::Absent)
    }
}

/// WINDOW over the span of events.
#[derive(Clone, Debug)]
pub struct Span {
    /// The variables it lists.
    pub variables: Vec<usize>,
    /// Microseconds.
    pub width: i64,
    /// Whether it is not the query's own, but follows from what comes later (prefix.rs).
    pub implied: bool,
}

/// A moving window's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Sliding,
    Batch,
    Session,
    Length,
}

/// A class of attributes that are equal in all events of a match.
#[derive(Clone, Copy, Debug)]
pub struct KeyPart {
    /// Whether it has floats, with which its integers are compared as floats.
    pub float: bool,
    /// Whether an event without a value can be in a match: the others in the class need not be bound.
    pub nulls: bool,
    /// Whether equal texts are one: those of attributes are, in `Texts`, and ids are not.
    pub once: bool,
}

/// A condition over several variables.
#[derive(Clone, Debug)]
pub struct Join {
    /// The condition.
    pub condition: Expr,
    /// Its variables, a bit each.
    pub variables: u64,
}

/// Events of a variable by the value of an attribute that an equality JOIN names, beside the partition's key.
#[derive(Clone, Debug)]
pub struct Index {
    /// The variable.
    pub variable: usize,
    /// The attribute.
    pub attribute: Attribute,
    /// Whether it is compared with floats.
    pub float: bool,
}

impl Index {
    /// A value as it is looked up; None for null, which equals nothing.
    pub fn key(&self, value: Value) -> Option<Key> {
        let value = if self.float { value.into_float() } else { value };
        (!value.is_null()).then_some(Key(value))
    }
}

/// Events of a variable by the value of an attribute that a JOIN by `<` or `>` names; for long lists (sorted.rs).
#[derive(Clone, Debug)]
pub struct RangeIndex {
    /// The variable.
    pub variable: usize,
    /// The attribute.
    pub attribute: Attribute,
}

impl RangeIndex {
    /// Where an event stands; None if it has no number there.
    pub fn number(&self, events: &Events, event: Handle) -> Option<Number> {
        self.attribute.seen(events.row(event)).number().map(Number::new)
    }
}

/// A way to find events of a variable: by a range index, on this side of another variable's attribute.
#[derive(Clone, Debug)]
pub struct RangeProbe {
    /// The index.
    pub index: usize,
    /// How an event's value compares with the other's.
    pub sign: Sign,
    /// The attribute that it is compared with.
    pub other: Attribute,
}

/// A way to find events of a variable: by an index, with the value of another variable's attribute.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The index.
    pub index: usize,
    /// The attribute that the JOIN makes equal.
    pub other: Attribute,
}

/// What one binding in the search for combinations is for: a variable, or the alternatives of ANY.
#[derive(Clone, Debug)]
pub struct Place {
    /// The variables; exactly one of them is bound.
    pub variables: Vec<usize>,
    /// The step, for those in SEQ.
    pub step: Option<usize>,
}

/// An aggregate.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Which.
    pub function: AggregateFunction,
    /// Over the events of this variable.
    pub variable: usize,
    /// Of this; None in COUNT(?e).
    pub argument: Option<Expr>,
}

/// An aggregate's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AggregateFunction {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    Stddev,
    First,
    Last,
}

/// A selected value.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its value.
    pub expression: Expr,
    /// Only where this holds.
    pub condition: Option<Expr>,
    /// Whether its type is float, so that an integer is one.
    pub float: bool,
    /// What a column of it holds.
    pub kind: ColumnType,
}

impl Output {
    /// An attribute as it is, for another pattern to read: never a column.
    pub(crate) fn of(attribute: Attribute) -> Output {
        Output {
            expression: Expr::Attribute(attribute),
            condition: None,
            float: false,
            kind: ColumnType::Int,
        }
    }
}

/// What a query makes of a match: SELECT and HAVING.
#[derive(Clone, Debug)]
pub struct Head {
    /// SELECT.
    pub outputs: Vec<Output>,
    /// HAVING.
    pub having: Option<Expr>,
}

/// MATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Policy {
    Any,
    Next,
    Strict,
}

/// AFTER MATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum After {
    Keep,
    Consume,
    SkipPastLast,
    SkipToNext,
}

/// A query.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hash that has absorbed the query's normal form.
    pub hash: Hash,
    /// A hash of the whole plan, to know a saved state by.
    pub check: [u8; DIGEST],
    /// The streams.
    pub streams: Vec<Stream>,
    /// The variables.
    pub variables: Vec<Variable>,
    /// The variables in the order of their names, which is that of the id.
    pub by_name: Vec<usize>,
    /// WITHIN, both included.
    pub within: (i64, i64),
    /// SEQ.
    pub steps: Vec<Step>,
    /// WINDOWs of several variables.
    pub windows: Vec<Span>,
    /// The moving window and its size.
    pub moving: Option<(Kind, i64)>,
    /// GROUP BY.
    pub group_by: Vec<Attribute>,
    /// What columns of its values hold.
    pub group_types: Vec<ColumnType>,
    /// JOINs.
    pub joins: Vec<Join>,
    /// What PATHs say of several events together.
    pub relations: Vec<Relation>,
    /// MATCH.
    pub policy: Policy,
    /// AFTER MATCH.
    pub after: After,
    /// The parts of keys.
    pub keys: Vec<KeyPart>,
    /// Of a query by itself, one. Queries with the same pattern have one plan, with a head each.
    pub heads: Vec<Head>,
    /// The aggregates in SELECT and HAVING.
    pub aggregates: Vec<Aggregate>,
    /// The indexes.
    pub indexes: Vec<Index>,
    /// The range indexes.
    pub range_indexes: Vec<RangeIndex>,
    /// What has to be bound to exactly one event.
    pub places: Vec<Place>,
    /// For each place: the order in which to bind the others once it is bound.
    pub orders: Vec<Vec<usize>>,
    /// By variable: where its event can be a match's last, as a branch and a place in it.
    pub completes: Vec<Vec<(usize, usize)>>,
    /// The variables of a last `?e?`, a bit each.
    pub wakes: u64,
    /// The windows that end a last open step.
    pub deadlines: Vec<usize>,
    /// No two events of a match, nor its deadline, lie further apart.
    pub horizon: i64,
    /// The `?e?` steps in the order in which they are bound: those between others, then a first one; no last one.
    pub maybe_order: Vec<usize>,
    /// Whether what is bound so far says all: MATCH NEXT where no step looks back at events that were passed over.
    pub runs_only: bool,
    /// Whether there is one `?e?` and no step of many events, so that it is judged by its single neighbours.
    pub lone_maybe: bool,
    /// Whether a JOIN or WINDOW names a last `?e?` and another open step, which is then judged with its event.
    pub trailing_matters: bool,
    /// Whether a WINDOW lists a last step of many events and a `?e?` or NOT, which is then judged when these are known.
    pub judged_late: bool,
    /// How late the second variable can be after the first (differences of times).
    pub furthest: Vec<Vec<i64>>,
    /// Whether it comes from PATHs, so that filters, lookups and tables may change while it runs.
    pub follows: bool,
    /// What is known of events.
    pub lookups: Vec<Lookup>,
    /// The tables to begin with.
    pub tables: Vec<Arc<Table>>,
    /// The PATH variables that are used outside of it, by name: a match is one of their values too (rule P3).
    pub used: Vec<(String, Expr)>,
    /// Whether an event can have several copies, one for each row that was found for it.
    pub copies: bool,
    /// Where patterns hold their events together, each of them; else none (branches.rs).
    pub branches: Vec<Plan>,
    /// Which branch this is.
    pub branch: usize,
    /// The variables that a match has, in their order: all but those that are elsewhere.
    pub own: Vec<usize>,
    /// The number of its first head among those of all branches.
    pub first_head: usize,
}

impl Plan {
    /// Reads a plan.
    pub fn read(text: &str) -> Result<Plan, Fault> {
        let json = json::parse(text)?;
        let streams = json.member("streams")?.list()?;
        let count = streams.len();
        let zones = read_zones(&json)?;
        let named = Named {
            streams: count,
            zones: &zones,
        };
        let streams: Vec<Stream> = streams
            .iter()
            .map(|s| read_stream(s, named))
            .collect::<Result<_, _>>()?;
        if count > usize::from(u16::MAX) {
            return fault("too many streams");
        }
        let mut variables = json.member("variables")?.each(|item| read_variable(item, named))?;
        if variables.len() > MAX_VARIABLES {
            return fault(format!("a query has at most {MAX_VARIABLES} variables"));
        }
        if variables.iter().any(|v| v.streams.iter().any(|s| *s >= count)) {
            return fault("a variable of an unknown stream");
        }
        // What makes an event qualify may follow from what is known, and change with it.
        let filters = json.member("filters")?.list()?;
        for (variable, own) in variables.iter_mut().zip(filters) {
            variable.filters = own.at(0)?.each(|item| Expr::read(item, named))?;
            variable.late_filters = own.at(1)?.each(|item| Expr::read(item, named))?;
        }
        let steps = json.member("steps")?.each(read_step)?;
        let windows = json.member("windows")?.each(read_span)?;
        let joins = json.member("joins")?.each(|item| read_join(item, named))?;
        let known = |number: &usize| *number < variables.len();
        if !steps.iter().all(|s| s.variables.iter().all(known))
            || !windows.iter().all(|w| w.variables.iter().all(known))
        {
            return fault("a step or window of an unknown variable");
        }
        if joins
            .iter()
            .any(|join| join.variables.checked_shr(variables.len() as u32).unwrap_or(0) != 0)
        {
            return fault("a join of an unknown variable");
        }
        // `?e?` alone: without an event there is no time for a match, so it is an event each.
        let mut steps = steps;
        if let [step] = steps.as_mut_slice()
            && step.role == Role::Maybe
            && variables.len() == 1
        {
            step.role = Role::One;
        }
        let mut hash = Hash::new(PERSON);
        let normal_form = json.member("normal_form")?.text()?;
        hash.update(&(normal_form.len() as u32).to_le_bytes());
        hash.update(normal_form.as_bytes());
        let within = json.member("within")?;
        let mut whole = Hash::new(b"cepheid-plan-1");
        // What is known changes while a query stands, and with it what events are judged by and what is read for that; a
        // saved state has how each event was judged, and what is kept of it (`kept`).
        whole.update(text.split(",\"tables\":[").next().unwrap_or(text).as_bytes());
        let lookups = json.member("lookups")?.each(read_lookup)?;
        let tables = read_tables(json.member("tables")?)?;
        let is_known = |lookup: &Lookup| {
            let streams: &[Stream] = &streams;
            let slots = streams.get(lookup.stream).map_or(0, |stream| stream.attributes.len());
            let mut own = lookup.key.iter().chain(&lookup.columns);
            lookup.variable < variables.len() && lookup.table < tables.len() && own.all(|slot| *slot < slots)
        };
        if !lookups.iter().all(is_known) {
            return fault("a lookup of an unknown variable, slot or table");
        }
        let name_and_value = |item: &json::Json| Ok((item.at(0)?.text()?.to_owned(), Expr::read(item.at(1)?, named)?));
        let used = json.member("used")?.each(name_and_value)?;
        let mut plan = Plan {
            hash,
            check: whole.finish(),
            streams,
            by_name: Vec::new(),
            within: (within.at(0)?.int()?, within.at(1)?.int()?),
            steps,
            windows,
            moving: json.member("moving")?.optional(read_moving)?,
            group_by: json.member("group_by")?.each(|item| read_attribute(item, named))?,
            group_types: json.member("group_types")?.each(read_column_type)?,
            joins,
            relations: json.member("relations")?.each(|item| read_relation(item, named))?,
            policy: read_policy(json.member("match")?.text()?)?,
            after: read_after(json.member("after")?.text()?)?,
            keys: json.member("keys")?.each(read_key_part)?,
            heads: vec![Head {
                outputs: json.member("outputs")?.each(|item| read_output(item, named))?,
                having: json.member("having")?.optional(|item| Expr::read(item, named))?,
            }],
            aggregates: json.member("aggregates")?.each(|item| read_aggregate(item, named))?,
            indexes: Vec::new(),
            range_indexes: Vec::new(),
            places: Vec::new(),
            orders: Vec::new(),
            completes: Vec::new(),
            wakes: 0,
            deadlines: Vec::new(),
            horizon: FOREVER,
            furthest: Vec::new(),
            maybe_order: Vec::new(),
            runs_only: false,
            lone_maybe: false,
            trailing_matters: false,
            judged_late: false,
            variables,
            follows: json.member("follows")?.bool()?,
            copies: lookups.iter().any(|lookup| !lookup.columns.is_empty()),
            lookups,
            tables: tables.into_iter().map(Arc::new).collect(),
            used,
            branches: Vec::new(),
            branch: 0,
            own: Vec::new(),
            first_head: 0,
        };
        if plan
            .relations
            .iter()
            .any(|r| r.variables.checked_shr(plan.variables.len() as u32).unwrap_or(0) != 0)
        {
            return fault("a relation of an unknown variable");
        }
        plan.own = (0..plan.variables.len()).collect();
        plan.settle();
        Ok(plan)
    }

    /// Finds all that follows from streams, variables, steps, windows, joins, keys and heads.
    pub(crate) fn settle(&mut self) {
        let names: Vec<Arc<str>> = self.variables.iter().map(|v| Arc::clone(&v.name)).collect();
        self.by_name = (0..names.len()).collect();
        self.by_name
            .sort_by(|a, b| names[*a].as_bytes().cmp(names[*b].as_bytes()));
        self.streams.iter_mut().for_each(|stream| stream.variables.clear());
        for (number, variable) in self.variables.iter_mut().enumerate() {
            for &stream in &variable.streams {
                self.streams[stream].variables.push(number);
            }
            variable.probes.clear();
            variable.ranges.clear();
        }
        self.indexes.clear();
        self.range_indexes.clear();
        place_variables(&mut self.variables, &self.steps, &self.windows, &self.joins);
        self.derive();
    }

    /// One of its branches, or itself where there are none.
    #[inline]
    pub fn branch(&self, number: usize) -> &Plan {
        self.branches.get(number).unwrap_or(self)
    }

    /// The open step that waits for a deadline, if there is one.
    pub fn trailing(&self) -> Option<usize> {
        let last = self.steps.len().checked_sub(1)?;
        (self.steps[last].is_open() && !self.places.is_empty()).then_some(last)
    }

    /// The parts of an event's key, by which events are divided; None for a null that excludes it.
    #[inline]
    pub fn key<'e>(&self, attributes: &[Attribute], event: Held<'e>) -> impl Iterator<Item = Option<Cow<'e, Value>>> {
        attributes.iter().zip(&self.keys).map(move |(attribute, part)| {
            let value = match attribute.place(event) {
                Some(value) if !part.float => Cow::Borrowed(value),
                _ => {
                    let value = attribute.kept(event);
                    Cow::Owned(if part.float { value.into_float() } else { value })
                }
            };
            (part.nulls || !value.is_null()).then_some(value)
        })
    }

    /// The key of an event's partition; None if it is in none (rule S7).
    pub fn partition(&self, event: Held<'_>) -> Option<Arc<[Key]>> {
        let attributes = self.streams.get(usize::from(event.name.stream))?.key.as_ref()?;
        let parts = attributes.iter().zip(&self.keys).map(|(attribute, part)| {
            let value = attribute.kept(event);
            let value = if part.float { value.into_float() } else { value };
            (!value.is_null()).then_some(Key(value))
        });
        parts.collect()
    }

    /// An empty place for the events of this query.
    pub fn events(&self) -> Events {
        let kept = |stream: &Stream| stream.kept.iter().rposition(|kept| *kept).map_or(0, |last| last + 1);
        let width = self.streams.iter().map(kept).max().unwrap_or(0);
        Events::new(width, self.policy == Policy::Strict)
    }

    /// The variables that the output shows: all but NOT ones.
    pub fn shown(&self) -> impl Iterator<Item = usize> {
        (0..self.variables.len()).filter(|&v| self.variables[v].role != Role::Absent)
    }
}

fn place_variables(variables: &mut [Variable], steps: &[Step], windows: &[Span], joins: &[Join]) {
    for (number, step) in steps.iter().enumerate() {
        for &v in &step.variables {
            variables[v].step = Some(number);
            variables[v].role = step.role;
        }
    }
    for (number, variable) in variables.iter_mut().enumerate() {
        variable.joins = (0..joins.len())
            .filter(|&j| joins[j].variables >> number & 1 == 1)
            .collect();
        variable.windows = (0..windows.len())
            .filter(|&w| windows[w].variables.contains(&number))
            .collect();
    }
}
