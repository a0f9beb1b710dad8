//! How far consumers of the log have come: a small file each, which retention must not pass.
//!
//! It waits for the log's own consumers, which it is told, whatever happens; and for each other one that has said how far
//! it is, until it has not said so for [`PATIENCE`]: a reader that is gone for good must not fill the disk.
//!
//! A lane of queries says in its own file from where on it would read again (service/restart.rs). It is waited for as long, and
//! only with what was closed no longer ago: what may be found again one day is not to fill the disk either.

use std::fs::{self, DirEntry, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{Error, fault};

const FOLDER: &str = "consumers";
/// Who has not said anything for so long is not waited for.
pub const PATIENCE: Duration = Duration::from_secs(7 * 86_400);
/// The word before the offset in the file of a lane.
pub const KEEP: &str = "keep";

/// Whether this can be the name of a consumer, which is that of a file too.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 100
        && !name.starts_with('.')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// Says that a consumer needs nothing before `offset` any more. It never goes back.
pub fn commit(folder: &Path, consumer: &str, offset: u64) -> Result<(), Error> {
    let below = folder.join(FOLDER);
    fs::create_dir_all(&below).map_err(fault("creating", &below))?;
    if committed(folder, consumer)?.is_some_and(|before| before >= offset) {
        let path = below.join(consumer);
        let touch = || File::options().write(true).open(&path)?.set_modified(SystemTime::now());
        return touch().map_err(fault("writing", &path));
    }
    // Written beside and moved over, so that a crash leaves the old number or the new one.
    let written = below.join(format!(".{consumer}.{}", std::process::id()));
    let target = below.join(consumer);
    let write = || {
        let mut file = File::create(&written)?;
        writeln!(file, "{offset}")?;
        file.sync_all()?;
        fs::rename(&written, &target)?;
        File::open(&below)?.sync_all()
    };
    write().map_err(fault("writing", &target))
}

/// The offset before which none of those needs anything, at most `end`: the log's own consumers, and others.
pub fn needed(folder: &Path, own: &[String], end: u64) -> Result<u64, Error> {
    let mut needed = end;
    for consumer in own {
        needed = needed.min(committed(folder, consumer)?.unwrap_or(0));
    }
    let below = folder.join(FOLDER);
    let Ok(entries) = fs::read_dir(&below) else {
        return Ok(needed); // nobody has said anything yet
    };
    for entry in entries.flatten() {
        if let (true, Some(name)) = (
            is_waited_for(&entry),
            entry.file_name().to_str().filter(|name| is_name(name)),
        ) {
            needed = needed.min(committed(folder, name)?.unwrap_or(end));
        }
    }
    Ok(needed)
}

/// The offset before which no lane of queries would read after a crash, at most `end`.
pub fn needed_by_lanes(folder: &Path, end: u64) -> Result<u64, Error> {
    let mut needed = end;
    for entry in fs::read_dir(folder).map_err(fault("reading", folder))?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|kind| kind != "restart") || !is_waited_for(&entry) {
            continue;
        }
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue, // of a lane that has just ended
            Err(error) => return Err(fault("reading", &path)(error)),
        };
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let offset = lines.find(|(word, _)| *word == KEEP);
        needed = needed.min(offset.and_then(|(_, offset)| offset.parse().ok()).unwrap_or(end));
    }
    Ok(needed)
}

fn is_waited_for(entry: &DirEntry) -> bool {
    let said = entry.metadata().and_then(|about| about.modified());
    said.is_ok_and(|said| said.elapsed().map_or(true, |since| since < PATIENCE))
}

/// How far a consumer has come; None: it never said so.
pub fn committed(folder: &Path, consumer: &str) -> Result<Option<u64>, Error> {
    let path = folder.join(FOLDER).join(consumer);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault("reading", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_kept_and_never_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(committed(folder.path(), "archive").unwrap(), None);
        for (offset, then) in [(5, 5), (9, 9), (7, 9)] {
            commit(folder.path(), "archive", offset).unwrap();
            assert_eq!(committed(folder.path(), "archive").unwrap(), Some(then));
        }
    }

    #[test]
    fn others_are_waited_for_until_they_are_silent_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let own = ["archive".to_owned()];
        assert_eq!(needed(folder.path(), &own, 20).unwrap(), 0);
        assert_eq!(needed(folder.path(), &[], 20).unwrap(), 20);
        commit(folder.path(), "archive", 15).unwrap();
        commit(folder.path(), "query-rising", 5).unwrap();
        assert_eq!(needed(folder.path(), &own, 20).unwrap(), 5);
        let long_ago = SystemTime::now() - PATIENCE;
        let file = |name| {
            File::options()
                .write(true)
                .open(folder.path().join(FOLDER).join(name))
                .unwrap()
        };
        for name in ["query-rising", "archive"] {
            file(name).set_modified(long_ago).unwrap();
        }
        assert_eq!(needed(folder.path(), &own, 20).unwrap(), 15);
        commit(folder.path(), "query-rising", 5).unwrap(); // it lives
        assert_eq!(needed(folder.path(), &own, 20).unwrap(), 5);
    }

    #[test]
    fn names_stay_in_their_folder() {
        assert!(is_name("archive") && is_name("spark-2.x"));
        assert!(
            ["", "..", "a/b", ".hidden", "a b", "ü"]
                .iter()
                .all(|name| !is_name(name))
        );
    }
}
