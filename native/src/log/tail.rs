//! The tail of a log in shared memory: how far it is written, and a way to wait until it is written further.
//!
//! One page, in /dev/shm so that no disk can delay it, or in the log's folder where there is none. The writer stores, readers
//! load and sleep on a futex; a reader costs the writer nothing but a system call when it sleeps.
//!
//! ```text
//!   0  u64  "CEPTAIL1"
//!   8  u32  changes: the word that readers sleep on
//!  12  u32  readers that sleep
//!  16  u32  process id of the writer; 0: it ended in order
//!  64  u64  the offset after the last record that was appended
//!  72  u64  the offset after the last record that is safe by the log's durability
//!  80  u64  the first offset that is kept
//! 128  ..   the log's folder as text, up to a zero; pages of folders that are gone are removed by whoever makes one
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use memmap2::MmapRaw;

const MAGIC: u64 = u64::from_le_bytes(*b"CEPTAIL1");
const SIZE: usize = 4096;
const FOLDER_AT: u64 = 128;
/// After so long a segment's copy without a page is nobody's.
const FORGOTTEN: Duration = Duration::from_secs(3600);

#[repr(C)]
struct Page {
    magic: AtomicU64,
    changes: AtomicU32,
    sleepers: AtomicU32,
    writer: AtomicU32,
    gap: [u32; 11],
    appended: AtomicU64,
    durable: AtomicU64,
    first: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(Page, appended) == 64 && size_of::<Page>() <= SIZE);

/// The shared page of a log.
pub struct Tail {
    map: MmapRaw,
    path: PathBuf,
    _file: File,
}

impl Tail {
    /// Where the tail of the log in this folder is.
    pub fn path(folder: &Path) -> io::Result<PathBuf> {
        let shared = Path::new("/dev/shm");
        if !shared.is_dir() {
            return Ok(folder.join("tail"));
        }
        // By device and inode: the folder's name may differ from one process to the next.
        let about = folder.metadata()?;
        Ok(shared.join(format!("cepheid-{}-{:x}-{:x}", about.uid(), about.dev(), about.ino())))
    }

    /// Makes the tail of a log, or takes over the one that an earlier writer left.
    pub fn create(folder: &Path, first: u64, next: u64, durable: u64) -> io::Result<Tail> {
        let path = Tail::path(folder)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o660).custom_flags(libc::O_NOFOLLOW).open(&path)?;
        check_owner(&file, folder)?;
        file.set_len(SIZE as u64)?;
        file.write_all_at(&folder_text(folder), FOLDER_AT)?;
        remove_orphans(&path);
        let tail = Tail::of(file, path)?;
        let page = tail.page();
        page.first.store(first, Ordering::Relaxed);
        // What was appended but is not there any more was in memory only, and the machine ended.
        page.appended.store(next, Ordering::Relaxed);
        page.durable.store(durable, Ordering::Relaxed);
        page.writer.store(std::process::id(), Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        tail.wake();
        Ok(tail)
    }

    /// The tail of a log that another process writes, or wrote; None: there is none.
    pub fn open(folder: &Path) -> io::Result<Option<Tail>> {
        let path = Tail::path(folder)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        check_owner(&file, folder)?;
        if file.metadata()?.len() < SIZE as u64 {
            return Ok(None);
        }
        let tail = Tail::of(file, path)?;
        Ok((tail.page().magic.load(Ordering::Acquire) == MAGIC).then_some(tail))
    }

    fn of(file: File, path: PathBuf) -> io::Result<Tail> {
        let map = memmap2::MmapOptions::new().len(SIZE).map_raw(&file)?;
        Ok(Tail { map, path, _file: file })
    }

    fn page(&self) -> &Page {
        // SAFETY: the map is SIZE bytes long, page-aligned and lives as long as self; the file has that length and is not
        // cut. Page consists of atomics (and a gap that is not read), for which any bytes are values and which other
        // processes may change.
        unsafe { &*self.map.as_ptr().cast::<Page>() }
    }

    /// The offset after the last record that was appended.
    #[inline]
    pub fn appended(&self) -> u64 {
        self.page().appended.load(Ordering::Acquire)
    }

