//! The matcher of one query: takes events in any order, and gives matches in order as the watermark passes.
//!
//! An event is final once the watermark is beyond its time, because an event is late only if its time is less than the
//! watermark (rules E4, E5). Final events go through the engine in E2's order, so nothing depends on their arrival.
//!
//! An eager matcher does not wait for events of the same time: it gives a match as soon as the watermark reaches it, in
//! the order of time, but those of one time as they are found. Only where that changes no match: see `can_be_eager`.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::bounds::FOREVER;
use crate::event::{Events, Handle, Id, Name, Row};
use crate::expr::Alone;
use crate::found::{Match, put_in_order};
use crate::json::Fault;
use crate::known::{Known, Rows, Table};
use crate::partition::Partitions;
use crate::plan::{After, Kind, Plan, Policy};
use crate::policy::Taken;
use crate::state::Sheds;
use crate::value::{Key, Val, Value};
use crate::window::Windows;

/// Queues that have grown beyond this many events are let go of once they are empty.
const SMALL: usize = 64;

/// What to do when the budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The new event is left out.
    RefuseNewest,
    /// The oldest event that is held is let go of.
    ShedOldest,
    /// The query fails.
    Fail,
}

/// A limit on the events that are held.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// How many.
    pub events: usize,
    /// And then.
    pub overflow: Overflow,
}

/// The budget is used up, and the query is to fail then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted(pub usize);

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the query holds {} events, which is its budget", self.0)
    }
}

impl std::error::Error for Exhausted {}

/// What happened to the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events given to the matcher.
    pub events: u64,
    /// Those that qualify for some variable.
    pub qualified: u64,
    /// Those that came when their time was past; the log decides that first, so there should be none.
    pub late: u64,
    /// Left out because of the budget.
    pub refused: u64,
    /// Let go of because of the budget.
    pub shed: u64,
    /// Matches given out.
    pub matches: u64,
}

#[derive(Debug)]
pub(crate) enum Engine {
    Pattern(Box<Partitions>),
    Window(Box<Windows>),
}

/// The matcher.
#[derive(Debug)]
pub struct Matcher {
    pub(crate) plan: Arc<Plan>,
    pub(crate) engine: Engine,
    pub(crate) events: Events,
    /// Events that are not final, in order, and those that came since and out of order; with the variables that each
    /// qualifies for, a bit each.
    pub(crate) waiting: VecDeque<(Handle, u64)>,
    pub(crate) arrived: Vec<(Handle, u64)>,
    /// Matches that are found and not yet in time.
    pub(crate) found: Vec<Match>,
    pub(crate) taken: Taken,
    /// Everything before this time is decided.
    pub(crate) watermark: i64,
    pub(crate) budget: Option<Budget>,
    pub(crate) eager: bool,
    pub(crate) counters: Counters,
    /// Of which times events were shed, a number for each.
    pub(crate) sheds: Sheds,
    /// What is known of events now.
    pub(crate) tables: Vec<Arc<Table>>,
    /// By slot: what is known of the event at hand. Kept from one to the next, to allocate nothing.
    known: Vec<Option<Value>>,
    /// Events with a value of which nothing is known; since this matcher was made.
    pub(crate) strangers: u64,
}

impl Matcher {
    /// A matcher for a plan.
    pub fn new(plan: &str, budget: Option<Budget>) -> Result<Matcher, Fault> {
        Ok(Matcher::of(Arc::new(Plan::read(plan)?), budget))
    }

    pub(crate) fn of(plan: Arc<Plan>, budget: Option<Budget>) -> Matcher {
        let engine = match plan.moving {
            Some((kind, size)) => Engine::Window(Box::new(Windows::new(Arc::clone(&plan), kind, size))),
            None => Engine::Pattern(Box::new(Partitions::new(&plan))),
        };
        Matcher {
            events: plan.events(),
            tables: plan.tables.clone(),
            known: Vec::new(),
            strangers: 0,
            plan,
            engine,
            waiting: VecDeque::new(),
            arrived: Vec::new(),
            found: Vec::new(),
            taken: Taken::default(),
            watermark: i64::MIN,
            budget,
            eager: false,
            counters: Counters::default(),
            sheds: Sheds::default(),
        }
    }

