//! The event log: segments of checksummed frames, written by one process and read by others while it is written.
//!
//! An *offset* is the number of a record, counted from the log's beginning. A frame holds the records of one batch, so that a
//! batch is in the log as a whole or not at all. The folder of a log holds:
//!
//! ```text
//! 00000000000000000000.log    a segment, named by the offset of its first record
//! 00000000000001048576.log    the next one; the last is being written
//! lock                        who holds a lock on it writes; in it is the log's name
//! consumers/archive           how far a consumer has come, as text: what retention must not pass
//! restored/                   segments that were forgotten and brought back, for who still needs them
//! ```
//!
//! docs/log.md says more. `Log` writes, `Follower` reads, `Tail` is the shared memory between them, and `memory`
//! that of what is not on disk yet.

pub mod consumers;
pub mod follower;
pub mod frame;
pub mod memory;
pub mod restored;
pub mod schema;
pub mod segment;
pub mod spare;
pub mod sync;
pub mod tail;
pub mod writer;

#[cfg(test)]
mod spare_tests;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;

pub use follower::Follower;
pub use frame::Batch;
pub use schema::{StreamSchema, fingerprint};
pub use sync::Durability;
pub use tail::Tail;
pub use writer::{Log, Options};

/// Why the log could not be written or read.
#[derive(Debug)]
pub enum Error {
    /// There is no room: the disk is full, or a limit on the size of files, their number or the quota is reached.
    Full(io::Error),
    /// Another fault of the file system, with what was being done.
    Io(&'static str, PathBuf, io::Error),
    /// A frame that should be whole is not.
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// The byte in it.
        position: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The offset is not in the log any more; the first that is.
    Gone {
        /// What was asked for.
        asked: u64,
        /// The first offset there is.
        first: u64,
    },
    /// Another process writes this log.
    Taken(PathBuf),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Full(error) => write!(f, "no room for the log: {error}"),
            Error::Io(doing, path, error) => write!(f, "{doing} {}: {error}", path.display()),
            Error::Corrupt { path, position, what } => {
                write!(
                    f,
                    "{}: byte {position}: {what}; the log is damaged there",
                    path.display()
                )
            }
            Error::Gone { asked, first } => {
                write!(f, "offset {asked} is not in the log any more; it begins with {first}")
            }
            Error::Taken(path) => write!(f, "{}: another process is writing this log", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// Names what was being done when the file system failed; want of room is told apart.
pub(crate) fn fault(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EMFILE | libc::ENFILE) => Error::Full(error),
        _ => Error::Io(doing, path.to_owned(), error),
    }
}
