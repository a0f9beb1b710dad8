//! Segments that are written over: of a log in memory, the file of one that goes becomes that of one that comes.
//!
//! To take memory, and to free it, costs more than what is written to it; a short log does so many times a second. What stood in the file stands
//! behind the new segment's end until it is overwritten. Readers do not look there, as they know from the tail how far it is written;
//! and who finds it after a crash takes it for torn, as frames bear their offsets.
//!
//! A reader may still stand in a segment that goes. So readers hold a shared lock on the file that they are in, and only a file
//! that nobody holds is kept.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SUFFIX: &str = "spare";

/// The file of a segment that has gone.
#[derive(Debug)]
pub struct Spare {
    path: PathBuf,
    /// Locked, so that a reader that has just opened it learns that it is gone.
    file: File,
}

impl Spare {
    /// Removes a segment, and keeps its file, unless somebody reads it: then that comes back.
    pub fn of(path: &Path, file: File) -> io::Result<Result<Spare, File>> {
        // First the name: a reader that finds the lock taken must not find the name again.
        let spare = path.with_extension(SUFFIX);
        fs::rename(path, &spare)?;
        if lock(&file, libc::LOCK_EX).is_ok() {
            return Ok(Ok(Spare { path: spare, file }));
        }
        fs::remove_file(&spare)?;
        Ok(Err(file))
    }

    /// Removes those that a writer that was killed has left in a folder.
    pub fn remove_left(folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|suffix| suffix == SUFFIX) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// It is not needed; its content, which is freed when that is closed.
    pub fn remove(self) -> File {
        let _ = fs::remove_file(&self.path);
        self.file
    }

    /// The file as that of another segment.
    pub fn become_segment(self, path: &Path) -> io::Result<File> {
        // First the lock: nobody finds the file before it has that name.
        lock(&self.file, libc::LOCK_UN)?;
        fs::rename(&self.path, path)?;
        Ok(self.file)
    }
}

/// Holds the file of a segment for who reads it, as long as it is open; false if it is that segment's no more.
pub fn hold(file: &File, path: &Path) -> bool {
    // Where there are no locks, no file is kept either.
    let is_taken = lock(file, libc::LOCK_SH).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    let number = |found: io::Result<fs::Metadata>| found.map(|found| (found.dev(), found.ino())).ok();
    !is_taken && number(fs::metadata(path)) == number(file.metadata())
}

fn lock(file: &File, how: i32) -> io::Result<()> {
    // SAFETY: a call with an open descriptor and a number.
    if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
