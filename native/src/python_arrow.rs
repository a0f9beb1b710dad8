//! Batches of Arrow from and to Python, by its PyCapsule interface.

use std::ffi::CStr;
use std::sync::Mutex;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow::{ArrowArray, ArrowSchema, Batch};
use crate::arrow_build::Builder;
use crate::python::guard;

/// Matches as a record batch, to be taken over once by whatever speaks Arrow: `pyarrow.record_batch(batch)`.
#[pyclass(module = "cepheid._native")]
pub struct MatchBatch {
    rows: usize,
    parts: Mutex<Option<Parts>>,
}

struct Parts(ArrowSchema, ArrowArray);

// SAFETY: both own what they point to, and nothing in it belongs to a thread.
unsafe impl Send for Parts {}

impl MatchBatch {
    /// Of what was built.
    pub fn of(batch: Builder) -> Self {
        let rows = batch.len();
        let (schema, array) = batch.finish("");
        MatchBatch {
            rows,
            parts: Mutex::new(Some(Parts(schema, array))),
        }
    }
}

#[pymethods]
impl MatchBatch {
    fn __len__(&self) -> usize {
        self.rows
    }

    /// The two capsules of the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        guard(|| {
            let _ = requested_schema; // a producer may leave the request aside
            let parts = self.parts.lock().ok().and_then(|mut parts| parts.take());
            let Some(Parts(schema, array)) = parts else {
                return Err(PyValueError::new_err("this batch was taken already"));
            };
            let schema = PyCapsule::new_with_value(py, Handed(schema), SCHEMA)?;
            let array = PyCapsule::new_with_value(py, Handed(array), ARRAY)?;
            Ok((schema, array))
        })
    }
}

/// What a capsule holds; whoever takes it over leaves it released, else it is released with the capsule.
#[repr(transparent)]
struct Handed<T>(T);

// SAFETY: as for `Parts`.
unsafe impl<T> Send for Handed<T> {}

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// Takes a batch over from Python.
pub fn taken(batch: &Bound<'_, PyAny>) -> PyResult<Batch> {
    let method = intern!(batch.py(), "__arrow_c_array__");
    if !batch.hasattr(method)? {
        return Err(PyTypeError::new_err(format!(
            "expected a record batch of Arrow, found {}",
            batch.get_type()
        )));
    }
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = batch.call_method0(method)?.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<ArrowArray>();
    // SAFETY: capsules of these names hold such structures, not yet released, by the Arrow PyCapsule interface.
    Ok(unsafe { Batch::take(schema.as_ptr(), array.as_ptr()) })
}
