//! The native core of Cepheid. Everything here is plain Rust; only the files whose name begins with `python` know Python.

pub mod aggregate;
pub mod arrow;
pub mod arrow_build;
pub mod bounds;
pub mod branches;
pub mod build;
pub mod columns;
pub mod digest;
pub mod event;
pub mod exact;
pub mod expr;
pub mod found;
pub mod found_columns;
pub mod found_order;
pub mod functions;
pub mod intake;
pub mod json;
pub mod judge;
pub mod known;
pub mod load;
pub mod log;
pub mod lookup;
pub mod machine;
pub mod matcher;
pub mod panic;
pub mod partial;
pub mod partition;
pub mod plan;
mod plan_derived;
mod plan_parts;
pub mod policy;
pub mod prefix;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_arrow;
#[cfg(feature = "python")]
mod python_clock;
#[cfg(feature = "python")]
mod python_columns;
#[cfg(feature = "python")]
mod python_consumer;
#[cfg(feature = "python")]
mod python_delivered;
#[cfg(feature = "python")]
mod python_graph;
#[cfg(feature = "python")]
mod python_json;
#[cfg(feature = "python")]
mod python_load;
#[cfg(feature = "python")]
mod python_log;
#[cfg(feature = "python")]
mod python_matcher;
#[cfg(feature = "python")]
mod python_operator;
#[cfg(feature = "python")]
mod python_outlet;
#[cfg(feature = "python")]
mod python_reasoning;
#[cfg(feature = "python")]
mod python_record;
#[cfg(feature = "python")]
mod python_rows;
#[cfg(feature = "python")]
mod python_service;
#[cfg(feature = "python")]
mod python_shown;
#[cfg(feature = "python")]
mod python_standing;
pub mod reasoning;
pub mod record;
mod record_encoder;
pub mod relation;
pub mod runs;
pub mod screen;
pub mod service;
pub mod shared;
pub mod sorted;
pub mod standing;
pub mod state;
pub mod steady;
pub mod value;
pub mod window;
pub mod zone;
