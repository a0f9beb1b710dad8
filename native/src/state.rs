//! The state of a matcher as bytes, of a versioned format, in chunks of time.
//!
//! What is kept are events, which never change once they came; partial matches and windows follow from them and are
//! found again when the events are gone through. Only what does not follow is written besides: the watermark, the
//! counters, what AFTER MATCH has taken, and how many events each partition has seen.
//!
//! Events of a stretch of time that the watermark has passed are a chunk, and a chunk stays as it is once it is
//! written: that some of its events were let go of since makes no difference, because they are let go of again. So a
//! save writes the head, which has the events since the last chunk, and the chunks that are new. Where a budget shed an
//! event, its chunk gets a new name.
//!
//! The head: `CEPHMSTA`; version (u16); the plan's check (16 bytes); the watermark; six counters; the names of chunks,
//! oldest first; the events processed since, and those that wait; what was taken; what was seen. A chunk: `CEPHMCHK`;
//! version; check; its name; its events. Numbers of things are u32, other integers 64 bits, all little-endian; text and
//! bytes follow their length.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bounds::FOREVER;
use crate::digest::DIGEST;
use crate::event::{Events, Handle, Id, Name};
use crate::json::{Fault, fault};
use crate::matcher::{Counters, Engine, Matcher};
use crate::plan::{Kind, Plan};
use crate::policy::Taken;
use crate::value::{Key, Value};

const MAGIC: &[u8; 8] = b"CEPHMSTA";
const CHUNK_MAGIC: &[u8; 8] = b"CEPHMCHK";
const VERSION: u16 = 2;
/// Where nothing bounds how long events are kept, a chunk is an hour.
const HOUR: i64 = 3_600_000_000;
/// A query's events reach over so many chunks.
const CHUNKS: i64 = 16;

/// A chunk: its number in time, and how many events were shed of it before it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chunk {
    /// It begins at this many lengths from the epoch.
    pub number: i64,
    /// How many were shed.
    pub sheds: u64,
}

/// How many events were shed, by chunk.
#[derive(Debug, Default)]
pub struct Sheds(BTreeMap<i64, u64>);

impl Sheds {
    /// An event of this time was shed.
    pub fn note(&mut self, plan: &Plan, time: i64) {
        *self.0.entry(time.div_euclid(length(plan))).or_default() += 1;
    }
}

/// How long a chunk is.
fn length(plan: &Plan) -> i64 {
    match (plan.moving, plan.horizon) {
        (Some((Kind::Length, _)), _) => HOUR,
        (Some((_, size)), _) => (size / CHUNKS).max(1),
        (None, horizon) if horizon >= FOREVER => HOUR,
        (None, horizon) => (horizon / CHUNKS).max(1),
    }
}

/// A state to be stored.
#[derive(Debug)]
pub struct Saved {
    /// Written anew each time.
    pub head: Vec<u8>,
    /// All the chunks that belong to it, oldest first.
    pub chunks: Vec<Chunk>,
    /// The bytes of those that the caller did not have.
    pub changed: Vec<(Chunk, Vec<u8>)>,
}

impl Matcher {
    /// The state, for `restore` on a matcher of the same plan; without the chunks that the caller has already.
    pub fn save(&mut self, has: impl Fn(&Chunk) -> bool) -> Saved {
        self.merge();
        let mut processed = match &self.engine {
            Engine::Pattern(partitions) => partitions.events(),
            Engine::Window(windows) => windows.events(),
        };
        let events = &self.events;
        processed.sort_by(|a, b| events.order(a.0, b.0));
        let length = length(&self.plan);
        // The time of its events may lie before the watermark without being all there is of that time; see `eager`.
        let open = self.watermark.div_euclid(length);
        let recent = processed.partition_point(|(event, _)| events.time(*event).div_euclid(length) < open);
        let (old, recent) = processed.split_at(recent);
        let mut chunks = Vec::new();
        let mut changed = Vec::new();
        for group in old.chunk_by(|a, b| events.time(a.0).div_euclid(length) == events.time(b.0).div_euclid(length)) {
            let number = events.time(group[0].0).div_euclid(length);
            let sheds = self.sheds.0.get(&number).copied().unwrap_or(0);
            let chunk = Chunk { number, sheds };
            chunks.push(chunk);
            if !has(&chunk) {
                changed.push((chunk, self.chunk(chunk, group)));
            }
        }
        self.sheds
            .0
            .retain(|number, _| chunks.iter().any(|chunk| chunk.number == *number) || *number >= open);
        Saved {
            head: self.head(&chunks, recent),
            chunks,
            changed,
        }
    }

