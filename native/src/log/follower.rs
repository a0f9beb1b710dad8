//! A reader of a log, from any offset, while it is written: batch by batch, in place.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memmap2::{Mmap, UncheckedAdvice};
use serde_json::value::RawValue;

use super::frame::{self, Batch, Found, Head, Kind};
use super::memory::{self, Memory};
use super::tail::Tail;
use super::{Error, StreamSchema, fault, restored, segment, spare};

/// Pages are let go of in such steps.
const RELEASED: usize = 256 << 10;
/// Segments are mapped in multiples of this, which is the size of most.
const ROOM: usize = 64 << 20;

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// With the first record that is kept.
    First,
    /// With this record.
    Offset(u64),
    /// With the next record that comes.
    End,
}

/// A place in a log.
///
/// ```no_run
/// use _native::log::{Follower, follower::From, schema};
/// use _native::record::{self, Record};
///
/// # fn follow() -> Result<(), Box<dyn std::error::Error>> {
/// let mut follower = Follower::open("data/log".as_ref(), From::End, false)?;
/// let (mut layouts, mut generation) = (Vec::new(), 0);
/// loop {
///     while follower.advance()? {
///         if generation != follower.generation() {
///             layouts = schema::layouts(follower.streams())?;
///             generation = follower.generation();
///         }
///         for (offset, bytes) in follower.batch().iter().flat_map(|batch| batch.records()) {
///             let record = Record::read(bytes, &layouts[usize::from(record::stream(bytes))])?;
///             println!("{offset}: {:?} at {}", record.id(), record.time());
///         }
///     }
///     follower.wait(std::time::Duration::from_millis(100))?; // or look whether end() > offset(), without sleeping
/// }
/// # }
/// ```
pub struct Follower {
    folder: PathBuf,
    /// Whether that is in memory, where segments are written over.
    is_in_memory: bool,
    tail: Option<Tail>,
    /// How far it is written, where there is no tail: nobody writes, and nobody did since the machine started.
    whole: u64,
    /// Whether only what is safe is read.
    durable_only: bool,
    segment: Option<Segment>,
    /// The offset of the next record to give.
    next: u64,
    /// The offset that it stood at before the batch that it stands at now.
    from: u64,
    streams: Vec<StreamSchema>,
    /// How the frame of state began that they were read from, as far as it says them.
    described: Vec<u8>,
    generation: u64,
}

struct Segment {
    first: u64,
    path: PathBuf,
    file: File,
    /// It may reach beyond the file, whose length was this when it was last looked at.
    map: Mmap,
    length: usize,
    position: usize,
    /// Up to here the pages of the map were let go of.
    released: usize,
    /// The last frame that was read, which was whole: its head, and where its body begins and ends.
    last: Option<(Head, usize, usize)>,
}

impl Follower {
    /// Begins to read. Records are given as soon as they are written, or with `durable_only` when they are safe.
    pub fn open(folder: &Path, from: From, durable_only: bool) -> Result<Follower, Error> {
        let tail = Tail::open(folder).map_err(fault("opening the tail of", folder))?;
        let mut follower = Follower {
            folder: folder.to_owned(),
            is_in_memory: memory::is_in_memory(folder).map_err(fault("looking at", folder))?,
            tail,
            whole: 0,
            durable_only,
            segment: None,
            next: 0,
            from: 0,
            streams: Vec::new(),
            described: Vec::new(),
            generation: 0,
        };
        follower.look()?;
        loop {
            let next = match from {
                From::Offset(offset) => offset,
                From::First => segment::list(folder)?.first().copied().unwrap_or(0),
                From::End => follower.end(),
            };
            match follower.seek(next) {
                // Retention was quicker: what was the first has gone since it was listed, and another is it now.
                Err(Error::Gone { .. }) if from == From::First => {}
                found => return found.map(|()| follower),
            }
        }
    }

    /// The offset of the next record.
    pub fn offset(&self) -> u64 {
        self.next
    }

    /// The streams as they are where the follower stands; their places are their numbers.
    pub fn streams(&self) -> &[StreamSchema] {
        &self.streams
    }

