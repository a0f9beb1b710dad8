//! What a log has forgotten, brought back from elsewhere: a segment beside the others, in the folder `restored`.
//!
//! Readers that ask for an offset that is gone find it there, and come from its end to the segments that are kept. The
//! writer knows nothing of it. Offsets may be left out: those of events that nobody needs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::frame::{self, Head, Kind};
use super::{Error, StreamSchema, fault, segment};

/// Where it is.
pub fn folder(log: &Path) -> PathBuf {
    log.join("restored")
}

/// The first offsets of what was restored, in order.
pub fn list(log: &Path) -> Result<Vec<u64>, Error> {
    let below = folder(log);
    if below.is_dir() {
        segment::list(&below)
    } else {
        Ok(Vec::new())
    }
}

/// A segment that is being restored. It is there for readers when it is finished, and whole.
pub struct Restored {
    file: BufWriter<File>,
    beside: PathBuf,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl Drop for Restored {
    /// What was not finished goes.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.beside);
    }
}

impl Restored {
    /// Begins with an offset. Records are of these streams, by their places.
    pub fn begin(log: &Path, first: u64, streams: &[StreamSchema]) -> Result<Restored, Error> {
        let below = folder(log);
        fs::create_dir_all(&below).map_err(fault("creating", &below))?;
        let path = segment::path(&below, first);
        let beside = path.with_extension("new");
        let file = File::create(&beside).map_err(fault("creating", &beside))?;
        let mut restored = Restored {
            file: BufWriter::new(file),
            beside,
            path,
            buffer: Vec::new(),
        };
        let state = serde_json::json!({ "streams": streams }).to_string();
        restored.put(Kind::State, first, 0, 0, state.as_bytes())?;
        Ok(restored)
    }

    /// A record, with its offset, which is greater than the last one's, and when it came.
    pub fn add(&mut self, offset: u64, arrival: i64, record: &[u8]) -> Result<(), Error> {
        // A frame each, so that a reader can stop anywhere that it could have stopped before.
        self.put(Kind::Records, offset, 1, arrival, record)
    }

    /// It ends before this offset.
    pub fn finish(mut self, next: u64) -> Result<(), Error> {
        self.put(Kind::End, next, 0, 0, &[])?;
        let mut write = || {
            self.file.flush()?;
            self.file.get_ref().sync_all()?;
            fs::rename(&self.beside, &self.path)
        };
        write().map_err(fault("writing", &self.path))
    }

    fn put(&mut self, kind: Kind, offset: u64, count: u32, arrival: i64, body: &[u8]) -> Result<(), Error> {
        self.buffer.clear();
        let begun = frame::begin(&mut self.buffer);
        self.buffer.extend_from_slice(body);
        let head = Head {
            kind,
            offset,
            count,
            session: 0,
            sequence: 0,
            arrival,
        };
        frame::finish(&mut self.buffer, begun, &head);
        self.file
            .write_all(&self.buffer)
            .map_err(fault("writing", &self.beside))
    }
}