    /// Makes the matcher eager, if the query lets it; says whether.
    pub fn make_eager(&mut self) -> bool {
        self.eager = can_be_eager(&self.plan);
        self.eager
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many events are held.
    pub fn held(&self) -> usize {
        let engine = match &self.engine {
            Engine::Pattern(partitions) => partitions.held(),
            Engine::Window(windows) => windows.held(),
        };
        engine + self.waiting.len() + self.arrived.len()
    }

    /// How many events are in memory.
    pub fn kept(&self) -> usize {
        self.events.len()
    }

    /// Partitions or groups, runs, and pending matches.
    pub fn sizes(&self) -> (usize, usize, usize) {
        match &self.engine {
            Engine::Pattern(partitions) => partitions.sizes(),
            Engine::Window(windows) => (windows.groups(), 0, 0),
        }
    }

    /// Takes a record, unless nothing in the query wants it.
    pub fn push(&mut self, row: &impl Row) -> Result<(), Exhausted> {
        self.push_candidate(row, u64::MAX, false)
    }

    /// Takes a record that can qualify only for some variables, a bit each; if they are judged, it does.
    #[inline]
    pub(crate) fn push_candidate(
        &mut self,
        row: &impl Row,
        candidates: u64,
        are_judged: bool,
    ) -> Result<(), Exhausted> {
        self.counters.events += 1;
        let time = row.time();
        if time < self.plan.within.0 || time > self.plan.within.1 {
            return Ok(());
        }
        if time < self.watermark {
            self.counters.late += 1;
            return Ok(());
        }
        let mask = match candidates {
            candidates if candidates == 0 || are_judged => candidates,
            _ => qualifies(&self.plan, row, candidates),
        };
        if mask == 0 && self.plan.policy != Policy::Strict {
            return Ok(());
        }
        if mask != 0 && !self.plan.lookups.is_empty() {
            return self.push_known(row, mask);
        }
        self.counters.qualified += u64::from(mask != 0);
        self.take(row, mask)
    }

    /// Takes a record that qualifies for some variables but for what is known of it: a copy for each row found.
    fn push_known(&mut self, row: &impl Row, mut mask: u64) -> Result<(), Exhausted> {
        let plan = Arc::clone(&self.plan);
        let here = |variable: usize| {
            let own = plan.lookups.iter();
            own.filter(move |l| l.variable == variable && l.stream == usize::from(row.stream()))
        };
        // By variable that looks something up: how many copies; and the rows, with the slots that they fill.
        let mut counts: Vec<(usize, usize)> = Vec::new();
        let mut found: Vec<(usize, &[usize], Rows)> = Vec::new();
        let mut is_strange = false;
        for variable in bits(mask) {
            let mut count = 1;
            for lookup in here(variable) {
                let key = lookup.key.iter().map(|slot| row.value(*slot));
                let (rows, is_known) = self.tables[lookup.table].get(key.clone());
                is_strange |= !is_known && key.into_iter().all(|part| !part.is_null());
                count *= rows.len();
                found.push((variable, &lookup.columns, Arc::clone(rows)));
            }
            counts.push((variable, count));
            if count == 0 {
                mask &= !(1 << variable);
            }
        }
        self.strangers += u64::from(is_strange);
        let copies = counts.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
        let slots = plan
            .streams
            .get(usize::from(row.stream()))
            .map_or(0, |s| s.attributes.len());
        let mut known = std::mem::take(&mut self.known);
        let mut qualifies = false;
        let mut outcome = Ok(());
        for copy in 0..copies {
            let has = |variable: usize| counts.iter().any(|&(v, count)| v == variable && copy < count);
            let candidates = bits(mask).filter(|&v| has(v)).fold(0u64, |mask, v| mask | 1 << v);
            known.clear();
            known.resize(slots, None);
            let mut place = (usize::MAX, copy);
            for (variable, columns, rows) in found.iter().filter(|(v, ..)| candidates >> v & 1 == 1) {
                if place.0 != *variable {
                    place = (*variable, copy);
                }
                for (slot, value) in columns.iter().zip(&rows[place.1 % rows.len()]) {
                    known[*slot] = Some(value.clone());
                }
                place.1 /= rows.len();
            }
            let seen = Known { row, values: &known };
            let scope = Alone(&seen);
            let fits = |v: &usize| {
                plan.variables[*v]
                    .late_filters
                    .iter()
                    .all(|filter| filter.holds(&scope))
            };
            let judged = bits(candidates).filter(fits).fold(0u64, |mask, v| mask | 1 << v);
            if judged != 0 || (copy == 0 && plan.policy == Policy::Strict) {
                qualifies |= judged != 0;
                outcome = outcome.and_then(|()| self.take(&seen, judged));
            }
        }
        self.counters.qualified += u64::from(qualifies);
        self.known = known;
        outcome
    }

    /// What is known of a key of a lookup from now on; None: what is known of keys that are not there.
    pub fn learn(&mut self, table: usize, key: Box<[Key]>, rows: Option<Rows>) {
        if let Some(table) = self.tables.get_mut(table).map(Arc::make_mut) {
            match rows {
                Some(rows) => table.set(key, rows),
                None => table.remove(&key),
            }
        }
    }

    /// Takes a record that qualifies for the variables of `mask`, or under STRICT for none.
    #[inline]
    fn take(&mut self, row: &impl Row, mask: u64) -> Result<(), Exhausted> {
        if self.budget.is_some() && !self.makes_room()? {
            return Ok(());
        }
        let event = self.keep(row);
        if row.is_faulty() {
            self.events.release(event);
            return Ok(());
        }
        let in_order = |&(last, _): &(Handle, u64)| self.events.order(last, event).is_le();
        if self.waiting.back().is_none_or(in_order) {
            self.waiting.push_back((event, mask));
        } else {
            self.arrived.push((event, mask));
        }
        Ok(())
    }

    /// Keeps a row as an event, with what is read of it later.
    fn keep(&mut self, row: &impl Row) -> Handle {
        let stream = self.plan.streams.get(usize::from(row.stream()));
        let kept = stream.map_or(&[][..], |stream| &stream.kept);
        let name = Name {
            time: row.time(),
            stream: row.stream(),
            id: match row.id() {
                Val::Str(id) => Id::Str(id.as_ref().into()),
                Val::Int(id) => Id::Int(id),
                _ => Id::Int(0),
            },
        };
        let values = kept.iter().enumerate().map(|(slot, kept)| match kept {
            true => row.value(slot),
            false => Val::Null,
        });
        self.events.add(name, values, 0)
    }

    /// Whether there is room for one more event.
    fn makes_room(&mut self) -> Result<bool, Exhausted> {
        let Some(budget) = self.budget else {
            return Ok(true);
        };
        if self.held() < budget.events {
            return Ok(true);
        }
        match budget.overflow {
            Overflow::Fail => Err(Exhausted(budget.events)),
            Overflow::RefuseNewest => {
                self.counters.refused += 1;
                Ok(false)
            }
            Overflow::ShedOldest => {
                while self.held() >= budget.events {
                    self.counters.shed += 1;
                    let shed = match &mut self.engine {
                        Engine::Pattern(partitions) => partitions.shed(&self.plan, &mut self.events),
                        Engine::Window(windows) => windows.shed(&mut self.events),
                    };
                    if let Some(time) = shed {
                        self.sheds.note(&self.plan, time);
                        continue;
                    }
                    self.merge();
                    match self.waiting.pop_front() {
                        Some((event, _)) => self.events.release(event),
                        None => return Ok(false),
                    }
                }
                Ok(true)
            }
        }
    }

    /// Brings what arrived into order.
    pub(crate) fn merge(&mut self) {
        if self.arrived.is_empty() {
            return;
        }
        self.waiting.extend(self.arrived.drain(..));
        let events = &self.events;
        self.waiting.make_contiguous().sort_by(|a, b| events.order(a.0, b.0));
    }

    /// The watermark is now here (None: the input is complete). Gives the matches of earlier times, in order.
    pub fn advance(&mut self, watermark: Option<i64>) -> Vec<Match> {
        let mut ready = self.complete(watermark);
        self.taken.take(&self.plan, &mut ready);
        self.taken.forget(&self.plan, self.watermark);
        put_in_order(&self.plan, &mut ready);
        self.counters.matches += ready.len() as u64;
        ready
    }

    /// As `advance`, but what KEEP would give, of all heads, and in no order.
    pub(crate) fn complete(&mut self, watermark: Option<i64>) -> Vec<Match> {
        let limit = watermark.unwrap_or(i64::MAX).max(self.watermark);
        self.merge();
        while let Some(&(event, mask)) = self.waiting.front() {
            let time = self.events.time(event);
            if time > limit || (time == limit && !self.eager) {
                break;
            }
            self.waiting.pop_front();
            self.process(event, mask);
        }
        let (events, found) = (&mut self.events, &mut self.found);
        match &mut self.engine {
            Engine::Pattern(partitions) if watermark.is_none() => partitions.end(&self.plan, events, found),
            Engine::Pattern(partitions) => partitions.pass(&self.plan, events, limit, found),
            Engine::Window(windows) => windows.pass(events, limit, found),
        }
        if self.events.is_empty() && self.waiting.capacity() > SMALL {
            self.waiting = VecDeque::new();
            self.arrived = Vec::new();
        }
        self.watermark = limit;
        self.ready(limit)
    }

    /// Gives a final event to the engine, after all that its time makes due, and lets go of it.
    pub(crate) fn process(&mut self, event: Handle, mask: u64) {
        let (events, found) = (&mut self.events, &mut self.found);
        let time = events.time(event);
        match &mut self.engine {
            Engine::Pattern(partitions) => {
                partitions.pass(&self.plan, events, time, found);
                partitions.event(&self.plan, events, event, mask, found);
            }
            Engine::Window(windows) => {
                windows.pass(events, time, found);
                windows.event(events, event, found);
            }
        }
        events.release(event);
    }

    /// When all that is held at this watermark is past; None if nothing is, or time alone does not end it.
    pub fn past(&self, watermark: i64) -> Option<i64> {
        let reach = match self.plan.moving {
            Some((Kind::Sliding, size)) => size,
            Some(_) => return None,
            None if self.plan.horizon >= FOREVER => return None,
            // An open first step looks back from events that are kept themselves.
            None => self.plan.horizon.max(0).saturating_mul(2),
        };
        (self.held() > 0).then(|| watermark.saturating_add(reach).saturating_add(1))
    }

    /// The earliest watermark that would make something happen; None: only an event can.
    pub fn due(&self) -> Option<i64> {
        let engine = match &self.engine {
            Engine::Pattern(partitions) => partitions.due(),
            Engine::Window(windows) => windows.due(),
        };
        let waiting = self.waiting.front().map(|(event, _)| self.events.time(*event));
        let arrived = self.arrived.iter().map(|(event, _)| self.events.time(*event)).min();
        let found = self.found.iter().map(|found| found.time).min();
        [engine, waiting, arrived, found].into_iter().flatten().min()
    }

    /// Whether a match is in time.
    pub(crate) fn is_due(&self, time: i64, limit: i64) -> bool {
        let included = match &self.engine {
            Engine::Window(windows) => windows.due_at_time(),
            Engine::Pattern(_) => self.eager,
        };
        time < limit || limit == i64::MAX || (included && time == limit)
    }

    fn ready(&mut self, limit: i64) -> Vec<Match> {
        let mut ready = std::mem::take(&mut self.found);
        if ready.iter().any(|found| !self.is_due(found.time, limit)) {
            let (due, later) = ready.into_iter().partition(|found| self.is_due(found.time, limit));
            (ready, self.found) = (due, later);
        }
        ready
    }
}

/// Whether events of one time can be judged as they come: NEXT and STRICT ask which is first, AFTER MATCH which match
/// is, and a sliding window for all of them.
fn can_be_eager(plan: &Plan) -> bool {
    plan.policy == Policy::Any && plan.after == After::Keep && plan.moving.is_none()
}

/// The variables of a mask.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        lowest
    })
}

/// The variables that a row qualifies for, a bit each.
fn qualifies(plan: &Plan, row: &impl Row, candidates: u64) -> u64 {
    let Some(stream) = plan.streams.get(usize::from(row.stream())) else {
        return 0;
    };
    let scope = Alone(row);
    let fits =
        |&&v: &&usize| candidates >> v & 1 == 1 && plan.variables[v].filters.iter().all(|filter| filter.holds(&scope));
    stream.variables.iter().filter(fits).fold(0, |mask, v| mask | 1 << v)
}
