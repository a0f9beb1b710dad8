//! The record: an event as bytes, the same in the log, on the wire and in the engine; read in place, slot by slot.
//!
//! Little-endian, 8-byte aligned:
//!
//! ```text
//!  0  u32  length of the whole record in bytes, a multiple of 8
//!  4  u16  number of the stream: its place among the application's streams in the order of their names
//!  6  u8   flags: 1 late, 2 duplicate, 4 the id is text, 8 the id was counted by the intake, 16 it has an end of validity
//!  7  u8   marks that it came with: 1 stale, 2 relative
//!  8  i64  time, microseconds
//! 16  i64  id; or, if it is text, u32 offset and u32 length
//! 24  u64  x ceil(n / 64): nulls, a bit an attribute, set if it is null
//! ..  u64  x n: the attributes in the schema's order: bool 0 or 1, int, float's bits, timestamp;
//!          string, bytes, array<uint8> and array<float>: u32 offset and u32 length, in bytes
//! ..       tail: what offsets lead to, each at a multiple of 8 from the record's start, padded with zeros
//! ..  i64  only with flag 16, the last of the record: the end of its validity, microseconds
//! ```

use std::fmt;

use crate::event::Row;
pub use crate::record_encoder::Encoder;
use crate::value::Val;

const _: () = assert!(
    cfg!(target_endian = "little"),
    "records are read in place, so the host has to be little-endian"
);

/// The flag of an event that came behind its stream's greatest time by more than the lateness.
pub const LATE: u8 = 1;
/// The flag of an event whose stream and id had come before.
pub const DUPLICATE: u8 = 2;
/// The flag of an event whose id is text.
pub const TEXT_ID: u8 = 4;
/// The flag of an event that came without an id and was given the next number of its stream.
pub const COUNTED_ID: u8 = 8;
/// The flag of an event that came with an end of its validity.
pub const ENDS: u8 = 16;
/// The marks that an event can come with: STALE and RELATIVE of the service.
pub const MARKS: u8 = 3;

/// The least instant, the start of year 1; as in src/cepheid/model/time.py.
pub const MIN_INSTANT: i64 = -62_135_596_800_000_000;
/// The greatest instant, the end of year 9999.
pub const MAX_INSTANT: i64 = 253_402_300_799_999_999;

/// No record is longer. A JSON text of 4 MiB, the longest that is taken, can hold 2 Mi floats.
pub const MAX_LENGTH: usize = 20 << 20;

/// Bytes before the nulls.
pub const HEAD: usize = 24;
/// Where the flags are.
pub const FLAGS_AT: usize = 6;
/// Where the marks are.
pub const MARKS_AT: usize = 7;
const TIME_AT: usize = 8;
pub(crate) const ID_AT: usize = 16;

/// The type of an attribute (rule E1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// True or false.
    Bool,
    /// An int64.
    Int,
    /// A finite float.
    Float,
    /// UTF-8 text.
    String,
    /// Microseconds.
    Timestamp,
    /// Bytes.
    Bytes,
    /// Bytes that are numbers.
    Uint8Array,
    /// Finite floats.
    FloatArray,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 8] = [
        Kind::Bool,
        Kind::Int,
        Kind::Float,
        Kind::String,
        Kind::Timestamp,
        Kind::Bytes,
        Kind::Uint8Array,
        Kind::FloatArray,
    ];

    /// Its name in the application file.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Float => "float",
            Kind::String => "string",
            Kind::Timestamp => "timestamp",
            Kind::Bytes => "bytes",
            Kind::Uint8Array => "array<uint8>",
            Kind::FloatArray => "array<float>",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether values stand in the tail.
    pub fn is_variable(self) -> bool {
        matches!(self, Kind::String | Kind::Bytes | Kind::Uint8Array | Kind::FloatArray)
    }
}

/// What a stream's records look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The stream's number.
    pub stream: u16,
    /// The types of its attributes, in their order.
    pub kinds: Box<[Kind]>,
}

impl Schema {
    /// Of a stream with attributes of these types.
    pub fn new(stream: u16, kinds: impl Into<Box<[Kind]>>) -> Schema {
        let kinds = kinds.into();
        Schema { stream, kinds }
    }

    /// Where the attributes' words begin.
    #[inline]
    pub fn words_at(&self) -> usize {
        HEAD + self.kinds.len().div_ceil(64) * 8
    }

    /// Where the tail begins: the length of a record without variable parts.
    #[inline]
    pub fn tail_at(&self) -> usize {
        self.words_at() + self.kinds.len() * 8
    }
}