    /// A number that changes whenever `streams` may have.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The offset after the last record that can be read now.
    #[inline]
    pub fn end(&self) -> u64 {
        match &self.tail {
            Some(tail) if self.durable_only => tail.durable(),
            Some(tail) => tail.appended(),
            None => self.whole,
        }
    }

    /// Without a tail: looks whether there is one now, or else how far the frames on disk are whole.
    fn look(&mut self) -> Result<(), Error> {
        if self.tail.is_none() {
            self.tail = Tail::open(&self.folder).map_err(fault("opening the tail of", &self.folder))?;
        }
        if let (None, Some(last)) = (&self.tail, segment::list(&self.folder)?.last()) {
            self.whole = segment::scan(&self.folder, *last, |_| ())?.next_offset;
        }
        Ok(())
    }

    /// Goes to an offset; one that has not been written yet is waited for, one that is gone is an error.
    pub fn seek(&mut self, offset: u64) -> Result<(), Error> {
        self.next = offset;
        self.segment = None;
        let firsts = segment::list(&self.folder)?;
        let Some(&kept) = firsts.first() else { return Ok(()) };
        if offset >= kept {
            return self.enter(firsts[firsts.partition_point(|first| *first <= offset) - 1]);
        }
        let firsts = restored::list(&self.folder)?;
        let at = firsts.partition_point(|first| *first <= offset);
        match at.checked_sub(1) {
            Some(at) => self.enter(firsts[at]),
            None => Err(Error::Gone {
                asked: offset,
                first: kept,
            }),
        }
    }

    fn enter(&mut self, first: u64) -> Result<(), Error> {
        let (file, path) = loop {
            // The copy in memory of one that is being written has more; and what is gone from there is on disk.
            let (mut opened, mut path) = match Memory::find(&self.folder, first) {
                Some((copy, path)) => (Ok(copy), path),
                None => {
                    let path = segment::path(&self.folder, first);
                    (File::open(&path), path)
                }
            };
            if opened.is_err() {
                let beside = segment::path(&restored::folder(&self.folder), first);
                if beside.exists() {
                    (opened, path) = (File::open(&beside), beside);
                }
            }
            match opened {
                // One that has gone meanwhile is looked for again.
                Ok(file) if self.is_in_memory && !spare::hold(&file, &path) => {}
                Ok(file) => break (file, path),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let kept = segment::list(&self.folder)?.first().copied().unwrap_or(0);
                    return Err(Error::Gone {
                        asked: self.next,
                        first: kept,
                    });
                }
                Err(error) => return Err(fault("opening", &path)(error)),
            }
        };
        let map = segment::map_with_room(&file, &path, ROOM)?;
        self.segment = Some(Segment {
            first,
            path,
            file,
            map,
            length: 0,
            position: 0,
            released: 0,
            last: None,
        });
        Ok(())
    }

    /// The next batch, if there is one; of the first after `open` or `seek`, what comes before the offset is left out.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'_>>, Error> {
        Ok(if self.advance()? { self.batch() } else { None })
    }

    /// Goes to the next batch, if there is one; whether there is. Then `batch` gives it, and `streams` are those of it.
    pub fn advance(&mut self) -> Result<bool, Error> {
        let end = self.end();
        let mut looked_again = None;
        loop {
            if self.next >= end {
                return Ok(false);
            }
            if self.segment.is_none() {
                self.seek(self.next)?;
            }
            let Some(segment) = &mut self.segment else {
                return Ok(false);
            };
            segment.grow()?;
            let (head, length) = match frame::read(segment.rest()) {
                Found::Whole(batch, length) => (batch.head, length),
                // Where the segment is written has changed: from memory to disk, or back.
                _ if looked_again != Some(segment.position) => {
                    let (first, position) = (segment.first, segment.position);
                    looked_again = Some(position);
                    self.enter(first)?;
                    if let Some(segment) = &mut self.segment {
                        segment.position = position;
                    }
                    continue;
                }
                found => return Err(segment.damage(&found)),
            };
            let start = segment.position;
            segment.release(start);
            segment.position += length;
            segment.last = Some((head, start + frame::HEAD, segment.position));
            match head.kind {
                Kind::End => {
                    self.next = self.next.max(head.offset);
                    self.segment = None; // if the next one is gone, it may come back
                    self.enter(head.offset)?;
                }
                Kind::State => {
                    let body = &segment.map[start + frame::HEAD..start + length];
                    // Nearly all segments begin as the one before, and a thousand streams take half a millisecond to read.
                    let is_known = !self.described.is_empty() && body.starts_with(&self.described);
                    if !is_known && let Some((described, streams)) = streams_of(body) {
                        self.described = described.to_vec();
                        if streams != self.streams {
                            self.streams = streams;
                            self.generation += 1;
                        }
                    }
                }
                Kind::Records => {
                    let after = head.offset + u64::from(head.count);
                    if after > self.next {
                        self.from = std::mem::replace(&mut self.next, after);
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// The batch that it stands at.
    pub fn batch(&self) -> Option<Batch<'_>> {
        let segment = self.segment.as_ref()?;
        let (head, start, end) = segment.last?;
        let body = segment.map.get(start..end)?;
        Some(Batch { head, body }.without_first(self.from.saturating_sub(head.offset)))
    }

    /// Waits until there is more, at most so long; whether there is.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        Ok(match &self.tail {
            Some(tail) if self.durable_only => tail.wait_durable(self.next, timeout) > self.next,
            Some(tail) => tail.wait(self.next, timeout) > self.next,
            None => {
                std::thread::sleep(timeout.min(Duration::from_millis(50)));
                self.look()?;
                self.end() > self.next
            }
        })
    }
}

