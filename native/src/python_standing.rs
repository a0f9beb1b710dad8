//! Many queries together, for Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::digest::hex;
use crate::found_columns::{Names, batches};
use crate::python::guard;
use crate::python_arrow::{MatchBatch, taken};
use crate::python_matcher::matcher;
use crate::python_rows::Streams;
use crate::python_shown::Shown;
use crate::shared::{Given, firsts};
use crate::standing::Standing;

/// By plan, each with its limit of events, the first one whose pattern is equal: one that runs once for both.
#[pyfunction]
pub fn equal_patterns(queries: Vec<(String, Option<usize>)>) -> PyResult<Vec<usize>> {
    guard(|| {
        let given = queries.iter().map(|(plan, limit)| {
            let matcher = matcher(plan, *limit, "shed-oldest")?;
            Ok(Given {
                plan: Arc::clone(matcher.plan()),
                budget: matcher.budget,
                eager: matcher.eager,
            })
        });
        Ok(firsts(&given.collect::<PyResult<Vec<Given>>>()?))
    })
}

/// Queries that stand together: see native/src/standing.rs.
#[pyclass(name = "Standing", module = "cepheid._native")]
pub struct PyStanding {
    standing: Standing,
    streams: Streams,
    names: Vec<Names>,
    shown: Vec<Shown>,
}

#[pymethods]
impl PyStanding {
    /// For plans, each with the names of its outputs and group values.
    #[new]
    #[pyo3(signature = (queries, budget=None, overflow="fail"))]
    fn new(
        py: Python<'_>,
        queries: Vec<(String, Vec<String>, Vec<String>)>,
        budget: Option<usize>,
        overflow: &str,
    ) -> PyResult<Self> {
        guard(|| {
            let (mut matchers, mut names, mut shown) = (Vec::new(), Vec::new(), Vec::new());
            for (plan, outputs, groups) in queries {
                let matcher = matcher(&plan, budget, overflow)?;
                let own = Names { outputs, groups };
                shown.push(Shown::new(py, matcher.plan(), &own));
                names.push(own);
                matchers.push(matcher);
            }
            let standing = Standing::new(matchers);
            let streams = standing.streams().iter();
            let streams = Streams::new(py, streams.map(|s| (s.name.as_str(), s.attributes.as_slice())));
            Ok(PyStanding {
                standing,
                streams,
                names,
                shown,
            })
        })
    }

    /// Takes events; those of streams that no query reads are passed over.
    fn push(&mut self, events: &Bound<'_, PyAny>) -> PyResult<()> {
        guard(|| {
            for event in events.try_iter()? {
                let Some(row) = self.streams.record(&event?)? else {
                    continue;
                };
                self.standing.push(&row);
                if let Some(fault) = row.fault() {
                    return Err(fault);
                }
            }
            Ok(())
        })
    }

    /// Takes the rows of a batch: any object with `__arrow_c_array__`.
    #[pyo3(signature = (batch, stream=None))]
    fn push_batch(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>, stream: Option<&str>) -> PyResult<()> {
        guard(|| {
            let batch = taken(batch)?;
            let pushed = py.detach(|| self.standing.push_batch(&batch, stream));
            pushed.map_err(|unfit| pyo3::exceptions::PyValueError::new_err(unfit.0))
        })
    }

    /// The matches that this watermark completes: by query its number, and its matches in order.
    fn advance<'py>(&mut self, py: Python<'py>, watermark: Option<i64>) -> PyResult<Bound<'py, PyList>> {
        guard(|| {
            let standing = &mut self.standing;
            let found = py.detach(|| {
                let found = standing.advance(watermark);
                let with_ids = |(query, matches): (usize, Vec<crate::found::Match>)| {
                    let plan = standing.plan(query);
                    let ids: Vec<String> = matches.iter().map(|m| hex(&m.id(plan))).collect();
                    (query, matches, ids)
                };
                found.into_iter().map(with_ids).collect::<Vec<_>>()
            });
            let list = PyList::empty(py);
            for (query, matches, ids) in &found {
                let own = PyList::empty(py);
                for (found, id) in matches.iter().zip(ids) {
                    own.append(self.shown[*query].tuple(py, found, id)?)?;
                }
                list.append((*query, own))?;
            }
            Ok(list)
        })
    }

    /// The same as batches of columns.
    fn advance_batches(&mut self, py: Python<'_>, watermark: Option<i64>) -> PyResult<Vec<(usize, Vec<MatchBatch>)>> {
        guard(|| {
            let (standing, names) = (&mut self.standing, &self.names);
            let found = py.detach(|| {
                let found = standing.advance(watermark).into_iter();
                let built = found.map(|(query, matches)| {
                    let plan = standing.plan(query);
                    (query, batches(plan, &names[query], &matches))
                });
                built.collect::<Vec<_>>()
            });
            let of = |(query, built): (usize, Vec<_>)| (query, built.into_iter().map(MatchBatch::of).collect());
            Ok(found.into_iter().map(of).collect())
        })
    }

    /// The queries that failed because their budget was used up, and what to say of it.
    fn failed(&self) -> Vec<(usize, String)> {
        let failed = self.standing.failed();
        failed.map(|(query, full)| (query, full.to_string())).collect()
    }

    /// The patterns that run: the queries that read the matches of each, how many steps it has, and the place here of
    /// the one that does its first steps, if there is one.
    fn patterns(&self) -> Vec<(Vec<usize>, usize, Option<usize>, bool)> {
        self.standing.patterns()
    }

    /// How many different conditions are asked of events, and how often one was judged.
    fn judged(&self) -> (usize, u64) {
        let streams = self.standing.streams().iter().map(|stream| stream.judged());
        streams.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// How many events are in memory, over all queries.
    fn kept(&self) -> usize {
        self.standing.kept()
    }
}
