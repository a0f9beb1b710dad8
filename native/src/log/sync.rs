//! When what was written is safe on disk: a thread that brings it there from memory (memory.rs) and syncs, at once or at intervals, and
//! says how far it has come.
//!
//! The writer may have a real-time priority, and then this thread has one just below it: it takes its time on a processor like the writer's,
//! or else nothing would become safe where real-time threads fill the cores. But it waits for the disk, and so the writer never waits
//! for it: what both do all the time takes no lock.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::memory::{Copy, piece};
use super::segment;
use super::{Error, Options, fault};
use crate::service::scheduling::{Policy, adopt};

/// When an append counts as safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it was synced, which is begun at once; appends that come meanwhile are synced together.
    Each,
    /// When it was synced, which is done at most once in this time.
    Interval(Duration),
    /// When it was handed to the operating system: it survives the end of the process, not that of the machine.
    None,
}

/// With no durability, what is in memory is brought to disk so often.
const BROUGHT_EVERY: Duration = Duration::from_millis(10);
/// A disk that had no room is tried again after this.
const TRIED_AGAIN: Duration = Duration::from_millis(50);

impl Durability {
    /// From `each`, `none`, or `interval` with microseconds.
    pub fn parse(text: &str) -> Option<Durability> {
        match text.split_once(' ') {
            None if text == "each" => Some(Durability::Each),
            None if text == "none" => Some(Durability::None),
            Some(("interval", micros)) => Some(Durability::Interval(Duration::from_micros(micros.parse().ok()?))),
            _ => None,
        }
    }
}

/// A segment that is written: its file, and its copy in memory if it is written there.
pub struct Target {
    path: PathBuf,
    /// Made when it is first needed.
    file: OnceLock<File>,
    copy: Option<Copy>,
    /// How far it is written, and how far the file has that.
    end: AtomicU64,
    brought: AtomicU64,
    is_closed: AtomicBool,
}

impl Target {
    /// One that is written to a file, up to there so far.
    pub fn in_file(path: PathBuf, file: File, end: u64) -> Target {
        Target {
            file: file.into(),
            ..Target::new(path, None, end, end)
        }
    }

    /// One that is written to memory, up to there so far, and of which the file has that much.
    pub fn in_memory(path: PathBuf, copy: Copy, end: u64, brought: u64) -> Target {
        Target::new(path, Some(copy), end, brought)
    }

