//! Many queries that stand together over the same events; what they have in common is done once.
//!
//! A record is shown only to the patterns that it can concern, and no condition is judged twice for it (lookup.rs). Equal
//! patterns are one, and patterns with the same beginning go on from one or hold their events together (shared.rs); each
//! query gets the matches that a matcher of its own would give, in their order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::branches::Part;
use crate::event::{Id, Name, Row};
use crate::found::{Bound, Match, put_in_order};
use crate::known::Entry;
use crate::lookup::Stream;
use crate::matcher::{Exhausted, Matcher};
use crate::plan::{After, Plan};
use crate::policy::Taken;
use crate::shared::{self, Given, Pattern, Place, Reads, Source};
use crate::value::{Val, Value};

/// The queries.
#[derive(Debug)]
pub struct Standing {
    queries: Vec<Query>,
    /// Those that others go on from first.
    units: Vec<Unit>,
    /// The units that others go on from.
    sources: Vec<u32>,
    streams: Vec<Stream>,
    /// The units that have had an event since they were last advanced, each once.
    active: Vec<u32>,
    /// When which unit has to be advanced even so.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    watermark: i64,
    /// Events that came when their time was past.
    late: u64,
}

/// One of the queries: what makes its matches its own.
#[derive(Debug)]
struct Query {
    plan: Arc<Plan>,
    taken: Taken,
    unit: usize,
}

/// A pattern at work.
#[derive(Debug)]
struct Unit {
    matcher: Matcher,
    is_active: bool,
    /// It failed because its budget was used up; it gets no more events.
    failed: Option<Exhausted>,
    /// By head.
    reads: Vec<Reads>,
    source: Option<Source>,
    parts: Vec<Part>,
    /// The units that go on from here, and the rows that they do so from.
    readers: Vec<usize>,
    rows: Rows,
}

/// The matches that units go on from: what is bound in each, by step. They are numbered as they come.
#[derive(Debug, Default)]
struct Rows {
    first: i64,
    /// With their times.
    rows: VecDeque<(i64, Box<[Name]>)>,
    /// How long one can matter after its time.
    kept: i64,
}

impl Rows {
    fn push(&mut self, time: i64, names: Box<[Name]>) -> i64 {
        self.rows.push_back((time, names));
        self.first + self.rows.len() as i64 - 1
    }

    fn of(&self, number: i64) -> &[Name] {
        let place = usize::try_from(number - self.first).ok();
        place
            .and_then(|place| self.rows.get(place))
            .map_or(&[], |(_, names)| names)
    }

    /// Lets go of those that no match of this time or later can have.
    fn forget(&mut self, time: i64) {
        while let Some((own, _)) = self.rows.front()
            && own.saturating_add(self.kept) < time
        {
            self.rows.pop_front();
            self.first += 1;
        }
    }
}

/// A match of a beginning as a record for what goes on from it.
struct Begun<'m> {
    time: i64,
    number: i64,
    stream: u16,
    select: &'m [Value],
    source: &'m Source,
}

impl Row for Begun<'_> {
    fn time(&self) -> i64 {
        self.time
    }

    fn stream(&self) -> u16 {
        self.stream
    }

    fn id(&self) -> Val<'_> {
        Val::Int(self.number)
    }

    fn value(&self, slot: usize) -> Val<'_> {
        let value = self.source.values.get(slot).and_then(|place| self.select.get(*place));
        value.map_or(Val::Null, Value::view)
    }
}

impl Standing {
    /// These queries, in this order; of the matchers, which have had no event, only what they are for matters.
    pub fn new(matchers: Vec<Matcher>) -> Self {
        let given = |matcher: &Matcher| Given {
            plan: Arc::clone(matcher.plan()),
            budget: matcher.budget,
            eager: matcher.eager,
        };
        let given: Vec<Given> = matchers.iter().map(given).collect();
        drop(matchers);
        let units: Vec<Unit> = shared::patterns(&given).into_iter().map(Unit::of).collect();
        let mut standing = Standing {
            queries: Vec::new(),
            units,
            sources: Vec::new(),
            streams: Vec::new(),
            active: Vec::new(),
            due: BinaryHeap::new(),
            watermark: i64::MIN,
            late: 0,
        };
        standing.link();
        standing.queries = given
            .into_iter()
            .enumerate()
            .map(|(number, given)| Query {
                plan: given.plan,
                taken: Taken::default(),
                unit: standing.unit_of(number),
            })
            .collect();
        standing.read_streams();
        standing
    }

