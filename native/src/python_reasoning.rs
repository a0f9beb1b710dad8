//! The reasoner, for Python: N-Triples in, N-Triples out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::python::guard;
use crate::reasoning::engine::{Engine, Stopped};
use crate::reasoning::rules::OWL_RL;
use crate::reasoning::terms::NotATriple;

/// Rules to a fixpoint: see native/src/reasoning/engine.rs.
#[pyclass(name = "Reasoner", module = "cepheid._native")]
pub struct PyReasoner {
    engine: Engine,
}

fn no_triple(NotATriple(line): NotATriple) -> PyErr {
    PyValueError::new_err(format!("not a triple: {line}"))
}

fn stopped(reason: Stopped) -> PyErr {
    PyValueError::new_err(match reason {
        Stopped::TooMany => "too many conclusions",
        Stopped::ListsWithoutEnd => "axioms that are lists keep making new lists",
    })
}

#[pymethods]
impl PyReasoner {
    /// With the rules of OWL RL or without them, and own rules, a line each.
    #[new]
    fn new(owl: bool, own: &str, limit: usize) -> PyResult<Self> {
        guard(|| {
            let engine = Engine::new(owl, own, limit)
                .map_err(|fault| PyValueError::new_err(format!("not a rule: {}", fault.0)))?;
            Ok(PyReasoner { engine })
        })
    }

    /// Starts from base triples and draws all conclusions.
    fn load(&mut self, py: Python<'_>, base: &str) -> PyResult<()> {
        py.detach(|| {
            guard(|| {
                let triples = self.engine.terms_mut().parse(base).map_err(no_triple)?;
                self.engine.load(triples).map_err(stopped)
            })
        })
    }

    /// Starts from base triples and conclusions that were drawn before.
    fn restore(&mut self, py: Python<'_>, base: &str, facts: &str) -> PyResult<()> {
        py.detach(|| {
            guard(|| {
                let base = self.engine.terms_mut().parse(base).map_err(no_triple)?;
                let facts = self.engine.terms_mut().parse(facts).map_err(no_triple)?;
                self.engine.restore(base, facts);
                Ok(())
            })
        })
    }

    /// Adds and removes base triples: what became true and what ceased to be, or None if all has to be loaded anew.
    fn apply(&mut self, py: Python<'_>, added: &str, removed: &str) -> PyResult<Option<(String, String)>> {
        py.detach(|| {
            guard(|| {
                let added = self.engine.terms_mut().parse(added).map_err(no_triple)?;
                let removed = self.engine.terms_mut().parse(removed).map_err(no_triple)?;
                let delta = self.engine.apply(&added, &removed).map_err(stopped)?;
                let terms = self.engine.terms();
                Ok(delta.map(|delta| (terms.print(&delta.added), terms.print(&delta.removed))))
            })
        })
    }

    /// All facts.
    fn facts(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| guard(|| Ok(self.engine.terms().print(self.engine.facts().iter()))))
    }

    /// Those of these triples that are in the base.
    fn in_base(&mut self, py: Python<'_>, triples: &str) -> PyResult<String> {
        py.detach(|| {
            guard(|| {
                let triples = self.engine.terms_mut().parse(triples).map_err(no_triple)?;
                let known = triples.iter().filter(|&&triple| self.engine.is_base(triple));
                Ok(self.engine.terms().print(known))
            })
        })
    }

    /// The base triples.
    fn base(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| guard(|| Ok(self.engine.terms().print(self.engine.base()))))
    }

    /// The rules of OWL RL as they are here: what was concluded by others is not to be used again.
    #[staticmethod]
    fn owl_rl() -> &'static str {
        OWL_RL
    }

    fn __len__(&self) -> usize {
        self.engine.facts().len()
    }
}
