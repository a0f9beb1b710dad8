//! Segments: their names, where they are, and what stands in them after a crash.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};

use super::frame::{self, Batch, Found, Kind};
use super::memory::Memory;
use super::{Error, fault};

const PAGE: u64 = 4096;

/// The file name of the segment that begins with this offset.
pub fn path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}.log"))
}

/// The first offsets of the segments in a folder, in order, with those that are in memory only.
pub fn list(folder: &Path) -> Result<Vec<u64>, Error> {
    // First: what is gone from there is on disk.
    let mut found = Memory::list(folder);
    for entry in fs::read_dir(folder).map_err(fault("listing", folder))? {
        let name = entry.map_err(fault("listing", folder))?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_suffix(".log"));
        if let Some(first) = digits
            .filter(|digits| digits.len() == 20)
            .and_then(|digits| digits.parse().ok())
        {
            found.push(first);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Opens a segment to read it: its copy in memory if there is one, which has more than the file.
pub fn find(folder: &Path, first: u64) -> Result<(File, PathBuf), Error> {
    if let Some(found) = Memory::find(folder, first) {
        return Ok(found);
    }
    let path = path(folder, first);
    Ok((File::open(&path).map_err(fault("opening", &path))?, path))
}

/// Opens the file of a segment to write to it, or makes it.
pub fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(false).open(path);
    opened.map_err(fault("opening", path))
}

/// A segment's bytes in memory, as they are now and as they become.
pub fn map(file: &File, path: &Path) -> Result<Mmap, Error> {
    // SAFETY: the bytes that are read through the map are those of frames that were committed. The writer never changes
    // them again, and never cuts the file before their end; it only appends behind them.
    unsafe { Mmap::map(file) }.map_err(fault("mapping", path))
}

/// A segment's bytes in memory with room for what it becomes, so that it need not be mapped again whenever it grows: that stops all
/// threads of the process for a moment. Nothing behind the end of the file may be touched.
pub fn map_with_room(file: &File, path: &Path, room: usize) -> Result<Mmap, Error> {
    let length = length(file, path)?.next_multiple_of(room);
    // SAFETY: as above.
    unsafe { MmapOptions::new().len(length.max(room)).map(file) }.map_err(fault("mapping", path))
}

/// Takes room, so that writing there can't fail for want of it.
pub fn allocate(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: a call with an open descriptor and two numbers.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), from as libc::off_t, bytes as libc::off_t) };
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}

/// Cuts off what is behind the last whole frame. If more may come, a page of zeros stays: who reads it has mapped what was there, and
/// looks whether there is a next frame.
pub fn cut(file: &File, end: u64, goes_on: bool) -> io::Result<()> {
    file.set_len(end)?;
    if goes_on { file.set_len(end + PAGE) } else { Ok(()) }
}

/// How long the file is now.
pub fn length(file: &File, path: &Path) -> Result<usize, Error> {
    Ok(file.metadata().map_err(fault("reading", path))?.len() as usize)
}

/// What a scan of a segment found.
#[derive(Debug, PartialEq, Eq)]
pub struct Scan {
    /// Where its whole frames end.
    pub end: u64,
    /// The offset after its last record.
    pub next_offset: u64,
    /// Whether it is closed by a frame that says so.
    pub closed: bool,
    /// Why the bytes behind its last frame are none, if there are any.
    pub torn: Option<&'static str>,
}

impl Scan {
    /// Of a segment with nothing in it.
    pub fn of_nothing(first: u64) -> Scan {
        Scan {
            end: 0,
            next_offset: first,
            closed: false,
            torn: None,
        }
    }
}

/// Reads every whole frame of a segment, up to the first that is not.
pub fn scan(folder: &Path, first: u64, visit: impl FnMut(&Batch<'_>)) -> Result<Scan, Error> {
    let (file, path) = find(folder, first)?;
    scan_file(&file, &path, first, visit)
}

/// The same of a file that is open.
pub fn scan_file(file: &File, path: &Path, first: u64, mut visit: impl FnMut(&Batch<'_>)) -> Result<Scan, Error> {
    let mut scan = Scan::of_nothing(first);
    if length(file, path)? == 0 {
        return Ok(scan);
    }
    let bytes = map(file, path)?;
    while !scan.closed {
        match frame::read(bytes.get(scan.end as usize..).unwrap_or(&[])) {
            Found::Nothing => break,
            Found::Torn(why) => {
                scan.torn = Some(why);
                break;
            }
            Found::Whole(batch, _) if batch.head.offset != scan.next_offset => {
                scan.torn = Some("the frame's offset is not the next one");
                break;
            }
            Found::Whole(batch, length) => {
                visit(&batch);
                scan.end += length as u64;
                scan.next_offset = batch.next_offset();
                scan.closed = batch.head.kind == Kind::End;
            }
        }
    }
    Ok(scan)
}
