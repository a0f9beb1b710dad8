//! The matcher for Python: events in as objects, matches out as tuples. Its types are in src/cepheid/_native.pyi.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::columns::Refused;
use crate::digest::hex;
use crate::event::{Id, Name, Row};
use crate::found::{Bound as BoundTo, Match};
use crate::found_columns::{Names, batches};
use crate::matcher::{Budget, Matcher, Overflow};
use crate::plan::Role;
use crate::python::{BudgetExhausted, guard};
use crate::python_arrow::{MatchBatch, taken};
use crate::state::Chunk;
use crate::value::{Val, Value};

/// A matcher of one query.
#[pyclass(name = "Matcher", module = "cepheid._native")]
pub struct PyMatcher {
    matcher: Matcher,
    /// Places of streams by name.
    streams: HashMap<String, u16>,
    /// The names of streams, of their attributes, of variables, outputs and group values.
    stream_names: Vec<Py<PyString>>,
    attributes: Vec<Vec<Py<PyString>>>,
    variables: Vec<Py<PyString>>,
    outputs: Vec<Py<PyString>>,
    groups: Vec<Py<PyString>>,
    names: Names,
}

#[pymethods]
impl PyMatcher {
    /// For a plan (src/cepheid/plan/compile.py), with the names of its outputs and group values.
    #[new]
    #[pyo3(signature = (plan, outputs, groups, budget=None, overflow="fail", eager=false))]
    fn new(
        py: Python<'_>,
        plan: &str,
        outputs: Vec<String>,
        groups: Vec<String>,
        budget: Option<usize>,
        overflow: &str,
        eager: bool,
    ) -> PyResult<Self> {
        guard(|| {
            let overflow = match overflow {
                "refuse-newest" => Overflow::RefuseNewest,
                "shed-oldest" => Overflow::ShedOldest,
                "fail" => Overflow::Fail,
                other => {
                    return Err(PyValueError::new_err(format!(
                        "unknown policy '{other}' for a full budget"
                    )));
                }
            };
            let budget = budget.map(|events| Budget { events, overflow });
            let mut matcher = Matcher::new(plan, budget).map_err(|fault| PyValueError::new_err(fault.to_string()))?;
            if eager {
                matcher.make_eager();
            }
            let plan = matcher.plan();
            let text = |name: &str| PyString::intern(py, name).unbind();
            let places = plan.streams.iter().enumerate();
            Ok(PyMatcher {
                streams: places.map(|(place, s)| (s.name.to_string(), place as u16)).collect(),
                stream_names: plan.streams.iter().map(|s| text(&s.name)).collect(),
                attributes: plan
                    .streams
                    .iter()
                    .map(|s| s.attributes.iter().map(|a| text(a)).collect())
                    .collect(),
                variables: plan.variables.iter().map(|v| text(&v.name)).collect(),
                outputs: outputs.iter().map(|name| text(name)).collect(),
                groups: groups.iter().map(|name| text(name)).collect(),
                names: Names { outputs, groups },
                matcher,
            })
        })
    }

    /// Takes events; those of other streams are passed over.
    fn push(&mut self, py: Python<'_>, events: &Bound<'_, PyAny>) -> PyResult<()> {
        guard(|| {
            for event in events.try_iter()? {
                self.push_one(py, &event?)?;
            }
            Ok(())
        })
    }

