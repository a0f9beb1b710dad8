//! The virtual clock for Python. Its types are in src/cepheid/_native.pyi.

use std::collections::HashMap;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyMapping;

use crate::python::guard;
use crate::python_graph::{Delivered, delivered, given, lock, refused, stream_named, with_builder};
use crate::python_record;
use crate::service::books::Fate;
use crate::service::spec::Spec;
use crate::service::virtual_clock::VirtualClock;

/// A graph on the virtual clock.
#[pyclass(name = "VirtualClock", module = "cepheid._native")]
pub struct PyVirtualClock(Mutex<VirtualClock>);

#[pymethods]
impl PyVirtualClock {
    /// For a spec of src/cepheid/service/lowering.py.
    #[new]
    #[pyo3(signature = (spec, functions=None, addresses=None))]
    fn new(
        spec: &str,
        functions: Option<HashMap<String, Py<PyAny>>>,
        addresses: Option<HashMap<String, usize>>,
    ) -> PyResult<Self> {
        guard(|| {
            let spec = Spec::read(spec).map_err(refused)?;
            let given = given(&spec, functions.unwrap_or_default(), addresses.unwrap_or_default())?;
            let clock = VirtualClock::new(spec, given).map_err(refused)?;
            Ok(PyVirtualClock(Mutex::new(clock)))
        })
    }

    /// A supplier's event arrives; it is not taken before `run`. False if it was refused.
    fn push(
        &self,
        py: Python<'_>,
        stream: &str,
        id: &Bound<'_, PyAny>,
        time: i64,
        attributes: &Bound<'_, PyMapping>,
    ) -> PyResult<bool> {
        guard(|| {
            let clock = &mut *lock(py, &self.0);
            let number = stream_named(clock.spec(), stream)?;
            with_builder(|builder| {
                let spec = &clock.spec().streams[number];
                let names = spec.attributes.clone();
                let bytes = builder.build(&spec.schema, &names, id, time, attributes)?;
                let pushed = clock.push(number, bytes);
                pushed.map_err(|fault| python_record::error(fault, &names))
            })
        })
    }

    /// The clock says `now`, and everything that can run does: what consumers receive.
    fn run<'py>(&self, py: Python<'py>, now: i64) -> PyResult<Vec<Delivered<'py>>> {
        guard(|| {
            let clock = &mut *lock(py, &self.0);
            let mut found = Vec::new();
            for delivery in clock.run(now) {
                let event = clock.store().read(&delivery.token);
                let (spec, consumer) = (clock.spec(), &clock.spec().consumers[delivery.consumer]);
                let records = (spec.attributes(consumer.input), spec.schema(consumer.input));
                let seen = delivered(py, &consumer.name, records, &event, &delivery.head);
                clock.store().release(delivery.token, Fate::Used);
                found.push(seen);
            }
            found.into_iter().collect()
        })
    }

    /// The books, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| Ok(lock(py, &self.0).report()))
    }

    /// What waits and what operators remember, as text.
    fn save(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| lock(py, &self.0).save().map_err(refused))
    }

    /// Goes on with what `save` gave.
    fn restore(&self, py: Python<'_>, saved: &str) -> PyResult<()> {
        guard(|| lock(py, &self.0).restore(saved).map_err(refused))
    }
}
