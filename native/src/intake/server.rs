//! The loop of the intake: connections take turns, what came in a round is written together, and is acknowledged when safe.
//!
//! Bounds: a connection holds at most one frame that is not whole, or one line; all of them together MAX_HELD; what is not synced is
//! at most MAX_UNSYNCED. Where a bound is reached, sockets are not read, so that suppliers wait.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use std::sync::Arc;

use super::acks::{Due, Waiting};
use super::batches::Found;
use super::config::{Address, Config};
use super::connection::{Connection, Mode, Stream};
use super::dead::DeadLetters;
use super::decode::Decoder;
use super::listen::{Listener, raise_file_limit};
use super::pace::{Pace, Patients};
use super::rank::{Rank, Verdict, become_realtime};
use super::readers;
use super::reload::Signal;
use super::sequencer::Sequencer;
use super::wire::Refusal;
use crate::log::{Error, Log, schema};
use crate::record::{Encoder, Schema};
use crate::service::scheduling::monotonic;

/// What may be written and not synced; beyond it nothing is read.
const MAX_UNSYNCED: usize = 64 << 20;
/// Who has not said who it is by then is closed.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// How often a full disk is tried again.
const RETRY: Duration = Duration::from_millis(50);
const TICK: Duration = Duration::from_secs(1);

const WAKER: Token = Token(usize::MAX);
const SIGNAL: Token = Token(usize::MAX - 1);
const PATIENT: Token = Token(usize::MAX - 2);
const FIRST_LISTENER: usize = usize::MAX / 2;

/// What happened, for whoever asks.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Counters {
    /// Events that were appended.
    pub accepted: u64,
    /// Of those, late ones.
    pub late: u64,
    /// Of those, duplicates.
    pub duplicates: u64,
    /// Records of batches that came again, and were not appended again.
    pub resent: u64,
    /// Dead letters by code.
    pub dead_letters: HashMap<&'static str, u64>,
    /// Connections that were made.
    pub connections: u64,
    /// Those that are open.
    pub open: usize,
    /// Those that ended in the middle of a frame.
    pub cut: u64,
    /// Those that were closed for what they sent.
    pub refused: u64,
    /// How often a batch had to wait for room on disk.
    pub full: u64,
    /// How often the configuration was read again.
    pub reloads: u64,
    /// What was wrong with it the last time.
    pub reload_error: Option<String>,
    /// How often segments that are not to be kept could not be removed.
    pub retention_failures: u64,
    /// How often patient connections had to wait for the next period, because the intake's share of this one was used up.
    pub rests: u64,
    /// How often that was not enough, and it lost its priority until the next one.
    pub ordinary: u64,
}

/// The intake.
pub struct Server {
    pub(super) config: Config,
    pub(super) decoder: Decoder,
    pub(super) layouts: Vec<Schema>,
    pub(super) sequencer: Sequencer,
    pub(super) log: Log,
    pub(super) dead: DeadLetters,
    pub(super) encoder: Encoder,
    pub(super) counters: Counters,
    /// Acknowledgements of what was staged and not yet committed.
    pub(super) fresh: Vec<(usize, u64, Due)>,
    /// The connection that each session has.
    pub(super) suppliers: HashMap<u64, usize>,
    pub(super) poll: Poll,
    pace: Pace,
    listeners: Vec<Listener>,
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) free: Vec<usize>,
    generations: u64,
    pub(super) ready: VecDeque<usize>,
    pub(super) stalled: Vec<usize>,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) unsynced: usize,
    /// Whether what is staged could not be written for want of room.
    pub(super) blocked: bool,
    pub(super) spare: Vec<u8>,
    /// Room for what is found in a batch, and for what is acknowledged at once.
    pub(super) found: Vec<Found>,
    pub(super) reached: HashMap<usize, (u64, Due)>,
    pub(super) readers: readers::Pool,
    last_tick: Instant,
    /// Whether whoever wants to connect can: else too many files are open.
    is_accepting: bool,
    pub(super) signals: Option<File>,
    realtime: Option<bool>,
    /// Called when what came was written, if someone in this process wants to know.
    written: Option<Box<dyn Fn() + Send>>,
}

