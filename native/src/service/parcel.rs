//! What a consumer elsewhere gets: an event or a match as a frame of bytes, or as a line of JSON (docs/wire.md).
//!
//! A frame of an event has the event's record as it lies in the EventStore: nothing is decoded on the way.

use crate::digest::hex;
use crate::event::{Id, Name};
use crate::found::{Bound, Match};
use crate::found_columns::Names;
use crate::intake::base64;
use crate::plan::{Plan, Role};
use crate::record::{Encoder, IdRef, Kind, Record, Schema};
use crate::service::scheduling::{monotonic, now};
use crate::service::store::{RECOVERED, RELATIVE, STALE};
use crate::value::Val;

/// How a client wants what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As lines of JSON, for a person.
    Lines,
    /// As frames.
    Frames,
}

/// The kind of a frame with an event.
pub const EVENT: u8 = 14;
/// The kind of a frame with a match.
pub const MATCH: u8 = 15;
/// Bytes of a frame before the record, or the kinds of a match's values.
pub const FRAME_HEAD: usize = 48;

/// What is delivered.
pub enum Content<'a> {
    /// An event of the graph, with the names of its attributes.
    Event(Record<'a>, &'a [String]),
    /// A match of a query, and the version of the knowledge that it was found with.
    Match(&'a Match, &'a Plan, &'a Names, Option<u64>),
}

/// Something on its way to a consumer.
pub struct Parcel<'a> {
    /// What it is.
    pub content: Content<'a>,
    /// When its validity ends; None: never.
    pub end: Option<i64>,
    /// STALE, RELATIVE, RECOVERED.
    pub marks: u8,
    /// When the last supplier event in it was pushed, in nanoseconds of the monotonic clock; None: not known.
    pub supplied: Option<u64>,
    /// Of a match that is recovered, how long after its events came it was found, in microseconds.
    pub delay: Option<i64>,
    /// For who acknowledges: its number, and the number before which nothing comes again.
    pub acks: Option<(u64, u64)>,
}

impl Parcel<'_> {
    /// Appends it as a frame; `number` counts what the consumer was pushed, if it has none of its own.
    pub fn put_frame(&self, number: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let kind = match self.content {
            Content::Event(..) => EVENT,
            Content::Match(..) => MATCH,
        };
        out.extend([0, 0, 0, 0, kind, 0, 0, 0]);
        out.extend(self.acks.map_or(number, |(own, _)| own).to_le_bytes());
        out.extend(self.end.unwrap_or(i64::MAX).to_le_bytes());
        out.extend(now().to_le_bytes());
        let late = self.delay.map_or(0, |delay| delay.unsigned_abs().saturating_mul(1_000));
        let latency = self
            .supplied
            .map_or(late, |supplied| monotonic().saturating_sub(supplied));
        out.extend(latency.to_le_bytes());
        out.extend(u32::from(self.marks).to_le_bytes());
        match &self.content {
            Content::Event(record, _) => {
                out.extend([0; 4]);
                out.extend_from_slice(record.bytes());
            }
            Content::Match(found, plan, names, known) => {
                put_match(found, plan, names, *known, out);
                if let Some((_, done)) = self.acks {
                    out.extend(format!(",\"done\":{done}").bytes());
                }
                out.push(b'}');
                pad(out, b' ');
            }
        }
        let length = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Appends it as a line.
    pub fn put_line(&self, out: &mut Vec<u8>) {
        out.extend(b"{\"id\":");
        match &self.content {
            Content::Event(record, _) => match record.id() {
                IdRef::Int(id) => put_json(&id, out),
                IdRef::Text(id) => put_json(id, out),
            },
            Content::Match(found, plan, ..) => put_json(&hex(&found.id(plan)), out),
        }
        out.extend(b",\"time\":");
        put_json(
            &match &self.content {
                Content::Event(record, _) => record.time(),
                Content::Match(found, ..) => found.time,
            },
            out,
        );
        out.extend(b",\"end\":");
        put_json(&self.end, out);
        out.extend(b",\"marks\":[");
        let marks = [(RECOVERED, "recovered"), (RELATIVE, "relative"), (STALE, "stale")];
        let marks = marks.iter().filter(|(bit, _)| self.marks & bit != 0);
        for (place, (_, name)) in marks.enumerate() {
            if place > 0 {
                out.push(b',');
            }
            put_json(name, out);
        }
        out.push(b']');
        if let Some(delay) = self.delay {
            out.extend(b",\"delay\":");
            put_json(&delay, out);
        }
        out.extend(b",\"attributes\":");
        match &self.content {
            Content::Event(record, names) => {
                put_members(
                    names.iter().enumerate().map(|(slot, name)| (name, record.get(slot))),
                    out,
                );
            }
            Content::Match(found, plan, names, known) => {
                put_members(
                    names.outputs.iter().zip(found.select.iter().map(|value| value.view())),
                    out,
                );
                out.push(b',');
                put_bindings(found, plan, names, *known, out);
            }
        }
        out.extend(b"}\n");
    }
}

