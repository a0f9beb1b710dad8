//! The writer of a log: reserves room, collects frames, writes them together, and publishes what was written.
//!
//! What is written goes to memory (memory.rs), from where the syncing thread brings it to disk; or to the file itself, where there is not
//! enough memory. Room is reserved before anything is decided about a batch, and none is taken while the disk has no room for what is
//! in memory. So a full disk is an answer to the supplier ("not now"), and what was decided never has to be taken back.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::steady;

use super::frame::{self, Begun, Head, Kind};
use super::memory::{Copy, Memory, is_in_memory};
use super::segment::{self, Scan, allocate};
use super::spare::Spare;
use super::sync::{Durability, Syncer, Target};
use super::tail::Tail;
use super::{Error, consumers, fault};

/// Room is taken in steps of at most this size, and of a 64th of a segment: in memory a megabyte takes half a millisecond, in which
/// nothing comes in.
const MAX_STEP: u64 = 256 << 10;
const MIN_STEP: u64 = 64 << 10;
/// A writer that is about to end is waited for so long.
const ABOUT_TO_END: Duration = Duration::from_secs(2);

/// How a log is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// When an append is safe.
    pub durability: Durability,
    /// A segment is closed when it has about this size.
    pub segment_bytes: u64,
    /// Closed segments are removed, oldest first, while the log is larger; None: never for size.
    pub retain_bytes: Option<u64>,
    /// Closed segments are removed that were closed longer ago; None: never for age.
    pub retain_age: Option<Duration>,
    /// No segment is removed that one of these has not committed.
    pub consumers: Vec<String>,
    /// Nor one that a lane of queries would read again after a crash.
    pub lanes: bool,
    /// The real-time priority of the thread that brings what is written to disk, 1 to 99; None: it is scheduled like any other.
    pub priority: Option<i32>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Interval(Duration::from_millis(10)),
            segment_bytes: 64 << 20,
            retain_bytes: None,
            retain_age: None,
            consumers: Vec::new(),
            lanes: true,
            priority: None,
        }
    }
}

/// A log that is being written. There is one writer; a lock on the folder sees to that.
pub struct Log {
    folder: PathBuf,
    options: Options,
    _lock: File,
    /// Where segments are written first; None: in their files.
    memory: Option<Memory>,
    /// Whether the folder is itself in memory; then there are files to write over, at most as many as segments were begun since it was
    /// looked what is to be kept: as many will be before that is done again.
    is_in_memory: bool,
    spares: Vec<Spare>,
    begun_anew: usize,
    target: Arc<Target>,
    path: PathBuf,
    /// The first offset of the segment.
    segment: u64,
    /// When it was begun, or taken up.
    begun: Instant,
    /// Where the next frame is written in the segment.
    position: u64,
    /// How far room is reserved where it is written.
    reserved: u64,
    /// Frames that were finished and are to be written.
    staged: Vec<u8>,
    /// The offset of the next record, those that are staged counted.
    next: u64,
    /// Closed segments: first offset and size.
    closed: Vec<(u64, u64)>,
    first: u64,
    ticket: u64,
    /// The offsets after the records of tickets that are not known to be safe.
    unsafe_until: VecDeque<(u64, u64)>,
    durable_ticket: u64,
    /// The newest ticket in the segment before this one.
    ticket_before: u64,
    syncer: Syncer,
    tail: Tail,
}

