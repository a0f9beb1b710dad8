//! The native core of Cepheid. Everything here is plain Rust; only `python` and `python_matcher` know Python.

pub mod aggregate;
pub mod bounds;
pub mod build;
pub mod digest;
pub mod event;
pub mod exact;
pub mod expr;
pub mod found;
pub mod functions;
pub mod json;
pub mod judge;
pub mod machine;
pub mod matcher;
pub mod panic;
pub mod partition;
pub mod plan;
mod plan_parts;
pub mod policy;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_matcher;
#[cfg(feature = "python")]
mod python_operator;
#[cfg(feature = "python")]
mod python_record;
#[cfg(feature = "python")]
mod python_service;
pub mod record;
pub mod runs;
pub mod service;
pub mod state;
pub mod value;
pub mod window;
