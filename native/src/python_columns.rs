//! Operators over columns of Arrow, for Python: a record batch in, one of a column "value" out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::{Batch, Unfit};
use crate::arrow_build::Builder;
use crate::python::guard;
use crate::python_arrow::{MatchBatch, taken};
use crate::record::Kind;
use crate::service::operators::columns;

/// Runs a function over a batch without the GIL.
fn over(
    batch: &Bound<'_, PyAny>,
    work: impl Fn(&Batch) -> Result<Builder, Unfit> + Send + Sync,
) -> PyResult<MatchBatch> {
    guard(|| {
        let py = batch.py();
        let batch = taken(batch)?;
        let found = py.detach(|| work(&batch).map(MatchBatch::of));
        found.map_err(|Unfit(text)| PyValueError::new_err(text))
    })
}

/// The samples of the sensors in columns "0", "1" and so on as one array, of floats or of bytes.
#[pyfunction]
pub(crate) fn ekf_column(
    batch: &Bound<'_, PyAny>,
    sensors: usize,
    floats: bool,
    process_noise: f64,
    measurement_noise: f64,
) -> PyResult<MatchBatch> {
    let kind = if floats { Kind::FloatArray } else { Kind::Uint8Array };
    over(batch, |batch| {
        columns::ekf(batch, sensors, kind, process_noise, measurement_noise)
    })
}

/// The spectra of the arrays in column "0".
#[pyfunction]
pub(crate) fn fft_column(batch: &Bound<'_, PyAny>) -> PyResult<MatchBatch> {
    over(batch, columns::fft)
}

/// What is in column "0", encrypted, by "time" and "id".
#[pyfunction]
pub(crate) fn aes_column(batch: &Bound<'_, PyAny>, key: &str) -> PyResult<MatchBatch> {
    over(batch, |batch| columns::aes(batch, key))
}