/// Why bytes are no record of a schema, or values make none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end before the record does, its length is no multiple of 8, or it is too long.
    Length,
    /// The bytes do not begin at a multiple of 8 in memory.
    Alignment,
    /// The record is another stream's.
    Stream,
    /// A bit of the flags or a byte of the head is not one that there is.
    Flags,
    /// The time is outside the years 1 to 9999.
    Time,
    /// The end of its validity is.
    End,
    /// An offset and length lead outside the tail, or not to a multiple of 8; None: those of the id.
    Range(Option<usize>),
    /// Text is not UTF-8; None: that of the id.
    Utf8(Option<usize>),
    /// A value is not one of its type.
    Value(usize),
    /// A float is NaN or infinite.
    NotFinite(usize),
    /// A timestamp is outside the years 1 to 9999.
    Timestamp(usize),
}

impl Fault {
    /// The attribute that it is about.
    pub fn slot(self) -> Option<usize> {
        match self {
            Fault::Range(slot) | Fault::Utf8(slot) => slot,
            Fault::Value(slot) | Fault::NotFinite(slot) | Fault::Timestamp(slot) => Some(slot),
            _ => None,
        }
    }

    /// Its group, for counting; a code of src/cepheid/model/records.py.
    pub fn code(self) -> &'static str {
        match self {
            Fault::Length | Fault::Alignment | Fault::Flags | Fault::Range(_) => "malformed-record",
            Fault::Stream => "unknown-stream",
            Fault::Time | Fault::End | Fault::Timestamp(_) => "out-of-range",
            Fault::Utf8(_) => "not-utf8",
            Fault::Value(_) => "wrong-type",
            Fault::NotFinite(_) => "not-finite",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Length => write!(f, "the record's length is not that of its bytes"),
            Fault::Alignment => write!(f, "the record does not begin at a multiple of 8"),
            Fault::Stream => write!(f, "the record is of another stream"),
            Fault::Flags => write!(f, "the record has flags that there are not"),
            Fault::Time => write!(f, "'time' is out of range; the years 1 to 9999 can be held"),
            Fault::End => write!(f, "'valid_until' is out of range; the years 1 to 9999 can be held"),
            Fault::Range(None) => write!(f, "'id' leads outside the record"),
            Fault::Range(Some(slot)) => write!(f, "attribute {slot} leads outside the record"),
            Fault::Utf8(None) => write!(f, "'id' is not UTF-8"),
            Fault::Utf8(Some(slot)) => write!(f, "attribute {slot} is not UTF-8"),
            Fault::Value(slot) => write!(f, "attribute {slot} has another type"),
            Fault::NotFinite(slot) => write!(f, "attribute {slot} is NaN or infinite"),
            Fault::Timestamp(slot) => {
                write!(f, "attribute {slot} is out of range; the years 1 to 9999 can be held")
            }
        }
    }
}

impl std::error::Error for Fault {}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(found) = bytes.get(at..at + 8) {
        word.copy_from_slice(found);
    }
    u64::from_le_bytes(word)
}

/// The length that the first bytes of a record give; None if they are too few or can't be a record's.
#[inline]
pub fn length(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    (length >= HEAD && length.is_multiple_of(8) && length <= MAX_LENGTH).then_some(length)
}

/// The stream's number in a record's head; 0 if the bytes are too few.
#[inline]
pub fn stream(bytes: &[u8]) -> u16 {
    (word(bytes, 0) >> 32) as u16
}

/// The flags in a record's head.
#[inline]
pub fn flags(bytes: &[u8]) -> u8 {
    (word(bytes, 0) >> 48) as u8
}

/// Sets the flags late and duplicate; the others stay.
#[inline]
pub fn mark(bytes: &mut [u8], marks: u8) {
    if let Some(flags) = bytes.get_mut(FLAGS_AT) {
        *flags = *flags & !(LATE | DUPLICATE) | marks & (LATE | DUPLICATE);
    }
}

/// Sets the stream's number.
#[inline]
pub fn set_stream(bytes: &mut [u8], stream: u16) {
    if let Some(found) = bytes.get_mut(4..6) {
        found.copy_from_slice(&stream.to_le_bytes());
    }
}

/// The time in a record's head.
#[inline]
pub fn time(bytes: &[u8]) -> i64 {
    word(bytes, TIME_AT) as i64
}

