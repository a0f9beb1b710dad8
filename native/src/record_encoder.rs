//! Building records: `record` says what they look like.

use crate::record::{
    COUNTED_ID, ENDS, Fault, HEAD, ID_AT, IdRef, Kind, MARKS, MAX_INSTANT, MAX_LENGTH, MIN_INSTANT, Schema, TEXT_ID,
};
use crate::value::Val;

/// Builds records one behind another in a buffer that is kept: `start`, `set` for what is not null, `finish`.
#[derive(Debug, Default)]
pub struct Encoder {
    /// Words, so that every record is aligned.
    words: Vec<u64>,
    /// Where the record that is being built begins, in words.
    begun: usize,
}

impl Encoder {
    /// With an empty buffer.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// The finished records, one behind another.
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words[..self.begun])
    }

    /// The same, to set their flags.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words[..self.begun])
    }

    /// Forgets the records; the buffer's memory is kept.
    pub fn clear(&mut self) {
        self.words.clear();
        self.begun = 0;
    }

    /// Begins a record whose attributes are all null; one that was not finished is given up.
    pub fn start(&mut self, schema: &Schema, time: i64, id: IdRef<'_>) -> Result<(), Fault> {
        self.words.truncate(self.begun);
        if !(MIN_INSTANT..=MAX_INSTANT).contains(&time) {
            return Err(Fault::Time);
        }
        let text = matches!(id, IdRef::Text(_));
        let flags = if text { TEXT_ID } else { 0 };
        self.words.push(u64::from(schema.stream) << 32 | u64::from(flags) << 48);
        self.words.push(time as u64);
        self.words.push(if let IdRef::Int(id) = id { id as u64 } else { 0 });
        let attributes = schema.kinds.len();
        for first in (0..attributes).step_by(64) {
            let here = (attributes - first).min(64);
            self.words.push(u64::MAX >> (64 - here));
        }
        self.words.resize(self.begun + schema.tail_at() / 8, 0);
        if let IdRef::Text(id) = id {
            let place = self.append(id.as_bytes()).ok_or(Fault::Length)?;
            self.words[self.begun + ID_AT / 8] = place;
        }
        Ok(())
    }

    /// Gives an attribute its value; an integer is taken for a float too. The schema is the one of `start`.
    pub fn set(&mut self, schema: &Schema, slot: usize, value: &Val<'_>) -> Result<(), Fault> {
        let kind = schema.kinds.get(slot).ok_or(Fault::Value(slot))?;
        let found = match (kind, value) {
            (_, Val::Null) => return Ok(()),
            (Kind::Bool, Val::Bool(x)) => u64::from(*x),
            (Kind::Int, Val::Int(x)) => *x as u64,
            (Kind::Timestamp, Val::Int(x)) if (MIN_INSTANT..=MAX_INSTANT).contains(x) => *x as u64,
            (Kind::Timestamp, Val::Int(_)) => return Err(Fault::Timestamp(slot)),
            (Kind::Float, Val::Float(x)) if x.is_finite() => x.to_bits(),
            (Kind::Float, Val::Float(_)) => return Err(Fault::NotFinite(slot)),
            (Kind::Float, Val::Int(x)) => (*x as f64).to_bits(),
            (Kind::String, Val::Str(x)) => self.append(x.as_bytes()).ok_or(Fault::Length)?,
            (Kind::Bytes | Kind::Uint8Array, Val::Bytes(x)) => self.append(x).ok_or(Fault::Length)?,
            (Kind::FloatArray, Val::Floats(x)) if x.iter().all(|x| x.is_finite()) => {
                self.append(bytemuck::cast_slice(x)).ok_or(Fault::Length)?
            }
            (Kind::FloatArray, Val::Floats(_)) => return Err(Fault::NotFinite(slot)),
            _ => return Err(Fault::Value(slot)),
        };
        self.words[self.begun + HEAD / 8 + slot / 64] &= !(1 << (slot % 64));
        self.words[self.begun + schema.words_at() / 8 + slot] = found;
        Ok(())
    }

    /// Says that the id of the record that is being built was counted.
    pub fn mark_counted(&mut self) {
        if let Some(head) = self.words.get_mut(self.begun) {
            *head |= u64::from(COUNTED_ID) << 48;
        }
    }

    /// Says until when the event is valid, and with which marks it comes. The last thing before `finish`.
    pub fn limit(&mut self, end: Option<i64>, marks: u8) -> Result<(), Fault> {
        if end.is_some_and(|end| !(MIN_INSTANT..=MAX_INSTANT).contains(&end)) {
            return Err(Fault::End);
        }
        let Some(head) = self.words.get_mut(self.begun) else {
            return Ok(());
        };
        *head |= u64::from(marks & MARKS) << 56;
        if let Some(end) = end {
            *head |= u64::from(ENDS) << 48;
            self.words.push(end as u64);
        }
        Ok(())
    }

    /// Ends the record; its bytes.
    pub fn finish(&mut self) -> &[u8] {
        let begun = self.begun;
        if let Some(length) = self.words.len().checked_sub(begun).filter(|length| *length > 0) {
            self.words[begun] |= (length * 8) as u64;
            self.begun = self.words.len();
        }
        bytemuck::cast_slice(&self.words[begun..])
    }

    /// Puts a variable part into the tail; its place as a word, or None if the record would be too long.
    fn append(&mut self, part: &[u8]) -> Option<u64> {
        let offset = (self.words.len() - self.begun) * 8;
        if offset + part.len() > MAX_LENGTH - 8 {
            return None;
        }
        let first = self.words.len();
        self.words.resize(first + part.len().div_ceil(8), 0);
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.words[first..])[..part.len()].copy_from_slice(part);
        Some(offset as u64 | (part.len() as u64) << 32)
    }
}
