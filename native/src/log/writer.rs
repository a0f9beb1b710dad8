//! The writer of a log: reserves room, collects frames, writes them together, and publishes what was written.
//!
//! Room is reserved before anything is decided about a batch. So a full disk is an answer to the supplier ("not now"), and what
//! was decided never has to be taken back.

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
use super::segment::{self, Scan};
use super::sync::{Durability, Syncer};
use super::tail::Tail;
use super::{Error, consumers, fault};

/// Room is taken from the file system in steps of at most this size, and of a 64th of a segment: in memory a megabyte takes
/// half a millisecond, in which nothing comes in.
const MAX_STEP: u64 = 1 << 20;
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
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Interval(Duration::from_millis(10)),
            segment_bytes: 64 << 20,
            retain_bytes: None,
            retain_age: None,
            consumers: Vec::new(),
        }
    }
}

/// A log that is being written. There is one writer; a lock on the folder sees to that.
pub struct Log {
    folder: PathBuf,
    options: Options,
    _lock: File,
    file: Arc<File>,
    path: PathBuf,
    /// The first offset of the segment.
    segment: u64,
    /// Where the next frame is written in the segment.
    position: u64,
    /// How far room is reserved in it.
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
        let lock = lock(folder)?;
        let firsts = mend(folder)?;
        let state = recover(&firsts)?;
        let (oldest, newest) = (
            firsts.first().copied().unwrap_or(0),
            firsts.last().copied().unwrap_or(0),
        );
        let scan = match firsts.last() {
            Some(last) => segment::scan(folder, *last, |_| ())?,
            None => Scan {
                end: 0,
                next_offset: 0,
                closed: false,
                torn: None,
            },
        };
        let mut closed = Vec::new();
        for first in firsts.iter().take(firsts.len().saturating_sub(1)) {
            let path = segment::path(folder, *first);
            closed.push((*first, fs::metadata(&path).map_err(fault("reading", &path))?.len()));
        }
        let path = segment::path(folder, newest);
        let file = open_segment(&path)?;
        let syncer = Syncer::start(options.durability, notify).map_err(fault("starting a thread for", folder))?;
        let tail = Tail::create(folder, oldest, scan.next_offset).map_err(fault("making the tail of", folder))?;
        let mut log = Log {
            folder: folder.to_owned(),
            options,
            _lock: lock,
            file,
            path,
            segment: newest,
            position: scan.end,
            reserved: scan.end,
            staged: Vec::new(),
            next: scan.next_offset,
            closed,
            first: oldest,
            ticket: 0,
            unsafe_until: VecDeque::new(),
            durable_ticket: 0,
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

    /// Bytes that it takes on disk, without what is reserved.
    pub fn bytes(&self) -> u64 {
        self.position + self.closed.iter().map(|(_, size)| size).sum::<u64>()
    }

    /// Whether frames of `bytes` altogether need a new segment.
    pub fn needs_segment(&self, bytes: usize) -> bool {
        // A segment without a record can't be followed by another, which would have the same name.
        self.needed(bytes) > self.options.segment_bytes && self.next > self.segment
    }

    /// Where the segment would end; room for the frame that closes it is always kept.
    fn needed(&self, bytes: usize) -> u64 {
        self.position + (self.staged.len() + bytes + frame::HEAD) as u64
    }

    /// Sees to it that frames of `bytes` altogether can be staged, in this segment or a new one, for which `state` is
    /// asked. If this succeeds, staging and committing that much does not fail for want of room.
    pub fn reserve(&mut self, bytes: usize, state: impl FnOnce() -> Vec<u8>) -> Result<(), Error> {
        if self.needs_segment(bytes) {
            self.commit()?;
            self.roll(&state(), false)?;
        }
        self.take_room(self.needed(bytes))
    }

    fn take_room(&mut self, until: u64) -> Result<(), Error> {
        if until <= self.reserved {
            return Ok(());
        }
        // A whole step if there is room for one, else what is needed.
        let step = until.next_multiple_of((self.options.segment_bytes / 64).clamp(MIN_STEP, MAX_STEP));
        let allocated = allocate(&self.file, self.position, step - self.position);
        let (allocated, reserved) = match allocated {
            Err(_) => (allocate(&self.file, self.position, until - self.position), until),
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
        } else {
            self.unsafe_until.push_back((self.ticket, self.next));
            self.syncer.written(&self.file, self.ticket);
        }
        if self.options.durability == Durability::None {
            self.tail.make_durable(self.next);
        }
        Ok(self.ticket)
    }

    fn write(&mut self) -> Result<(), Error> {
        self.file
            .write_all_at(&self.staged, self.position)
            .map_err(fault("writing to", &self.path))?;
        self.position += self.staged.len() as u64;
        self.reserved = self.reserved.max(self.position);
        self.staged.clear();
        if self.staged.capacity() > 16 << 20 {
            self.staged = Vec::new();
        }
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

    /// Waits until everything that was committed is safe.
    pub fn sync(&mut self) -> Result<(), String> {
        if self.options.durability != Durability::None {
            self.syncer.wait(self.ticket)?;
        }
        self.durable().map(|_| ())
    }

    /// Closes the segment, if it is not, and begins the next one. If there is no room for that, nothing has changed.
    fn roll(&mut self, state: &[u8], is_closed: bool) -> Result<(), Error> {
        let path = segment::path(&self.folder, self.next);
        let file = open_segment(&path)?;
        let room = state_room(state);
        if let Err(error) = allocate(&file, 0, room) {
            let _ = fs::remove_file(&path);
            return Err(fault("reserving room in", &path)(error));
        }
        // At most the last two segments are not synced, so that opening has to look at no more.
        self.syncer
            .wait(self.ticket_before)
            .map_err(|reason| Error::Io("syncing", self.path.clone(), io::Error::other(reason)))?;
        if !is_closed {
            let begun = frame::begin(&mut self.staged);
            let (kind, offset) = (Kind::End, self.next);
            #[rustfmt::skip]
            let head = Head { kind, offset, count: 0, session: 0, sequence: 0, arrival: now() };
            frame::finish(&mut self.staged, begun, &head);
            self.write()?;
        }
        // Room behind the end goes back. Readers never look there.
        self.file.set_len(self.position).map_err(fault("cutting", &self.path))?;
        if self.options.durability == Durability::None {
            self.syncer.written(&self.file, self.ticket);
        }
        self.ticket_before = self.ticket;
        self.closed.push((self.segment, self.position));
        self.segment = self.next;
        self.file = file;
        self.path = path;
        self.position = 0;
        self.reserved = room;
        self.begin_segment(state)
    }

    fn begin_segment(&mut self, state: &[u8]) -> Result<(), Error> {
        self.take_room(state_room(state))?;
        self.stage_state(state);
        self.commit()?;
        // The name has to be as safe as what is in the file.
        let folder = File::open(&self.folder).map_err(fault("opening", &self.folder))?;
        folder.sync_all().map_err(fault("syncing", &self.folder))
    }

    /// Removes the oldest segments that are no longer to be kept; how many.
    pub fn retain(&mut self) -> Result<usize, Error> {
        if self.options.retain_bytes.is_none() && self.options.retain_age.is_none() {
            return Ok(0);
        }
        let mut needed = self.tail.durable();
        for consumer in &self.options.consumers {
            needed = needed.min(consumers::committed(&self.folder, consumer)?.unwrap_or(0));
        }
        let mut removed = 0;
        while let Some((first, _)) = self.closed.get(removed).copied() {
            let after = self.closed.get(removed + 1).map_or(self.segment, |(first, _)| *first);
            if after > needed || !self.is_surplus(first, removed) {
                break;
            }
            // Said before it is so: a reader that is told an offset finds it, or learns that it is gone.
            self.tail.keep_from(after);
            self.first = after;
            let path = segment::path(&self.folder, first);
            // Open, so that only the name goes here: freeing many megabytes takes milliseconds.
            let content = File::open(&path).map_err(fault("removing", &path))?;
            fs::remove_file(&path).map_err(fault("removing", &path))?;
            self.syncer.close(content);
            removed += 1;
        }
        self.closed.drain(..removed);
        Ok(removed)
    }

    fn is_surplus(&self, first: u64, removed: usize) -> bool {
        let kept: u64 = self.position + self.closed.iter().skip(removed).map(|(_, size)| size).sum::<u64>();
        if self.options.retain_bytes.is_some_and(|limit| kept > limit) {
            return true;
        }
        let closed_at = fs::metadata(segment::path(&self.folder, first)).and_then(|about| about.modified());
        match (self.options.retain_age, closed_at) {
            (Some(limit), Ok(at)) => {
                // A clock that is wrong for a moment must not cost what is kept.
                let now = UNIX_EPOCH + Duration::from_micros(steady::now().unsigned_abs());
                now.duration_since(at).is_ok_and(|age| age > limit)
            }
            _ => false,
        }
    }

    /// The tail, for readers in this process.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.commit();
        let _ = self.sync();
        let _ = self.file.set_len(self.position);
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

fn open_segment(path: &Path) -> Result<Arc<File>, Error> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(false).open(path);
    Ok(Arc::new(opened.map_err(fault("opening", path))?))
}

/// Takes room on disk, so that writing there can't fail for want of it.
fn allocate(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: a call with an open descriptor and two numbers.
    let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), from as libc::off_t, bytes as libc::off_t) };
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}

/// Takes the lock on a folder; from one whose supervisor was killed, and which is about to end, when it has.
fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
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

/// Cuts the last two segments where their whole frames end; if the one before the last is not closed, the last goes: it
/// was begun, but what came before it never reached the disk, so nothing in it was called safe. The segments there are.
fn mend(folder: &Path) -> Result<Vec<u64>, Error> {
    let mut firsts = segment::list(folder)?;
    let from = firsts.len().saturating_sub(2);
    for at in from..firsts.len() {
        let first = firsts[at];
        let scan = segment::scan(folder, first, |_| ())?;
        let path = segment::path(folder, first);
        let file = open_segment(&path)?;
        file.set_len(scan.end).map_err(fault("cutting", &path))?;
        file.sync_all().map_err(fault("syncing", &path))?;
        let follows = firsts
            .get(at + 1)
            .is_none_or(|next| scan.closed && *next == scan.next_offset);
        if !follows {
            for lost in firsts.drain(at + 1..) {
                let path = segment::path(folder, lost);
                fs::remove_file(&path).map_err(fault("removing", &path))?;
            }
            break;
        }
    }
    Ok(firsts)
}
