//! Segments: their names, where they are, and what stands in them after a crash.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::frame::{self, Batch, Found, Kind};
use super::{Error, fault};

/// The file name of the segment that begins with this offset.
pub fn path(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first:020}.log"))
}

/// The first offsets of the segments in a folder, in order.
pub fn list(folder: &Path) -> Result<Vec<u64>, Error> {
    let mut found = Vec::new();
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
    Ok(found)
}

/// A segment's bytes in memory, as they are now and as they become.
pub fn map(file: &File, path: &Path) -> Result<Mmap, Error> {
    // SAFETY: the bytes that are read through the map are those of frames that were committed. The writer never changes
    // them again, and never cuts the file before their end; it only appends behind them.
    unsafe { Mmap::map(file) }.map_err(fault("mapping", path))
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

/// Reads every whole frame of a segment, up to the first that is not.
pub fn scan(folder: &Path, first: u64, mut visit: impl FnMut(&Batch<'_>)) -> Result<Scan, Error> {
    let path = path(folder, first);
    let file = File::open(&path).map_err(fault("opening", &path))?;
    let mut scan = Scan {
        end: 0,
        next_offset: first,
        closed: false,
        torn: None,
    };
    if file.metadata().map_err(fault("reading", &path))?.len() == 0 {
        return Ok(scan);
    }
    let bytes = map(&file, &path)?;
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
