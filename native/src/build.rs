//! What built this library.

/// The version of the crate, equal to that of the Python package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The compiler, as `rustc --version` says it.
pub const RUSTC: &str = env!("CEPHEID_RUSTC");
/// `release` or `debug`.
pub const PROFILE: &str = env!("CEPHEID_PROFILE");
/// The target triple.
pub const TARGET: &str = env!("CEPHEID_TARGET");