    fn unit_of(&self, query: usize) -> usize {
        let serves = |unit: &Unit| unit.reads.iter().any(|reads| reads.query == Some(query));
        self.units.iter().position(serves).unwrap_or(0)
    }

    /// Tells the sources who goes on from them.
    fn link(&mut self) {
        for number in 0..self.units.len() {
            let unit = &self.units[number];
            let Some(source) = unit.source.as_ref().map(|source| source.pattern) else {
                continue;
            };
            let kept = unit.matcher.plan().variables.last().map_or(0, |row| row.kept);
            let source = &mut self.units[source];
            source.readers.push(number);
            source.rows.kept = source.rows.kept.max(kept);
        }
        let sources = (0..self.units.len()).filter(|&number| !self.units[number].readers.is_empty());
        self.sources = sources.map(|number| number as u32).collect();
    }

    fn read_streams(&mut self) {
        let streams = &mut self.streams;
        streams.clear();
        for stream in self.queries.iter().flat_map(|query| &query.plan.streams) {
            if streams.iter().all(|known| *known.name != *stream.name) {
                streams.push(Stream::new(&stream.name));
            }
        }
        for (number, unit) in self.units.iter().enumerate() {
            let plan = unit.matcher.plan();
            // An inner stream, which has no name, is read by the row.
            for (place, stream) in plan.streams.iter().enumerate().filter(|(_, s)| !s.variables.is_empty()) {
                if let Some(known) = streams.iter_mut().find(|known| *known.name == *stream.name) {
                    known.read_by(number, plan, place);
                }
            }
        }
        let matchers: Vec<&Matcher> = self.units.iter().map(|unit| &unit.matcher).collect();
        for (place, stream) in streams.iter_mut().enumerate() {
            stream.index(place, &matchers);
        }
    }

    /// What is known of keys of a query's table from now on.
    pub fn learn(&mut self, query: usize, table: usize, entries: Vec<Entry>) {
        let matcher = &mut self.units[self.queries[query].unit].matcher;
        for (key, rows) in entries {
            matcher.learn(table, key, rows);
        }
    }

    /// Goes on with another plan of a query that follows what is known; whether what it holds fits, and is kept. The
    /// plan reads the same streams.
    pub fn replace(&mut self, query: usize, plan: Plan) -> bool {
        let plan = Arc::new(plan);
        let number = self.queries[query].unit;
        let unit = &mut self.units[number];
        let mut matcher = Matcher::of(Arc::clone(&plan), unit.matcher.budget);
        matcher.eager = unit.matcher.eager;
        matcher.strangers = unit.matcher.strangers;
        let state = unit.matcher.save(|_| false);
        let chunk = |name| {
            let found = state.changed.iter().find(|(known, _)| *known == name);
            found.map(|(_, bytes)| bytes.as_slice())
        };
        let is_kept = matcher.restore(&state.head, chunk).is_ok();
        if !is_kept {
            matcher.watermark = unit.matcher.watermark;
        }
        unit.matcher = matcher;
        unit.activate(number as u32, &mut self.active);
        self.queries[query].plan = plan;
        self.read_streams();
        is_kept
    }

    /// How many events had a value of which a query's tables know nothing.
    pub fn strangers(&self, query: usize) -> u64 {
        self.units[self.queries[query].unit].matcher.strangers
    }

    /// How many queries there are.
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// A query's plan.
    pub fn plan(&self, query: usize) -> &Arc<Plan> {
        &self.queries[query].plan
    }

    /// Whether nothing that came matters any more.
    pub fn holds_nothing(&self) -> bool {
        let mut matchers = self.units.iter().map(|unit| &unit.matcher);
        matchers.all(|matcher| matcher.kept() == 0 && matcher.due().is_none())
    }

