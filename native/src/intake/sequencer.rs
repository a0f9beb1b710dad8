//! What the intake decides about an event, once: whether it is late or a duplicate (rule E4), and whether a batch came before.
//!
//! All of it can be read back from the log: a segment begins with what was known then, and its records and batches say the rest.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::config::Config;
use super::ids::Ids;
use crate::log::frame::{Batch, Kind};
use crate::log::{Error, StreamSchema, segment};
use crate::record::{self, COUNTED_ID, DUPLICATE, IdRef, LATE};

/// Sessions that are remembered; beyond it the one that was silent longest is forgotten.
pub const MAX_SESSIONS: usize = 16_384;

/// What is known about a stream.
#[derive(Serialize, Deserialize)]
struct Known<I> {
    #[serde(flatten)]
    ids: I,
    /// The greatest time of its events, duplicates aside.
    greatest: Option<i64>,
}

/// What a frame of state holds.
#[derive(Serialize, Deserialize)]
struct State<S, I> {
    streams: S,
    known: Vec<Known<I>>,
    /// Session and the number that comes next in it.
    sessions: Vec<(u64, u64)>,
}

/// So long is what is known about a stream in a frame of state, and about a session, or a little longer.
const KNOWN_BYTES: usize = 80;

#[derive(Clone, Copy, Debug)]
struct Session {
    next: u64,
    used: u64,
}

/// The ids that came, in two generations: when one is full, the one before it is forgotten.
struct Memory {
    bound: usize,
    young: HashSet<u128, Mixer>,
    old: HashSet<u128, Mixer>,
    one: RandomState,
    other: RandomState,
}

/// Spreads keys that are numbers; seeded, so that nobody can choose numbers that collide.
#[derive(Clone, Copy)]
struct Mixer(u64);

struct Mixing(u64);

impl BuildHasher for Mixer {
    type Hasher = Mixing;

    fn build_hasher(&self) -> Mixing {
        Mixing(self.0)
    }
}

impl Hasher for Mixing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u128(u128::from(*byte));
        }
    }

    #[inline]
    fn write_u128(&mut self, key: u128) {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            (product >> 64) as u64 ^ product as u64
        };
        let low = fold(key as u64 ^ self.0, 0x9e37_79b9_7f4a_7c15);
        self.0 = fold(low ^ (key >> 64) as u64, 0xd6e8_feb8_6659_fd93);
    }
}

impl Memory {
    fn new(bound: usize) -> Memory {
        let (one, other) = (RandomState::new(), RandomState::new());
        let mixer = Mixer(one.hash_one(0) | 1);
        // Room for all at once: growing would move them, which takes milliseconds. What is not used is not resident.
        Memory {
            bound,
            young: HashSet::with_capacity_and_hasher(bound, mixer),
            old: HashSet::with_capacity_and_hasher(bound, mixer),
            one,
            other,
        }
    }

    /// Whether this id came before, as far as is remembered; it is from now on. `stream` has 63 bits.
    #[inline]
    fn came(&mut self, stream: u64, id: IdRef<'_>) -> bool {
        let key = match id {
            // Exact: a number and its stream have room in the key.
            IdRef::Int(id) => 1 << 127 | u128::from(stream) << 64 | u128::from(id as u64),
            IdRef::Text(text) => {
                let (high, low) = (self.one.hash_one((stream, text)), self.other.hash_one((stream, text)));
                (u128::from(high) << 64 | u128::from(low)) & !(1 << 127)
            }
        };
        if self.old.contains(&key) || !self.young.insert(key) {
            return true;
        }
        if self.young.len() >= self.bound {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        false
    }
}

/// Decides, and remembers what later decisions need.
pub struct Sequencer {
    streams: Vec<StreamSchema>,
    /// The same as JSON. A full log of a thousand streams begins many segments a second, and nothing comes in meanwhile.
    described: Box<RawValue>,
    /// What the memory of duplicates has for a stream: of its name, as its number may change.
    keys: Vec<u64>,
    lateness: Vec<i64>,
    /// The greatest time of a stream's events, duplicates aside.
    greatest: Vec<Option<i64>>,
    ids: Vec<Ids>,
    memory: Memory,
    sessions: HashMap<u64, Session>,
    uses: u64,
}

impl Sequencer {
    /// One that knows nothing but the application.
    pub fn new(config: &Config) -> Sequencer {
        let ids = config.streams.iter().map(|stream| Ids {
            kind: stream.id,
            ..Ids::default()
        });
        let streams = config.schemas();
        Sequencer {
            // Names and types always have a JSON text.
            described: serde_json::value::to_raw_value(&streams).unwrap_or_default(),
            streams,
            keys: config.streams.iter().map(|stream| key_of(&stream.name)).collect(),
            lateness: config.streams.iter().map(|stream| stream.lateness).collect(),
            greatest: vec![None; config.streams.len()],
            ids: ids.collect(),
            memory: Memory::new(config.duplicates.max(1)),
            sessions: HashMap::new(),
            uses: 0,
        }
    }

