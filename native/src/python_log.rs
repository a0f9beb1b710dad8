//! Log, records and intake for Python; the guard and the types as in `python`.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::intake::{Config, Ids, Server};
use crate::log::frame::{self, Found};
use crate::log::restored::Restored;
use crate::log::{Error, Follower, StreamSchema, consumers, fingerprint, follower, schema};
use crate::python::guard;
use crate::python_service::PyEngine;
use crate::record::{self, Encoder, IdRef, Record, Schema};
use crate::value::Val;

fn fault(error: &Error) -> PyErr {
    match error {
        Error::Gone { .. } => PyValueError::new_err(error.to_string()),
        _ => PyOSError::new_err(error.to_string()),
    }
}

fn parse_streams(streams: &str) -> PyResult<Vec<StreamSchema>> {
    serde_json::from_str(streams).map_err(|error| PyValueError::new_err(format!("the streams: {error}")))
}

/// Runs an intake until a signal comes by `signal_fd`; `ready` is called when it listens, with its addresses and whether it
/// has the real-time priority that was asked for. An engine in the same process is given what was written on the intake's thread.
#[pyfunction]
#[pyo3(signature = (config, signal_fd=None, ready=None, engine=None))]
pub(crate) fn run_intake(
    py: Python<'_>,
    config: &str,
    signal_fd: Option<i32>,
    ready: Option<&Bound<'_, PyAny>>,
    engine: Option<&PyEngine>,
) -> PyResult<()> {
    guard(|| {
        let config = Config::parse(config).map_err(PyValueError::new_err)?;
        // SAFETY: the caller's descriptor is open during this call; it is copied, and only the copy is kept.
        let borrowed = signal_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let signal = borrowed.map(|fd| fd.try_clone_to_owned()).transpose()?;
        let mut server = py.detach(|| Server::open(config, signal)).map_err(PyOSError::new_err)?;
        if let Some(engine) = engine {
            let relay = engine.relay();
            relay.begin();
            server.tell(move || relay.come());
        }
        if let Some(ready) = ready {
            ready.call1((server.addresses(), server.realtime()))?;
        }
        py.detach(|| server.run()).map_err(PyOSError::new_err)
    })
}

/// Says that a consumer of the log in a folder needs nothing before an offset.
#[pyfunction]
pub(crate) fn log_commit(folder: PathBuf, consumer: &str, offset: u64) -> PyResult<()> {
    guard(|| {
        if !consumers::is_name(consumer) {
            return Err(PyValueError::new_err(format!("'{consumer}' is no name of a consumer")));
        }
        consumers::commit(&folder, consumer, offset).map_err(|error| fault(&error))
    })
}

/// How far a consumer of the log in a folder has come.
#[pyfunction]
pub(crate) fn log_committed(folder: PathBuf, consumer: &str) -> PyResult<Option<u64>> {
    guard(|| consumers::committed(&folder, consumer).map_err(|error| fault(&error)))
}