impl Server {
    /// Opens the log and listens. `signal` is read for numbers of signals, a byte each: SIGHUP reads the configuration
    /// again, any other ends the intake.
    pub fn open(config: Config, signal: Option<OwnedFd>) -> Result<Server, String> {
        let poll = Poll::new().map_err(|error| format!("epoll: {error}"))?;
        let registry = poll.registry();
        let waker = Arc::new(Waker::new(registry, WAKER).map_err(|error| format!("epoll: {error}"))?);
        let notify = || {
            let waker = Arc::clone(&waker);
            move || drop(waker.wake())
        };
        let mut sequencer = Sequencer::new(&config);
        let mut same = true;
        let folder = config.log.path.clone();
        let recover = |firsts: &[u64]| {
            same = sequencer.recover(&folder, firsts)?;
            Ok(sequencer.state())
        };
        let mut log =
            Log::open(&folder, config.log_options()?, recover, notify()).map_err(|error| error.to_string())?;
        if !same {
            // The streams have changed: from here on, records are by the new ones.
            let state = sequencer.state();
            let added = log
                .reserve(state.len() + 64, || state.clone())
                .map(|()| log.stage_state(&state));
            added.and_then(|()| log.commit()).map_err(|error| error.to_string())?;
        }
        let dead = DeadLetters::open(&folder, &config, notify()).map_err(|error| error.to_string())?;
        let mut listeners = Vec::new();
        for (number, text) in config.listen.iter().enumerate() {
            let address = Address::parse(text).ok_or_else(|| format!("'{text}' is no address"))?;
            let listener = Listener::open(&address, config.token.is_some())?;
            registry
                .register(
                    &mut SourceFd(&listener.fd()),
                    Token(FIRST_LISTENER + number),
                    Interest::READABLE,
                )
                .map_err(|error| format!("{text}: {error}"))?;
            listeners.push(listener);
        }
        if let Some(signal) = &signal {
            registry
                .register(&mut SourceFd(&signal.as_raw_fd()), SIGNAL, Interest::READABLE)
                .map_err(|error| format!("the descriptor for signals: {error}"))?;
        }
        raise_file_limit();
        let realtime = config.priority.map(become_realtime);
        Ok(Server {
            decoder: config.decoder()?,
            layouts: schema::layouts(&config.schemas())?,
            config,
            sequencer,
            log,
            dead,
            encoder: Encoder::new(),
            counters: Counters::default(),
            fresh: Vec::new(),
            suppliers: HashMap::new(),
            pace: Pace::new(poll.registry(), PATIENT).map_err(|error| format!("epoll: {error}"))?,
            poll,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            generations: 0,
            ready: VecDeque::new(),
            stalled: Vec::new(),
            waiting: VecDeque::new(),
            unsynced: 0,
            blocked: false,
            spare: Vec::new(),
            found: Vec::new(),
            reached: HashMap::new(),
            readers: readers::Pool::new(folder),
            last_tick: Instant::now(),
            is_accepting: true,
            signals: signal.map(File::from),
            realtime,
            written: None,
        })
    }

