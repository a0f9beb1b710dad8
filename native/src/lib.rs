//! The native core of Cepheid. Everything here is plain Rust; only `python` knows Python.

pub mod build;
pub mod machine;
pub mod panic;
#[cfg(feature = "python")]
mod python;
