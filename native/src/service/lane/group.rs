//! Queries of a lane that read the same streams: their matchers, and how far the streams have come.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::spec::{LaneSpec, StreamSpec};
use crate::event::{Id, Name, Row};
use crate::json::Fault;
use crate::log::schema;
use crate::matcher::{Budget, Matcher, Overflow};
use crate::record::{self, IdRef, Record};
use crate::standing::Standing;
use crate::steady;
use crate::value::Val;

/// So many events of a group are remembered that came with the end of their validity.
const ENDS: usize = 1 << 16;

/// Queries that read the same streams, and so have one watermark.
pub(super) struct Group {
    pub(super) standing: Standing,
    /// By place in `standing`, the query's number.
    pub(super) queries: Vec<usize>,
    /// By place in `standing`.
    pub(super) clocks: Vec<Clock>,
    /// By number of the stream in the log: its place here, and where its attributes are.
    pub(super) places: Vec<Option<(u16, Vec<Option<usize>>)>>,
    /// By query of `queries`, its ALIGNs: the places of their variables, and how far apart their events may be.
    pub(super) align: Vec<Vec<(Vec<usize>, i64)>>,
    /// The last watermark that they advanced to.
    pub(super) watermark: i64,
    /// When the validity of events ends that came with that; the newest ones.
    pub(super) ends: BTreeMap<Name, i64>,
}

/// How far a stream has come.
pub(super) struct Clock {
    pub(super) stream: StreamSpec,
    pub(super) greatest: i64,
    pub(super) heard: Instant,
    /// The last watermark that was announced of a derived stream.
    pub(super) announced: i64,
}

impl Clock {
    /// The stream's watermark (rule E5).
    pub(super) fn watermark(&self, idle_counts: bool) -> i64 {
        let seen = self.greatest.saturating_sub(self.stream.lateness).max(self.announced);
        match self.stream.idle {
            Some(idle)
                if idle_counts
                    && !self.stream.is_derived
                    && self.heard.elapsed() >= Duration::from_micros(idle.unsigned_abs()) =>
            {
                // At the distance of `idle`: what is not heard of for that long is not on its way. And what a watermark
                // has passed is decided, so that a clock that steps is not followed at once.
                seen.max(steady::now().saturating_sub(idle).saturating_sub(self.stream.lateness))
            }
            _ => seen,
        }
    }
}

/// Matchers, with their queries' numbers.
type Numbered = Vec<(usize, Matcher)>;

/// The queries of a lane by what they read.
pub(super) fn groups(spec: &LaneSpec) -> Result<Vec<Group>, Fault> {
    let mut found: Vec<(Vec<String>, Numbered)> = Vec::new();
    for (number, query) in spec.queries.iter().enumerate() {
        let budget = query.limit.map(|events| Budget {
            events,
            overflow: Overflow::ShedOldest,
        });
        let mut matcher = Matcher::new(&query.plan, budget)?;
        matcher.make_eager();
        let mut streams: Vec<String> = matcher.plan().streams.iter().map(|s| s.name.to_string()).collect();
        streams.sort_unstable();
        match found.iter_mut().find(|(known, _)| *known == streams) {
            Some((_, queries)) => queries.push((number, matcher)),
            None => found.push((streams, vec![(number, matcher)])),
        }
    }
    let group = |(_, queries): (Vec<String>, Numbered)| {
        let (queries, matchers): (Vec<usize>, Vec<Matcher>) = queries.into_iter().unzip();
        let standing = Standing::new(matchers);
        let clock = |stream: &crate::lookup::Stream| Clock {
            stream: spec
                .streams
                .iter()
                .find(|known| known.name == stream.name)
                .cloned()
                .unwrap_or(StreamSpec {
                    name: stream.name.clone(),
                    lateness: 0,
                    idle: None,
                    valid_for: None,
                    is_derived: false,
                }),
            greatest: i64::MIN,
            heard: Instant::now(),
            announced: i64::MIN,
        };
        let clocks = standing.streams().iter().map(clock).collect();
        let align = queries.iter().enumerate().map(|(place, number)| {
            let variables = &standing.plan(place).variables;
            let place = |name: &String| variables.iter().position(|variable| *variable.name == **name);
            let each = spec.queries[*number].align.iter();
            each.map(|(names, within)| (names.iter().filter_map(place).collect(), *within))
                .collect()
        });
        Group {
            align: align.collect(),
            watermark: i64::MIN,
            standing,
            queries,
            clocks,
            places: Vec::new(),
            ends: BTreeMap::new(),
        }
    };
    Ok(found.into_iter().map(group).collect())
}

/// A record as a group sees it.
struct Seen<'r> {
    record: &'r Record<'r>,
    stream: u16,
    slots: &'r [Option<usize>],
}

impl Row for Seen<'_> {
    fn time(&self) -> i64 {
        self.record.time()
    }

    fn stream(&self) -> u16 {
        self.stream
    }

    fn id(&self) -> Val<'_> {
        Row::id(self.record)
    }

    fn value(&self, slot: usize) -> Val<'_> {
        match self.slots.get(slot) {
            Some(Some(slot)) => self.record.get(*slot),
            _ => Val::Null,
        }
    }
}

impl Group {
    /// Finds the streams of this group among the log's.
    pub(super) fn place(&mut self, streams: &[schema::StreamSchema]) {
        let of = |stream: &schema::StreamSchema| {
            let own = self.standing.streams();
            let place = own.iter().position(|known| known.name == stream.name)?;
            let slot = |name: &String| stream.attributes.iter().position(|(known, _)| known == name);
            Some((place as u16, own[place].attributes.iter().map(slot).collect()))
        };
        self.places = streams.iter().map(of).collect();
    }

    /// Takes an event, if it is of its streams.
    pub(super) fn push(&mut self, record: &Record<'_>) {
        let Some(Some((stream, slots))) = self.places.get(usize::from(record.stream())) else {
            return;
        };
        let clock = &mut self.clocks[usize::from(*stream)];
        clock.greatest = clock.greatest.max(record.time());
        clock.heard = Instant::now();
        if let Some(end) = record::end(record.bytes()) {
            let id = match record.id() {
                IdRef::Int(id) => Id::Int(id),
                IdRef::Text(id) => Id::Str(id.into()),
            };
            let name = Name {
                time: record.time(),
                stream: *stream,
                id,
            };
            self.ends.insert(name, end);
            if self.ends.len() > ENDS {
                self.ends.pop_first();
            }
        }
        self.standing.push(&Seen {
            record,
            stream: *stream,
            slots,
        });
    }
}