    /// The matches that this watermark completes, in order; None: the input is complete.
    fn advance<'py>(&mut self, py: Python<'py>, watermark: Option<i64>) -> PyResult<Bound<'py, PyList>> {
        guard(|| {
            let found = py.detach(|| {
                let found = self.matcher.advance(watermark);
                let ids: Vec<String> = found.iter().map(|m| hex(&m.id(self.matcher.plan()))).collect();
                (found, ids)
            });
            let list = PyList::empty(py);
            for (found, id) in found.0.iter().zip(&found.1) {
                list.append(self.tuple(py, found, id)?)?;
            }
            Ok(list)
        })
    }

    /// Takes the rows of a batch: any object with `__arrow_c_array__`.
    #[pyo3(signature = (batch, stream=None))]
    fn push_batch(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>, stream: Option<&str>) -> PyResult<()> {
        guard(|| {
            let batch = taken(batch)?;
            match py.detach(|| self.matcher.push_batch(&batch, stream)) {
                Ok(()) => Ok(()),
                Err(Refused::Exhausted(full)) => Err(BudgetExhausted::new_err(full.to_string())),
                Err(Refused::Unfit(unfit)) => Err(PyValueError::new_err(unfit.0)),
            }
        })
    }

    /// The matches that this watermark completes, in order, as batches of columns.
    fn advance_batches(&mut self, py: Python<'_>, watermark: Option<i64>) -> PyResult<Vec<MatchBatch>> {
        guard(|| {
            let batches = py.detach(|| {
                let found = self.matcher.advance(watermark);
                batches(self.matcher.plan(), &self.names, &found)
            });
            Ok(batches.into_iter().map(MatchBatch::of).collect())
        })
    }

    /// The state: its head, the names of all its chunks, and the bytes of those not known.
    fn save<'py>(&mut self, py: Python<'py>, known: HashSet<String>) -> PyResult<Bound<'py, PyTuple>> {
        guard(|| {
            let known: HashSet<Chunk> = known.iter().filter_map(|name| Chunk::named(name)).collect();
            let saved = self.matcher.save(|chunk| known.contains(chunk));
            let names = PyTuple::new(py, saved.chunks.iter().map(Chunk::name))?;
            let changed = PyDict::new(py);
            for (chunk, bytes) in &saved.changed {
                changed.set_item(chunk.name(), PyBytes::new(py, bytes))?;
            }
            (PyBytes::new(py, &saved.head), names, changed).into_pyobject(py)
        })
    }

    /// Takes over a state that `save` gave.
    fn restore(&mut self, head: &[u8], chunks: HashMap<String, Bound<'_, PyBytes>>) -> PyResult<()> {
        guard(|| {
            let chunk = |chunk: Chunk| chunks.get(&chunk.name()).map(|bytes| bytes.as_bytes());
            let restored = self.matcher.restore(head, chunk);
            restored.map_err(|fault| PyValueError::new_err(fault.to_string()))
        })
    }

    /// What happened so far, and what is held now.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        guard(|| {
            let counted = self.matcher.counters();
            let (partitions, runs, pending) = self.matcher.sizes();
            let dict = PyDict::new(py);
            dict.set_item("events", counted.events)?;
            dict.set_item("qualified", counted.qualified)?;
            dict.set_item("late", counted.late)?;
            dict.set_item("refused", counted.refused)?;
            dict.set_item("shed", counted.shed)?;
            dict.set_item("matches", counted.matches)?;
            dict.set_item("held", self.matcher.held())?;
            dict.set_item("kept", self.matcher.kept())?;
            dict.set_item("partitions", partitions)?;
            dict.set_item("runs", runs)?;
            dict.set_item("pending", pending)?;
            Ok(dict)
        })
    }
}

impl PyMatcher {
    fn push_one(&mut self, py: Python<'_>, event: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = event.getattr(intern!(py, "stream"))?;
        let Some(&stream) = self.streams.get(stream.cast::<PyString>()?.to_str()?) else {
            return Ok(());
        };
        let time: i64 = event.getattr(intern!(py, "time"))?.extract()?;
        let id = event.getattr(intern!(py, "id"))?;
        let id = match id.cast::<PyString>() {
            Ok(text) => Id::Str(text.to_str()?.into()),
            Err(_) => Id::Int(id.extract()?),
        };
        let names = &self.attributes[usize::from(stream)];
        let row = Record {
            time,
            stream,
            id,
            attributes: event.getattr(intern!(py, "attributes"))?,
            names,
            read: (0..names.len()).map(|_| OnceCell::new()).collect(),
            fault: OnceCell::new(),
        };
        let pushed = self.matcher.push(&row);
        if let Some(fault) = row.fault.into_inner() {
            return Err(fault);
        }
        pushed.map_err(|full| BudgetExhausted::new_err(full.to_string()))
    }

    fn tuple<'py>(&self, py: Python<'py>, found: &Match, id: &str) -> PyResult<Bound<'py, PyTuple>> {
        let events = PyDict::new(py);
        for (variable, bound) in found.events.iter().enumerate() {
            let plan = &self.matcher.plan().variables[variable];
            let name = self.variables[variable].bind(py);
            match bound {
                BoundTo::Unbound if plan.role == Role::Absent => {}
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
        let stream = self.stream_names[usize::from(event.stream)].bind(py);
        match &event.id {
            Id::Int(id) => (stream, id).into_pyobject(py),
            Id::Str(id) => (stream, id.as_str()).into_pyobject(py),
        }
    }
}

/// An event of Python as a row: attributes are looked up when they are read, text is borrowed from Python.
struct Record<'py, 'm> {
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
