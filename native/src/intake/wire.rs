//! The frames that suppliers, readers and the intake exchange; docs/wire.md is their description.
//!
//! ```text
//!  0  u32  length of the frame in bytes, a multiple of 8
//!  4  u8   kind
//!  5  u8   x 3: 0
//!  8  u64  number: what it is depends on the kind
//! 16  ..   payload
//! ```

use serde::Serialize;

/// What a connection begins with, if it is not JSON Lines.
pub const GREETING: &[u8; 8] = b"CEPHEID1";
/// Bytes before the payload.
pub const HEAD: usize = 16;
/// Longer frames are refused.
pub const MAX_FRAME: usize = 4 << 20;
/// Longer ones are refused from those who have not said who they are.
pub const MAX_FIRST_FRAME: usize = 1 << 20;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the intake: who it is; JSON.
    Hello = 1,
    /// From the intake: the streams, and the number that comes next in the session; JSON.
    Welcome = 2,
    /// To the intake: records; number: that of the first in the session.
    Batch = 3,
    /// From the intake: everything before this number is safe.
    Ack = 4,
    /// From the intake: something was refused; JSON.
    Error = 5,
    /// To the intake: asks for records from this offset.
    Read = 6,
    /// From the intake: frames of the log; number: the offset after them.
    Data = 7,
    /// From the intake: the streams from here on; JSON.
    Schema = 8,
    /// To the intake: a consumer needs nothing before this offset; the consumer's name.
    Commit = 9,
    /// From the intake: it was done.
    Done = 10,
    /// To the intake: asks for its counters.
    Status = 11,
    /// From the intake: its counters; JSON.
    Counters = 12,
    /// To the intake: records as lines of JSON; number: that of the first in the session.
    Lines = 13,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        use Kind::{Ack, Batch, Commit, Counters, Data, Done, Error, Hello, Lines, Read, Schema, Status, Welcome};
        [
            Hello, Welcome, Batch, Ack, Error, Read, Data, Schema, Commit, Done, Status, Counters, Lines,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }
}

/// A frame that came.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its number.
    pub number: u64,
    /// Its payload.
    pub payload: &'a [u8],
}

/// What stands at the start of a buffer.
pub enum Found<'a> {
    /// A frame and its length.
    Whole(Frame<'a>, usize),
    /// The beginning of one.
    Part,
    /// Nothing that could become one, and why.
    Wrong(String),
}

/// The frame at the start of `bytes`, of at most `most` bytes.
pub fn read(bytes: &[u8], most: usize) -> Found<'_> {
    let Some(head) = bytes.first_chunk::<HEAD>() else {
        return Found::Part;
    };
    let [a, b, c, d, kind, zeros @ .., _, _, _, _, _, _, _, _] = *head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if !(HEAD..=most).contains(&length) || !length.is_multiple_of(8) {
        return Found::Wrong(format!("a frame of {length} bytes; it has {HEAD} to {most}, in eights"));
    }
    let Some(kind) = Kind::of(kind).filter(|_| zeros == [0; 3]) else {
        return Found::Wrong(format!("there is no frame of kind {kind}"));
    };
    let mut number = [0; 8];
    number.copy_from_slice(&head[8..]);
    match bytes.get(HEAD..length) {
        Some(payload) => Found::Whole(
            Frame {
                kind,
                number: u64::from_le_bytes(number),
                payload,
            },
            length,
        ),
        None => Found::Part,
    }
}

/// Appends a frame; the payload is padded with zeros, or with blanks if it is JSON.
pub fn write(output: &mut Vec<u8>, kind: Kind, number: u64, payload: &[u8]) {
    let length = (HEAD + payload.len()).next_multiple_of(8);
    output.extend_from_slice(&(length as u32).to_le_bytes());
    output.extend_from_slice(&[kind as u8, 0, 0, 0]);
    output.extend_from_slice(&number.to_le_bytes());
    output.extend_from_slice(payload);
    let padding = if payload.first() == Some(&b'{') { b' ' } else { 0 };
    output.resize(output.len() + length - HEAD - payload.len(), padding);
}

/// Appends a frame of JSON.
pub fn write_json(output: &mut Vec<u8>, kind: Kind, number: u64, payload: &impl Serialize) {
    // What is sent consists of names and numbers, which always have a JSON text.
    write(output, kind, number, &serde_json::to_vec(payload).unwrap_or_default());
}

/// What was refused.
#[derive(Clone, Debug, Serialize)]
pub struct Refusal {
    /// Its group.
    pub code: &'static str,
    /// What is wrong.
    pub reason: String,
    /// Whether the connection ends.
    pub fatal: bool,
    /// Of an offset that is gone: the first there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
}

impl Refusal {
    /// One that ends the connection.
    pub fn fatal(code: &'static str, reason: String) -> Refusal {
        Refusal {
            code,
            reason,
            fatal: true,
            first: None,
        }
    }

    /// One after which the connection goes on.
    pub fn for_now(code: &'static str, reason: String) -> Refusal {
        Refusal {
            fatal: false,
            ..Refusal::fatal(code, reason)
        }
    }
}
