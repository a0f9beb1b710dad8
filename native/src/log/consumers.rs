//! How far consumers of the log have come: a small file each, which retention must not pass.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use super::{Error, fault};

const FOLDER: &str = "consumers";

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
        return Ok(());
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
    fn names_stay_in_their_folder() {
        assert!(is_name("archive") && is_name("spark-2.x"));
        assert!(
            ["", "..", "a/b", ".hidden", "a b", "ü"]
                .iter()
                .all(|name| !is_name(name))
        );
    }
}