    fn new(path: PathBuf, copy: Option<Copy>, end: u64, brought: u64) -> Target {
        Target {
            path,
            file: OnceLock::new(),
            copy,
            end: AtomicU64::new(end),
            brought: AtomicU64::new(brought),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its copy in memory, to which it is written if there is one.
    pub fn copy(&self) -> Option<&Copy> {
        self.copy.as_ref()
    }

    /// Its file.
    pub fn file(&self) -> Result<&File, Error> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = segment::open(&self.path)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// The writer's: it is written up to here.
    pub fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// The writer's: nothing more comes.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// Brings to the file what is in memory only.
    fn bring(&self, piece: &mut [u8]) -> Result<(), Error> {
        let file = self.file()?;
        let Some(copy) = &self.copy else { return Ok(()) };
        let (from, end) = (self.brought.load(Ordering::Relaxed), self.end.load(Ordering::Acquire));
        copy.bring(file, from, end, piece)
            .map_err(fault("writing to", &self.path))?;
        self.brought.store(end, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        self.file()?.sync_data().map_err(not_synced(&self.path))
    }
}

/// Want of room, too, is final here: the kernel says once that it could not write something, and then may have dropped it.
fn not_synced(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::Io("syncing", path.to_owned(), error)
}

/// What is rarely looked at.
#[derive(Default)]
struct State {
    /// Segments that were written and may not be safe; the last is being written.
    targets: VecDeque<Arc<Target>>,
    /// Whether the last is one whose name may not be safe yet.
    is_new: bool,
    /// Files that nobody needs any more, to be closed.
    done_with: Vec<File>,
}

/// A ticket is the number of an append.
#[derive(Default)]
struct Shared {
    written: AtomicU64,
    durable: AtomicU64,
    /// Whether there was no room on disk the last time.
    is_full: AtomicBool,
    failed: OnceLock<String>,
    /// Whether somebody waits, so that it is not put off.
    hurry: AtomicBool,
    stop: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is never left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The syncing thread, as the writer sees it.
pub struct Syncer {
    folder: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread for the segments of a folder; `notify` is called whenever more is safe, or syncing failed.
    pub fn start(folder: &Path, options: &Options, notify: impl Fn() + Send + 'static) -> io::Result<Syncer> {
        let shared = Arc::new(Shared::default());
        let work = Work {
            shared: Arc::clone(&shared),
            folder: folder.to_owned(),
            durability: options.durability,
            last: None,
            targets: Vec::new(),
            piece: piece(),
        };
        let priority = options.priority;
        let thread = thread::Builder::new().name("log-sync".to_owned()).spawn(move || {
            if let Some(priority) = priority {
                // Without the privilege, as it is.
                let _ = adopt(Policy::RoundRobin(priority));
            }
            work.run(&notify);
        })?;
        Ok(Syncer {
            folder: folder.to_owned(),
            shared,
            thread: Some(thread),
        })
    }

    /// What is written from now on goes here.
    pub fn begin(&self, target: &Arc<Target>) {
        let mut state = self.shared.lock();
        state.targets.push_back(Arc::clone(target));
        state.is_new = true;
    }

    /// Says that up to this ticket all was written.
    pub fn written(&self, ticket: u64) {
        let before = self.shared.written.swap(ticket, Ordering::SeqCst);
        // Else the thread is at work, or waits for its time, and looks again by itself.
        if self.shared.durable.load(Ordering::SeqCst) >= before {
            self.wake();
        }
    }

    /// Closes a file, which takes time if that frees what it held.
    pub fn close(&self, file: File) {
        self.shared.lock().done_with.push(file);
        self.wake();
    }

    /// The newest ticket that is safe, or why syncing failed; after that nothing becomes safe any more.
    pub fn durable(&self) -> Result<u64, String> {
        match self.shared.failed.get() {
            Some(reason) => Err(reason.clone()),
            None => Ok(self.shared.durable.load(Ordering::SeqCst)),
        }
    }

    /// Whether the disk had no room for what is in memory; it is tried again and again.
    pub fn is_full(&self) -> bool {
        self.shared.is_full.load(Ordering::Relaxed)
    }

    /// Waits until this ticket is safe, which is not put off any longer then; Full if the disk has no room for it.
    pub fn wait(&self, ticket: u64) -> Result<(), Error> {
        if !self.is_done(ticket)? {
            self.shared.hurry.store(true, Ordering::SeqCst);
            self.wake();
        }
        let mut state = self.shared.lock();
        loop {
            if self.is_done(ticket)? {
                return Ok(());
            }
            if self.is_full() {
                return Err(Error::Full(io::Error::from_raw_os_error(libc::ENOSPC)));
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn is_done(&self, ticket: u64) -> Result<bool, Error> {
        let failed = |reason| Error::Io("keeping", self.folder.clone(), io::Error::other(reason));
        self.durable().map(|durable| durable >= ticket).map_err(failed)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread.
struct Work {
    shared: Arc<Shared>,
    folder: PathBuf,
    durability: Durability,
    last: Option<Instant>,
    /// Those of a round; empty between rounds, and kept for its room.
    targets: Vec<Arc<Target>>,
    piece: Box<[u8]>,
}

impl Work {
    fn run(mut self, notify: &dyn Fn()) {
        loop {
            // First: who asks for it waits for what was written before.
            let is_asked = self.shared.hurry.swap(false, Ordering::SeqCst);
            let written = self.shared.written.load(Ordering::SeqCst);
            let is_behind = written > self.shared.durable.load(Ordering::SeqCst) && self.shared.failed.get().is_none();
            let is_last = self.shared.stop.load(Ordering::SeqCst);
            let due = self.due();
            let done_with = std::mem::take(&mut self.shared.lock().done_with);
            let is_idle = done_with.is_empty();
            drop(done_with);
            if is_behind && (due.is_zero() || is_last || is_asked) {
                let is_done = self.round(written);
                // Before those that wait look again, or after they began to wait.
                drop(self.shared.lock());
                self.shared.changed.notify_all();
                notify();
                if is_last && !is_done {
                    return; // no room for it; what is in memory stays there
                }
            } else if is_behind {
                thread::park_timeout(due);
            } else if is_last {
                return;
            } else if is_idle {
                thread::park();
            }
        }
    }

    /// How long it is until the next round.
    fn due(&self) -> Duration {
        let pause = match self.durability {
            _ if self.shared.is_full.load(Ordering::Relaxed) => TRIED_AGAIN,
            Durability::Interval(pause) => pause,
            Durability::Each => Duration::ZERO,
            Durability::None => BROUGHT_EVERY,
        };
        let left = |last: Instant| (last + pause).saturating_duration_since(Instant::now());
        self.last.map_or(Duration::ZERO, left)
    }

    /// Makes safe what was written up to a ticket; whether it is.
    fn round(&mut self, written: u64) -> bool {
        self.last = Some(Instant::now());
        let mut targets = std::mem::take(&mut self.targets);
        let is_new = {
            let state = self.shared.lock();
            targets.extend(state.targets.iter().cloned());
            state.is_new
        };
        let is_safe = match self.make_safe(&targets, is_new) {
            Ok(()) => {
                self.shared.is_full.store(false, Ordering::Relaxed);
                self.shared.durable.store(written, Ordering::SeqCst);
                let mut state = self.shared.lock();
                // All but the newest are done with.
                for done in state.targets.drain(..targets.len().saturating_sub(1)) {
                    done.copy().into_iter().for_each(Copy::remove);
                }
                state.is_new &= state.targets.len() > 1;
                true
            }
            Err(Error::Full(_)) => {
                self.shared.is_full.store(true, Ordering::Relaxed);
                false
            }
            // After a sync that failed the kernel may drop what it could not write: nothing may be called safe.
            Err(error) => {
                let _ = self.shared.failed.set(format!("keeping the log failed: {error}"));
                false
            }
        };
        // Without the lock: the last who has a segment closes its files.
        targets.clear();
        self.targets = targets;
        is_safe
    }

    /// Segments before the newest come in their order, so that what is safe has no gap. A name has to be as safe as what is in the file.
    fn make_safe(&mut self, targets: &[Arc<Target>], is_new: bool) -> Result<(), Error> {
        for target in targets {
            let is_closed = target.is_closed.load(Ordering::Acquire);
            target.bring(&mut self.piece)?;
            if self.durability != Durability::None || is_closed {
                target.sync()?;
            }
        }
        if is_new {
            let folder = File::open(&self.folder).map_err(fault("opening", &self.folder))?;
            folder.sync_all().map_err(not_synced(&self.folder))?;
        }
        Ok(())
    }
}
