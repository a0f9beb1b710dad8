//! The state of a matcher as bytes, of a versioned format.
//!
//! What is kept are events, which never change once they came; partial matches and windows follow from them and are
//! found again when the events are gone through. Only what does not follow is written besides: the watermark, the
//! counters, what AFTER MATCH has taken, and how many events each partition has seen.
//!
//! Layout: `CEPHMSTA`; version (u16); the plan's check (16 bytes); the watermark; six counters; the events that were
//! processed; those that wait; what was taken; what was seen. Numbers of things are u32, other integers 64 bits, all
//! little-endian; text and bytes follow their length.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::digest::DIGEST;
use crate::event::{Event, Id};
use crate::json::{Fault, fault};
use crate::matcher::{Counters, Engine, Matcher};
use crate::policy::{Order, Taken};
use crate::value::{Key, Value};

const MAGIC: &[u8; 8] = b"CEPHMSTA";
const VERSION: u16 = 1;

impl Matcher {
    /// The state, for `restore` on a matcher of the same plan.
    pub fn save(&mut self) -> Vec<u8> {
        self.merge();
        let mut writer = Writer(Vec::new());
        writer.0.extend(MAGIC);
        writer.0.extend(VERSION.to_le_bytes());
        writer.0.extend(self.plan.check);
        writer.int(self.watermark);
        let c = self.counters;
        for counter in [c.events, c.qualified, c.late, c.refused, c.shed, c.matches] {
            writer.int(counter as i64);
        }
        let processed = match &self.engine {
            Engine::Pattern(partitions) => partitions.events(),
            Engine::Window(windows) => windows.events(),
        };
        writer.count(processed.len());
        processed.iter().for_each(|event| writer.event(event));
        writer.count(self.waiting.len());
        self.waiting.iter().for_each(|event| writer.event(event));
        writer.count(self.taken.events.len());
        self.taken.events.iter().for_each(|order| writer.order(order));
        writer.count(self.taken.last.len());
        for (key, order) in &self.taken.last {
            writer.key(key);
            writer.order(order);
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

    /// Takes over a state. On an error the matcher is as it was.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader { bytes };
        if reader.take(8)? != MAGIC {
            return fault("this is not the state of a matcher");
        }
        let version = u16::from_le_bytes([reader.byte()?, reader.byte()?]);
        if version != VERSION {
            return fault(format!(
                "the state has version {version}, and this is version {VERSION}"
            ));
        }
        if reader.take(DIGEST)? != self.plan.check {
            return fault("the state is another query's");
        }
        let mut fresh = Matcher::of(Arc::clone(&self.plan), self.budget);
        fresh.eager = self.eager;
        let watermark = reader.int()?;
        let mut counters = [0; 6];
        for counter in &mut counters {
            *counter = reader.int()? as u64;
        }
        let slots: Vec<usize> = self.plan.streams.iter().map(|s| s.attributes.len()).collect();
        for _ in 0..reader.count()? {
            fresh.process(reader.event(&slots)?);
        }
        // What was found on the way was given out before, unless it is yet to come.
        match &mut fresh.engine {
            Engine::Pattern(partitions) => partitions.pass(watermark, &mut fresh.found),
            Engine::Window(windows) => windows.pass(watermark, &mut fresh.found),
        }
        let found = std::mem::take(&mut fresh.found);
        fresh.found = found
            .into_iter()
            .filter(|found| !fresh.is_due(found.time, watermark))
            .collect();
        for _ in 0..reader.count()? {
            fresh.waiting.push_back(reader.event(&slots)?);
        }
        fresh.taken = reader.taken()?;
        for _ in 0..reader.count()? {
            let key = reader.key()?;
            let seen = (reader.int()? as u64, reader.int()?);
            if let Engine::Pattern(partitions) = &mut fresh.engine {
                partitions.set_seen(&key, seen);
            }
        }
        if !reader.bytes.is_empty() {
            return fault("the state is longer than it says");
        }
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

struct Writer(Vec<u8>);

impl Writer {
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

    fn event(&mut self, event: &Event) {
        self.int(event.time);
        self.0.extend(event.stream.to_le_bytes());
        self.id(&event.id);
        self.int(event.number as i64);
        self.int(event.mask as i64);
        event.values.iter().for_each(|value| self.value(value));
    }

    fn order(&mut self, order: &Order) {
        self.int(order.0);
        self.0.extend(order.1.to_le_bytes());
        self.id(&order.2);
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

    fn text(&mut self) -> Result<Arc<str>, Fault> {
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

    fn event(&mut self, slots: &[usize]) -> Result<Event, Fault> {
        let time = self.int()?;
        let stream = u16::from_le_bytes(self.array()?);
        let id = self.id()?;
        let number = self.int()? as u64;
        let mask = self.int()? as u64;
        let Some(&count) = slots.get(usize::from(stream)) else {
            return fault("an event in the state is of no stream");
        };
        let values = (0..count).map(|_| self.value()).collect::<Result<_, _>>()?;
        Ok(Event {
            time,
            stream,
            id,
            values,
            mask,
            number,
        })
    }

    fn order(&mut self) -> Result<Order, Fault> {
        Ok((self.int()?, u16::from_le_bytes(self.array()?), self.id()?))
    }

    fn key(&mut self) -> Result<Vec<Key>, Fault> {
        (0..self.count()?).map(|_| self.value().map(Key)).collect()
    }

    fn taken(&mut self) -> Result<Taken, Fault> {
        let events = (0..self.count()?)
            .map(|_| self.order())
            .collect::<Result<BTreeSet<_>, _>>()?;
        let last = (0..self.count()?)
            .map(|_| Ok((self.key()?.into(), self.order()?)))
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
                Value::Bytes(self.take(count)?.into())
            }
            b'a' => {
                let count = self.count()?;
                let floats: Vec<f64> = (0..count)
                    .map(|_| self.array().map(f64::from_le_bytes))
                    .collect::<Result<_, _>>()?;
                Value::Floats(floats.into())
            }
            _ => return fault("a value in the state is of no kind"),
        })
    }
}