/// The end of its validity that a record came with; the bytes are all of one that `check` accepted.
#[inline]
pub fn end(bytes: &[u8]) -> Option<i64> {
    let length = length(bytes)?;
    (flags(bytes) & ENDS != 0).then(|| word(bytes, length - 8) as i64)
}

/// The marks that a record came with.
#[inline]
pub fn marks(bytes: &[u8]) -> u8 {
    (word(bytes, 0) >> 56) as u8
}

/// The id in a record that `check` accepted; it need not be aligned.
pub fn id(bytes: &[u8]) -> IdRef<'_> {
    let found = word(bytes, ID_AT);
    if flags(bytes) & TEXT_ID == 0 {
        return IdRef::Int(found as i64);
    }
    let (offset, length) = place(found);
    let text = bytes
        .get(offset..offset + length)
        .and_then(|text| std::str::from_utf8(text).ok());
    IdRef::Text(text.unwrap_or(""))
}

/// The id of an event, looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdRef<'a> {
    /// A number.
    Int(i64),
    /// Text.
    Text(&'a str),
}

/// A record that was found to fit its schema.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    schema: &'a Schema,
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, which must be aligned; every value is checked, once.
    pub fn read(bytes: &'a [u8], schema: &'a Schema) -> Result<Record<'a>, Fault> {
        if !(bytes.as_ptr() as usize).is_multiple_of(8) {
            return Err(Fault::Alignment);
        }
        let length = check(bytes, schema)?;
        let bytes = &bytes[..length];
        Ok(Record { bytes, schema })
    }

    /// The record that `bytes` are, without another check.
    ///
    /// # Safety
    /// `Record::read` or `check` has accepted these very bytes with this schema (the flags late and duplicate may have
    /// changed since), and they are 8-byte aligned.
    pub unsafe fn trusted(bytes: &'a [u8], schema: &'a Schema) -> Record<'a> {
        Record { bytes, schema }
    }

    /// All of it.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What it fits.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// When the event was created, in microseconds.
    #[inline]
    pub fn time(&self) -> i64 {
        time(self.bytes)
    }

    /// The stream's number.
    #[inline]
    pub fn stream(&self) -> u16 {
        stream(self.bytes)
    }

    /// Its flags.
    #[inline]
    pub fn flags(&self) -> u8 {
        flags(self.bytes)
    }

    /// Whether it came too late; then it takes part in no query (rule E4).
    #[inline]
    pub fn is_late(&self) -> bool {
        self.flags() & LATE != 0
    }

    /// Whether one of the same stream and id came before it.
    #[inline]
    pub fn is_duplicate(&self) -> bool {
        self.flags() & DUPLICATE != 0
    }

    /// Its id.
    #[inline]
    pub fn id(&self) -> IdRef<'a> {
        if self.flags() & TEXT_ID == 0 {
            IdRef::Int(word(self.bytes, ID_AT) as i64)
        } else {
            IdRef::Text(self.text(ID_AT))
        }
    }

    /// Whether an attribute is null; one that the schema lacks is.
    #[inline]
    pub fn is_null(&self, slot: usize) -> bool {
        slot >= self.schema.kinds.len() || word(self.bytes, HEAD + slot / 64 * 8) >> (slot % 64) & 1 == 1
    }

    /// The word of an attribute as it stands, for readers that know its kind; 0 where it is null.
    #[inline]
    pub fn word(&self, slot: usize) -> u64 {
        word(self.bytes, self.schema.words_at() + slot * 8)
    }

    /// An attribute's value.
    #[inline]
    pub fn get(&self, slot: usize) -> Val<'a> {
        if self.is_null(slot) {
            return Val::Null;
        }
        let at = self.schema.words_at() + slot * 8;
        match self.schema.kinds[slot] {
            Kind::Bool => Val::Bool(word(self.bytes, at) != 0),
            Kind::Int | Kind::Timestamp => Val::Int(word(self.bytes, at) as i64),
            Kind::Float => Val::Float(f64::from_bits(word(self.bytes, at))),
            Kind::String => Val::Str(self.text(at).into()),
            Kind::Bytes | Kind::Uint8Array => Val::Bytes(self.part(at)),
            // Both the record and its parts are aligned, so that this never gives the empty slice for want of it.
            Kind::FloatArray => Val::Floats(bytemuck::try_cast_slice(self.part(at)).unwrap_or(&[])),
        }
    }

    #[inline]
    fn part(&self, at: usize) -> &'a [u8] {
        let (offset, length) = place(word(self.bytes, at));
        self.bytes.get(offset..offset + length).unwrap_or(&[])
    }

    #[inline]
    fn text(&self, at: usize) -> &'a str {
        // SAFETY: a Record exists only of bytes that `check` accepted, which sees to it that this part is UTF-8.
        unsafe { std::str::from_utf8_unchecked(self.part(at)) }
    }
}

