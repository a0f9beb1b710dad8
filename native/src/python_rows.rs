//! Events of Python as rows: attributes are looked up when they are read, and text is borrowed.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::event::{Id, Row};
use crate::value::{Val, Value};

/// The streams that are read, and the names of their attributes.
pub struct Streams {
    places: HashMap<String, u16>,
    attributes: Vec<Vec<Py<PyString>>>,
}

impl Streams {
    /// Of these names and attributes, in this order.
    pub fn new<'a>(py: Python<'_>, streams: impl Iterator<Item = (&'a str, &'a [String])>) -> Self {
        let mut places = HashMap::new();
        let mut attributes = Vec::new();
        for (name, names) in streams {
            places.insert(name.to_string(), attributes.len() as u16);
            let names = names.iter().map(|name| PyString::intern(py, name).unbind());
            attributes.push(names.collect());
        }
        Streams { places, attributes }
    }

    /// An event as a row; None if its stream is not read.
    pub fn record<'py, 's>(&'s self, event: &Bound<'py, PyAny>) -> PyResult<Option<Record<'py, 's>>> {
        let py = event.py();
        let stream = event.getattr(intern!(py, "stream"))?;
        let Some(&stream) = self.places.get(stream.cast::<PyString>()?.to_str()?) else {
            return Ok(None);
        };
        let id = event.getattr(intern!(py, "id"))?;
        let id = match id.cast::<PyString>() {
            Ok(text) => Id::Str(text.to_str()?.into()),
            Err(_) => Id::Int(id.extract()?),
        };
        let names = &self.attributes[usize::from(stream)];
        Ok(Some(Record {
            time: event.getattr(intern!(py, "time"))?.extract()?,
            stream,
            id,
            attributes: event.getattr(intern!(py, "attributes"))?,
            names,
            read: (0..names.len()).map(|_| OnceCell::new()).collect(),
            fault: OnceCell::new(),
        }))
    }
}

/// An event of Python as a row.
pub struct Record<'py, 'm> {
    time: i64,
    stream: u16,
    id: Id,
    attributes: Bound<'py, PyAny>,
    names: &'m [Py<PyString>],
    read: Vec<OnceCell<Read<'py>>>,
    /// The first thing that was wrong.
    fault: OnceCell<PyErr>,
}

/// What was read of a slot.
enum Read<'py> {
    Text(Bound<'py, PyString>),
    Other(Value),
}

impl<'py> Record<'py, '_> {
    /// What was wrong with what was read of it.
    pub fn fault(self) -> Option<PyErr> {
        self.fault.into_inner()
    }

    fn read(&self, slot: usize) -> PyResult<Read<'py>> {
        let py = self.attributes.py();
        let Some(name) = self.names.get(slot) else {
            return Ok(Read::Other(Value::Null));
        };
        let name = name.bind(py);
        let value = match self.attributes.cast::<PyDict>() {
            Ok(attributes) => attributes.get_item(name)?,
            Err(_) => Some(self.attributes.call_method1(intern!(py, "get"), (name,))?),
        };
        let Some(value) = value else {
            return Ok(Read::Other(Value::Null));
        };
        match value.cast_into::<PyString>() {
            Ok(text) => {
                // Checked here, so that later it can't fail: text with a lone surrogate has no UTF-8.
                text.to_str()?;
                Ok(Read::Text(text))
            }
            Err(other) => value_from(&other.into_inner()).map(Read::Other),
        }
    }
}

impl Row for Record<'_, '_> {
    fn time(&self) -> i64 {
        self.time
    }

    fn stream(&self) -> u16 {
        self.stream
    }

    fn id(&self) -> Val<'_> {
        self.id.view()
    }

    fn is_faulty(&self) -> bool {
        self.fault.get().is_some()
    }

    fn value(&self, slot: usize) -> Val<'_> {
        let Some(cell) = self.read.get(slot) else {
            return Val::Null;
        };
        let read = cell.get_or_init(|| {
            self.read(slot).unwrap_or_else(|fault| {
                let _ = self.fault.set(fault);
                Read::Other(Value::Null)
            })
        });
        match read {
            Read::Text(text) => text.to_str().map_or(Val::Null, |text| Val::Str(text.into())),
            Read::Other(value) => value.view(),
        }
    }
}

/// An attribute's value, but text; see src/cepheid/model/types.py for how each type is held.
fn value_from(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(float) = value.cast::<PyFloat>() {
        let float = float.value();
        if !float.is_finite() {
            return Err(PyValueError::new_err(format!("{float} is not a reading")));
        }
        Ok(Value::Float(float))
    } else if let Ok(truth) = value.cast::<PyBool>() {
        Ok(Value::Bool(truth.is_true()))
    } else if let Ok(integer) = value.cast::<PyInt>() {
        Ok(Value::Int(integer.extract()?))
    } else if value.is_none() {
        Ok(Value::Null)
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        Ok(Value::Bytes(Arc::new(bytes.as_bytes().into())))
    } else if let Ok(floats) = value.cast::<PyTuple>() {
        let floats: Vec<f64> = floats.extract()?;
        if floats.iter().any(|x| !x.is_finite()) {
            return Err(PyValueError::new_err("an array has a float that is not a reading"));
        }
        Ok(Value::Floats(Arc::new(floats.into())))
    } else {
        Err(PyTypeError::new_err(format!(
            "{} is no value of an attribute",
            value.get_type()
        )))
    }
}
