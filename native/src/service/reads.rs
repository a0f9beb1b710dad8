//! How far the queries of a lane were read: what a restart does not deliver again.
//!
//! A point is an offset of the log and the watermark there: on a stream that is silent, matches come when time passes, and
//! the offset stays the same.
//!
//! A small file of JSON beside the log, `<lane>.read`, by query: `{"rising 9f0c": {"offset": 4711, "watermark": 133, "acks": false}}`;
//! with `acks` somebody acknowledges what it finds, and all up to there is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// A point up to which everything was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// The log was read up to this offset,
    pub offset: u64,
    /// and what is due by this watermark was found.
    pub watermark: i64,
}

impl Default for Read {
    fn default() -> Read {
        Read {
            offset: 0,
            watermark: i64::MIN,
        }
    }
}

/// The points of a lane's queries.
#[derive(Debug)]
pub struct Reads {
    path: PathBuf,
    /// By query: its key, and what is sure.
    sure: Vec<(String, Read)>,
    /// By query, where all was read when it was last looked; a moment later that is sure.
    recent: Vec<Option<Read>>,
    written: Vec<(String, Read, bool)>,
}

impl Reads {
    /// Of queries with these keys, which were read so far before.
    pub fn new(known: Vec<(String, Read)>, folder: &Path, name: &str) -> Reads {
        Reads {
            path: folder.join(format!("{name}.read")),
            recent: known.iter().map(|_| None).collect(),
            sure: known,
            written: Vec::new(),
        }
    }

    /// A query is here; None: with matches that nobody has read yet.
    pub fn pass(&mut self, number: usize, here: Option<Read>) {
        if let Some(read) = std::mem::replace(&mut self.recent[number], here) {
            self.sure[number].1 = self.sure[number].1.max(read);
        }
    }

    /// What is sure of a query.
    pub fn sure(&self, number: usize) -> Read {
        self.sure[number].1
    }

    /// Writes what is sure, if that has changed, of the queries that are not removed.
    pub fn write(&mut self, is_removed: impl Fn(usize) -> bool, has_acks: impl Fn(usize) -> bool) -> io::Result<()> {
        let wanted = self.sure.iter().enumerate().filter(|(number, _)| !is_removed(*number));
        let wanted = wanted.map(|(number, (key, read))| (key.clone(), *read, has_acks(number)));
        let wanted: Vec<(String, Read, bool)> = wanted.collect();
        if wanted == self.written {
            return Ok(());
        }
        let point = |(key, read, acks): &(String, Read, bool)| {
            let point = json!({"offset": read.offset, "watermark": read.watermark, "acks": acks});
            (key.clone(), point)
        };
        let text = Value::Object(wanted.iter().map(point).collect::<Map<_, _>>()).to_string();
        // Beside it and moved over, so that a crash leaves the old points or the new ones.
        let beside = self.path.with_extension("read.new");
        fs::write(&beside, text)?;
        fs::rename(&beside, &self.path)?;
        self.written = wanted;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64, watermark: i64) -> Read {
        Read { offset, watermark }
    }

    #[test]
    fn what_was_read_is_sure_a_moment_later() {
        let folder = tempfile::tempdir().unwrap();
        let known = vec![("a".to_owned(), Read::default()), ("b".to_owned(), at(7, 70))];
        let mut reads = Reads::new(known, folder.path(), "queries-high");
        let text = || fs::read_to_string(folder.path().join("queries-high.read")).unwrap();
        reads.pass(0, Some(at(3, 30)));
        reads.pass(1, None);
        reads.write(|_| false, |_| false).unwrap();
        assert!(text().contains(r#""a":{"acks":false,"offset":0"#), "{}", text());
        reads.pass(0, None);
        reads.pass(1, Some(at(5, 50)));
        reads.write(|_| false, |_| false).unwrap();
        assert!(
            text().contains(r#""a":{"acks":false,"offset":3,"watermark":30}"#),
            "{}",
            text()
        );
        // It never goes back, and what is removed is forgotten.
        reads.pass(1, None);
        reads.write(|number| number == 0, |_| true).unwrap();
        assert_eq!(text(), r#"{"b":{"acks":true,"offset":7,"watermark":70}}"#);
    }

    #[test]
    fn time_alone_goes_on_too() {
        assert!(at(3, 31) > at(3, 30) && at(4, 0) > at(3, 31));
    }
}