impl Row for Record<'_> {
    #[inline]
    fn time(&self) -> i64 {
        Record::time(self)
    }

    #[inline]
    fn stream(&self) -> u16 {
        Record::stream(self)
    }

    fn id(&self) -> Val<'_> {
        match Record::id(self) {
            IdRef::Int(x) => Val::Int(x),
            IdRef::Text(x) => Val::Str(x.into()),
        }
    }

    #[inline]
    fn value(&self, slot: usize) -> Val<'_> {
        self.get(slot)
    }
}

/// The offset and the length that a word holds.
#[inline]
fn place(word: u64) -> (usize, usize) {
    ((word & 0xffff_ffff) as usize, (word >> 32) as usize)
}

/// Checks that the record at the start of `bytes` fits the schema; its length. The bytes need not be aligned.
pub fn check(bytes: &[u8], schema: &Schema) -> Result<usize, Fault> {
    let length = check_but_stream(bytes, schema)?;
    if stream(bytes) == schema.stream {
        Ok(length)
    } else {
        Err(Fault::Stream)
    }
}

/// The same, whatever number of a stream it has: suppliers may count streams in an order of their own.
pub fn check_but_stream(bytes: &[u8], schema: &Schema) -> Result<usize, Fault> {
    let length = length(bytes).ok_or(Fault::Length)?;
    let tail_at = schema.tail_at();
    if length < tail_at {
        return Err(Fault::Length);
    }
    let bytes = bytes.get(..length).ok_or(Fault::Length)?;
    if flags(bytes) & !(LATE | DUPLICATE | TEXT_ID | COUNTED_ID | ENDS) != 0 || marks(bytes) & !MARKS != 0 {
        return Err(Fault::Flags);
    }
    let end = end(bytes);
    let tail_end = length - if end.is_some() { 8 } else { 0 };
    if tail_end < tail_at {
        return Err(Fault::Length);
    }
    if end.is_some_and(|end| !(MIN_INSTANT..=MAX_INSTANT).contains(&end)) {
        return Err(Fault::End);
    }
    if !(MIN_INSTANT..=MAX_INSTANT).contains(&time(bytes)) {
        return Err(Fault::Time);
    }
    let part = |word: u64, slot: Option<usize>| {
        let (offset, size) = place(word);
        if offset % 8 == 0 && offset >= tail_at && offset + size <= tail_end {
            Ok(&bytes[offset..offset + size])
        } else {
            Err(Fault::Range(slot))
        }
    };
    if flags(bytes) & TEXT_ID != 0 {
        let text = part(word(bytes, ID_AT), None)?;
        std::str::from_utf8(text).map_err(|_| Fault::Utf8(None))?;
    }
    let words_at = schema.words_at();
    for (slot, kind) in schema.kinds.iter().enumerate() {
        if word(bytes, HEAD + slot / 64 * 8) >> (slot % 64) & 1 == 1 {
            continue;
        }
        let found = word(bytes, words_at + slot * 8);
        match kind {
            Kind::Int => {}
            Kind::Bool if found <= 1 => {}
            Kind::Bool => return Err(Fault::Value(slot)),
            Kind::Float if f64::from_bits(found).is_finite() => {}
            Kind::Float => return Err(Fault::NotFinite(slot)),
            Kind::Timestamp if (MIN_INSTANT..=MAX_INSTANT).contains(&(found as i64)) => {}
            Kind::Timestamp => return Err(Fault::Timestamp(slot)),
            Kind::String => {
                std::str::from_utf8(part(found, Some(slot))?).map_err(|_| Fault::Utf8(Some(slot)))?;
            }
            Kind::Bytes | Kind::Uint8Array => {
                part(found, Some(slot))?;
            }
            Kind::FloatArray => {
                let floats = part(found, Some(slot))?;
                if floats.len() % 8 != 0 {
                    return Err(Fault::Range(Some(slot)));
                }
                let is_finite = |at| f64::from_bits(word(floats, at)).is_finite();
                if !(0..floats.len()).step_by(8).all(is_finite) {
                    return Err(Fault::NotFinite(slot));
                }
            }
        }
    }
    Ok(length)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
