//! Records in JSON become records in bytes, or are refused with a reason: the verdicts of src/cepheid/model/records.py (rule E3).

use std::collections::HashMap;
use std::fmt;

use super::ids::Ids;
use super::instant;
use super::text::{Json, Text, parse};
use crate::record::{Encoder, IdRef, Kind, Schema};
use crate::value::Val;

/// A longer line is refused rather than held in memory.
pub const MAX_LINE: usize = 4 << 20;

const IMPLIED: [&str; 3] = ["stream", "id", "time"];
/// The end of an event's validity, where the stream has no attribute of that name.
const VALID_UNTIL: &str = "valid_until";

/// Why a record fits no stream; `code` is for counting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// One of the codes of docs/events.md.
    pub code: &'static str,
    /// What is wrong.
    pub reason: String,
    /// The stream that it belongs to, if it names one.
    pub stream: Option<u16>,
}

impl Misfit {
    pub(crate) fn new(code: &'static str, reason: String) -> Misfit {
        Misfit {
            code,
            reason,
            stream: None,
        }
    }

    fn inside(mut self, what: &str) -> Misfit {
        self.reason = format!("{what}: {}", self.reason);
        self
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

/// A stream as its JSON records are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Its name.
    pub name: String,
    /// The layout of its records.
    pub schema: Schema,
    /// The names of its attributes.
    pub attributes: Vec<String>,
    /// Other names, by attribute, in the order of the application.
    pub spellings: Vec<(String, Vec<String>)>,
    /// Whether attributes that are not declared are passed over.
    pub extras: bool,
}

/// Reads the JSON records of some streams.
#[derive(Debug)]
pub struct Decoder {
    streams: Vec<Reading>,
    numbers: HashMap<String, usize>,
    /// By stream, the slot of each spelling.
    slots: Vec<HashMap<String, usize>>,
    default: Option<usize>,
}

/// A value that was read.
enum Held<'a> {
    Plain(Val<'a>),
    Bytes(Vec<u8>),
    Floats(Vec<f64>),
}

impl Decoder {
    /// Of these streams, under their places as numbers. `default` is taken where a record names none; so is the only one.
    pub fn new(streams: Vec<Reading>, default: Option<&str>) -> Decoder {
        let numbers: HashMap<String, usize> = streams
            .iter()
            .enumerate()
            .map(|(number, stream)| (stream.name.clone(), number))
            .collect();
        let slots = streams.iter().map(slots_of).collect();
        let only = if streams.len() == 1 { Some(0) } else { None };
        let default = default.map_or(only, |name| numbers.get(name).copied());
        Decoder {
            streams,
            numbers,
            slots,
            default,
        }
    }

    /// A bound of the length of the record that a line of so many bytes can become.
    pub fn most_bytes(&self, line: usize) -> usize {
        let fixed = |stream: &Reading| stream.schema.tail_at() + 8 * stream.attributes.len();
        // "1," of a list of floats becomes eight bytes.
        self.streams.iter().map(fixed).max().unwrap_or(0) + 24 + 4 * line.min(MAX_LINE)
    }

    /// Appends the record of a line to the encoder; its stream. `default` is taken where it names none.
    pub fn decode(
        &self,
        line: &[u8],
        default: Option<&str>,
        ids: &mut [Ids],
        encoder: &mut Encoder,
    ) -> Result<u16, Misfit> {
        if line.len() > MAX_LINE {
            return Err(too_long(line.len()));
        }
        let text = std::str::from_utf8(line).map_err(|error| {
            let at = error.valid_up_to();
            Misfit::new("not-utf8", format!("byte {} (0x{:02x}) is not UTF-8", at + 1, line[at]))
        })?;
        let record = parse(text)?;
        let Json::Object(members) = &record else {
            return Err(Misfit::new(
                "not-json",
                format!("expected a JSON object, found {}", describe(&record)),
            ));
        };
        let number = self.stream_of(
            members,
            default
                .and_then(|name| self.numbers.get(name).copied())
                .or(self.default),
        )?;
        let stream = number as u16;
        self.decode_members(number, members, ids, encoder)
            .map_err(|misfit| Misfit {
                stream: Some(stream),
                ..misfit
            })?;
        Ok(stream)
    }

    fn stream_of(&self, members: &[(Text<'_>, Json<'_>)], default: Option<usize>) -> Result<usize, Misfit> {
        let found = match member(members, "stream") {
            Json::Null => default,
            Json::Text(name) if name.is_empty() => default,
            Json::Text(name) => match name.as_str().and_then(|name| self.numbers.get(name)) {
                Some(number) => Some(*number),
                None => return Err(unknown_stream(&Json::Text(name.clone()))),
            },
            other => return Err(unknown_stream(other)),
        };
        found.ok_or_else(|| {
            let mut names: Vec<&str> = self.streams.iter().map(|stream| stream.name.as_str()).collect();
            names.sort_unstable();
            let known = if names.is_empty() {
                "none, as none is declared".to_owned()
            } else {
                names.join(", ")
            };
            Misfit::new("missing-stream", format!("no 'stream'; it is one of: {known}"))
        })
    }

