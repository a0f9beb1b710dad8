//! What experiments need, for Python: load processes (`bench/cpep/load.py` runs one of these and nothing else), and what queues cost.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::de::DeserializeOwned;

use crate::load::{consumers, suppliers};
use crate::python::guard;
use crate::service::queue_costs::{Cost, measure};

fn task<T: DeserializeOwned>(text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn text(done: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(done).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn asked(ready: &Py<PyAny>) -> Result<u64, String> {
    let start = Python::attach(|py| ready.call0(py)?.extract(py));
    start.map_err(|error: PyErr| error.to_string())
}

/// Suppliers of a task in JSON (native/src/load/suppliers.rs): what they did, as JSON. `ready` is called when
/// they are connected, and says when they start.
#[pyfunction]
pub fn run_suppliers(py: Python<'_>, given: &str, ready: Py<PyAny>) -> PyResult<String> {
    guard(|| {
        let task = task(given)?;
        let done = py.detach(|| suppliers::run(task, || asked(&ready)));
        text(&done.map_err(PyOSError::new_err)?)
    })
}

/// Consumers of a task in JSON (native/src/load/consumers.rs): what they did, as JSON, and the samples, 16 bytes each.
#[pyfunction]
pub fn run_consumers<'py>(py: Python<'py>, given: &str, ready: Py<PyAny>) -> PyResult<(String, Bound<'py, PyBytes>)> {
    guard(|| {
        let task = task(given)?;
        let found = py.detach(|| consumers::run(&task, || asked(&ready)));
        let (done, samples) = found.map_err(PyOSError::new_err)?;
        Ok((text(&done)?, PyBytes::new(py, bytemuck::cast_slice(&samples))))
    })
}

/// A queue's name and four costs.
type Costs = (&'static str, f64, f64, f64, f64);

/// Nanoseconds of the queues' operations: name, enqueue and dequeue uncontended, then with two threads at each end.
#[pyfunction]
pub fn queue_costs(py: Python<'_>, operations: usize) -> PyResult<Vec<Costs>> {
    guard(|| {
        let found = py.detach(|| measure(operations));
        let row =
            |(name, one, two): (&'static str, Cost, Cost)| (name, one.enqueue, one.dequeue, two.enqueue, two.dequeue);
        Ok(found.into_iter().map(row).collect())
    })
}