    /// Goes on with the streams of another configuration; what is known of those that stay is kept.
    pub fn renew(&mut self, config: &Config) {
        let mut next = Sequencer::new(config);
        if let Some(state) = state_of(&self.state()) {
            next.load(state);
        }
        // Taken over as they are: ids are remembered by names of streams, and sessions are of no stream.
        std::mem::swap(&mut next.memory, &mut self.memory);
        std::mem::swap(&mut next.sessions, &mut self.sessions);
        next.uses = self.uses;
        *self = next;
    }

    /// Reads back what the log says: as much of its end as the memory of duplicates holds. Whether the log's streams, at
    /// its end, are those of the application.
    pub fn recover(&mut self, folder: &Path, firsts: &[u64]) -> Result<bool, Error> {
        let Some(last) = firsts.last() else {
            return Ok(true);
        };
        let end = segment::scan(folder, *last, |_| ())?.next_offset;
        let wanted = end.saturating_sub(self.memory.bound as u64);
        let from = firsts.partition_point(|first| *first <= wanted).saturating_sub(1);
        let mut numbers = Vec::new();
        let mut same = true;
        for first in &firsts[from..] {
            segment::scan(folder, *first, |batch| {
                if batch.head.kind == Kind::State {
                    if let Some(state) = state_of(batch.body) {
                        same = state.streams == self.streams;
                        numbers = self.load(state);
                    }
                } else {
                    self.replay(batch, &numbers);
                }
            })?;
        }
        Ok(same)
    }

    /// Takes over a state; the numbers here of the streams there.
    fn load(&mut self, state: State<Vec<StreamSchema>, Ids>) -> Vec<Option<u16>> {
        let mut numbers = Vec::new();
        for (stream, known) in state.streams.iter().zip(state.known) {
            let here = self.streams.iter().position(|other| other.name == stream.name);
            if let Some(here) = here {
                let declared = self.ids[here].kind;
                self.ids[here] = Ids {
                    kind: declared.or(known.ids.kind),
                    ..known.ids
                };
                self.greatest[here] = known.greatest;
            }
            numbers.push(here.and_then(|here| u16::try_from(here).ok()));
        }
        for (session, next) in state.sessions {
            self.advance(session, next);
        }
        numbers
    }

    fn replay(&mut self, batch: &Batch<'_>, numbers: &[Option<u16>]) {
        for (_, bytes) in batch.records() {
            let Some(stream) = numbers.get(usize::from(record::stream(bytes))).copied().flatten() else {
                continue;
            };
            let id = record::id(bytes);
            self.ids[usize::from(stream)].saw(id, record::flags(bytes) & COUNTED_ID != 0);
            self.judge(stream, record::time(bytes), id);
        }
        if batch.head.session != 0 {
            self.advance(batch.head.session, batch.head.sequence);
        }
    }

    /// The flags of an event that comes now.
    #[inline]
    pub fn judge(&mut self, stream: u16, time: i64, id: IdRef<'_>) -> u8 {
        let at = usize::from(stream);
        let greatest = &mut self.greatest[at];
        let mut marks = 0;
        if greatest.is_some_and(|greatest| time < greatest.saturating_sub(self.lateness[at])) {
            marks |= LATE;
        }
        if self.memory.came(self.keys[at], id) {
            marks |= DUPLICATE;
        } else if greatest.is_none_or(|greatest| time > greatest) {
            *greatest = Some(time);
        }
        marks
    }

    /// What is known of the streams' ids.
    pub fn ids(&mut self) -> &mut [Ids] {
        &mut self.ids
    }

    /// What is known of a stream's ids.
    pub fn ids_of(&self, stream: u16) -> &Ids {
        &self.ids[usize::from(stream)]
    }