/// Brings back what a log has forgotten, for readers that ask for it: records of streams that are described as JSON, each
/// with its offset and when it came, in order. It begins with the offset `first`, and ends before `next`.
#[pyfunction]
pub(crate) fn log_restore(
    folder: PathBuf,
    first: u64,
    next: u64,
    streams: &str,
    records: &Bound<'_, PyAny>,
) -> PyResult<u64> {
    guard(|| {
        let streams = parse_streams(streams)?;
        let mut restored = Restored::begin(&folder, first, &streams).map_err(|error| fault(&error))?;
        let mut count = 0;
        for each in records.try_iter()? {
            let (offset, arrival, record): (u64, i64, Bound<'_, PyBytes>) = each?.extract()?;
            restored
                .add(offset, arrival, record.as_bytes())
                .map_err(|error| fault(&error))?;
            count += 1;
        }
        restored.finish(next).map_err(|error| fault(&error))?;
        Ok(count)
    })
}

/// Makes records of values and values of records, for some streams.
#[pyclass(frozen, module = "cepheid._native")]
pub(crate) struct RecordCodec {
    layouts: Vec<Schema>,
    fingerprints: Vec<String>,
}

#[pymethods]
impl RecordCodec {
    #[new]
    fn new(streams: &str) -> PyResult<RecordCodec> {
        guard(|| {
            let streams = parse_streams(streams)?;
            let layouts = schema::layouts(&streams).map_err(PyValueError::new_err)?;
            Ok(RecordCodec {
                layouts,
                fingerprints: streams.iter().map(fingerprint).collect(),
            })
        })
    }

    /// The streams' fingerprints, in their order.
    fn fingerprints(&self) -> Vec<String> {
        self.fingerprints.clone()
    }

    /// The record of an event: the stream's number, its id, its time, and the attributes' values in order; and if it comes from
    /// another service, the end of its validity and its marks.
    #[pyo3(signature = (stream, id, time, values, limits=(None, 0)))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        stream: usize,
        id: &Bound<'py, PyAny>,
        time: i64,
        values: &Bound<'py, PyTuple>,
        limits: (Option<i64>, u8),
    ) -> PyResult<Bound<'py, PyBytes>> {
        guard(|| {
            let layout = self
                .layouts
                .get(stream)
                .ok_or_else(|| PyValueError::new_err("no stream of that number"))?;
            let mut encoder = Encoder::new();
            let wrong = |error: record::Fault| PyValueError::new_err(error.to_string());
            match id.cast::<PyString>() {
                Ok(text) => encoder
                    .start(layout, time, IdRef::Text(text.to_str()?))
                    .map_err(wrong)?,
                Err(_) => encoder.start(layout, time, IdRef::Int(id.extract()?)).map_err(wrong)?,
            }
            for (slot, value) in values.iter().enumerate() {
                set(&mut encoder, layout, slot, &value)?;
            }
            encoder.limit(limits.0, limits.1).map_err(wrong)?;
            Ok(PyBytes::new(py, encoder.finish()))
        })
    }

    /// The events of frames of the log, as `LogFollower.next` gives them.
    fn decode<'py>(&self, py: Python<'py>, frames: &[u8]) -> PyResult<Bound<'py, PyList>> {
        guard(|| {
            let events = PyList::empty(py);
            // Frames from a socket may begin anywhere in memory, and records are read in place.
            let mut aligned: Vec<u64> = vec![0; frames.len().div_ceil(8)];
            let copy: &mut [u8] = bytemuck::cast_slice_mut(&mut aligned);
            copy[..frames.len()].copy_from_slice(frames);
            let mut rest = &copy[..frames.len()];
            while !rest.is_empty() {
                match frame::read(rest) {
                    Found::Whole(batch, length) => {
                        append_events(py, &events, &batch, &self.layouts)?;
                        rest = &rest[length..];
                    }
                    _ => return Err(PyValueError::new_err("what came is no frame of the log")),
                }
            }
            Ok(events)
        })
    }
}

fn set(encoder: &mut Encoder, layout: &Schema, slot: usize, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let wrong = |error: record::Fault| PyValueError::new_err(error.to_string());
    if value.is_none() {
        return Ok(());
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        encoder.set(layout, slot, &Val::Bool(truth.is_true())).map_err(wrong)
    } else if let Ok(float) = value.cast::<PyFloat>() {
        encoder.set(layout, slot, &Val::Float(float.value())).map_err(wrong)
    } else if let Ok(integer) = value.cast::<PyInt>() {
        encoder.set(layout, slot, &Val::Int(integer.extract()?)).map_err(wrong)
    } else if let Ok(text) = value.cast::<PyString>() {
        encoder
            .set(layout, slot, &Val::Str(text.to_str()?.into()))
            .map_err(wrong)
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        encoder.set(layout, slot, &Val::Bytes(bytes.as_bytes())).map_err(wrong)
    } else if let Ok(floats) = value.extract::<Vec<f64>>() {
        encoder.set(layout, slot, &Val::Floats(&floats)).map_err(wrong)
    } else {
        Err(PyTypeError::new_err(format!(
            "{} is no value of an attribute",
            value.get_type()
        )))
    }
}

fn value_to<'py>(py: Python<'py>, value: &Val<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Val::Null => py.None().into_bound(py),
        Val::Bool(x) => PyBool::new(py, *x).to_owned().into_any(),
        Val::Int(x) => x.into_pyobject(py)?.into_any(),
        Val::Float(x) => x.into_pyobject(py)?.into_any(),
        Val::Str(x) => PyString::new(py, x).into_any(),
        Val::Bytes(x) => PyBytes::new(py, x).into_any(),
        Val::Floats(x) => PyTuple::new(py, x.iter())?.into_any(),
    })
}

/// Appends (offset, flags, stream, id, time, values, arrival, end of validity, marks) of each record.
fn append_events<'py>(
    py: Python<'py>,
    events: &Bound<'py, PyList>,
    batch: &frame::Batch<'_>,
    layouts: &[Schema],
) -> PyResult<()> {
    for (offset, bytes) in batch.records() {
        let layout = layouts.get(usize::from(record::stream(bytes)));
        let layout = layout.ok_or_else(|| PyValueError::new_err("a record is of a stream that there is not"))?;
        let record = Record::read(bytes, layout).map_err(|fault| PyValueError::new_err(fault.to_string()))?;
        let id = match record.id() {
            IdRef::Int(id) => id.into_pyobject(py)?.into_any(),
            IdRef::Text(id) => PyString::new(py, id).into_any(),
        };
        let values: PyResult<Vec<_>> = (0..layout.kinds.len())
            .map(|slot| value_to(py, &record.get(slot)))
            .collect();
        let values = PyTuple::new(py, values?)?;
        events.append((
            offset,
            record.flags(),
            record.stream(),
            id,
            record.time(),
            values,
            batch.head.arrival,
            record::end(record.bytes()),
            record::marks(record.bytes()),
        ))?;
    }
    Ok(())
}

