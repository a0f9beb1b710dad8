//! The atomics of what threads share without locks: the standard ones; under `--cfg loom` those of loom, which tries every
//! interleaving: `RUSTFLAGS="--cfg loom" cargo test --manifest-path native/Cargo.toml --release --lib loom_`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