impl Segment {
    /// What is in the file from its place on, as far as it is known.
    fn rest(&self) -> &[u8] {
        self.map.get(self.position..self.length).unwrap_or(&[])
    }

    /// Looks how far the file has grown, if the next frame is not in what is known of it; the writer reserves room in large steps,
    /// so this is rare.
    fn grow(&mut self) -> Result<(), Error> {
        let length = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word) as usize);
        let rest = self.rest();
        if rest.len() < frame::HEAD || rest.len() < length(rest) {
            self.length = segment::length(&self.file, &self.path)?;
            if self.length > self.map.len() {
                self.map = segment::map_with_room(&self.file, &self.path, ROOM)?;
                self.length = self.length.min(self.map.len());
            }
        }
        Ok(())
    }

    /// Lets go of pages that were read: whoever follows a log is not to hold more and more of it resident.
    fn release(&mut self, upto: usize) {
        let upto = upto / RELEASED * RELEASED;
        if upto > self.released {
            // The kernel brings in pages around the one that is read, also some before it, which were released.
            let from = self.released.saturating_sub(RELEASED);
            // SAFETY: nothing is lost, as the map is of a file and shared: pages that are read again come from there.
            let advised = unsafe {
                self.map
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, from, upto - from)
            };
            // Where it can't be, it stays as it was.
            drop(advised);
            self.released = upto;
        }
    }

    fn damage(&self, found: &Found<'_>) -> Error {
        let what = match found {
            Found::Torn(what) => what,
            _ => "there is no frame, and there should be",
        };
        Error::Corrupt {
            path: self.path.clone(),
            position: self.position as u64,
            what,
        }
    }
}

/// The schemas that a frame of state holds, and how it begins, up to their end.
fn streams_of(body: &[u8]) -> Option<(&[u8], Vec<StreamSchema>)> {
    #[derive(serde::Deserialize)]
    struct State<'s> {
        #[serde(borrow)]
        streams: &'s RawValue,
    }
    let text = body.split(|byte| *byte == 0).next()?;
    let streams = serde_json::from_slice::<State<'_>>(text).ok()?.streams.get();
    let end = streams.as_ptr().addr() - text.as_ptr().addr() + streams.len();
    Some((&text[..end], serde_json::from_str(streams).ok()?))
}
