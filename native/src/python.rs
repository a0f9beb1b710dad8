//! The module `cepheid._native`: thin wrappers, each inside `guard`. Its types are in src/cepheid/_native.pyi.

use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::{build, machine, panic};

create_exception!(
    cepheid._native,
    NativeError,
    PyRuntimeError,
    "A bug in the native core: the message of its panic, and the place in the Rust source."
);

create_exception!(
    cepheid._native,
    BudgetExhausted,
    PyRuntimeError,
    "A query holds as many events as it may, and is to fail then."
);

/// Every exported function runs inside this, so that a panic is an exception and never the end of the process.
pub(crate) fn guard<T>(f: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    panic::catch(f).unwrap_or_else(|caught| Err(NativeError::new_err(caught.to_string())))
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{BudgetExhausted, NativeError, build_info, panic_for_test, probe};

    #[pymodule_export]
    use crate::python_arrow::MatchBatch;
    #[pymodule_export]
    use crate::python_columns::{aes_column, ekf_column, fft_column};
    #[pymodule_export]
    use crate::python_delivered::DeliveryReader;
    #[pymodule_export]
    use crate::python_load::{queue_costs, run_consumers, run_suppliers};
    #[pymodule_export]
    use crate::python_log::{
        JsonDecoder, LogFollower, RecordCodec, log_commit, log_committed, log_restore, run_intake,
    };
    #[pymodule_export]
    use crate::python_matcher::PyMatcher;
    #[pymodule_export]
    use crate::python_outlet::PyOutlet;
    #[pymodule_export]
    use crate::python_reasoning::PyReasoner;
    #[pymodule_export]
    use crate::python_standing::{PyStanding, equal_patterns};

    #[pymodule_export]
    use crate::python_clock::PyVirtualClock;
    #[pymodule_export]
    use crate::python_consumer::PyConsumer;
    #[pymodule_export]
    use crate::python_json::{read_json, write_json};
    #[pymodule_export]
    use crate::python_service::PyEngine;
}

/// What built this module: version, rustc, profile, target.
#[pyfunction]
fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    guard(|| {
        let info = PyDict::new(py);
        info.set_item("version", build::VERSION)?;
        info.set_item("rustc", build::RUSTC)?;
        info.set_item("profile", build::PROFILE)?;
        info.set_item("target", build::TARGET)?;
        Ok(info)
    })
}

/// What this machine lets a real-time program do; see the fields of `Machine` in native/src/machine.rs.
#[pyfunction]
fn probe(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    guard(|| {
        let machine = py.detach(machine::probe);
        let answers = PyDict::new(py);
        answers.set_item("cores_online", machine.cores_online)?;
        answers.set_item("cores_allowed", machine.cores_allowed)?;
        answers.set_item("memory_total_bytes", machine.memory_total_bytes)?;
        answers.set_item("memory_limit_bytes", machine.memory_limit_bytes)?;
        answers.set_item("rt_runtime_us", machine.rt_runtime_us)?;
        answers.set_item("rt_period_us", machine.rt_period_us)?;
        answers.set_item("can_sched_rr", machine.sched_rr.is_ok())?;
        answers.set_item("sched_rr_error", machine.sched_rr.as_ref().err())?;
        answers.set_item("max_rr_priority", machine.sched_rr.as_ref().ok())?;
        answers.set_item("can_set_timer_slack", machine.can_set_timer_slack)?;
        answers.set_item("memlock_limit_bytes", machine.memlock_limit_bytes)?;
        answers.set_item("kernel_release", machine.kernel_release)?;
        answers.set_item("preemption", machine.preemption)?;
        answers.set_item("clock_source", machine.clock_source)?;
        Ok(answers)
    })
}

/// Panics with `message`. It is here to prove the guard: the caller gets a NativeError, and the process lives.
/// With `callback`, calls that first and panics only if it returned, which proves that guards nest.
#[pyfunction]
#[pyo3(signature = (message, callback=None))]
fn panic_for_test(message: &str, callback: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    guard(|| {
        if let Some(callback) = callback {
            callback.call0()?;
        }
        panic!("{message}")
    })
}
