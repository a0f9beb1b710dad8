//! The thread that delivers to a consumer's clients, at the priority of the consumer's level.
//!
//! It takes what waits in the consumer's queue and writes it to each client's socket itself, so that between a worker's
//! push and the socket one thread wakes. No client is waited for: what its socket does not take waits here, up to a
//! bound, and then the oldest goes and is counted. While all clients are behind, events stay in the consumer's own queue,
//! which has its bound and counts too. So neither a worker nor another client is held up by who does not read.

use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::intake::connection::Stream;
use crate::service::books::Counter;
use crate::service::feed::Feed;
use crate::service::parcel::{Format, Parcel};
use crate::service::scheduling::{Busy, adopt, monotonic, sleep_until};

/// How many events wait for a client that does not read, and how many bytes; then its oldest go.
const WAITING: usize = 1024;
const WAITING_BYTES: usize = 16 << 20;
/// Where all clients have so many waiting, nothing more is taken from the consumer's queue.
const BEHIND: usize = 64;
/// So much is gathered before it is written.
const MUCH: usize = 64 << 10;
/// So often it looks whether its clients are still there.
const IDLE: Duration = Duration::from_millis(200);
/// So soon it tries again a socket that was full; while that stays so, less and less often, up to the second.
const SOON: Duration = Duration::from_millis(1);
const LATER: u32 = 20;

/// A client, as the thread that watches its socket sees it.
#[derive(Debug)]
pub struct Line {
    /// Its socket.
    pub stream: Stream,
    /// How it wants what it gets.
    pub format: Format,
    /// Whether it is gone, or is to go.
    pub is_gone: AtomicBool,
}

impl Line {
    /// Ends the connection; who watches the socket notices.
    fn end(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// What was delivered to the clients of a consumer.
#[derive(Debug, Default)]
pub struct Delivered {
    /// Clients that are connected.
    pub clients: AtomicUsize,
    /// Events that were handed to their sockets, a client each.
    pub sent: Counter,
    /// Events that a client lost because it did not read.
    pub lost: Counter,
}

#[derive(Default)]
struct Inbox {
    lines: Vec<Arc<Line>>,
    is_running: bool,
}

/// What a consumer's clients share; `join` begins the thread, which ends with its last client.
#[derive(Default)]
pub struct Pump {
    /// What became of what was delivered.
    pub delivered: Delivered,
    inbox: Mutex<Inbox>,
    has_mail: AtomicBool,
    is_stopped: AtomicBool,
}

/// Events one behind another, and where each ends.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// The events from one on that begins at or behind a place.
    fn events(&self, first: usize) -> impl Iterator<Item = &[u8]> {
        let start = move |at: usize| if at == 0 { 0 } else { self.ends[at - 1] };
        (first..self.ends.len()).map(move |at| &self.bytes[start(at)..self.ends[at]])
    }
}

/// A client, as its pump sees it.
struct Client {
    line: Arc<Line>,
    /// The rest of an event that was begun: it has to be sent whole.
    begun: Vec<u8>,
    waiting: VecDeque<Box<[u8]>>,
    waiting_bytes: usize,
}

impl Client {
    fn is_behind(&self) -> bool {
        !self.begun.is_empty() || !self.waiting.is_empty()
    }

    /// How much of it the socket took.
    fn write(&self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && !self.line.is_gone.load(Ordering::Relaxed) {
            match (&mut &self.line.stream).write(&bytes[taken..]) {
                Ok(0) => break,
                Ok(count) => taken += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.line.end(),
            }
        }
        taken
    }

    /// Sends what can be sent, and keeps the rest.
    fn send(&mut self, batch: &Batch, delivered: &Delivered) {
        if self.is_behind() {
            batch.events(0).for_each(|event| self.keep(event, delivered));
            return;
        }
        let taken = self.write(&batch.bytes);
        let whole = batch.ends.partition_point(|end| *end <= taken);
        delivered.sent.add(whole as u64);
        if whole == batch.ends.len() {
            return;
        }
        let starts = if whole == 0 { 0 } else { batch.ends[whole - 1] };
        let mut first = whole;
        if taken > starts {
            self.begun.extend_from_slice(&batch.bytes[taken..batch.ends[whole]]);
            first += 1;
        }
        batch.events(first).for_each(|event| self.keep(event, delivered));
    }

    fn keep(&mut self, event: &[u8], delivered: &Delivered) {
        self.waiting.push_back(event.into());
        self.waiting_bytes += event.len();
        while self.waiting.len() > WAITING || (self.waiting_bytes > WAITING_BYTES && self.waiting.len() > 1) {
            if let Some(oldest) = self.waiting.pop_front() {
                self.waiting_bytes -= oldest.len();
                delivered.lost.add(1);
            }
        }
    }