    /// The number that comes next in a session; None: it is not known.
    pub fn next_in(&self, session: u64) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.next)
    }

    /// Says that a session has come to this number.
    pub fn advance(&mut self, session: u64, next: u64) {
        self.uses += 1;
        let used = self.uses;
        self.sessions.insert(session, Session { next, used });
        if self.sessions.len() > MAX_SESSIONS {
            // Many at once, so that it is rare.
            let mut uses: Vec<u64> = self.sessions.values().map(|session| session.used).collect();
            let (_, limit, _) = uses.select_nth_unstable(MAX_SESSIONS / 8);
            let limit = *limit;
            self.sessions.retain(|_, session| session.used > limit);
        }
    }

    /// What a segment begins with.
    pub fn state(&self) -> Vec<u8> {
        let known = self.ids.iter().zip(&self.greatest);
        let state = State {
            streams: &self.described,
            known: known
                .map(|(ids, greatest)| Known {
                    ids,
                    greatest: *greatest,
                })
                .collect(),
            sessions: self.sessions.iter().map(|(session, at)| (*session, at.next)).collect(),
        };
        let length = self.described.get().len() + KNOWN_BYTES * (1 + self.ids.len() + self.sessions.len());
        let mut text = Vec::with_capacity(length);
        // As above, and a vector takes all that is written.
        let _ = serde_json::to_writer(&mut text, &state);
        text
    }
}

/// 63 bits of a stream's name.
fn key_of(name: &str) -> u64 {
    let hash = blake2b_simd::Params::new().hash_length(8).hash(name.as_bytes());
    let bytes = hash.as_bytes().first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(bytes) >> 1
}

fn state_of(body: &[u8]) -> Option<State<Vec<StreamSchema>, Ids>> {
    let text = body.split(|byte| *byte == 0).next()?;
    serde_json::from_slice(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequencer(duplicates: usize) -> Sequencer {
        let config = format!(
            r#"{{"listen": [], "token": null, "log": {{"path": "x", "durability": "none"}}, "default_stream": null,
            "duplicates": {duplicates}, "streams": [
            {{"name": "a", "attributes": [], "id": null, "lateness": 10}}, {{"name": "b", "attributes": [], "id": null}}]}}"#
        );
        Sequencer::new(&Config::parse(&config).unwrap())
    }

    #[test]
    fn late_is_by_the_streams_own_greatest_time_and_lateness() {
        let mut sequencer = sequencer(100);
        let times = [
            (0, 100, 0),
            (0, 90, 0),
            (0, 89, LATE),
            (1, 50, 0),
            (1, 49, LATE),
            (1, 50, 0),
            (0, 101, 0),
            (0, 91, 0),
        ];
        for (id, (stream, time, marks)) in times.into_iter().enumerate() {
            assert_eq!(sequencer.judge(stream, time, IdRef::Int(id as i64)), marks, "{id}");
        }
    }

    #[test]
    fn a_duplicate_is_by_stream_and_id_and_moves_no_time() {
        let mut sequencer = sequencer(100);
        assert_eq!(sequencer.judge(0, 1, IdRef::Int(7)), 0);
        assert_eq!(sequencer.judge(1, 1, IdRef::Int(7)), 0);
        assert_eq!(sequencer.judge(0, 1000, IdRef::Int(7)), DUPLICATE);
        assert_eq!(sequencer.judge(0, 2, IdRef::Int(8)), 0);
        assert_eq!(sequencer.judge(0, 2, IdRef::Text("7")), 0);
        assert_eq!(sequencer.judge(0, 2, IdRef::Text("7")), DUPLICATE);
        assert_eq!(sequencer.judge(0, -9, IdRef::Text("7")), DUPLICATE | LATE);
    }

    #[test]
    fn ids_are_remembered_for_at_least_the_bound() {
        let mut sequencer = sequencer(100);
        for id in 0..1000 {
            assert_eq!(sequencer.judge(0, 0, IdRef::Int(id)), 0);
            if id >= 99 {
                assert_eq!(sequencer.judge(0, 0, IdRef::Int(id - 99)), DUPLICATE);
            }
            let held = sequencer.memory.young.len() + sequencer.memory.old.len();
            assert!(held <= 200);
        }
    }

    #[test]
    fn sessions_that_were_silent_longest_are_forgotten() {
        let mut sequencer = sequencer(1);
        for session in 1..=2 * MAX_SESSIONS as u64 {
            sequencer.advance(session, session);
            assert!(sequencer.sessions.len() <= MAX_SESSIONS);
            assert_eq!(sequencer.next_in(session), Some(session));
        }
        assert_eq!(sequencer.next_in(1), None);
    }

    #[test]
    fn what_a_segment_begins_with_says_all_that_is_known() {
        let mut known = sequencer(100);
        known.judge(0, 1_000, IdRef::Int(1));
        known.ids()[0].give(IdRef::Int(1), "a").unwrap();
        known.ids()[1].count("b").unwrap();
        known.advance(5, 17);
        let mut next = sequencer(100);
        let numbers = next.load(state_of(&known.state()).unwrap());
        assert_eq!(numbers, [Some(0), Some(1)]);
        assert_eq!((&next.ids, &next.greatest), (&known.ids, &known.greatest));
        assert_eq!(next.next_in(5), Some(17));
    }
}
