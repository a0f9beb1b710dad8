//! The matcher for Python: events in as objects, matches out as tuples. Its types are in src/cepheid/_native.pyi.

use std::collections::{HashMap, HashSet};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::columns::Refused;
use crate::digest::hex;
use crate::found_columns::{Names, batches};
use crate::found_order::order_bytes;
use crate::known::read_entries;
use crate::matcher::{Budget, Matcher, Overflow};
use crate::python::{BudgetExhausted, guard};
use crate::python_arrow::{MatchBatch, taken};
use crate::python_rows::Streams;
use crate::python_shown::Shown;
use crate::state::Chunk;

/// A matcher of one query.
#[pyclass(name = "Matcher", module = "cepheid._native")]
pub struct PyMatcher {
    matcher: Matcher,
    streams: Streams,
    names: Names,
    shown: Shown,
}

/// A matcher for a plan.
pub fn matcher(plan: &str, budget: Option<usize>, overflow: &str) -> PyResult<Matcher> {
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
    Matcher::new(plan, budget).map_err(|fault| PyValueError::new_err(fault.to_string()))
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
            let mut matcher = matcher(plan, budget, overflow)?;
            if eager {
                matcher.make_eager();
            }
            let plan = matcher.plan();
            let names = Names { outputs, groups };
            let streams = plan.streams.iter().map(|s| (s.name.as_ref(), s.attributes.as_slice()));
            Ok(PyMatcher {
                streams: Streams::new(py, streams),
                shown: Shown::new(py, plan, &names),
                names,
                matcher,
            })
        })
    }

    /// Takes events; those of other streams are passed over.
    fn push(&mut self, events: &Bound<'_, PyAny>) -> PyResult<()> {
        guard(|| {
            for event in events.try_iter()? {
                let Some(row) = self.streams.record(&event?)? else {
                    continue;
                };
                let pushed = self.matcher.push(&row);
                if let Some(fault) = row.fault() {
                    return Err(fault);
                }
                pushed.map_err(|full| BudgetExhausted::new_err(full.to_string()))?;
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
                list.append(self.shown.tuple(py, found, id)?)?;
            }
            Ok(list)
        })
    }

    /// As `advance`, each match with bytes that it can be sorted by among those of other matchers of the query.
    fn advance_ordered<'py>(&mut self, py: Python<'py>, watermark: Option<i64>) -> PyResult<Bound<'py, PyList>> {
        guard(|| {
            let list = PyList::empty(py);
            for found in py.detach(|| self.matcher.advance(watermark)) {
                let id = hex(&found.id(self.matcher.plan()));
                let shown = self.shown.tuple(py, &found, &id)?;
                list.append((PyBytes::new(py, &order_bytes(&found)), shown))?;
            }
            Ok(list)
        })
    }

    /// What is known of keys of a table from now on, as JSON: each a key and its rows, or null to forget it.
    fn learn(&mut self, table: usize, entries: &str) -> PyResult<()> {
        guard(|| {
            let entries = read_entries(entries).map_err(|fault| PyValueError::new_err(fault.to_string()))?;
            for (key, rows) in entries {
                self.matcher.learn(table, key, rows);
            }
            Ok(())
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
