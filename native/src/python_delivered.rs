//! What a consumer elsewhere reads, for Python: frames of the consumers' socket as tuples (docs/wire.md).

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::python::guard;
use crate::python_record;
use crate::record::{self, Kind, Record, Schema};
use crate::service::parcel::{EVENT, FRAME_HEAD, MATCH};

/// A frame is no longer than a record, and what can be before and behind it.
const LONGEST: usize = record::MAX_LENGTH + (8 << 20);

/// Cuts what comes from the socket into frames and reads them.
#[pyclass(module = "cepheid._native")]
pub(crate) struct DeliveryReader {
    names: Vec<String>,
    /// None: each frame says the types.
    schema: Option<Schema>,
    buffer: Vec<u8>,
    /// Records are read where they are aligned.
    aligned: Vec<u64>,
}

fn wrong(what: impl Into<String>) -> PyErr {
    PyValueError::new_err(what.into())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..at + 8).and_then(|found| found.try_into().ok());
    found.map_or(0, u64::from_le_bytes)
}

#[pymethods]
impl DeliveryReader {
    /// `types` are those of an event's attributes; None for the values of a query.
    #[new]
    fn new(names: Vec<String>, types: Option<Vec<String>>) -> PyResult<Self> {
        guard(|| {
            let kind = |name: String| Kind::parse(&name).ok_or_else(|| wrong(format!("unknown type '{name}'")));
            let kinds = types.map(|types| types.into_iter().map(kind).collect::<PyResult<Vec<Kind>>>());
            let schema = kinds.transpose()?.map(|kinds| Schema::new(0, kinds));
            if schema.as_ref().is_some_and(|schema| schema.kinds.len() != names.len()) {
                return Err(wrong("an attribute has no type"));
            }
            Ok(DeliveryReader {
                names,
                schema,
                buffer: Vec::new(),
                aligned: Vec::new(),
            })
        })
    }

    /// What is whole with these bytes: number, when it was pushed, latency in nanoseconds, marks, end of validity, id, time,
    /// values by name, and of a match what it was found with, as JSON.
    fn feed<'py>(&mut self, py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyList>> {
        guard(|| {
            let found = PyList::empty(py);
            self.buffer.extend_from_slice(data);
            let mut at = 0;
            while self.buffer.len() - at >= FRAME_HEAD {
                let head = word(&self.buffer, at);
                let (length, kind) = (head as u32 as usize, (head >> 32) as u8);
                let is_known = kind == EVENT && self.schema.is_some() || kind == MATCH && self.schema.is_none();
                if !(FRAME_HEAD..=LONGEST).contains(&length) || !is_known {
                    return Err(wrong(format!("a frame of kind {kind} and {length} bytes came")));
                }
                if self.buffer.len() - at < length {
                    break;
                }
                let frame = &self.buffer[at..at + length];
                found.append(read(py, frame, &self.names, self.schema.as_ref(), &mut self.aligned)?)?;
                at += length;
            }
            self.buffer.drain(..at);
            Ok(found)
        })
    }
}

fn read<'py>(
    py: Python<'py>,
    frame: &[u8],
    names: &[String],
    schema: Option<&Schema>,
    aligned: &mut Vec<u64>,
) -> PyResult<Bound<'py, PyTuple>> {
    let of_match;
    let (schema, start) = match schema {
        Some(schema) => (schema, FRAME_HEAD),
        None => {
            let count = (word(frame, 40) >> 32) as usize;
            let kinds = frame.get(FRAME_HEAD..FRAME_HEAD + count);
            let kinds = kinds.filter(|kinds| kinds.len() == names.len());
            let kinds = kinds.ok_or_else(|| wrong("a match has other values than its query"))?;
            let kind = |number: &u8| Kind::ALL.get(usize::from(*number)).copied();
            let kinds = kinds.iter().map(kind).collect::<Option<Vec<Kind>>>();
            of_match = Schema::new(0, kinds.ok_or_else(|| wrong("a value has an unknown type"))?);
            (&of_match, (FRAME_HEAD + count).next_multiple_of(8))
        }
    };
    let bytes = frame.get(start..).unwrap_or(&[]);
    let length = record::check_but_stream(bytes, schema).map_err(|fault| wrong(fault.to_string()))?;
    aligned.clear();
    aligned.resize(length / 8, 0);
    bytemuck::cast_slice_mut::<u64, u8>(aligned).copy_from_slice(&bytes[..length]);
    // SAFETY: these bytes were checked with this schema just now, and are aligned.
    let record = unsafe { Record::trusted(bytemuck::cast_slice(aligned), schema) };
    let marks = python_record::labels(word(frame, 40) as u8);
    let end = word(frame, 16) as i64;
    let bindings = &bytes[length..];
    let bindings = std::str::from_utf8(bindings).map_err(|_| wrong("what a match was found with is no text"))?;
    let attributes: Bound<'py, PyDict> = python_record::attributes(py, &record, names)?;
    (
        word(frame, 8),
        word(frame, 24) as i64,
        word(frame, 32),
        marks,
        (end != i64::MAX).then_some(end),
        python_record::id(py, &record)?,
        record.time(),
        attributes,
        (!bindings.is_empty()).then_some(bindings),
    )
        .into_pyobject(py)
}