    /// The offset after the last record that is safe.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.page().durable.load(Ordering::Acquire)
    }

    /// The first offset that is kept.
    #[inline]
    pub fn first(&self) -> u64 {
        self.page().first.load(Ordering::Acquire)
    }

    /// The process that writes, or wrote before it was killed; None: it ended in order.
    pub fn writer(&self) -> Option<u32> {
        Some(self.page().writer.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// The writer's: records up to this offset can be read.
    #[inline]
    pub(crate) fn append(&self, next: u64) {
        self.page().appended.store(next, Ordering::Release);
        self.wake();
    }

    /// The writer's: records up to this offset are safe.
    pub(crate) fn make_durable(&self, next: u64) {
        self.page().durable.store(next, Ordering::Release);
        self.wake();
    }

    /// The writer's: records before this offset are gone.
    pub(crate) fn keep_from(&self, first: u64) {
        self.page().first.store(first, Ordering::Release);
    }

    /// The writer's last word. The file stays for readers that come later; it is a page.
    pub(crate) fn close(&self) {
        self.page().writer.store(0, Ordering::Relaxed);
        self.wake();
    }

    /// Removes the page; for logs that are thrown away.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    #[inline]
    fn wake(&self) {
        let page = self.page();
        // Sequentially consistent with the reader's increment of `sleepers`: either we see it, or it sees the change.
        page.changes.fetch_add(1, Ordering::SeqCst);
        if page.sleepers.load(Ordering::SeqCst) > 0 {
            futex(&page.changes, libc::FUTEX_WAKE, i32::MAX as u32, None);
        }
    }

    /// Waits until more than `seen` was appended, or time is up; what is appended then.
    pub fn wait(&self, seen: u64, timeout: Duration) -> u64 {
        self.wait_for(Tail::appended, seen, timeout)
    }

    /// The same for what is safe.
    pub fn wait_durable(&self, seen: u64, timeout: Duration) -> u64 {
        self.wait_for(Tail::durable, seen, timeout)
    }

    fn wait_for(&self, what: impl Fn(&Tail) -> u64, seen: u64, timeout: Duration) -> u64 {
        let page = self.page();
        let until = std::time::Instant::now() + timeout;
        loop {
            let changes = page.changes.load(Ordering::SeqCst);
            let now = what(self);
            let left = until.saturating_duration_since(std::time::Instant::now());
            if now > seen || left.is_zero() {
                return now;
            }
            page.sleepers.fetch_add(1, Ordering::SeqCst);
            futex(&page.changes, libc::FUTEX_WAIT, changes, Some(left));
            page.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The folder's path as it stands in the page; empty if it is too long for that.
fn folder_text(folder: &Path) -> Vec<u8> {
    let path = std::path::absolute(folder).unwrap_or_default();
    let mut text = path.as_os_str().as_bytes().to_vec();
    if text.len() + FOLDER_AT as usize >= SIZE {
        text.clear();
    }
    text.push(0);
    text
}

/// Removes the pages of this user's logs whose folders are gone, with copies of their segments, so that they don't pile up.
fn remove_orphans(own: &Path) {
    let Some((folder, name)) = own.parent().zip(own.file_name().and_then(|name| name.to_str())) else {
        return;
    };
    let Some(prefix) = name
        .splitn(3, '-')
        .take(2)
        .map(|part| part.to_owned() + "-")
        .reduce(|a, b| a + &b)
    else {
        return;
    };
    for found in beside(&folder.join(prefix)) {
        // The name of a page has three dashes, that of a segment's copy (memory.rs) two more.
        match found
            .as_os_str()
            .as_bytes()
            .iter()
            .filter(|byte| **byte == b'-')
            .count()
        {
            3 if found != own => {}
            5 if !page_of(&found).exists() && is_old(&found) => {
                let _ = std::fs::remove_file(found);
                continue;
            }
            _ => continue,
        }
        let mut text = [0; SIZE - FOLDER_AT as usize];
        let read = File::open(&found).and_then(|file| file.read_exact_at(&mut text, FOLDER_AT));
        let path = text.split(|byte| *byte == 0).next().unwrap_or_default();
        let log = PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()));
        if read.is_ok() && log.is_absolute() && matches!(log.try_exists(), Ok(false)) {
            copies(&found).for_each(|copy| drop(std::fs::remove_file(copy)));
            let _ = std::fs::remove_file(found);
        }
    }
}

/// The page of the log that a copy is of.
fn page_of(copy: &Path) -> PathBuf {
    let bytes = copy.as_os_str().as_bytes();
    let page = bytes.rsplitn(3, |byte| *byte == b'-').last().unwrap_or_default();
    PathBuf::from(std::ffi::OsString::from_vec(page.to_vec()))
}

/// Whether it is not of a log that is just being opened, whose page comes after it.
fn is_old(file: &Path) -> bool {
    let written = file.metadata().and_then(|about| about.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > FORGOTTEN))
}

/// The files whose paths begin with this.
pub(super) fn beside(prefix: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = prefix.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let prefix = prefix.as_os_str().as_bytes().to_vec();
    let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    paths.filter(move |path| path.as_os_str().as_bytes().starts_with(&prefix))
}

/// The copies of segments of the log with this page.
pub(super) fn copies(page: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut prefix = page.as_os_str().to_owned();
    prefix.push("-");
    beside(Path::new(&prefix))
}

/// /dev/shm is everyone's: what another user has put in the way is not believed.
pub(super) fn check_owner(file: &File, folder: &Path) -> io::Result<()> {
    // SAFETY: a call without arguments that can't fail.
    let own = unsafe { libc::geteuid() };
    let owner = file.metadata()?.uid();
    if owner == own || owner == 0 || owner == folder.metadata()?.uid() {
        return Ok(());
    }
    let reason = format!("the log's shared memory belongs to user {owner}, who is no owner of the log");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

/// A reader that is killed while it sleeps leaves `sleepers` too high: the writer then wakes for nothing, and no more.
fn futex(word: &AtomicU32, operation: libc::c_int, value: u32, timeout: Option<Duration>) {
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: left.as_secs().min(i64::MAX as u64 / 2) as libc::time_t,
        tv_nsec: i64::from(left.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is a live, aligned u32, and timeout is null or a live timespec; the kernel writes to neither.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            timeout,
            std::ptr::null::<u32>(),
            0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn pages_of_folders_that_are_gone_are_removed() {
        let (gone, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let orphan = Tail::create(gone.path(), 0, 0, 0).unwrap();
        let other = Tail::create(here.path(), 0, 0, 0).unwrap();
        assert!(orphan.path.exists());
        gone.close().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let own = Tail::create(folder.path(), 0, 0, 0).unwrap();
        // The new folder may have the inode of the one that is gone, and then the page is the same.
        assert!(!orphan.path.exists() || orphan.path == own.path);
        assert!(other.path.exists() && own.path.exists());
        other.remove();
        own.remove();
    }

    #[test]
    fn a_sleeping_reader_is_woken_by_another_mapping() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Tail::open(folder.path()).unwrap().is_none());
        let writer = Arc::new(Tail::create(folder.path(), 0, 0, 0).unwrap());
        let reader = Tail::open(folder.path()).unwrap().unwrap();
        assert_eq!(reader.wait(0, Duration::from_millis(1)), 0);
        let thread = std::thread::spawn({
            let writer = Arc::clone(&writer);
            move || (1..=10_000).for_each(|next| writer.append(next))
        });
        let mut seen = 0;
        while seen < 10_000 {
            let now = reader.wait(seen, Duration::from_secs(60));
            assert!(now > seen);
            seen = now;
        }
        thread.join().unwrap();
        assert_eq!(reader.durable(), 0);
        writer.make_durable(10_000);
        assert_eq!(reader.wait_durable(9_999, Duration::from_secs(60)), 10_000);
        assert_eq!(reader.writer(), Some(std::process::id()));
        writer.close();
        assert_eq!(reader.writer(), None);
        writer.remove();
    }
}
