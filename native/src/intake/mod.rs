//! The intake: takes events from suppliers, sequences and flags them, appends them to the log, and acknowledges.
//!
//! A process of its own with one loop over all connections (`server`), a thread that syncs the log, and a thread a reader of
//! the log from elsewhere (`readers`). It knows nothing of the engine, and goes on when that is dead.

mod acks;
pub(crate) mod base64;
mod batches;
pub(crate) mod config;
pub(crate) mod connection;
mod dead;
pub mod decode;
mod ids;
pub mod instant;
pub(crate) mod line;
mod lines;
pub(crate) mod listen;
mod pace;
mod rank;
mod readers;
mod reload;
mod sequencer;
mod server;
pub mod text;
mod turns;
pub mod wire;

pub use config::Config;
pub use ids::{IdKind, Ids};
pub use server::Server;
