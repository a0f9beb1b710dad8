//! The service for Python. Its types are in src/cepheid/_native.pyi.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use crate::json::Fault;
use crate::python::guard;
use crate::python_record::{self, Builder};
use crate::record::Record;
use crate::service::books::Fate;
use crate::service::operators::Given;
use crate::service::spec::Spec;
use crate::service::store::{Event, Head};
use crate::service::virtual_clock::VirtualClock;

/// consumer, id, time, attributes, end of validity, labels
type Delivered<'py> = (
    String,
    Bound<'py, PyAny>,
    i64,
    Bound<'py, PyDict>,
    Option<i64>,
    Vec<&'static str>,
);

fn refused(fault: Fault) -> PyErr {
    PyValueError::new_err(fault.to_string())
}

fn stream_named(spec: &Spec, name: &str) -> PyResult<usize> {
    let found = spec.streams.iter().position(|stream| stream.name == name);
    found.ok_or_else(|| PyKeyError::new_err(format!("the service reads no stream '{name}'")))
}

fn labels(marks: u8) -> Vec<&'static str> {
    let all = ["stale", "relative"].into_iter().enumerate();
    all.filter(|(bit, _)| marks >> bit & 1 == 1)
        .map(|(_, name)| name)
        .collect()
}

fn delivered<'py>(
    py: Python<'py>,
    spec: &Spec,
    consumer: usize,
    event: &Event<'_>,
    head: &Head,
) -> PyResult<Delivered<'py>> {
    let consumer = &spec.consumers[consumer];
    // SAFETY: as for the inputs of operators, what is in a ring fits its producer's schema.
    let record = unsafe { Record::trusted(event.bytes, spec.schema(consumer.input)) };
    Ok((
        consumer.name.clone(),
        python_record::id(py, &record)?,
        record.time(),
        python_record::attributes(py, &record, spec.attributes(consumer.input))?,
        (head.end != i64::MAX).then_some(head.end),
        labels(head.marks),
    ))
}

/// A graph on the virtual clock.
#[pyclass(name = "VirtualClock", module = "cepheid._native")]
pub struct PyVirtualClock(Mutex<(VirtualClock, Builder)>);

/// A panic under the lock leaves what is valid at every step, so that the next call may go on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl PyVirtualClock {
    /// For a spec of src/cepheid/service/lowering.py.
    #[new]
    fn new(spec: &str) -> PyResult<Self> {
        guard(|| {
            let clock = VirtualClock::new(Spec::read(spec).map_err(refused)?, Given::new()).map_err(refused)?;
            Ok(PyVirtualClock(Mutex::new((clock, Builder::default()))))
        })
    }

    /// A supplier's event arrives; it is not taken before `run`. False if it was refused.
    fn push(
        &self,
        stream: &str,
        id: &Bound<'_, PyAny>,
        time: i64,
        attributes: &Bound<'_, PyMapping>,
    ) -> PyResult<bool> {
        guard(|| {
            let (clock, builder) = &mut *lock(&self.0);
            let number = stream_named(clock.spec(), stream)?;
            let spec = &clock.spec().streams[number];
            let names = spec.attributes.clone();
            let bytes = builder.build(&spec.schema, &names, id, time, attributes)?;
            let pushed = clock.push(number, bytes);
            pushed.map_err(|fault| python_record::error(fault, &names))
        })
    }

    /// The clock says `now`, and everything that can run does: what consumers receive.
    fn run<'py>(&self, py: Python<'py>, now: i64) -> PyResult<Vec<Delivered<'py>>> {
        guard(|| {
            let (clock, _) = &mut *lock(&self.0);
            let mut found = Vec::new();
            for delivery in clock.run(now) {
                let event = clock.store().read(&delivery.token);
                let seen = delivered(py, clock.spec(), delivery.consumer, &event, &delivery.head);
                clock.store().release(delivery.token, Fate::Used);
                found.push(seen?);
            }
            Ok(found)
        })
    }

    /// The books, as JSON.
    fn stats(&self) -> PyResult<String> {
        guard(|| Ok(lock(&self.0).0.report()))
    }
}