    /// The streams that they read.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// What runs: the queries that read the matches of each, how many steps it has, and which one its first steps are,
    /// if they are done there; last, whether it is no pattern, but holds the events of first steps for others.
    pub fn patterns(&self) -> Vec<(Vec<usize>, usize, Option<usize>, bool)> {
        let mut found = Vec::new();
        let mut places = Vec::new();
        for unit in &self.units {
            let before = found.len();
            places.push(before);
            for part in &unit.parts {
                let parent = part.parent.map(|parent| before + parent);
                found.push((part.queries.clone(), part.steps, parent, part.queries.is_empty()));
            }
            if unit.parts.is_empty() {
                let source = unit.source.as_ref();
                let begun = source.map_or(0, |source| source.steps - 1);
                let queries = unit.reads.iter().filter_map(|reads| reads.query).collect();
                let steps = unit.matcher.plan().steps.len() + begun;
                found.push((queries, steps, source.map(|source| places[source.pattern]), false));
            }
        }
        found
    }

    /// How many events are in memory; a match that patterns go on from is one in each of these.
    pub fn kept(&self) -> usize {
        self.units.iter().map(|unit| unit.matcher.kept()).sum()
    }

    /// How many events came when their time was past.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The queries that failed, and why.
    pub fn failed(&self) -> impl Iterator<Item = (usize, Exhausted)> {
        let queries = self.queries.iter().enumerate();
        queries.filter_map(|(number, query)| Some((number, self.units[query.unit].failed?)))
    }

    /// Takes a record, whose stream and slots are those of `streams`.
    pub fn push(&mut self, row: &impl Row) {
        let Some(stream) = self.streams.get_mut(usize::from(row.stream())) else {
            return;
        };
        // A pattern that was not advanced for long would not know.
        if row.time() < self.watermark {
            self.late += 1;
            return;
        }
        let (units, active) = (&mut self.units, &mut self.active);
        stream.show(row, |number, row, mask| {
            let unit = &mut units[number as usize];
            if unit.failed.is_some() {
                return;
            }
            if let Err(full) = unit.matcher.push_candidate(row, mask, true) {
                unit.failed = Some(full);
            }
            if !std::mem::replace(&mut unit.is_active, true) {
                active.push(number);
            }
        });
    }

    /// The watermark is now here (None: the input is complete). The matches of earlier times: query by query, those of
    /// each in order.
    pub fn advance(&mut self, watermark: Option<i64>) -> Vec<(usize, Vec<Match>)> {
        let limit = watermark.unwrap_or(i64::MAX).max(self.watermark);
        self.watermark = limit;
        while let Some(&Reverse((due, number))) = self.due.peek()
            && due <= limit
        {
            self.due.pop();
            self.units[number as usize].activate(number, &mut self.active);
        }
        if watermark.is_none() {
            self.active = (0..self.units.len() as u32).collect();
        }
        let mut active = std::mem::take(&mut self.active);
        active.sort_unstable();
        let mut found = Vec::new();
        let mut next = 0;
        while let Some(&number) = active.get(next) {
            next += 1;
            let unit = &mut self.units[number as usize];
            let matches = unit.matcher.complete(watermark.map(|_| limit));
            unit.is_active = false;
            // What is due by itself; and once more when all that it holds is past, to free it.
            if let Some(due) = [unit.matcher.due(), unit.matcher.past(limit)]
                .into_iter()
                .flatten()
                .min()
                && watermark.is_some()
            {
                self.due.push(Reverse((due.max(limit.saturating_add(1)), number)));
            }
            // What AFTER MATCH has taken is forgotten in time, matches or not.
            let concerns = !matches.is_empty() || unit.matcher.plan().after != After::Keep;
            if concerns && self.hand_out(number as usize, matches, &mut active, &mut found) {
                // What goes on from here comes after it.
                active[next..].sort_unstable();
            }
        }
        for &source in &self.sources {
            self.units[source as usize].rows.forget(limit);
        }
        found.sort_unstable_by_key(|(query, _)| *query);
        found
    }

