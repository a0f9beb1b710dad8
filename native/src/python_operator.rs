//! A Python function as an operator. It has the GIL while it runs, so that it waits for every other Python code of the process.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::python_record::{self, set};
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::service::spec::{OperatorSpec, Spec};

/// Calls `function(*inputs)`: a dictionary an input, with `id` and `time` among its attributes, None where it is not there. It
/// returns None, a dictionary of the output's attributes, or a list of them.
pub struct PythonFunction {
    function: Py<PyAny>,
    /// The attributes of each input.
    inputs: Vec<Vec<String>>,
    outputs: Vec<String>,
    floats: Vec<f64>,
}

impl PythonFunction {
    /// For an operator.
    pub fn new(function: Py<PyAny>, operator: &OperatorSpec, spec: &Spec) -> PythonFunction {
        PythonFunction {
            function,
            inputs: operator
                .inputs
                .iter()
                .map(|input| spec.attributes(*input).to_vec())
                .collect(),
            outputs: operator.attributes.clone(),
            floats: Vec::new(),
        }
    }

    fn call<'py>(&self, py: Python<'py>, inputs: &Inputs<'_>) -> PyResult<Bound<'py, PyAny>> {
        let mut arguments = Vec::new();
        for (input, names) in self.inputs.iter().enumerate() {
            arguments.push(match inputs.get(input) {
                None => py.None().into_bound(py),
                Some(record) => {
                    let attributes = python_record::attributes(py, &record, names)?;
                    attributes.set_item("id", python_record::id(py, &record)?)?;
                    attributes.set_item("time", record.time())?;
                    attributes.into_any()
                }
            });
        }
        self.function.bind(py).call1(PyTuple::new(py, arguments)?)
    }

    fn emit(&mut self, result: &Bound<'_, PyAny>, out: &mut dyn Output) -> Result<(), Trouble> {
        let said = |error: PyErr| Trouble::Said(error.to_string());
        let fields = result
            .cast::<PyDict>()
            .map_err(|_| Trouble::Said(format!("returned {result}, not a dictionary, a list of them, or None")))?;
        let mut stranger = fields.keys().iter().map(|key| key.to_string());
        if let Some(stranger) = stranger.find(|key| !self.outputs.contains(key)) {
            return Err(Trouble::Said(format!(
                "returned '{stranger}', which is not one of its outputs"
            )));
        }
        out.emit(&mut |draft| {
            for (slot, name) in self.outputs.iter().enumerate() {
                let Some(value) = fields.get_item(name).map_err(said)? else {
                    continue;
                };
                set(draft.encoder, &mut self.floats, draft.schema, slot, &value)
                    .map_err(|fault| fault.map_or_else(said, Trouble::Record))?;
            }
            Ok(())
        })
    }
}

impl Process for PythonFunction {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        Python::attach(|py| {
            let result = self
                .call(py, inputs)
                .map_err(|error| Trouble::Said(error.to_string()))?;
            if result.is_none() {
                return Ok(());
            }
            match result.cast::<PyList>() {
                Ok(list) => list.iter().try_for_each(|result| self.emit(&result, out)),
                Err(_) => self.emit(&result, out),
            }
        })
    }
}
