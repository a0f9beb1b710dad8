//! Records for Python: attributes in as objects, records out as dictionaries.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

use crate::record::{Encoder, Fault, IdRef, Kind, Record, Schema};
use crate::value::Val;

/// Builds records of Python objects, in buffers that it keeps.
#[derive(Default)]
pub struct Builder {
    encoder: Encoder,
    floats: Vec<f64>,
}

/// A fault as an exception that names the attribute.
pub fn error(fault: Fault, names: &[String]) -> PyErr {
    let slot = match fault {
        Fault::Range(slot) | Fault::Utf8(slot) => slot,
        Fault::Value(slot) | Fault::NotFinite(slot) | Fault::Timestamp(slot) => Some(slot),
        _ => None,
    };
    let text = fault.to_string();
    match slot.and_then(|slot| Some((slot, names.get(slot)?))) {
        Some((slot, name)) => PyValueError::new_err(text.replace(&format!("attribute {slot}"), &format!("'{name}'"))),
        None => PyValueError::new_err(text),
    }
}

impl Builder {
    /// The record of an event. An attribute that is not there is null; one that the schema lacks is an error.
    pub fn build(
        &mut self,
        schema: &Schema,
        names: &[String],
        id: &Bound<'_, PyAny>,
        time: i64,
        attributes: &Bound<'_, PyMapping>,
    ) -> PyResult<&[u8]> {
        let fail = |fault| error(fault, names);
        self.encoder.clear();
        if let Ok(text) = id.cast::<PyString>() {
            let id = IdRef::Text(&text.to_cow()?);
            self.encoder.start(schema, time, id).map_err(fail)?;
        } else {
            let id = IdRef::Int(id.extract()?);
            self.encoder.start(schema, time, id).map_err(fail)?;
        }
        let mut found = 0;
        for (slot, name) in names.iter().enumerate() {
            let Ok(value) = attributes.get_item(name) else { continue };
            found += 1;
            set(&mut self.encoder, &mut self.floats, schema, slot, &value)
                .map_err(|fault| fault.map_or_else(|e| e, fail))?;
        }
        if found < attributes.len()? {
            let mut given = attributes.keys()?.iter().map(|key| key.to_string());
            let stranger = given.find(|key| !names.contains(key)).unwrap_or_default();
            return Err(PyValueError::new_err(format!(
                "unknown attribute '{stranger}'; there are {}",
                names.join(", ")
            )));
        }
        Ok(self.encoder.finish())
    }
}

/// Gives an attribute of the record that is being built its value; the error is a fault of the record or of the object.
pub fn set(
    encoder: &mut Encoder,
    floats: &mut Vec<f64>,
    schema: &Schema,
    slot: usize,
    value: &Bound<'_, PyAny>,
) -> Result<(), Result<Fault, PyErr>> {
    let kind = schema.kinds[slot];
    let done = if value.is_none() {
        Ok(())
    } else if let Ok(flag) = value.cast::<PyBool>() {
        encoder.set(schema, slot, &Val::Bool(flag.is_true()))
    } else if value.is_instance_of::<PyInt>() {
        let number = value.extract().map_err(Err)?;
        encoder.set(schema, slot, &Val::Int(number))
    } else if value.is_instance_of::<PyFloat>() {
        let number = value.extract().map_err(Err)?;
        encoder.set(schema, slot, &Val::Float(number))
    } else if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_cow().map_err(Err)?;
        encoder.set(schema, slot, &Val::Str(text))
    } else if let Ok(bytes) = value.cast::<PyBytes>() {
        encoder.set(schema, slot, &Val::Bytes(bytes.as_bytes()))
    } else if let (Kind::Bytes | Kind::Uint8Array, Ok(buffer)) = (kind, PyBuffer::<u8>::get(value)) {
        let bytes = buffer.to_vec(value.py()).map_err(Err)?;
        encoder.set(schema, slot, &Val::Bytes(&bytes))
    } else if let (Kind::FloatArray, Ok(buffer)) = (kind, PyBuffer::<f64>::get(value)) {
        floats.resize(buffer.item_count(), 0.0);
        buffer.copy_to_slice(value.py(), floats).map_err(Err)?;
        encoder.set(schema, slot, &Val::Floats(floats))
    } else if kind == Kind::FloatArray {
        floats.clear();
        for item in value.try_iter().map_err(Err)? {
            let number = item.and_then(|item| item.extract()).map_err(Err)?;
            floats.push(number);
        }
        encoder.set(schema, slot, &Val::Floats(floats))
    } else if kind == Kind::Uint8Array && (value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()) {
        let bytes: Vec<u8> = value.extract().map_err(Err)?;
        encoder.set(schema, slot, &Val::Bytes(&bytes))
    } else {
        return Err(Err(PyTypeError::new_err(format!(
            "{value} is no value of an attribute"
        ))));
    };
    done.map_err(Ok)
}

/// The names of an event's labels.
pub fn labels(marks: u8) -> Vec<&'static str> {
    let all = ["stale", "relative", "recovered"].into_iter().enumerate();
    all.filter(|(bit, _)| marks >> bit & 1 == 1)
        .map(|(_, name)| name)
        .collect()
}

/// A record's id.
pub fn id<'py>(py: Python<'py>, record: &Record<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match record.id() {
        IdRef::Int(id) => id.into_pyobject(py)?.into_any(),
        IdRef::Text(id) => PyString::new(py, id).into_any(),
    })
}

/// A record's attributes by name.
pub fn attributes<'py>(py: Python<'py>, record: &Record<'_>, names: &[String]) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    for (slot, name) in names.iter().enumerate() {
        match record.get(slot) {
            Val::Null => found.set_item(name, py.None())?,
            Val::Bool(x) => found.set_item(name, x)?,
            Val::Int(x) => found.set_item(name, x)?,
            Val::Float(x) => found.set_item(name, x)?,
            Val::Str(x) => found.set_item(name, x.as_ref())?,
            Val::Bytes(x) => found.set_item(name, PyBytes::new(py, x))?,
            Val::Floats(x) => found.set_item(name, PyTuple::new(py, x)?)?,
        }
    }
    Ok(found)
}