    /// Tries again what was kept; whether the socket took any of it.
    fn catch_up(&mut self, delivered: &Delivered) -> bool {
        let mut went_on = false;
        while self.is_behind() {
            if self.begun.is_empty()
                && let Some(next) = self.waiting.pop_front()
            {
                self.waiting_bytes -= next.len();
                let taken = self.write(&next);
                if taken == 0 {
                    self.waiting_bytes += next.len();
                    self.waiting.push_front(next);
                    return went_on;
                }
                self.begun.extend_from_slice(&next[taken..]);
            } else {
                let taken = self.write(&self.begun);
                if taken == 0 {
                    return went_on;
                }
                self.begun.drain(..taken);
            }
            went_on = true;
            delivered.sent.add(u64::from(self.begun.is_empty()));
        }
        went_on
    }
}

impl Pump {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client comes to the others; the first one begins the thread.
    pub fn join(pump: &Arc<Pump>, feed: &Arc<dyn Feed>, line: Arc<Line>) -> std::io::Result<()> {
        let mut inbox = pump.inbox();
        inbox.lines.push(line);
        pump.has_mail.store(true, Ordering::SeqCst);
        pump.delivered.clients.fetch_add(1, Ordering::SeqCst);
        if inbox.is_running {
            return Ok(());
        }
        let (own, feed) = (Arc::clone(pump), Arc::clone(feed));
        let spawned = thread::Builder::new()
            .name("cep-deliver".to_owned())
            .spawn(move || own.run(&*feed));
        match spawned {
            Ok(_) => inbox.is_running = true,
            Err(_) => {
                inbox.lines.pop();
                pump.delivered.clients.fetch_sub(1, Ordering::SeqCst);
            }
        }
        spawned.map(drop)
    }

    /// Ends the thread, soon.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    /// Whether the thread runs.
    pub fn is_running(&self) -> bool {
        self.inbox().is_running
    }

    fn run(&self, feed: &dyn Feed) {
        let policy = feed.policy();
        let _ = adopt(policy.delivery);
        let mut busy = Busy::default();
        let mut clients: Vec<Client> = Vec::new();
        let (mut lines, mut frames) = (Batch::default(), Batch::default());
        let mut number = 0_u64;
        let mut stalled = 0_u32;
        while self.keep_on(feed, &mut clients) {
            let wait = if clients.iter().any(Client::is_behind) {
                SOON * (1 + stalled).min(LATER)
            } else {
                IDLE
            };
            let mut has_room = clients.iter().any(|client| client.waiting.len() < BEHIND);
            lines.clear();
            frames.clear();
            let mut take = |parcel: &Parcel<'_>| {
                // Who came while nothing did is to get this one.
                self.take_in(&mut clients);
                let wants = |format| clients.iter().any(|client| client.line.format == format);
                if wants(Format::Frames) {
                    parcel.put_frame(number, &mut frames.bytes);
                    frames.end();
                }
                if wants(Format::Lines) {
                    parcel.put_line(&mut lines.bytes);
                    lines.end();
                }
                number += 1;
                frames.bytes.len().max(lines.bytes.len()) < MUCH
            };
            if !has_room {
                thread::sleep(wait);
            }
            let mut found = has_room && feed.next(wait, &mut |parcel| has_room = take(parcel));
            busy.begin(policy.share.unwrap_or(0), monotonic());
            while found && has_room {
                found = feed.next(Duration::ZERO, &mut |parcel| has_room = take(parcel));
            }
            let mut went_on = false;
            for client in &mut clients {
                let batch = match client.line.format {
                    Format::Lines => &lines,
                    Format::Frames => &frames,
                };
                client.send(batch, &self.delivered);
                went_on |= client.catch_up(&self.delivered);
            }
            if !clients.iter().any(Client::is_behind) {
                feed.sent();
            }
            stalled = if went_on { 0 } else { stalled.saturating_add(1) };
            if let Some(share) = policy.share
                && let Some(until) = busy.account(share, monotonic())
            {
                sleep_until(until);
            }
        }
        clients.iter().for_each(|client| client.line.end());
    }

    fn take_in(&self, clients: &mut Vec<Client>) {
        if !self.has_mail.swap(false, Ordering::SeqCst) {
            return;
        }
        clients.extend(self.inbox().lines.drain(..).map(|line| Client {
            line,
            begun: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }));
    }

    /// Lets go of clients that are gone; false if none is left, or nothing will come any more.
    fn keep_on(&self, feed: &dyn Feed, clients: &mut Vec<Client>) -> bool {
        self.take_in(clients);
        let before = clients.len();
        clients.retain(|client| !client.line.is_gone.load(Ordering::Relaxed));
        self.delivered
            .clients
            .fetch_sub(before - clients.len(), Ordering::SeqCst);
        let is_over = feed.is_over() || self.is_stopped.load(Ordering::SeqCst);
        if !clients.is_empty() && !is_over {
            return true;
        }
        let mut inbox = self.inbox();
        if !inbox.lines.is_empty() && !is_over {
            return true;
        }
        inbox.lines.drain(..).for_each(|line| line.end());
        inbox.is_running = false;
        self.delivered.clients.store(0, Ordering::SeqCst);
        false
    }
}