    fn chunk(&self, chunk: Chunk, events: &[(Handle, u64)]) -> Vec<u8> {
        let mut writer = Writer(Vec::new());
        writer.begin(CHUNK_MAGIC, &self.plan);
        writer.chunk(chunk);
        writer.events(&self.events, events.iter());
        writer.0
    }

    fn head(&self, chunks: &[Chunk], recent: &[(Handle, u64)]) -> Vec<u8> {
        let mut writer = Writer(Vec::new());
        writer.begin(MAGIC, &self.plan);
        writer.int(self.watermark);
        let c = self.counters;
        for counter in [c.events, c.qualified, c.late, c.refused, c.shed, c.matches] {
            writer.int(counter as i64);
        }
        writer.count(chunks.len());
        chunks.iter().for_each(|chunk| writer.chunk(*chunk));
        let open = self.sheds.0.iter();
        let open: Vec<_> = open
            .filter(|(n, _)| chunks.iter().all(|chunk| chunk.number != **n))
            .collect();
        writer.count(open.len());
        for (number, sheds) in open {
            writer.chunk(Chunk {
                number: *number,
                sheds: *sheds,
            });
        }
        writer.events(&self.events, recent.iter());
        writer.events(&self.events, self.waiting.iter());
        writer.count(self.taken.events.len());
        self.taken.events.iter().for_each(|name| writer.name(name));
        writer.count(self.taken.last.len());
        for (key, name) in &self.taken.last {
            writer.key(key);
            writer.name(name);
        }
        if let Engine::Pattern(partitions) = &self.engine {
            writer.count(partitions.seen().len());
            for (key, (number, last)) in partitions.seen() {
                writer.key(key);
                writer.int(*number as i64);
                writer.int(*last);
            }
        } else {
            writer.count(0);
        }
        writer.0
    }

    /// Takes over a state, whose chunks are asked for. On an error the matcher is as it was.
    pub fn restore<'s>(&mut self, head: &[u8], chunk: impl Fn(Chunk) -> Option<&'s [u8]>) -> Result<(), Fault> {
        let mut reader = Reader { bytes: head };
        reader.begin(MAGIC, &self.plan)?;
        let mut fresh = Matcher::of(Arc::clone(&self.plan), self.budget);
        fresh.eager = self.eager;
        fresh.tables = self.tables.clone();
        let watermark = reader.int()?;
        let mut counters = [0; 6];
        for counter in &mut counters {
            *counter = reader.int()? as u64;
        }
        for _ in 0..reader.count()? {
            let name = reader.chunk()?;
            let Some(bytes) = chunk(name) else {
                return fault(format!("the chunk {} of the state is missing", name.name()));
            };
            let mut reader = Reader { bytes };
            reader.begin(CHUNK_MAGIC, &self.plan)?;
            if reader.chunk()? != name {
                return fault(format!("a chunk of the state is not {}, as it should be", name.name()));
            }
            reader.process(&mut fresh)?;
            reader.end()?;
            if name.sheds > 0 {
                fresh.sheds.0.insert(name.number, name.sheds);
            }
        }
        for _ in 0..reader.count()? {
            let open = reader.chunk()?;
            fresh.sheds.0.insert(open.number, open.sheds);
        }
        reader.process(&mut fresh)?;
        // What was found on the way was given out before, unless it is yet to come.
        match &mut fresh.engine {
            Engine::Pattern(partitions) => partitions.pass(&fresh.plan, &mut fresh.events, watermark, &mut fresh.found),
            Engine::Window(windows) => windows.pass(&mut fresh.events, watermark, &mut fresh.found),
        }
        let found = std::mem::take(&mut fresh.found);
        fresh.found = found
            .into_iter()
            .filter(|found| !fresh.is_due(found.time, watermark))
            .collect();
        for _ in 0..reader.count()? {
            let waiting = reader.event(&self.plan, &mut fresh.events)?;
            fresh.waiting.push_back(waiting);
        }
        fresh.taken = reader.taken()?;
        for _ in 0..reader.count()? {
            let key = reader.key()?;
            let seen = (reader.int()? as u64, reader.int()?);
            if let Engine::Pattern(partitions) = &mut fresh.engine {
                partitions.set_seen(&key, seen);
            }
        }
        reader.end()?;
        let [events, qualified, late, refused, shed, matches] = counters;
        fresh.counters = Counters {
            events,
            qualified,
            late,
            refused,
            shed,
            matches,
        };
        fresh.watermark = watermark;
        *self = fresh;
        Ok(())
    }
}