    /// Calls this on its thread when what came was written, before it is acknowledged. It should not take long.
    pub fn tell(&mut self, written: impl Fn() + Send + 'static) {
        self.written = Some(Box::new(written));
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<String> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// Whether the loop has the real-time priority that was asked for; None: none was.
    pub fn realtime(&self) -> Option<bool> {
        self.realtime
    }

    /// Runs until the signal comes; an error is one that only a new start can mend.
    pub fn run(&mut self) -> Result<(), String> {
        let mut events = Events::with_capacity(1024);
        let mut rank = self.realtime.filter(|is| *is).and(self.config.priority).map(Rank::new);
        loop {
            let pressed = self.unsynced > MAX_UNSYNCED || self.blocked;
            let timeout = match () {
                () if !self.ready.is_empty() && !pressed => Duration::ZERO,
                () if self.blocked || !self.stalled.is_empty() => RETRY,
                () => TICK,
            };
            match self.pace.wait(&mut self.poll, &mut events, timeout, !pressed) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(format!("epoll: {error}")),
                _ => {}
            }
            if let Some(rank) = &mut rank {
                rank.begin(timeout.is_zero());
            }
            for event in &events {
                match event.token() {
                    SIGNAL => match self.signal() {
                        Signal::End => return self.end(),
                        Signal::Reload => self.reload(),
                    },
                    WAKER => {}
                    PATIENT => self.pace.tell(),
                    Token(at) if at >= FIRST_LISTENER => self.accept(at - FIRST_LISTENER),
                    Token(at) => {
                        if event.is_writable() {
                            self.flush(at);
                        }
                        if event.is_readable() || event.is_error() || event.is_read_closed() {
                            self.queue(at);
                        }
                    }
                }
            }
            if !pressed {
                self.turns()?;
            }
            self.commit_or_wait()?;
            if let Some(written) = &self.written {
                let began = monotonic();
                written();
                if let Some(rank) = &mut rank {
                    rank.leave_out(monotonic() - began);
                }
            }
            self.acknowledge()?;
            if self.last_tick.elapsed() >= TICK {
                self.tick();
            }
            match rank.as_mut().map(|rank| rank.account(self.pace.patients())) {
                Some(Verdict::Rest(span)) => self.rest(span).map_err(|error| format!("epoll: {error}"))?,
                Some(Verdict::Ordinary) => self.counters.ordinary += 1,
                Some(Verdict::GoOn) | None => {}
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        // Before the lock on the log is let go of: who waits for that listens at the same places.
        self.listeners.clear();
        self.commit().map_err(|error| error.to_string())?;
        self.log.sync()?;
        self.acknowledge()
    }

    fn accept(&mut self, listener: usize) {
        // Bounded, so that those who connect don't hold up those who send.
        for _ in 0..256 {
            let (stream, source, trusted) = match self.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // One that is gone already, or too many open files. The poll tells it once only, so it is asked again
                // when one has gone, and at the next tick; the others go on.
                Err(_) => {
                    self.is_accepting = false;
                    return;
                }
            };
            self.counters.connections += 1;
            self.generations += 1;
            let mut connection = Connection::new(stream, source, trusted, self.generations);
            if self.counters.open >= self.config.connections {
                let reason = format!("there are {} connections, and no more are taken", self.counters.open);
                connection.refuse(0, &Refusal::fatal("too-many-connections", reason));
                connection.flush();
                self.counters.refused += 1;
                continue;
            }
            let at = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self
                .poll
                .registry()
                .register(&mut SourceFd(&connection.stream.fd()), Token(at), interest)
                .is_ok()
            {
                self.connections[at] = Some(connection);
                self.counters.open += 1;
            } else {
                self.free.push(at);
            }
        }
        // There may be more, and the poll tells it once only.
        self.ask_again(listener);
    }

    fn ask_again(&self, listener: usize) {
        let _ = self.poll.registry().reregister(
            &mut SourceFd(&self.listeners[listener].fd()),
            Token(FIRST_LISTENER + listener),
            Interest::READABLE,
        );
    }

    pub(super) fn queue(&mut self, at: usize) {
        queue(&mut self.connections, &mut self.ready, at);
    }

    /// Queues the patient connections if it is their turn.
    pub(super) fn queue_patient(&mut self) -> io::Result<()> {
        let Server {
            pace,
            poll,
            connections,
            ready,
            ..
        } = self;
        pace.turn(poll.registry(), |at| queue(connections, ready, at))
    }

    /// Lets patient connections have no turn for so long, also those that are in the middle of something.
    fn rest(&mut self, span: Duration) -> io::Result<()> {
        self.counters.rests += 1;
        for _ in 0..self.ready.len() {
            let Some(at) = self.ready.pop_front() else { break };
            match self.connections[at].as_mut() {
                Some(connection) if connection.is_patient => {
                    connection.queued = false;
                    self.pace.hold(at);
                }
                _ => self.ready.push_back(at),
            }
        }
        self.pace.rest(self.poll.registry(), span)
    }

    /// Gives a connection that has more another turn: at once, or when patient ones have theirs again.
    pub(super) fn queue_again(&mut self, at: usize, is_patient: bool) {
        if is_patient && self.pace.patients() == Patients::Resting {
            self.pace.hold(at);
        } else {
            self.queue(at);
        }
    }

    /// Has a connection wait with its events from now on, or not any more.
    pub(super) fn set_patient(&self, at: usize, connection: &mut Connection, is_patient: bool) {
        if connection.is_patient == is_patient {
            return;
        }
        let descriptor = connection.stream.fd();
        let _ = self.registry_of(connection).deregister(&mut SourceFd(&descriptor));
        connection.is_patient = is_patient;
        let interest = Interest::READABLE | Interest::WRITABLE;
        // It is told of what it has now, too.
        if self
            .registry_of(connection)
            .register(&mut SourceFd(&descriptor), Token(at), interest)
            .is_err()
        {
            connection.ended = true;
        }
    }

    /// Where a connection is registered.
    pub(super) fn registry_of(&self, connection: &Connection) -> &Registry {
        if connection.is_patient {
            self.pace.registry()
        } else {
            self.poll.registry()
        }
    }

    pub(super) fn flush(&mut self, at: usize) {
        let keep = self
            .connections
            .get_mut(at)
            .and_then(Option::as_mut)
            .is_none_or(Connection::flush);
        if !keep {
            self.close(at);
        }
    }

    pub(super) fn close(&mut self, at: usize) {
        if let Some(connection) = self.connections.get_mut(at).and_then(Option::take) {
            let _ = self
                .registry_of(&connection)
                .deregister(&mut SourceFd(&connection.stream.fd()));
            if let Mode::Supplier(session) = connection.mode
                && self.suppliers.get(&session) == Some(&at)
            {
                self.suppliers.remove(&session);
            }
            self.counters.open -= 1;
            self.free.push(at);
            drop(connection.stream);
            self.accept_again();
        }
    }

    /// Asks for whoever could not be accepted, if somebody could not.
    fn accept_again(&mut self) {
        if !std::mem::replace(&mut self.is_accepting, true) {
            (0..self.listeners.len()).for_each(|listener| self.ask_again(listener));
        }
    }

    /// Ends a connection with a word on why.
    pub(super) fn refuse_and_close(&mut self, at: usize, refusal: &Refusal) {
        if let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) {
            connection.refuse(0, refusal);
            connection.flush();
        }
        self.close(at);
    }

