//! Matches as Python sees them: tuples of an id, a time, events, selected values, a window and a group.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList, PyString, PyTuple};

use crate::event::{Id, Name};
use crate::found::{Bound as BoundTo, Match};
use crate::found_columns::Names;
use crate::plan::{Plan, Role};
use crate::value::Value;

/// The names in the matches of a query.
pub struct Shown {
    streams: Vec<Py<PyString>>,
    /// None for a NOT variable, which is not shown.
    variables: Vec<Option<Py<PyString>>>,
    outputs: Vec<Py<PyString>>,
    groups: Vec<Py<PyString>>,
}

impl Shown {
    /// Of this query.
    pub fn new(py: Python<'_>, plan: &Plan, names: &Names) -> Self {
        let text = |name: &str| PyString::intern(py, name).unbind();
        let variable = |v: &crate::plan::Variable| (v.role != Role::Absent).then(|| text(&v.name));
        Shown {
            streams: plan.streams.iter().map(|s| text(&s.name)).collect(),
            variables: plan.variables.iter().map(variable).collect(),
            outputs: names.outputs.iter().map(|name| text(name)).collect(),
            groups: names.groups.iter().map(|name| text(name)).collect(),
        }
    }

    /// A match.
    pub fn tuple<'py>(&self, py: Python<'py>, found: &Match, id: &str) -> PyResult<Bound<'py, PyTuple>> {
        let events = PyDict::new(py);
        for (variable, bound) in found.events.iter().enumerate() {
            let Some(name) = &self.variables[variable] else {
                continue;
            };
            let name = name.bind(py);
            match bound {
                BoundTo::Unbound => events.set_item(name, py.None())?,
                BoundTo::One(event) => events.set_item(name, self.reference(py, event)?)?,
                BoundTo::Many(bound) => {
                    let list = PyList::empty(py);
                    for event in bound {
                        list.append(self.reference(py, event)?)?;
                    }
                    events.set_item(name, list)?;
                }
            }
        }
        let select = PyDict::new(py);
        for (name, value) in self.outputs.iter().zip(&found.select) {
            select.set_item(name.bind(py), value_to(py, value)?)?;
        }
        let (window, group) = match &found.row {
            None => (py.None().into_bound(py), py.None().into_bound(py)),
            Some(row) => {
                let group = PyDict::new(py);
                for (name, key) in self.groups.iter().zip(&row.group) {
                    group.set_item(name.bind(py), value_to(py, &key.0)?)?;
                }
                let window = (row.start, row.end).into_pyobject(py)?;
                (window.into_any(), group.into_any())
            }
        };
        (id, found.time, events, select, window, group).into_pyobject(py)
    }

    fn reference<'py>(&self, py: Python<'py>, event: &Name) -> PyResult<Bound<'py, PyTuple>> {
        let stream = self.streams[usize::from(event.stream)].bind(py);
        match &event.id {
            Id::Int(id) => (stream, id).into_pyobject(py),
            Id::Str(id) => (stream, id.as_str()).into_pyobject(py),
        }
    }
}

fn value_to<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(x) => PyBool::new(py, *x).to_owned().into_any(),
        Value::Int(x) => x.into_pyobject(py)?.into_any(),
        Value::Float(x) => x.into_pyobject(py)?.into_any(),
        Value::Str(x) => PyString::new(py, x).into_any(),
        Value::Bytes(x) => PyBytes::new(py, x).into_any(),
        Value::Floats(x) => PyTuple::new(py, x.iter())?.into_any(),
    })
}