    /// Gives matches to those who read them; whether units became active by it.
    fn hand_out(
        &mut self,
        number: usize,
        matches: Vec<Match>,
        active: &mut Vec<u32>,
        found: &mut Vec<(usize, Vec<Match>)>,
    ) -> bool {
        let unit = &self.units[number];
        let before = active.len();
        if let [reads] = unit.reads.as_slice()
            && let Some(query) = reads.query
            && unit.source.is_none()
        {
            found.extend(
                self.queries[query]
                    .ordered(matches, self.watermark)
                    .map(|matches| (query, matches)),
            );
            return false;
        }
        let is_own = |reads: &Reads| unit.source.is_none() && reads.is_in_order();
        let mut by_head: Vec<(bool, Vec<Match>)> = unit.reads.iter().map(|r| (is_own(r), Vec::new())).collect();
        for one in matches {
            let head = one.head as usize;
            let (is_own, found) = &mut by_head[head];
            found.push(match is_own {
                true => one,
                false => self.own(number, &unit.reads[head], one),
            });
        }
        for (head, (_, matches)) in by_head.into_iter().enumerate() {
            match self.units[number].reads[head].query {
                Some(query) => found.extend(
                    self.queries[query]
                        .ordered(matches, self.watermark)
                        .map(|matches| (query, matches)),
                ),
                None => self.go_on(number, matches, active),
            }
        }
        active.len() > before
    }

    /// A match as its reader knows it: its variables in its order, and what was begun elsewhere.
    fn own(&self, number: usize, reads: &Reads, mut found: Match) -> Match {
        let unit = &self.units[number];
        let begun = unit.source.as_ref().map(|source| {
            let row = found.events.last().and_then(|row| row.events().first());
            let number = match row.map(|row| &row.id) {
                Some(Id::Int(number)) => *number,
                _ => -1,
            };
            (source, self.units[source.pattern].rows.of(number))
        });
        if found.row.is_some() {
            return found;
        }
        let bound = |place: &Place| match (*place, begun) {
            (Place::Own(variable), _) => std::mem::replace(&mut found.events[variable], Bound::Unbound),
            (Place::Part(part), Some((source, row))) => match row.get(part) {
                Some(name) => Bound::One(Name {
                    stream: source.streams[usize::from(name.stream)],
                    ..name.clone()
                }),
                None => Bound::Unbound,
            },
            (Place::Part(_), None) => Bound::Unbound,
        };
        let events = reads.places.iter().map(bound).collect();
        Match { events, ..found }
    }

    /// Gives matches of a beginning to all that goes on from it.
    fn go_on(&mut self, number: usize, mut matches: Vec<Match>, active: &mut Vec<u32>) {
        matches.sort_by(Match::order);
        let readers = std::mem::take(&mut self.units[number].readers);
        for found in &matches {
            let names = found.all().cloned().collect();
            let row = self.units[number].rows.push(found.time, names);
            for &reader in &readers {
                self.units[reader].begin(row, found);
            }
        }
        for &reader in readers.iter().filter(|_| !matches.is_empty()) {
            self.units[reader].activate(reader as u32, active);
        }
        self.units[number].readers = readers;
    }
}

impl Query {
    /// Its matches in order, as far as AFTER MATCH takes them; None if that is none.
    fn ordered(&mut self, mut matches: Vec<Match>, watermark: i64) -> Option<Vec<Match>> {
        self.taken.take(&self.plan, &mut matches);
        self.taken.forget(&self.plan, watermark);
        put_in_order(&self.plan, &mut matches);
        (!matches.is_empty()).then_some(matches)
    }
}

impl Unit {
    fn of(pattern: Pattern) -> Unit {
        let mut matcher = Matcher::of(Arc::new(pattern.plan), pattern.budget);
        matcher.eager = pattern.eager;
        Unit {
            matcher,
            is_active: false,
            failed: None,
            reads: pattern.reads,
            source: pattern.source,
            parts: pattern.parts,
            readers: Vec::new(),
            rows: Rows::default(),
        }
    }

    fn activate(&mut self, number: u32, active: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.is_active, true) {
            active.push(number);
        }
    }

    /// Takes a match of its beginning. (There is no budget that could be used up.)
    fn begin(&mut self, number: i64, found: &Match) {
        let Some(source) = &self.source else { return };
        let plan = self.matcher.plan();
        let (stream, variable) = (plan.streams.len() - 1, plan.variables.len() - 1);
        let row = Begun {
            time: found.time,
            number,
            stream: stream as u16,
            select: &found.select,
            source,
        };
        let _ = self.matcher.push_candidate(&row, 1 << variable, true);
    }
}
