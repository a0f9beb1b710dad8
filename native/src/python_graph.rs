//! What graphs on the virtual clock and by threads have in common, for Python: events, functions, locks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;

use crate::json::Fault;
use crate::python_operator::PythonFunction;
use crate::python_record::{self, Builder};
use crate::record::{Record, Schema};
use crate::service::operators::{Given, Process, foreign};
use crate::service::spec::Spec;
use crate::service::store::{Event, Head};

/// consumer, id, time, attributes, end of validity, labels
pub(crate) type Delivered<'py> = (
    String,
    Bound<'py, PyAny>,
    i64,
    Bound<'py, PyDict>,
    Option<i64>,
    Vec<&'static str>,
);

/// What is wrong with what Python gave.
pub(crate) fn refused(fault: Fault) -> PyErr {
    PyValueError::new_err(fault.to_string())
}

/// The place of a stream in a spec.
pub(crate) fn stream_named(spec: &Spec, name: &str) -> PyResult<usize> {
    let found = spec.streams.iter().position(|stream| stream.name == name);
    found.ok_or_else(|| PyKeyError::new_err(format!("the service reads no stream '{name}'")))
}

/// An event for Python: of a consumer, from a ring whose records have those attributes and that schema.
pub(crate) fn delivered<'py>(
    py: Python<'py>,
    consumer: &str,
    (attributes, schema): (&[String], &Schema),
    event: &Event<'_>,
    head: &Head,
) -> PyResult<Delivered<'py>> {
    // SAFETY: as for the inputs of operators, what is in a ring fits its producer's schema.
    let record = unsafe { Record::trusted(event.bytes, schema) };
    Ok((
        consumer.to_owned(),
        python_record::id(py, &record)?,
        record.time(),
        python_record::attributes(py, &record, attributes)?,
        (head.end != i64::MAX).then_some(head.end),
        python_record::labels(head.marks),
    ))
}

/// The operators that the program gives: Python functions, and functions by their addresses.
pub(crate) fn given(
    spec: &Spec,
    functions: HashMap<String, Py<PyAny>>,
    addresses: HashMap<String, usize>,
) -> PyResult<Given> {
    let mut given = Given::new();
    for operator in &spec.operators {
        let process: Box<dyn Process> = if let Some(function) = functions.get(&operator.name) {
            let function = Python::attach(|py| function.clone_ref(py));
            Box::new(PythonFunction::new(function, operator, spec))
        } else if let Some(address) = addresses.get(&operator.name) {
            let pointer = *address as *const std::ffi::c_void;
            if pointer.is_null() {
                return Err(PyValueError::new_err(format!("'{}' is at address 0", operator.name)));
            }
            // SAFETY: whoever gives an address says that a function of this signature is there (docs/operators.md).
            let function: foreign::Function = unsafe { std::mem::transmute(pointer) };
            let attributes = operator.inputs.iter().map(|input| spec.attributes(*input).len());
            // SAFETY: the same.
            Box::new(unsafe { foreign::Foreign::new(function, attributes.collect(), operator.schema.kinds.to_vec()) })
        } else {
            continue;
        };
        given.insert(operator.name.clone(), process);
    }
    Ok(given)
}

/// Waits without the GIL, which the holder may need to go on: building records and operators can run Python code. A panic
/// under the lock leaves what is valid at every step, so that the next call may go on.
pub(crate) fn lock<'m, T>(py: Python<'_>, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
    mutex.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Each supplier's thread builds records in buffers of its own.
    static BUILDER: RefCell<Builder> = RefCell::default();
}

/// Runs `f` with this thread's builder, or with a fresh one where a mapping's own code pushes an event while it is read.
pub(crate) fn with_builder<T>(f: impl FnOnce(&mut Builder) -> T) -> T {
    BUILDER.with(|builder| match builder.try_borrow_mut() {
        Ok(mut builder) => f(&mut builder),
        Err(_) => f(&mut Builder::default()),
    })
}

/// A time to wait.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| PyValueError::new_err("a time to wait is not negative"))
}
