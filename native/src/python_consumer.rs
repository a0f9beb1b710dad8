//! Consumers of an engine, in its process, for Python. Their types are in src/cepheid/_native.pyi.

use std::sync::Arc;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;

use crate::python::guard;
use crate::python_graph::{Delivered, delivered, seconds};
use crate::service::books::Fate;
use crate::service::engine::Shared;
use crate::service::parts::Consumer;
use crate::service::store::Head;

/// The next event of a consumer, waited for at most so many seconds.
pub(crate) fn read<'py>(
    py: Python<'py>,
    shared: &Shared,
    consumer: &Consumer,
    timeout: Option<f64>,
) -> PyResult<Option<Delivered<'py>>> {
    let timeout = timeout.map(seconds).transpose()?;
    let Some((token, marks)) = py.detach(|| shared.read(consumer, timeout)) else {
        return Ok(None);
    };
    let graph = shared.graph();
    let event = shared.store.read(&token);
    let head = Head { marks, ..*event.head };
    // What is held has its producer in the graph, be it on the way out.
    let records = graph.records(token.ring());
    let records = records.ok_or_else(|| PyKeyError::new_err("the event's producer is gone"));
    let seen = records.and_then(|records| delivered(py, &consumer.spec.name, records, &event, &head));
    shared.store.release(token, Fate::Used);
    seen.map(Some)
}

/// The reading end of a consumer; it stays when the consumer is removed, until what waits is read.
#[pyclass(name = "Consumer", module = "cepheid._native")]
pub struct PyConsumer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) consumer: Arc<Consumer>,
}

#[pymethods]
impl PyConsumer {
    /// The next event, waited for at most so many seconds (None: until the engine stops or the consumer is removed).
    #[pyo3(signature = (timeout=None))]
    fn read<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Delivered<'py>>> {
        guard(|| read(py, &self.shared, &self.consumer, timeout))
    }

    /// Whether nothing more will come.
    fn is_over(&self) -> bool {
        let closed = self.consumer.closed.get().is_some() || self.shared.is_stopping();
        closed && self.consumer.queue.is_empty()
    }
}