/// Reads a log of this machine from an offset on, while it is written.
#[pyclass(module = "cepheid._native")]
pub(crate) struct LogFollower {
    follower: Follower,
    layouts: Vec<Schema>,
    generation: u64,
}

#[pymethods]
impl LogFollower {
    /// From `offset` on; None: from the first that is kept, -1: from what comes next.
    #[new]
    #[pyo3(signature = (folder, offset=None, durable_only=false))]
    fn new(folder: PathBuf, offset: Option<i64>, durable_only: bool) -> PyResult<LogFollower> {
        guard(|| {
            let from = match offset {
                None => follower::From::First,
                Some(offset) => u64::try_from(offset).map_or(follower::From::End, follower::From::Offset),
            };
            let follower = Follower::open(&folder, from, durable_only).map_err(|error| fault(&error))?;
            Ok(LogFollower {
                follower,
                layouts: Vec::new(),
                generation: 0,
            })
        })
    }

    /// The events of the next batch; None if there is none yet.
    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        guard(|| {
            let LogFollower {
                follower,
                layouts,
                generation,
            } = self;
            if !follower.advance().map_err(|error| fault(&error))? {
                return Ok(None);
            }
            if *generation != follower.generation() {
                *layouts = schema::layouts(follower.streams()).map_err(PyValueError::new_err)?;
                *generation = follower.generation();
            }
            let events = PyList::empty(py);
            if let Some(batch) = follower.batch() {
                append_events(py, &events, &batch, layouts)?;
            }
            Ok(Some(events))
        })
    }

    /// Waits until there is more, at most so many seconds; whether there is.
    fn wait(&mut self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        guard(|| {
            let time =
                Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
            let follower = &mut self.follower;
            py.detach(|| follower.wait(time)).map_err(|error| fault(&error))
        })
    }

    /// The streams where it stands, as JSON.
    fn streams(&self) -> PyResult<String> {
        guard(|| {
            serde_json::to_string(self.follower.streams()).map_err(|error| PyValueError::new_err(error.to_string()))
        })
    }

    /// The offset of the next record.
    #[getter]
    fn offset(&self) -> u64 {
        self.follower.offset()
    }

    /// The offset after the last record that can be read now.
    #[getter]
    fn end(&self) -> u64 {
        self.follower.end()
    }
}

/// Reads JSON records as the intake does; for comparing its verdicts with those of Python.
#[pyclass(module = "cepheid._native")]
pub(crate) struct JsonDecoder {
    decoder: crate::intake::decode::Decoder,
    layouts: Vec<Schema>,
    ids: Vec<Ids>,
}

#[pymethods]
impl JsonDecoder {
    #[new]
    fn new(config: &str) -> PyResult<JsonDecoder> {
        guard(|| {
            let config = Config::parse(config).map_err(PyValueError::new_err)?;
            let ids = config
                .streams
                .iter()
                .map(|stream| Ids {
                    kind: stream.id,
                    ..Ids::default()
                })
                .collect();
            let decoder = config.decoder().map_err(PyValueError::new_err)?;
            let layouts = schema::layouts(&config.schemas()).map_err(PyValueError::new_err)?;
            Ok(JsonDecoder { decoder, layouts, ids })
        })
    }

    /// (stream, id, time, values) of a line; or (code, reason).
    fn decode<'py>(&mut self, py: Python<'py>, line: &[u8]) -> PyResult<Bound<'py, PyTuple>> {
        guard(|| {
            let mut encoder = Encoder::new();
            let stream = match self.decoder.decode(line, None, &mut self.ids, &mut encoder) {
                Ok(stream) => stream,
                Err(misfit) => return (misfit.code, misfit.reason).into_pyobject(py),
            };
            let layout = &self.layouts[usize::from(stream)];
            let record =
                Record::read(encoder.bytes(), layout).map_err(|fault| PyValueError::new_err(fault.to_string()))?;
            let id = match record.id() {
                IdRef::Int(id) => id.into_pyobject(py)?.into_any(),
                IdRef::Text(id) => PyString::new(py, id).into_any(),
            };
            let values: PyResult<Vec<_>> = (0..layout.kinds.len())
                .map(|slot| value_to(py, &record.get(slot)))
                .collect();
            (stream, id, record.time(), PyTuple::new(py, values?)?).into_pyobject(py)
        })
    }
}
