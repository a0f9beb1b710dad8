//! NATIVE: a C function, or a numba cfunc, of the user's own. It runs on the worker, without the GIL.
//!
//! ```c
//! int64_t f(const void *const *data, const int64_t *length, int64_t attributes,
//!           void *const *out, int64_t *out_length, int64_t out_attributes);
//! ```
//!
//! `data[i]` points to the value of an attribute, all those of the first input before those of the second: an int64
//! (int, timestamp, bool 0 or 1), a double, or the elements of text, bytes or an array. `length[i]` is how many there
//! are: 1 for a number, -1 for null, and for an input that is not there (`fire: any`). `out[k]` points to room for `out_length[k]`
//! elements; the function writes there, and sets `out_length[k]` to how many it wrote, -1 for null. It returns 1 for an
//! output, 0 for none, and something below 0 if it failed. What it is given must not be kept after it returns.

use std::ffi::c_void;

use crate::record::Kind;
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;

/// The function's signature.
pub type Function = unsafe extern "C" fn(
    data: *const *const c_void,
    length: *const i64,
    attributes: i64,
    out: *const *mut c_void,
    out_length: *mut i64,
    out_attributes: i64,
) -> i64;

/// The least room for an array, in bytes; there is at least 16 times that of the inputs.
const ROOM: usize = 4_096;

/// Calls a function.
pub struct Foreign {
    function: Function,
    /// How many attributes each input has.
    attributes: Vec<usize>,
    outputs: Vec<Kind>,
    data: Vec<*const c_void>,
    lengths: Vec<i64>,
    /// Numbers, which a record's view gives by value.
    numbers: Vec<u64>,
    out: Vec<*mut c_void>,
    out_lengths: Vec<i64>,
    rooms: Vec<Vec<u64>>,
}

// SAFETY: the pointers in `data` and `out` are made anew in each run and mean nothing between runs; the function itself is the
// user's, who was told that it is called from any worker, by one at a time.
unsafe impl Send for Foreign {}

impl Foreign {
    /// For inputs with so many attributes each, and outputs of these kinds.
    ///
    /// # Safety
    /// The function has the signature above, stays loaded, keeps to the lengths it is given, and is not bound to a thread.
    pub unsafe fn new(function: Function, attributes: Vec<usize>, outputs: Vec<Kind>) -> Foreign {
        Foreign {
            function,
            attributes,
            rooms: vec![Vec::new(); outputs.len()],
            outputs,
            data: Vec::new(),
            lengths: Vec::new(),
            numbers: Vec::new(),
            out: Vec::new(),
            out_lengths: Vec::new(),
        }
    }

    /// Where each attribute is, and how long; the bytes of all arrays together.
    fn lay_out(&mut self, inputs: &Inputs<'_>) -> usize {
        self.data.clear();
        self.lengths.clear();
        self.numbers.clear();
        // So that no number moves once a pointer leads to it.
        self.numbers.reserve(self.attributes.iter().sum());
        let mut size = 0;
        for (input, attributes) in self.attributes.iter().enumerate() {
            let record = inputs.get(input);
            for slot in 0..*attributes {
                let mut number = |bits: u64| {
                    self.numbers.push(bits);
                    let last: *const u64 = self.numbers.last().map_or(std::ptr::null(), |x| x);
                    (last.cast::<c_void>(), 1)
                };
                let (place, length) = match record.map_or(Val::Null, |record| record.get(slot)) {
                    Val::Null => (std::ptr::null(), -1),
                    Val::Bool(x) => number(u64::from(x)),
                    Val::Int(x) => number(x as u64),
                    Val::Float(x) => number(x.to_bits()),
                    Val::Str(x) => (x.as_ptr().cast(), x.len() as i64),
                    Val::Bytes(x) => (x.as_ptr().cast(), x.len() as i64),
                    Val::Floats(x) => (x.as_ptr().cast(), x.len() as i64),
                };
                size += usize::try_from(length).unwrap_or(0) * 8;
                self.data.push(place);
                self.lengths.push(length);
            }
        }
        size
    }

    fn make_room(&mut self, size: usize) {
        let words = ROOM.max(size * 16) / 8;
        self.out.clear();
        self.out_lengths.clear();
        for (kind, room) in self.outputs.iter().zip(&mut self.rooms) {
            let words = if kind.is_variable() { words } else { 1 };
            if room.len() < words {
                room.resize(words, 0);
            }
            self.out.push(room.as_mut_ptr().cast());
            let elements = match kind {
                Kind::FloatArray => room.len(),
                kind if kind.is_variable() => room.len() * 8,
                _ => 1,
            };
            self.out_lengths.push(elements as i64);
        }
    }

    fn output(&self, slot: usize) -> Result<Val<'_>, Trouble> {
        let room = &self.rooms[slot];
        let bytes: &[u8] = bytemuck::cast_slice(room);
        let Ok(length) = usize::try_from(self.out_lengths[slot]) else {
            return Ok(Val::Null);
        };
        let too_long = || {
            Trouble::Said(format!(
                "says that output {slot} has {length} elements, more than there is room for"
            ))
        };
        let first = room.first().copied().unwrap_or(0);
        Ok(match self.outputs[slot] {
            Kind::Bool => Val::Bool(first != 0),
            Kind::Int | Kind::Timestamp => Val::Int(first as i64),
            Kind::Float => Val::Float(f64::from_bits(first)),
            Kind::String => {
                let text = bytes.get(..length).ok_or_else(too_long)?;
                let text =
                    std::str::from_utf8(text).map_err(|_| Trouble::Said("gave text that is not UTF-8".into()))?;
                Val::Str(text.into())
            }
            Kind::Bytes | Kind::Uint8Array => Val::Bytes(bytes.get(..length).ok_or_else(too_long)?),
            Kind::FloatArray => Val::Floats(bytemuck::cast_slice(room.get(..length).ok_or_else(too_long)?)),
        })
    }
}

impl Process for Foreign {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let size = self.lay_out(inputs);
        self.make_room(size);
        // SAFETY: by the contract of `new` the function has this signature and keeps to the lengths; all that it is given lives in
        // `self` or in records whose tokens the engine holds until this operator has run.
        let answer = unsafe {
            (self.function)(
                self.data.as_ptr(),
                self.lengths.as_ptr(),
                self.data.len() as i64,
                self.out.as_ptr(),
                self.out_lengths.as_mut_ptr(),
                self.out.len() as i64,
            )
        };
        match answer {
            0 => Ok(()),
            1 => out.emit(&mut |draft| {
                let mut slots = 0..self.outputs.len();
                slots.try_for_each(|slot| draft.set(slot, &self.output(slot)?))
            }),
            other => Err(Trouble::Said(format!("the function returned {other}"))),
        }
    }
}
