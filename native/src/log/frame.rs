//! A frame: what one append leaves in a segment, with its checksum.
//!
//! ```text
//!  0  u32  length of the frame in bytes, a multiple of 8; 0: nothing was written here yet
//!  4  u32  CRC-32C of the bytes from 8 to the end
//!  8  u64  offset of the first record; of a frame without records, that of the next one
//! 16  u32  number of records
//! 20  u32  kind: 1 records, 2 state, 3 end of the segment
//! 24  u64  session of the supplier; 0: none
//! 32  u64  number in the session after the last record of the batch, those that became dead letters included
//! 40  i64  when the batch came, microseconds by the clock of the intake
//! 48  ..   the records one behind another; or, in a frame of state, JSON
//! ```

use crate::record;

/// Bytes before the records.
pub const HEAD: usize = 48;
/// Longer frames are not written, and not believed.
pub const MAX_LENGTH: usize = record::MAX_LENGTH + (4 << 20);

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records; there may be none, if all of a batch became dead letters.
    Records,
    /// What the sequencer knows at this place, and the streams' schemas: a segment begins with one.
    State,
    /// The segment ends here.
    End,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::Records => 1,
            Kind::State => 2,
            Kind::End => 3,
        }
    }

    fn of(number: u32) -> Option<Kind> {
        [Kind::Records, Kind::State, Kind::End]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// A frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is for.
    pub kind: Kind,
    /// The offset of its first record, or of the next one.
    pub offset: u64,
    /// How many records it has.
    pub count: u32,
    /// The supplier's session; 0: none.
    pub session: u64,
    /// The number in the session after this batch.
    pub sequence: u64,
    /// When it came, microseconds.
    pub arrival: i64,
}

/// A frame as it is read.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Its head.
    pub head: Head,
    /// Its records, or the text of its state.
    pub body: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The offset after its last record.
    pub fn next_offset(&self) -> u64 {
        self.head.offset + u64::from(self.head.count)
    }

    /// The batch without its first records.
    pub fn without_first(self, skip: u64) -> Batch<'a> {
        let Batch { mut head, mut body } = self;
        for _ in 0..skip {
            let length = record::length(body).unwrap_or(body.len());
            body = body.get(length..).unwrap_or(&[]);
            head.offset += 1;
            head.count = head.count.saturating_sub(1);
        }
        Batch { head, body }
    }

    /// Its records with their offsets.
    pub fn records(&self) -> Records<'a> {
        let rest = if self.head.kind == Kind::Records {
            self.body
        } else {
            &[]
        };
        Records {
            rest,
            offset: self.head.offset,
        }
    }
}

/// The records of a batch with their offsets.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Iterator for Records<'a> {
    type Item = (u64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(u64, &'a [u8])> {
        let length = record::length(self.rest)?;
        let (record, rest) = self.rest.split_at_checked(length)?;
        let offset = self.offset;
        self.rest = rest;
        self.offset += 1;
        Some((offset, record))
    }
}

/// Where the frame that is being built begins in a buffer; see `begin`.
#[must_use]
#[derive(Debug)]
pub struct Begun(usize);

/// Begins a frame at the buffer's end; its body is appended next, then `finish`.
pub fn begin(buffer: &mut Vec<u8>) -> Begun {
    let at = buffer.len();
    buffer.resize(at + HEAD, 0);
    Begun(at)
}

/// Pads the body and fills in the head and the checksum.
pub fn finish(buffer: &mut Vec<u8>, begun: Begun, head: &Head) {
    let at = begun.0;
    buffer.resize(buffer.len().next_multiple_of(8), 0);
    let frame = &mut buffer[at..];
    let length = frame.len() as u32;
    frame[8..16].copy_from_slice(&head.offset.to_le_bytes());
    frame[16..20].copy_from_slice(&head.count.to_le_bytes());
    frame[20..24].copy_from_slice(&head.kind.number().to_le_bytes());
    frame[24..32].copy_from_slice(&head.session.to_le_bytes());
    frame[32..40].copy_from_slice(&head.sequence.to_le_bytes());
    frame[40..48].copy_from_slice(&head.arrival.to_le_bytes());
    let crc = crc32c::crc32c(&frame[8..]);
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Gives up a frame that was begun.
pub fn give_up(buffer: &mut Vec<u8>, begun: Begun) {
    buffer.truncate(begun.0);
}

/// What stands where a frame should be.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A whole frame and its length.
    Whole(Batch<'a>, usize),
    /// Nothing was written here.
    Nothing,
    /// Something that is no whole frame, and why.
    Torn(&'static str),
}

/// The frame at the start of `bytes`, which may reach beyond it.
pub fn read(bytes: &[u8]) -> Found<'_> {
    let Some(length) = u32_at(bytes, 0) else {
        return Found::Nothing;
    };
    let length = length as usize;
    if length == 0 {
        return Found::Nothing;
    }
    if !length.is_multiple_of(8) || !(HEAD..=MAX_LENGTH).contains(&length) {
        return Found::Torn("the frame's length is impossible");
    }
    let Some(frame) = bytes.get(..length) else {
        return Found::Torn("the frame ends too early");
    };
    if u32_at(frame, 4) != Some(crc32c::crc32c(&frame[8..])) {
        return Found::Torn("the frame's checksum is wrong");
    }
    match head(frame) {
        Some(head) => Found::Whole(
            Batch {
                head,
                body: &frame[HEAD..],
            },
            length,
        ),
        None => Found::Torn("the frame is of no known kind"),
    }
}

fn head(frame: &[u8]) -> Option<Head> {
    Some(Head {
        offset: u64_at(frame, 8)?,
        count: u32_at(frame, 16)?,
        kind: Kind::of(u32_at(frame, 20)?)?,
        session: u64_at(frame, 24)?,
        sequence: u64_at(frame, 32)?,
        arrival: u64_at(frame, 40)? as i64,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Head, Vec<u8>) {
        let head = Head {
            kind: Kind::Records,
            offset: 7,
            count: 2,
            session: 9,
            sequence: 11,
            arrival: -5,
        };
        let mut buffer = b"before..".to_vec();
        let begun = begin(&mut buffer);
        buffer.extend_from_slice(b"some bytes");
        finish(&mut buffer, begun, &head);
        (head, buffer.split_off(8))
    }

    #[test]
    fn a_frame_comes_back() {
        let (head, mut bytes) = sample();
        let length = bytes.len();
        assert_eq!(length % 8, 0);
        bytes.extend_from_slice(b"what follows");
        let Found::Whole(batch, read) = read(&bytes) else {
            panic!()
        };
        assert_eq!((batch.head, read), (head, length));
        assert_eq!(batch.body, b"some bytes\0\0\0\0\0\0");
        assert_eq!(batch.next_offset(), 9);
    }

    #[test]
    fn every_cut_and_every_changed_bit_is_seen() {
        let (_, bytes) = sample();
        for cut in 4..bytes.len() {
            assert!(matches!(read(&bytes[..cut]), Found::Torn(_)), "{cut}");
        }
        assert!(matches!(read(&[0; 64]), Found::Nothing));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(read(&changed), Found::Whole(..)), "{bit}");
        }
    }
}
