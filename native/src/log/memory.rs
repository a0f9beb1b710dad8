//! The segments that are being written, in shared memory.
//!
//! Where real-time threads fill the cores, the file system's own threads hardly run, and who writes to a file waits for them:
//! milliseconds, in which nothing would come in. So the log's writer writes to memory, where readers look first, and the syncing
//! thread, which may wait, brings it to disk. When the disk has all of a closed segment, its copy in memory goes. What a writer that
//! was killed left in memory is brought to disk by the next one: it survives the process, as what is in a file does.
//!
//! A copy lies beside the log's tail, and bears the log's name, which is in the file `lock`: so that what was left of a log whose
//! folder is gone is not taken for that of another. Where the log itself is in memory, or there is too little of that, there are none.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use super::segment::allocate;
use super::tail::{self, Tail};

const SHARED: &str = "/dev/shm";
/// So many segments must have room in memory for one to be written there.
const SEGMENTS: u64 = 4;
/// What is copied at once.
const PIECE: usize = 256 << 10;

/// Where the copies of a log's segments are.
#[derive(Clone, Debug)]
pub struct Memory {
    /// What all their paths begin with.
    prefix: PathBuf,
}

/// A segment's copy.
#[derive(Debug)]
pub struct Copy {
    file: File,
    path: PathBuf,
}

impl Memory {
    /// That of a log whose lock the caller holds; None: it has none. Copies of other logs that had this folder's place go.
    pub fn of_writer(folder: &Path, lock: &mut File) -> io::Result<Option<Memory>> {
        if !Path::new(SHARED).is_dir() || is_in_memory(folder)? {
            return Ok(None);
        }
        let mut name = String::new();
        lock.read_to_string(&mut name)?;
        if !is_name(&name) {
            name = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
            lock.set_len(0)?;
            lock.write_all_at(name.as_bytes(), 0)?;
            lock.sync_all()?;
        }
        let page = Tail::path(folder)?;
        let memory = Memory::named(&page, &name);
        for other in tail::copies(&page) {
            if !starts_with(&other, &memory.prefix) {
                let _ = fs::remove_file(other);
            }
        }
        Ok(Some(memory))
    }

    /// That of a log that someone else writes, or wrote.
    fn of_reader(folder: &Path) -> Option<Memory> {
        let mut name = String::new();
        let lock = File::open(folder.join("lock")).ok()?;
        lock.take(64).read_to_string(&mut name).ok()?;
        is_name(&name)
            .then(|| Tail::path(folder).ok())
            .flatten()
            .map(|page| Memory::named(&page, &name))
    }

    fn named(page: &Path, name: &str) -> Memory {
        let mut prefix = page.as_os_str().to_owned();
        prefix.push(format!("-{name}-"));
        Memory { prefix: prefix.into() }
    }

    /// Whether there is room for segments of this size.
    pub fn has_room(&self, segment_bytes: u64) -> bool {
        free(Path::new(SHARED)).is_ok_and(|free| free >= SEGMENTS * segment_bytes)
    }

    fn path(&self, first: u64) -> PathBuf {
        let mut path = self.prefix.as_os_str().to_owned();
        path.push(format!("{first:020}"));
        path.into()
    }

    /// The first offsets of the segments of a log that have copies.
    pub fn list(folder: &Path) -> Vec<u64> {
        let Some(memory) = Memory::of_reader(folder) else {
            return Vec::new();
        };
        let first = |path: PathBuf| {
            let name = path.to_str()?;
            name.get(name.len().checked_sub(20)?..)?.parse().ok()
        };
        tail::beside(&memory.prefix).filter_map(first).collect()
    }

    /// Opens the copy of the segment that begins with this offset to read it, if there is one; and where it is.
    pub fn find(folder: &Path, first: u64) -> Option<(File, PathBuf)> {
        let path = Memory::of_reader(folder)?.path(first);
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NOFOLLOW).open(&path).ok()?;
        tail::check_owner(&file, folder).ok()?;
        Some((file, path))
    }

    /// The copy of a segment to write to it, if there is one.
    pub fn left(&self, folder: &Path, first: u64) -> io::Result<Option<Copy>> {
        match open(folder, self.path(first), false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// A new copy of a segment with nothing in it, and room for so much.
    pub fn begin(&self, folder: &Path, first: u64, room: u64) -> io::Result<Copy> {
        let copy = open(folder, self.path(first), true)?;
        let made = copy.file.set_len(0).and_then(|()| allocate(&copy.file, 0, room));
        made.inspect_err(|_| copy.remove())?;
        Ok(copy)
    }

    /// A new copy of a segment whose file has something up to there. Nobody finds it before it has all of that.
    pub fn take_over(&self, folder: &Path, first: u64, file: &File, end: u64) -> io::Result<Copy> {
        let path = self.path(first);
        let mut unfinished = open(folder, path.with_extension("new"), true)?;
        let filled = unfinished.file.set_len(0);
        let filled = filled.and_then(|()| copy_range(file, &unfinished.file, 0, end, &mut piece()));
        let named = filled.and_then(|()| fs::rename(&unfinished.path, &path));
        named.inspect_err(|_| unfinished.remove())?;
        unfinished.path = path;
        Ok(unfinished)
    }
}

impl Copy {
    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Brings some of it to a file, with a pause after each piece as long as that took: the caller may be above most others.
    pub fn bring(&self, to: &File, from: u64, end: u64, piece: &mut [u8]) -> io::Result<()> {
        for begun in (from..end).step_by(PIECE) {
            let began = Instant::now();
            let until = end.min(begun + PIECE as u64);
            copy_range(&self.file, to, begun, until, piece)?;
            if until < end {
                thread::sleep(began.elapsed());
            }
        }
        Ok(())
    }

    /// It is not needed any more. Who reads it goes on, and finds what comes later on disk.
    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn open(folder: &Path, path: PathBuf, create: bool) -> io::Result<Copy> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create);
    let file = options.mode(0o660).custom_flags(libc::O_NOFOLLOW).open(&path)?;
    tail::check_owner(&file, folder)?;
    Ok(Copy { file, path })
}

/// Room to copy through; it takes memory as far as it is written.
pub fn piece() -> Box<[u8]> {
    vec![0; PIECE].into()
}

fn copy_range(from: &File, to: &File, mut position: u64, end: u64, room: &mut [u8]) -> io::Result<()> {
    while position < end {
        let length = room.len().min((end - position) as usize);
        let piece = &mut room[..length];
        from.read_exact_at(piece, position)?;
        to.write_all_at(piece, position)?;
        position += piece.len() as u64;
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn starts_with(path: &Path, prefix: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(prefix.as_os_str().as_bytes())
}

/// Whether a folder is itself in memory.
pub fn is_in_memory(folder: &Path) -> io::Result<bool> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: statfs is numbers, for which zeros are values; the path ends with a zero.
    let (status, about) = unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &raw mut about), about)
    };
    if status == 0 {
        Ok(about.f_type == libc::TMPFS_MAGIC)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Bytes that are free there.
fn free(folder: &Path) -> io::Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    // SAFETY: as above.
    let (status, about) = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut about), about)
    };
    if status == 0 {
        Ok(about.f_bavail * about.f_frsize)
    } else {
        Err(io::Error::last_os_error())
    }
}