    fn decode_members(
        &self,
        number: usize,
        members: &[(Text<'_>, Json<'_>)],
        ids: &mut [Ids],
        encoder: &mut Encoder,
    ) -> Result<(), Misfit> {
        let (stream, slots) = (&self.streams[number], &self.slots[number]);
        let time = match member(members, "time") {
            Json::Null => return Err(Misfit::new("missing-time", "no 'time'".to_owned())),
            Json::Text(text) if text.is_empty() => return Err(Misfit::new("missing-time", "no 'time'".to_owned())),
            raw => timestamp(raw).map_err(|misfit| misfit.inside("'time'"))?,
        };
        let mut end = None;
        let mut values: Vec<(usize, Held<'_>)> = Vec::with_capacity(members.len());
        for (spelling, raw) in members {
            match spelling.as_str().and_then(|spelling| slots.get(spelling)) {
                Some(_) if *raw == Json::Null => {}
                Some(slot) => {
                    let value = convert(stream.schema.kinds[*slot], raw)
                        .map_err(|misfit| misfit.inside(&format!("attribute '{}'", spelling.shown())))?;
                    values.push((*slot, value));
                }
                None if spelling.as_str() == Some(VALID_UNTIL) => {
                    if *raw != Json::Null {
                        end = Some(timestamp(raw).map_err(|misfit| misfit.inside("'valid_until'"))?);
                    }
                }
                None if stream.extras || spelling.as_str().is_some_and(|name| IMPLIED.contains(&name)) => {}
                None => {
                    let reason = format!("stream '{}' has no attribute {}", stream.name, quote(&spelling.shown()));
                    return Err(Misfit::new("unknown-attribute", reason));
                }
            }
        }
        for (name, spellings) in &stream.spellings {
            let mut given = std::iter::once(name)
                .chain(spellings)
                .filter(|spelling| *member(members, spelling) != Json::Null);
            if let (Some(one), Some(other)) = (given.next(), given.next()) {
                let reason = format!("attribute '{name}' is given twice, as '{one}' and '{other}'");
                return Err(Misfit::new("duplicate-attribute", reason));
            }
        }
        // The id last, so that only events count and only events show the stream's kind of id.
        let ids = &mut ids[number];
        let (id, counted) = match member(members, "id") {
            Json::Null => (IdRef::Int(ids.count(&stream.name)?), true),
            raw => (read_id(raw).map_err(|misfit| misfit.inside("'id'"))?, false),
        };
        if !counted {
            ids.give(id, &stream.name)?;
        }
        let long = |fault: crate::record::Fault| Misfit::new("too-long", fault.to_string());
        encoder.start(&stream.schema, time, id).map_err(long)?;
        for (slot, value) in &values {
            let value = match value {
                Held::Plain(value) => value,
                Held::Bytes(bytes) => &Val::Bytes(bytes),
                Held::Floats(floats) => &Val::Floats(floats),
            };
            encoder.set(&stream.schema, *slot, value).map_err(long)?;
        }
        encoder.limit(end, 0).map_err(long)?;
        if counted {
            encoder.mark_counted();
        }
        encoder.finish();
        Ok(())
    }
}

fn slots_of(stream: &Reading) -> HashMap<String, usize> {
    let mut slots = HashMap::new();
    for (slot, name) in stream.attributes.iter().enumerate() {
        slots.insert(name.clone(), slot);
        for (_, spellings) in stream.spellings.iter().filter(|(attribute, _)| attribute == name) {
            slots.extend(spellings.iter().map(|spelling| (spelling.clone(), slot)));
        }
    }
    slots
}

fn member<'m, 'a>(members: &'m [(Text<'a>, Json<'a>)], name: &str) -> &'m Json<'a> {
    let found = members.iter().find(|(found, _)| found.as_str() == Some(name));
    found.map_or(&Json::Null, |(_, value)| value)
}

/// The misfit of a record of so many bytes.
pub fn too_long(length: usize) -> Misfit {
    Misfit::new(
        "too-long",
        format!("the record has {length} bytes; at most {MAX_LINE} are taken"),
    )
}

fn unknown_stream(name: &Json<'_>) -> Misfit {
    Misfit::new("unknown-stream", format!("unknown stream {}", describe(name)))
}

fn wrong(expected: &str, raw: &Json<'_>) -> Misfit {
    match raw {
        Json::Float(x) if x.is_nan() => Misfit::new("not-finite", "NaN is not a reading".to_owned()),
        Json::Float(x) if x.is_infinite() => Misfit::new("not-finite", "infinity is not a reading".to_owned()),
        _ => Misfit::new("wrong-type", format!("expected {expected}, found {}", describe(raw))),
    }
}

fn int64(text: &str) -> Result<i64, Misfit> {
    text.parse()
        .map_err(|_| Misfit::new("out-of-range", format!("int {} does not fit in 64 bits", shorten(text))))
}

fn float(raw: &Json<'_>) -> Result<f64, Misfit> {
    match raw {
        Json::Float(x) if x.is_finite() => Ok(*x),
        Json::Int(text) => match text.parse::<f64>() {
            Ok(x) if x.is_finite() => Ok(x),
            _ => Err(Misfit::new(
                "out-of-range",
                format!("int {} does not fit in a float", shorten(text)),
            )),
        },
        _ => Err(wrong("float", raw)),
    }
}

fn timestamp(raw: &Json<'_>) -> Result<i64, Misfit> {
    let found = match raw {
        Json::Int(text) => text
            .parse()
            .map_err(|_| instant::Fault::OutOfRange)
            .and_then(instant::check),
        Json::Text(text) => text.as_str().map_or(Err(instant::Fault::NotATime), instant::parse),
        _ => return Err(wrong("a time (ISO 8601 text or integer microseconds)", raw)),
    };
    let shown = describe(raw);
    found.map_err(|fault| match fault {
        instant::Fault::OutOfRange => Misfit::new(
            "out-of-range",
            format!("{shown} is out of range; the years 1 to 9999 can be held"),
        ),
        instant::Fault::NotATime => Misfit::new(
            "wrong-type",
            format!("{shown} is not a time; write ISO 8601, such as 2012-05-07T09:00:00Z"),
        ),
    })
}

fn base64(text: &Text<'_>, kind: Kind) -> Result<Vec<u8>, Misfit> {
    text.as_str()
        .and_then(|text| super::base64::decode(text.as_bytes()))
        .ok_or_else(|| {
            let found = describe(&Json::Text(text.clone()));
            Misfit::new(
                "wrong-type",
                format!("expected {} as base64, found {found}", kind.name()),
            )
        })
}

fn convert<'a>(kind: Kind, raw: &'a Json<'_>) -> Result<Held<'a>, Misfit> {
    let plain = match (kind, raw) {
        (Kind::Bool, Json::Bool(x)) => Val::Bool(*x),
        (Kind::Int, Json::Int(text)) => Val::Int(int64(text)?),
        (Kind::Float, raw) => Val::Float(float(raw)?),
        (Kind::Timestamp, raw) => Val::Int(timestamp(raw)?),
        (Kind::String, Json::Text(text)) => match text.as_str() {
            Some(text) => Val::Str(text.into()),
            None => {
                let reason = format!(
                    "{} is not valid text: a character in it is broken",
                    quote(&text.shown())
                );
                return Err(Misfit::new("not-utf8", reason));
            }
        },
        (Kind::Bytes | Kind::Uint8Array, Json::Text(text)) => return base64(text, kind).map(Held::Bytes),
        (Kind::Uint8Array, Json::List(items)) if items.iter().all(|item| matches!(item, Json::Int(_))) => {
            let bytes = items.iter().map(|item| match item {
                Json::Int(text) => text.parse().ok(),
                _ => None,
            });
            return bytes.collect::<Option<Vec<u8>>>().map(Held::Bytes).ok_or_else(|| {
                let reason = format!(
                    "expected array<uint8>, found a number outside 0..255 in {}",
                    describe(raw)
                );
                Misfit::new("out-of-range", reason)
            });
        }
        (Kind::FloatArray, Json::List(items)) => {
            return items
                .iter()
                .map(float)
                .collect::<Result<Vec<f64>, Misfit>>()
                .map(Held::Floats);
        }
        _ => return Err(wrong(kind.name(), raw)),
    };
    Ok(Held::Plain(plain))
}

fn read_id<'a>(raw: &'a Json<'_>) -> Result<IdRef<'a>, Misfit> {
    match raw {
        Json::Text(text) => text.as_str().map(IdRef::Text).ok_or_else(|| {
            let reason = format!(
                "{} is not valid text: a character in it is broken",
                quote(&text.shown())
            );
            Misfit::new("not-utf8", reason)
        }),
        Json::Int(text) => int64(text).map(IdRef::Int),
        Json::Float(x) if !x.is_finite() => Err(Misfit::new("not-finite", "NaN or infinity is no id".to_owned())),
        _ => Err(Misfit::new(
            "wrong-type",
            format!("expected int or string, found {}", describe(raw)),
        )),
    }
}

fn shorten(text: &str) -> String {
    let mut characters = text.chars();
    let head: String = characters.by_ref().take(37).collect();
    let rest: String = characters.take(4).collect();
    if rest.chars().count() > 3 {
        format!("{head}...")
    } else {
        head + &rest
    }
}

/// Text between quotes, cut if long, with what can't be printed escaped.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", shorten(text).escape_debug())
}

fn describe(raw: &Json<'_>) -> String {
    match raw {
        Json::Null => "null".to_owned(),
        Json::Bool(x) => format!("bool {}", if *x { "True" } else { "False" }),
        Json::Int(text) => format!("int {}", shorten(text)),
        Json::Float(x) => format!("float {x:?}"),
        Json::Text(text) => format!("string {}", quote(&text.shown())),
        Json::List(items) => format!("array of {}", items.len()),
        Json::Object(members) => format!("object of {}", members.len()),
    }
}