/// The values of a match as a record, before it what kinds they are, and behind it what they were found with, in an object that is left
/// open.
fn put_match(found: &Match, plan: &Plan, names: &Names, known: Option<u64>, out: &mut Vec<u8>) {
    let kinds: Vec<Kind> = found.select.iter().map(|value| kind_of(&value.view())).collect();
    out.extend((kinds.len() as u32).to_le_bytes());
    out.extend(kinds.iter().map(|kind| *kind as u8));
    pad(out, b'\0');
    let schema = Schema::new(0, kinds);
    let mut encoder = Encoder::new();
    let id = hex(&found.id(plan));
    // Neither can fail: a match's time is in range, and the schema was made of the values. Were one too long, it is null.
    let _ = encoder.start(&schema, found.time, IdRef::Text(&id));
    for (slot, value) in found.select.iter().enumerate() {
        let _ = encoder.set(&schema, slot, &value.view());
    }
    out.extend_from_slice(encoder.finish());
    out.push(b'{');
    put_bindings(found, plan, names, known, out);
}

/// A timestamp and an array<uint8> are no kinds of values of their own.
fn kind_of(value: &Val<'_>) -> Kind {
    match value {
        Val::Null | Val::Bool(_) => Kind::Bool,
        Val::Int(_) => Kind::Int,
        Val::Float(_) => Kind::Float,
        Val::Str(_) => Kind::String,
        Val::Bytes(_) => Kind::Bytes,
        Val::Floats(_) => Kind::FloatArray,
    }
}

fn pad(out: &mut Vec<u8>, with: u8) {
    out.resize(out.len().next_multiple_of(8), with);
}

/// The members `events`, for a window `window` and `group`, and `knowledge` where a version of it was asked.
fn put_bindings(found: &Match, plan: &Plan, names: &Names, known: Option<u64>, out: &mut Vec<u8>) {
    out.extend(b"\"events\":{");
    let shown = plan.variables.iter().zip(&found.events);
    for (place, (variable, bound)) in shown.filter(|(v, _)| v.role != Role::Absent).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        put_json(&*variable.name, out);
        out.push(b':');
        match bound {
            Bound::Unbound => out.extend(b"null"),
            Bound::One(event) => put_event(event, plan, out),
            Bound::Many(events) => {
                put_list(events, out, |event, out| put_event(event, plan, out));
            }
        }
    }
    out.push(b'}');
    if let Some(row) = &found.row {
        out.extend(b",\"window\":");
        put_json(&[row.start, row.end], out);
        out.extend(b",\"group\":");
        put_members(names.groups.iter().zip(row.group.iter().map(|key| key.0.view())), out);
    }
    if let Some(version) = known {
        out.extend(b",\"knowledge\":");
        put_json(&version, out);
    }
}

fn put_event(event: &Name, plan: &Plan, out: &mut Vec<u8>) {
    out.push(b'[');
    put_json(&*plan.streams[usize::from(event.stream)].name, out);
    out.push(b',');
    match &event.id {
        Id::Int(id) => put_json(id, out),
        Id::Str(id) => put_json(id.as_str(), out),
    }
    out.push(b']');
}

fn put_members<'a>(members: impl Iterator<Item = (&'a String, Val<'a>)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, (name, value)) in members.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        put_json(name, out);
        out.push(b':');
        put_value(&value, out);
    }
    out.push(b'}');
}

fn put_value(value: &Val<'_>, out: &mut Vec<u8>) {
    match value {
        Val::Null => out.extend(b"null"),
        Val::Bool(x) => put_json(x, out),
        Val::Int(x) => put_json(x, out),
        Val::Float(x) => put_json(x, out),
        Val::Str(x) => put_json(x, out),
        Val::Bytes(x) => {
            out.push(b'"');
            base64::encode(x, out);
            out.push(b'"');
        }
        Val::Floats(x) => put_list(x, out, put_json),
    }
}

fn put_list<T>(items: &[T], out: &mut Vec<u8>, put: impl Fn(&T, &mut Vec<u8>)) {
    out.push(b'[');
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        put(item, out);
    }
    out.push(b']');
}

fn put_json(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    // Writing to memory does not fail, and these are values that JSON has.
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_as_a_frame_and_as_a_line() {
        let schema = Schema::new(3, [Kind::Float, Kind::Bytes, Kind::String]);
        let mut encoder = Encoder::new();
        encoder.start(&schema, 1_000, IdRef::Int(7)).unwrap();
        encoder.set(&schema, 0, &Val::Float(1.5)).unwrap();
        encoder.set(&schema, 1, &Val::Bytes(b"Man")).unwrap();
        encoder.finish();
        let names = ["flow", "samples", "room"].map(str::to_owned);
        let record = Record::read(encoder.bytes(), &schema).unwrap();
        let parcel = Parcel {
            content: Content::Event(record, &names),
            end: Some(2_000),
            marks: STALE | RELATIVE,
            supplied: Some(monotonic()),
            delay: None,
            acks: None,
        };
        let mut line = Vec::new();
        parcel.put_line(&mut line);
        assert_eq!(
            std::str::from_utf8(&line).unwrap(),
            "{\"id\":7,\"time\":1000,\"end\":2000,\"marks\":[\"relative\",\"stale\"],\"attributes\":{\"flow\":1.5,\
             \"samples\":\"TWFu\",\"room\":null}}\n"
        );
        let mut frame = b"before..".to_vec();
        parcel.put_frame(9, &mut frame);
        let frame = &frame[8..];
        let word = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), frame.len() as u64 | u64::from(EVENT) << 32);
        assert_eq!((word(8), word(16), word(40)), (9, 2_000, 3));
        assert!(word(32) < 1_000_000_000);
        assert_eq!(&frame[FRAME_HEAD..], encoder.bytes());
    }
}