impl Log {
    /// Opens the log of a folder, or makes one; cuts what a crash left behind the last whole frame. `recover` is then given
    /// the first offsets of the segments, and gives the state that a new segment begins with. `notify` is called when
    /// more is safe.
    pub fn open(
        folder: &Path,
        options: Options,
        recover: impl FnOnce(&[u64]) -> Result<Vec<u8>, Error>,
        notify: impl Fn() + Send + 'static,
    ) -> Result<Log, Error> {
        fs::create_dir_all(folder).map_err(fault("creating", folder))?;
        let mut lock = lock(folder)?;
        let memory = Memory::of_writer(folder, &mut lock).map_err(fault("looking for memory for", folder))?;
        Spare::remove_left(folder);
        let Mended { firsts, left, safe } = mend(folder, memory.as_ref())?;
        let memory = memory.filter(|memory| memory.has_room(options.segment_bytes));
        let state = recover(&firsts)?;
        let (oldest, newest) = (
            firsts.first().copied().unwrap_or(0),
            firsts.last().copied().unwrap_or(0),
        );
        let scan = match firsts.last() {
            Some(last) => segment::scan(folder, *last, |_| ())?,
            None => Scan::of_nothing(0),
        };
        let mut closed = Vec::new();
        for first in firsts.iter().take(firsts.len().saturating_sub(1)) {
            let (file, path) = segment::find(folder, *first)?;
            closed.push((*first, segment::length(&file, &path)? as u64));
        }
        let path = segment::path(folder, newest);
        let syncer = Syncer::start(folder, &options, notify).map_err(fault("starting a thread for", folder))?;
        // What was left is the first append of this writer.
        let ticket = u64::from(!left.is_empty());
        let durable_ticket = if options.durability == Durability::None {
            ticket
        } else {
            0
        };
        left.iter().for_each(|target| syncer.begin(target));
        let target = match left.into_iter().last().filter(|target| target.path() == path) {
            Some(target) => target,
            None => {
                let memory = memory.as_ref().filter(|_| !scan.closed);
                let target = Arc::new(first_target(folder, newest, scan.end, memory)?);
                syncer.begin(&target);
                target
            }
        };
        syncer.written(ticket);
        let next = scan.next_offset;
        let safe = match syncer.wait(ticket) {
            _ if options.durability == Durability::None => next,
            Ok(()) => next,
            // It comes to disk when there is room.
            Err(Error::Full(_)) => safe.unwrap_or(next),
            Err(error) => return Err(error),
        };
        let tail = Tail::create(folder, oldest, next, safe).map_err(fault("making the tail of", folder))?;
        let mut log = Log {
            folder: folder.to_owned(),
            options,
            _lock: lock,
            memory,
            is_in_memory: is_in_memory(folder).map_err(fault("looking at", folder))?,
            spares: Vec::new(),
            begun_anew: 0,
            target,
            path,
            segment: newest,
            begun: Instant::now(),
            position: scan.end,
            reserved: scan.end,
            staged: Vec::new(),
            next,
            closed,
            first: oldest,
            ticket,
            unsafe_until: VecDeque::from([(ticket, next)]),
            durable_ticket,
            ticket_before: 0,
            syncer,
            tail,
        };
        if scan.closed {
            log.roll(&state, true)?;
        } else if scan.end == 0 {
            log.begin_segment(&state)?;
        }
        Ok(log)
    }

    /// The offset of the next record.
    pub fn next_offset(&self) -> u64 {
        self.next
    }