impl Chunk {
    /// As text.
    pub fn name(&self) -> String {
        format!("{}-{}", self.number, self.sheds)
    }

    /// From text.
    pub fn named(text: &str) -> Option<Chunk> {
        let (number, sheds) = text.rsplit_once('-')?;
        Some(Chunk {
            number: number.parse().ok()?,
            sheds: sheds.parse().ok()?,
        })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn begin(&mut self, magic: &[u8; 8], plan: &Plan) {
        self.0.extend(magic);
        self.0.extend(VERSION.to_le_bytes());
        self.0.extend(plan.check);
    }

    fn chunk(&mut self, chunk: Chunk) {
        self.int(chunk.number);
        self.int(chunk.sheds as i64);
    }

    fn events<'a>(&mut self, events: &Events, handles: impl ExactSizeIterator<Item = &'a (Handle, u64)>) {
        self.count(handles.len());
        for (event, mask) in handles {
            self.name(events.name(*event));
            self.int(events.number(*event) as i64);
            self.int(*mask as i64);
            let values = events.values(*event);
            self.count(values.len());
            values.iter().for_each(|value| self.value(value));
        }
    }

    fn int(&mut self, value: i64) {
        self.0.extend(value.to_le_bytes());
    }

    fn count(&mut self, value: usize) {
        self.0.extend((value as u32).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    fn id(&mut self, id: &Id) {
        match id {
            Id::Int(id) => {
                self.0.push(b'i');
                self.int(*id);
            }
            Id::Str(id) => {
                self.0.push(b's');
                self.bytes(id.as_bytes());
            }
        }
    }

    fn name(&mut self, name: &Name) {
        self.int(name.time);
        self.0.extend(name.stream.to_le_bytes());
        self.id(&name.id);
    }

    fn key(&mut self, key: &[Key]) {
        self.count(key.len());
        key.iter().for_each(|part| self.value(&part.0));
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.0.push(b'n'),
            Value::Bool(x) => self.0.push(if *x { b't' } else { b'f' }),
            Value::Int(x) => {
                self.0.push(b'i');
                self.int(*x);
            }
            Value::Float(x) => {
                self.0.push(b'd');
                self.0.extend(x.to_le_bytes());
            }
            Value::Str(x) => {
                self.0.push(b's');
                self.bytes(x.as_bytes());
            }
            Value::Bytes(x) => {
                self.0.push(b'x');
                self.bytes(x);
            }
            Value::Floats(x) => {
                self.0.push(b'a');
                self.count(x.len());
                x.iter().for_each(|x| self.0.extend(x.to_le_bytes()));
            }
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => fault("the state ends too early"),
        }
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn int(&mut self) -> Result<i64, Fault> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn count(&mut self) -> Result<usize, Fault> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn text(&mut self) -> Result<arcstr::ArcStr, Fault> {
        let count = self.count()?;
        match std::str::from_utf8(self.take(count)?) {
            Ok(text) => Ok(text.into()),
            Err(_) => fault("a text in the state is not UTF-8"),
        }
    }

    fn id(&mut self) -> Result<Id, Fault> {
        match self.byte()? {
            b'i' => Ok(Id::Int(self.int()?)),
            b's' => Ok(Id::Str(self.text()?)),
            _ => fault("an id in the state is of no kind"),
        }
    }

    fn begin(&mut self, magic: &[u8; 8], plan: &Plan) -> Result<(), Fault> {
        if self.take(8)? != magic {
            return fault("this is not the state of a matcher");
        }
        let version = u16::from_le_bytes(self.array()?);
        if version != VERSION {
            return fault(format!(
                "the state has version {version}, and this is version {VERSION}"
            ));
        }
        if self.take(DIGEST)? != plan.check {
            return fault("the state is another query's");
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Fault> {
        match self.bytes {
            [] => Ok(()),
            _ => fault("the state is longer than it says"),
        }
    }

    fn chunk(&mut self) -> Result<Chunk, Fault> {
        Ok(Chunk {
            number: self.int()?,
            sheds: self.int()? as u64,
        })
    }

    /// Goes through events again.
    fn process(&mut self, matcher: &mut Matcher) -> Result<(), Fault> {
        let plan = Arc::clone(&matcher.plan);
        for _ in 0..self.count()? {
            let (event, mask) = self.event(&plan, &mut matcher.events)?;
            matcher.process(event, mask);
        }
        Ok(())
    }

    fn event(&mut self, plan: &Plan, events: &mut Events) -> Result<(Handle, u64), Fault> {
        let name = self.name()?;
        let number = self.int()? as u64;
        let mask = self.int()? as u64;
        if usize::from(name.stream) >= plan.streams.len() {
            return fault("an event in the state is of no stream");
        }
        if plan.variables.len() < 64 && mask >> plan.variables.len() != 0 {
            return fault("an event in the state is of no variable");
        }
        let values = (0..self.count()?)
            .map(|_| self.value())
            .collect::<Result<Vec<_>, _>>()?;
        Ok((events.add(name, values.iter().map(Value::view), number), mask))
    }

    fn name(&mut self) -> Result<Name, Fault> {
        Ok(Name {
            time: self.int()?,
            stream: u16::from_le_bytes(self.array()?),
            id: self.id()?,
        })
    }

    fn key(&mut self) -> Result<Vec<Key>, Fault> {
        (0..self.count()?).map(|_| self.value().map(Key)).collect()
    }

    fn taken(&mut self) -> Result<Taken, Fault> {
        let events = (0..self.count()?)
            .map(|_| self.name())
            .collect::<Result<BTreeSet<_>, _>>()?;
        let last = (0..self.count()?)
            .map(|_| Ok((self.key()?.into(), self.name()?)))
            .collect::<Result<_, Fault>>()?;
        Ok(Taken { events, last })
    }

    fn value(&mut self) -> Result<Value, Fault> {
        Ok(match self.byte()? {
            b'n' => Value::Null,
            b't' => Value::Bool(true),
            b'f' => Value::Bool(false),
            b'i' => Value::Int(self.int()?),
            b'd' => Value::Float(f64::from_le_bytes(self.array()?)),
            b's' => Value::Str(self.text()?),
            b'x' => {
                let count = self.count()?;
                Value::Bytes(Arc::new(self.take(count)?.into()))
            }
            b'a' => {
                let count = self.count()?;
                let floats: Vec<f64> = (0..count)
                    .map(|_| self.array().map(f64::from_le_bytes))
                    .collect::<Result<_, _>>()?;
                Value::Floats(Arc::new(floats.into()))
            }
            _ => return fault("a value in the state is of no kind"),
        })
    }
}