    /// Begins a new segment of the log where the last is old, so that what is in it can go in time.
    fn close_what_is_old(&mut self) -> Result<(), Error> {
        if self.log.needs_segment(0) {
            self.commit()?;
            let Server { sequencer, log, .. } = self;
            log.reserve(0, || sequencer.state())?;
        }
        Ok(())
    }

    /// What is done once a second.
    fn tick(&mut self) {
        self.last_tick = Instant::now();
        self.tell_who_waits();
        self.accept_again();
        // What can't be removed is tried again; taking events goes on.
        let failed = [
            self.close_what_is_old().is_err(),
            self.log.retain().is_err(),
            self.dead.retain().is_err(),
        ];
        self.counters.retention_failures += u64::from(failed.contains(&true));
        let silent: Vec<usize> = (0..self.connections.len())
            .filter(|at| {
                self.connections[*at].as_ref().is_some_and(|connection| {
                    matches!(
                        connection.mode,
                        Mode::New | Mode::Framed | Mode::Text { allowed: false, .. }
                    ) && connection.began.elapsed() > MAX_SILENCE
                })
            })
            .collect();
        for at in silent {
            self.counters.refused += 1;
            let reason = format!("nothing was said for {} s", MAX_SILENCE.as_secs());
            self.refuse_and_close(at, &Refusal::fatal("silent", reason));
        }
    }
}

fn queue(connections: &mut [Option<Connection>], ready: &mut VecDeque<usize>, at: usize) {
    if let Some(connection) = connections.get_mut(at).and_then(Option::as_mut)
        && !connection.queued
    {
        connection.queued = true;
        ready.push_back(at);
    }
}

/// Writes everything, or says why not; for sockets that wait.
pub(super) fn send_all(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    (&mut &*stream).write_all(bytes)
}

/// Reads exactly so much; for sockets that wait.
pub(super) fn receive(stream: &Stream, bytes: &mut [u8]) -> io::Result<()> {
    (&mut &*stream).read_exact(bytes)
}