    /// The first offset that is kept.
    pub fn first_offset(&self) -> u64 {
        self.first
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes that it takes on disk, without what is reserved, and without files to write over.
    pub fn bytes(&self) -> u64 {
        self.position + self.closed.iter().map(|(_, size)| size).sum::<u64>()
    }

    /// Whether frames of `bytes` altogether need a new segment: this one is full, or so old that what is in it could go if it were closed.
    pub fn needs_segment(&self, bytes: usize) -> bool {
        let is_old = || self.options.retain_age.is_some_and(|age| self.begun.elapsed() >= age);
        // A segment without a record can't be followed by another, which would have the same name.
        self.next > self.segment && (self.needed(bytes) > self.options.segment_bytes || is_old())
    }

    /// Where the segment would end; room for the frame that closes it is always kept.
    fn needed(&self, bytes: usize) -> u64 {
        self.position + (self.staged.len() + bytes + frame::HEAD) as u64
    }

    /// Sees to it that frames of `bytes` altogether can be staged, in this segment or a new one, for which `state` is
    /// asked. If this succeeds, staging and committing that much does not fail for want of room.
    pub fn reserve(&mut self, bytes: usize, state: impl FnOnce() -> Vec<u8>) -> Result<(), Error> {
        if self.is_full() {
            return Err(Error::Full(io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        if self.needs_segment(bytes) {
            self.commit()?;
            self.roll(&state(), false)?;
        }
        self.take_room(self.needed(bytes))
    }

    /// Whether what is in memory waits for room on disk, and is not safe before it has that; no more is taken.
    pub fn is_full(&self) -> bool {
        self.syncer.is_full()
    }

    fn take_room(&mut self, until: u64) -> Result<(), Error> {
        if until <= self.reserved {
            return Ok(());
        }
        let step = (self.options.segment_bytes / 64).clamp(MIN_STEP, MAX_STEP);
        if let Some(copy) = self.target.copy() {
            let reserved = until.next_multiple_of(step);
            if allocate(copy.file(), self.position, reserved - self.position).is_ok() {
                self.reserved = reserved;
                return Ok(());
            }
            // Someone else has taken the memory.
            self.leave_memory()?;
        }
        // A whole step if there is room for one, else what is needed.
        let step = until.next_multiple_of(step);
        let file = self.target.file()?;
        let allocated = allocate(file, self.position, step - self.position);
        let (allocated, reserved) = match allocated {
            Err(_) => (allocate(file, self.position, until - self.position), until),
            Ok(()) => (allocated, step),
        };
        allocated.map_err(fault("reserving room in", &self.path))?;
        self.reserved = reserved;
        Ok(())
    }

    /// Begins a frame of records; append them to the buffer, then `finish`.
    pub fn begin(&mut self) -> (Begun, &mut Vec<u8>) {
        (frame::begin(&mut self.staged), &mut self.staged)
    }

    /// Ends a frame of `count` records; its first offset.
    pub fn finish(&mut self, begun: Begun, count: u32, session: u64, sequence: u64) -> u64 {
        let offset = self.next;
        let head = Head {
            kind: Kind::Records,
            offset,
            count,
            session,
            sequence,
            arrival: now(),
        };
        frame::finish(&mut self.staged, begun, &head);
        self.next += u64::from(count);
        offset
    }

    /// Gives up a frame that was begun.
    pub fn give_up(&mut self, begun: Begun) {
        frame::give_up(&mut self.staged, begun);
    }

    /// Puts a frame of state behind what is staged.
    pub fn stage_state(&mut self, state: &[u8]) {
        let begun = frame::begin(&mut self.staged);
        self.staged.extend_from_slice(state);
        let head = Head {
            kind: Kind::State,
            offset: self.next,
            count: 0,
            session: 0,
            sequence: 0,
            arrival: now(),
        };
        frame::finish(&mut self.staged, begun, &head);
    }

    /// Bytes that are staged.
    pub fn staged(&self) -> usize {
        self.staged.len()
    }

    /// Writes what is staged and shows it to readers; the ticket that becomes safe in time (see `durable`). If that fails,
    /// it is still staged, and can be tried again: some file systems have no room where they had promised it.
    pub fn commit(&mut self) -> Result<u64, Error> {
        if self.staged.is_empty() {
            return Ok(self.ticket);
        }
        self.write()?;
        self.ticket += 1;
        // Readers first: they do not wait for the disk, nor for the thread that does.
        self.tail.append(self.next);
        if self.options.durability == Durability::None {
            self.durable_ticket = self.ticket;
            self.tail.make_durable(self.next);
        } else {
            self.unsafe_until.push_back((self.ticket, self.next));
        }
        if self.options.durability != Durability::None || self.target.copy().is_some() {
            self.syncer.written(self.ticket);
        }
        Ok(self.ticket)
    }

    fn write(&mut self) -> Result<(), Error> {
        let file = match self.target.copy() {
            Some(copy) => copy.file(),
            None => self.target.file()?,
        };
        let written = file.write_all_at(&self.staged, self.position);
        written.map_err(fault("writing to", &self.path))?;
        self.position += self.staged.len() as u64;
        self.target.set_end(self.position);
        self.reserved = self.reserved.max(self.position);
        self.staged.clear();
        if self.staged.capacity() > 16 << 20 {
            self.staged = Vec::new();
        }
        Ok(())
    }

    /// Goes on in files, from here on.
    pub(super) fn leave_memory(&mut self) -> Result<(), Error> {
        self.syncer.wait(self.ticket)?;
        let target = Target::in_file(self.path.clone(), segment::open(&self.path)?, self.position);
        let before = std::mem::replace(&mut self.target, Arc::new(target));
        self.memory = None;
        self.reserved = self.position;
        before.close();
        // Whoever reads it finds nothing more there, and looks at the file.
        before.copy().into_iter().for_each(Copy::remove);
        self.syncer.begin(&self.target);
        Ok(())
    }

    /// The newest ticket that is safe; an error once syncing has failed, after which nothing becomes safe.
    pub fn durable(&mut self) -> Result<u64, String> {
        if self.options.durability != Durability::None {
            let durable = self.syncer.durable()?;
            self.durable_ticket = self.durable_ticket.max(durable);
            let mut until = None;
            while let Some((_, offset)) = self.unsafe_until.front().filter(|(ticket, _)| *ticket <= durable) {
                until = Some(*offset);
                self.unsafe_until.pop_front();
            }
            if let Some(offset) = until {
                self.tail.make_durable(offset);
            }
        }
        Ok(self.durable_ticket)
    }

    /// Waits until everything that was committed is safe; an error also if the disk has no room for it.
    pub fn sync(&mut self) -> Result<(), String> {
        if self.options.durability != Durability::None || self.target.copy().is_some() {
            self.syncer.wait(self.ticket).map_err(|error| error.to_string())?;
        }
        self.durable().map(|_| ())
    }

    /// Closes the segment, if it is not, and begins the next one. If there is no room for that, nothing has changed.
    fn roll(&mut self, state: &[u8], is_closed: bool) -> Result<(), Error> {
        // At most the last two segments are not synced, so that opening has to look at no more.
        self.syncer.wait(self.ticket_before)?;
        let path = segment::path(&self.folder, self.next);
        let (target, reserved) = self.next_target(&path, state_room(state))?;
        let target = Arc::new(target);
        if !is_closed {
            let begun = frame::begin(&mut self.staged);
            let (kind, offset) = (Kind::End, self.next);
            #[rustfmt::skip]
            let head = Head { kind, offset, count: 0, session: 0, sequence: 0, arrival: now() };
            frame::finish(&mut self.staged, begun, &head);
            self.write()?;
            // That has to be safe too before the segment after the next begins.
            self.ticket += 1;
        }
        if self.target.copy().is_none() {
            // Room behind the end goes back. Readers never look there.
            let cut = segment::cut(self.target.file()?, self.position, false);
            cut.map_err(fault("cutting", &self.path))?;
        }
        self.target.close();
        self.syncer.begin(&target);
        self.syncer.written(self.ticket);
        self.ticket_before = self.ticket;
        self.closed.push((self.segment, self.position));
        self.segment = self.next;
        self.begun = Instant::now();
        self.target = target;
        self.path = path;
        self.position = 0;
        self.reserved = reserved;
        self.begin_segment(state)
    }

    /// Where the next segment is written, with room for so much or more: how much.
    fn next_target(&mut self, path: &Path, room: u64) -> Result<(Target, u64), Error> {
        self.begun_anew += 1;
        if let Some(spare) = self.spares.pop()
            && let Ok(file) = spare.become_segment(path)
        {
            let length = segment::length(&file, path)? as u64;
            if length >= room {
                return Ok((Target::in_file(path.to_owned(), file, 0), length));
            }
        }
        let memory = self.memory.as_ref();
        let copy = memory.map(|memory| memory.begin(&self.folder, self.next, room));
        if let Some(Ok(copy)) = copy {
            return Ok((Target::in_memory(path.to_owned(), copy, 0, 0), room));
        }
        let file = segment::open(path)?;
        if let Err(error) = allocate(&file, 0, room) {
            let _ = fs::remove_file(path);
            return Err(fault("reserving room in", path)(error));
        }
        Ok((Target::in_file(path.to_owned(), file, 0), room))
    }

    fn begin_segment(&mut self, state: &[u8]) -> Result<(), Error> {
        self.take_room(state_room(state))?;
        self.stage_state(state);
        self.commit().map(|_| ())
    }

    /// Removes the oldest segments that are no longer to be kept; how many.
    pub fn retain(&mut self) -> Result<usize, Error> {
        if self.options.retain_bytes.is_none() && self.options.retain_age.is_none() {
            return Ok(0);
        }
        let needed = consumers::needed(&self.folder, &self.options.consumers, self.tail.durable())?;
        let mut by_lanes = (!self.options.lanes).then_some(u64::MAX);
        let mut removed = 0;
        while let Some((first, _)) = self.closed.first().copied() {
            let after = self.closed.get(1).map_or(self.segment, |(first, _)| *first);
            if after > needed || !self.is_surplus(first) {
                break;
            }
            // Many files are looked at for that, so only where it matters.
            let by_lanes = match by_lanes {
                Some(known) => known,
                None => *by_lanes.insert(consumers::needed_by_lanes(&self.folder, self.tail.durable())?),
            };
            if after > by_lanes && self.age(first).is_none_or(|age| age < consumers::PATIENCE) {
                break;
            }
            let path = segment::path(&self.folder, first);
            // Open, so that only the name goes here: freeing many megabytes takes milliseconds.
            let content = match File::options().read(true).write(true).open(&path) {
                Ok(content) => content,
                // It is in memory only.
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(fault("removing", &path)(error)),
            };
            // Said before it is so: a reader that is told an offset finds it, or learns that it is gone.
            self.tail.keep_from(after);
            self.first = after;
            let is_of_use = self.is_in_memory && self.spares.len() < self.begun_anew;
            let kept = if is_of_use {
                Spare::of(&path, content)
            } else {
                fs::remove_file(&path).map(|()| Err(content))
            };
            match kept.map_err(fault("removing", &path))? {
                Ok(spare) => self.spares.push(spare),
                Err(content) => self.syncer.close(content),
            }
            self.closed.remove(0);
            removed += 1;
        }
        let surplus = self.spares.len().saturating_sub(self.begun_anew);
        self.spares
            .drain(..surplus)
            .for_each(|spare| self.syncer.close(spare.remove()));
        self.begun_anew = 0;
        Ok(removed)
    }

    fn is_surplus(&self, first: u64) -> bool {
        if self.options.retain_bytes.is_some_and(|limit| self.bytes() > limit) {
            return true;
        }
        let limit = self.options.retain_age;
        limit.is_some_and(|limit| self.age(first).is_some_and(|age| age > limit))
    }

    /// How long ago a segment was closed; None: nobody can tell, or in the future.
    fn age(&self, first: u64) -> Option<Duration> {
        let about = fs::metadata(segment::path(&self.folder, first)).ok()?;
        // A clock that is wrong for a moment must not cost what is kept.
        let now = UNIX_EPOCH + Duration::from_micros(steady::now().unsigned_abs());
        now.duration_since(about.modified().ok()?).ok()
    }

    /// The tail, for readers in this process.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.commit();
        let is_safe = self.sync().is_ok();
        match self.target.copy() {
            Some(copy) if is_safe => copy.remove(),
            Some(_) => {}
            None => drop(self.target.file().map(|file| segment::cut(file, self.position, false))),
        }
        self.spares.drain(..).for_each(|spare| drop(spare.remove()));
        self.tail.close();
    }
}

/// What the first frame of a segment needs, with what closes it.
fn state_room(state: &[u8]) -> u64 {
    (state.len() + 3 * frame::HEAD) as u64
}

/// Microseconds by the wall clock.
pub fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as i64)
}

/// Takes the lock on a folder; from one whose supervisor was killed, and which is about to end, when it has.
fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join("lock");
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(fault("opening", &path))?;
    let began = Instant::now();
    loop {
        // SAFETY: a call with an open descriptor and a number.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(file);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock if began.elapsed() < ABOUT_TO_END => thread::sleep(ABOUT_TO_END / 100),
            io::ErrorKind::WouldBlock => return Err(Error::Taken(folder.to_owned())),
            _ => return Err(fault("locking", &path)(error)),
        }
    }
}

