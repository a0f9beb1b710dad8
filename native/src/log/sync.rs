//! When what was written is safe on disk: a thread that syncs, at once or at intervals, and says how far it has come.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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

/// What the thread has to do, and how far it has come. A ticket is the number of an append.
#[derive(Default)]
struct State {
    /// Files that were written, with the newest ticket in each; the last is being written.
    files: VecDeque<(Arc<File>, u64)>,
    /// Files that nobody needs any more, to be closed.
    done_with: Vec<File>,
    durable: u64,
    failed: Option<String>,
    /// Whether somebody waits, so that it is not put off.
    hurry: bool,
    stop: bool,
}

impl State {
    /// Whether something was written that is not safe.
    fn is_behind(&self) -> bool {
        self.files.iter().any(|(_, ticket)| *ticket > self.durable)
    }
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is a few numbers that are never left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The syncing thread, as the writer sees it.
pub struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread; `notify` is called whenever more is safe, or syncing failed.
    pub fn start(durability: Durability, notify: impl Fn() + Send + 'static) -> io::Result<Syncer> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("log-sync".to_owned())
            .spawn(move || run(&theirs, durability, &notify))?;
        Ok(Syncer {
            shared,
            thread: Some(thread),
        })
    }

    /// Says that `file` was written up to this ticket.
    pub fn written(&self, file: &Arc<File>, ticket: u64) {
        let mut state = self.shared.lock();
        let was_behind = state.is_behind();
        match state.files.back_mut() {
            Some((last, newest)) if Arc::ptr_eq(last, file) => *newest = ticket,
            _ => state.files.push_back((Arc::clone(file), ticket)),
        }
        drop(state);
        // Else the thread syncs, or waits for its time, and looks again by itself.
        if !was_behind {
            self.shared.changed.notify_all();
        }
    }

    /// Closes a file, which takes time if that frees what it held.
    pub fn close(&self, file: File) {
        self.shared.lock().done_with.push(file);
        self.shared.changed.notify_all();
    }

    /// The newest ticket that is safe, or why syncing failed; after that nothing becomes safe any more.
    pub fn durable(&self) -> Result<u64, String> {
        let state = self.shared.lock();
        match &state.failed {
            Some(reason) => Err(reason.clone()),
            None => Ok(state.durable),
        }
    }

    /// Waits until this ticket is safe, which is not put off any longer then.
    pub fn wait(&self, ticket: u64) -> Result<(), String> {
        let mut state = self.shared.lock();
        if state.durable < ticket {
            state.hurry = true;
            self.shared.changed.notify_all();
        }
        loop {
            if let Some(reason) = &state.failed {
                return Err(reason.clone());
            }
            if state.durable >= ticket {
                return Ok(());
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, durability: Durability, notify: &dyn Fn()) {
    let pause = match durability {
        Durability::Interval(pause) => pause,
        Durability::Each | Durability::None => Duration::ZERO,
    };
    let mut last = None::<Instant>;
    let mut state = shared.lock();
    loop {
        let due = last.map_or(Duration::ZERO, |last| {
            (last + pause).saturating_duration_since(Instant::now())
        });
        let behind = state.is_behind();
        if behind && (due.is_zero() || state.stop || state.hurry) {
            state.hurry = false;
            let files: Vec<_> = state.files.iter().cloned().collect();
            let failed = state.failed.is_some();
            drop(state);
            last = Some(Instant::now());
            // Segments before the newest are synced in their order, so that what is safe has no gap.
            let result = if failed {
                Ok(())
            } else {
                files.iter().try_for_each(|(file, _)| file.sync_data())
            };
            state = shared.lock();
            match result {
                Ok(()) => {
                    if let Some((_, ticket)) = files.last() {
                        state.durable = *ticket;
                    }
                    // All but the newest are done with.
                    for _ in 1..files.len() {
                        state.files.pop_front();
                    }
                }
                // After a sync that failed the kernel may drop what it could not write: nothing may be called safe.
                Err(error) => {
                    state.failed = Some(format!("syncing the log failed: {error}"));
                    state.files.clear();
                }
            }
            drop(state);
            shared.changed.notify_all();
            notify();
            state = shared.lock();
        } else if behind && state.done_with.is_empty() {
            state = shared
                .changed
                .wait_timeout(state, due)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        } else if !state.done_with.is_empty() {
            let done_with = std::mem::take(&mut state.done_with);
            drop(state);
            drop(done_with);
            state = shared.lock();
        } else if state.stop {
            return;
        } else {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
