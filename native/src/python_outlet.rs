//! The consumers' socket for Python. Its types are in src/cepheid/_native.pyi.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use serde_json::json;

use crate::python::guard;
use crate::python_service::{PyEngine, level_policies};
use crate::service::derived::TO_LOG;
use crate::service::feed::{AcknowledgedFeed, ConsumerFeed, MatchFeed};
use crate::service::outlet::{Answer, Directory, Outlet};
use crate::service::spec::ConsumerSpec;

/// Serves the consumers of an engine at an address, until it is closed.
#[pyclass(name = "Outlet", module = "cepheid._native")]
pub struct PyOutlet {
    address: String,
    outlet: Mutex<Option<Outlet>>,
}

/// What the program's function makes of a first line; the text of its exception as an error.
fn answer(function: Py<PyAny>) -> Answer {
    Box::new(move |hello: &str| {
        Python::attach(|py| {
            let answered = function
                .bind(py)
                .call1((hello,))
                .and_then(|line| line.extract::<String>());
            answered.unwrap_or_else(|error| json!({ "error": error.value(py).to_string() }).to_string())
        })
    })
}

/// Finds consumers and queries, for who delivers.
fn directory(engine: &PyEngine) -> Directory {
    let shared = engine.engine.share();
    let queries = Arc::clone(&engine.queries);
    Box::new(move |name, acks| {
        let graph = shared.graph();
        let consumers = &graph.spec.consumers;
        let is_open = |consumer: &&ConsumerSpec| !consumer.name.starts_with(TO_LOG);
        if !name.starts_with(TO_LOG)
            && let Some(place) = consumers.iter().position(|consumer| consumer.name == name)
        {
            if acks {
                return Err(format!(
                    "'{name}' reads the graph, which makes nothing again; only the matches of queries are acknowledged"
                ));
            }
            let spec = &graph.spec;
            let input = consumers[place].input;
            let kinds = spec.schema(input).kinds.iter().map(|kind| kind.name());
            return Ok(Arc::new(ConsumerFeed {
                shared: Arc::clone(&shared),
                consumer: Arc::clone(&graph.parts.consumers[place]),
                attributes: spec.attributes(input).iter().cloned().zip(kinds).collect(),
                policy: level_policies(spec)[consumers[place].level],
            }));
        }
        let queries = queries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(query) = queries.get(name) {
            let feed = MatchFeed {
                shared: Arc::clone(&shared),
                matches: Arc::clone(&query.matches),
                number: query.number,
                plan: Arc::clone(&query.plan),
                names: Arc::clone(&query.names),
                policy: query.policy,
            };
            return Ok(if acks {
                Arc::new(AcknowledgedFeed(feed))
            } else {
                Arc::new(feed)
            });
        }
        let mut known: Vec<&str> = queries.keys().map(String::as_str).collect();
        known.sort_unstable();
        let known: Vec<&str> = consumers
            .iter()
            .filter(is_open)
            .map(|c| c.name.as_str())
            .chain(known)
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        Err(format!("there is no consumer '{name}'; there are: {known}"))
    })
}

#[pymethods]
impl PyOutlet {
    /// `answer` is given first lines that name no consumer, and gives the line that is the answer.
    #[new]
    #[pyo3(signature = (engine, address, token, answer_with))]
    fn new(
        py: Python<'_>,
        engine: &PyEngine,
        address: &str,
        token: Option<String>,
        answer_with: Py<PyAny>,
    ) -> PyResult<Self> {
        guard(|| {
            let directory = directory(engine);
            let opened = py.detach(|| Outlet::open(address, token, directory, answer(answer_with)));
            let outlet = opened.map_err(PyOSError::new_err)?;
            Ok(PyOutlet {
                address: outlet.address().to_owned(),
                outlet: Mutex::new(Some(outlet)),
            })
        })
    }

    /// Where it listens; a port that was chosen is in it.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// By consumer, its clients, and how many events they were sent and lost; as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| {
            let outlet = self.outlet.lock_py_attached(py);
            let outlet = outlet.unwrap_or_else(PoisonError::into_inner);
            Ok(outlet
                .as_ref()
                .map_or_else(|| "{}".to_owned(), |outlet| outlet.report().to_string()))
        })
    }

    /// Ends all connections; the address is free again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        guard(|| {
            let outlet = self.outlet.lock_py_attached(py);
            let outlet = outlet.unwrap_or_else(PoisonError::into_inner).take();
            py.detach(|| drop(outlet));
            Ok(())
        })
    }
}

impl Drop for PyOutlet {
    /// Its threads may be waiting for the GIL.
    fn drop(&mut self) {
        let outlet = self.outlet.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        Python::attach(|py| py.detach(|| drop(outlet)));
    }
}