/// Where a log goes on that begins, or whose writer left nothing in memory: with so much in the segment's file.
fn first_target(folder: &Path, first: u64, end: u64, memory: Option<&Memory>) -> Result<Target, Error> {
    let path = segment::path(folder, first);
    let file = segment::open(&path)?;
    Ok(match memory.map(|memory| memory.take_over(folder, first, &file, end)) {
        Some(Ok(copy)) => Target::in_memory(path, copy, end, end),
        // Without memory, too.
        Some(Err(_)) | None => Target::in_file(path, file, end),
    })
}

/// What there is of a log.
struct Mended {
    /// The first offsets of its segments.
    firsts: Vec<u64>,
    /// Segments of which there is a copy in memory.
    left: Vec<Arc<Target>>,
    /// If that has more than the disk: the offset after the last record on disk.
    safe: Option<u64>,
}

/// Cuts the last two segments, and before them those that are in memory, where their whole frames end; if one is not closed, those behind it
/// go: they were begun, but what came before them never reached the disk, so nothing in them was called safe.
fn mend(folder: &Path, memory: Option<&Memory>) -> Result<Mended, Error> {
    let mut firsts = segment::list(folder)?;
    let (mut left, mut safe) = (Vec::new(), None);
    let in_memory = Memory::list(folder).into_iter().min();
    let oldest = firsts.iter().position(|first| Some(*first) == in_memory);
    let from = firsts.len().saturating_sub(2).min(oldest.unwrap_or(usize::MAX));
    for at in from..firsts.len() {
        let first = firsts[at];
        let path = segment::path(folder, first);
        let copy = memory.map(|memory| memory.left(folder, first)).transpose();
        let copy = copy.map_err(fault("opening", &path))?.flatten();
        let mut scan = match File::open(&path) {
            Ok(file) => segment::scan_file(&file, &path, first, |_| ())?,
            Err(_) if copy.is_some() => Scan::of_nothing(first),
            Err(error) => return Err(fault("opening", &path)(error)),
        };
        let file = segment::open(&path)?;
        let goes_on = copy.is_none() && !scan.closed;
        segment::cut(&file, scan.end, goes_on).map_err(fault("cutting", &path))?;
        file.sync_all().map_err(fault("syncing", &path))?;
        if let Some(copy) = copy {
            let held = segment::scan_file(copy.file(), &path, first, |_| ())?;
            if held.end < scan.end {
                // One that could not be removed when the disk had all of it.
                copy.remove();
            } else {
                if scan.end < held.end {
                    safe.get_or_insert(scan.next_offset);
                }
                segment::cut(copy.file(), held.end, !held.closed).map_err(fault("cutting", &path))?;
                let target = Target::in_memory(path, copy, held.end, scan.end);
                if held.closed {
                    target.close();
                }
                left.push(Arc::new(target));
                scan = held;
            }
        }
        let follows = firsts
            .get(at + 1)
            .is_none_or(|next| scan.closed && *next == scan.next_offset);
        if !follows {
            for lost in firsts.drain(at + 1..) {
                let copy = memory.map(|memory| memory.left(folder, lost)).transpose();
                let copy = copy.map_err(fault("opening", folder))?.flatten();
                copy.iter().for_each(Copy::remove);
                let path = segment::path(folder, lost);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && copy.is_some() => {}
                    removed => removed.map_err(fault("removing", &path))?,
                }
            }
            break;
        }
    }
    Ok(Mended { firsts, left, safe })
}
