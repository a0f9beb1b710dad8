//! JSON for Python programs that do without its own module, and the half a megabyte that comes with it.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::Number;

use crate::json::Json;
use crate::python::guard;

/// What a text says.
#[pyfunction]
pub fn read_json<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    guard(|| {
        let json = serde_json::from_slice(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
        shown(py, &json)
    })
}

/// The text of dictionaries, lists, tuples, text, numbers, truth values and None.
#[pyfunction]
pub fn write_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    guard(|| Ok(seen(value)?.to_string()))
}

fn shown<'py>(py: Python<'py>, json: &Json) -> PyResult<Bound<'py, PyAny>> {
    Ok(match json {
        Json::Null => py.None().into_bound(py),
        Json::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into_pyobject(py)?.into_any(),
            (_, Some(number)) => number.into_pyobject(py)?.into_any(),
            _ => PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any(),
        },
        Json::String(text) => PyString::new(py, text).into_any(),
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| shown(py, item)).collect::<PyResult<_>>()?;
            PyList::new(py, items)?.into_any()
        }
        Json::Object(members) => {
            let found = PyDict::new(py);
            for (name, member) in members {
                found.set_item(name, shown(py, member)?)?;
            }
            found.into_any()
        }
    })
}

fn seen(value: &Bound<'_, PyAny>) -> PyResult<Json> {
    if value.is_none() {
        return Ok(Json::Null);
    }
    // Before numbers: to Python, truth values are some.
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Json::Bool(value.is_true()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Json::String(text.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        let number = value.extract::<i64>().map(Number::from);
        return Ok(Json::Number(
            number.or_else(|_| value.extract::<u64>().map(Number::from))?,
        ));
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        let number = Number::from_f64(number.value());
        return Ok(number.map_or(Json::Null, Json::Number));
    }
    if let Ok(members) = value.cast::<PyDict>() {
        let member = |(name, member): (Bound<'_, PyAny>, Bound<'_, PyAny>)| Ok((name.extract()?, seen(&member)?));
        return Ok(Json::Object(members.iter().map(member).collect::<PyResult<_>>()?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items = value.try_iter()?.map(|item| seen(&item?));
        return Ok(Json::Array(items.collect::<PyResult<_>>()?));
    }
    Err(PyTypeError::new_err(format!("{} is not JSON", value.get_type())))
}
