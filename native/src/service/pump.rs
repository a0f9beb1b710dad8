//! Who delivers to a consumer's clients: the worker that has pushed, or else a thread at the priority of the consumer's level.
//!
//! Mostly one client reads frames and is not behind. Then the worker writes to its socket itself, as the thread would run in its
//! place anyhow, and two threads need not change places for each event. Whatever is else, be it that the socket does not
//! take all of it, is the thread's: it takes what waits in the consumer's queue and writes it to each client's socket.
//!
//! No client is waited for: what its socket does not take waits here, up to a bound, and then the oldest goes and is
//! counted. While all clients are behind, events stay in the consumer's own queue, which has its bound and counts too. So neither
//! a worker nor another client is held up by who does not read.

use std::collections::VecDeque;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::intake::connection::Stream;
use crate::service::books::Counter;
use crate::service::feed::Feed;
use crate::service::parcel::{Format, Parcel};
use crate::service::scheduling::{Busy, adopt, monotonic, sleep_until};
use crate::service::sync::PiMutex;

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
    /// Whether it acknowledges what it gets: then nothing that waits for it goes.
    pub acknowledges: bool,
    /// Whether it is gone, or is to go.
    pub is_gone: AtomicBool,
}

impl Line {
    /// Ends the connection; who watches the socket notices.
    pub fn end(&self) {
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
    inbox: PiMutex<Inbox>,
    has_mail: AtomicBool,
    is_stopped: AtomicBool,
    desk: PiMutex<Desk>,
    /// Whether a worker has left something to the thread, since it last looked.
    is_left: AtomicBool,
}

impl fmt::Debug for Pump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pump")
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

/// What who delivers has in hand.
#[derive(Default)]
struct Desk {
    feed: Option<Arc<dyn Feed>>,
    clients: Vec<Client>,
    lines: Batch,
    frames: Batch,
    number: u64,
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
        if self.line.acknowledges {
            return; // it is alone, so no more is taken for it while it is behind
        }
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
    /// A client comes to the others; the first one begins the thread.
    pub fn join(pump: &Arc<Pump>, feed: &Arc<dyn Feed>, line: Arc<Line>) -> std::io::Result<()> {
        let mut inbox = pump.inbox.lock();
        inbox.lines.push(line);
        pump.has_mail.store(true, Ordering::SeqCst);
        pump.delivered.clients.fetch_add(1, Ordering::SeqCst);
        if std::mem::replace(&mut inbox.is_running, true) {
            return Ok(());
        }
        // A thread takes its time to start, and a worker may want what is locked.
        drop(inbox);
        let (own, feed) = (Arc::clone(pump), Arc::clone(feed));
        let spawned = thread::Builder::new()
            .name("cep-deliver".to_owned())
            .spawn(move || Pump::run(&own, &feed));
        if spawned.is_err() {
            let mut inbox = pump.inbox.lock();
            inbox.is_running = false;
            inbox.lines.drain(..).for_each(|line| line.end());
            pump.delivered.clients.store(0, Ordering::SeqCst);
        }
        spawned.map(drop)
    }

    /// Delivers what waits, if nothing has to be waited for; false if there is something left for the thread, which is to be
    /// woken.
    pub fn deliver_now(&self) -> bool {
        let Some(mut desk) = self.desk.try_lock() else {
            return false;
        };
        let Desk { clients, feed, .. } = &*desk;
        let (Some(feed), [client]) = (feed.clone(), &clients[..]) else {
            return false;
        };
        if client.is_behind() || client.line.format != Format::Frames || self.has_mail.load(Ordering::SeqCst) {
            return false;
        }
        let took_all = self.take(&mut desk, &*feed);
        self.send(&mut desk);
        let is_done = took_all && !desk.clients.iter().any(Client::is_behind);
        self.is_left.store(!is_done, Ordering::SeqCst);
        is_done
    }

    /// Ends the thread, soon.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    /// Whether the thread runs.
    pub fn is_running(&self) -> bool {
        self.inbox.lock().is_running
    }

    fn run(pump: &Arc<Pump>, feed: &Arc<dyn Feed>) {
        let policy = feed.policy();
        let _ = adopt(policy.delivery);
        let mut busy = Busy::default();
        let mut stalled = 0_u32;
        pump.desk.lock().feed = Some(Arc::clone(feed));
        feed.is_served_by(Some(pump));
        while let Some((is_behind, has_room)) = pump.keep_on(&**feed) {
            let wait = if is_behind {
                SOON * (1 + stalled).min(LATER)
            } else {
                IDLE
            };
            if has_room {
                feed.wait(wait, &|| pump.is_left.load(Ordering::SeqCst));
            } else {
                thread::sleep(wait);
            }
            busy.begin(policy.share.unwrap_or(0), monotonic());
            let mut desk = pump.desk.lock();
            if desk.has_room() {
                pump.take(&mut desk, &**feed);
            }
            let went_on = pump.send(&mut desk);
            if !desk.clients.iter().any(Client::is_behind) {
                feed.sent();
            }
            drop(desk);
            stalled = if went_on { 0 } else { stalled.saturating_add(1) };
            if let Some(share) = policy.share
                && let Some(until) = busy.account(share, monotonic())
            {
                sleep_until(until);
            }
        }
    }

    /// Takes what waits, up to a bound; whether that was all.
    fn take(&self, desk: &mut Desk, feed: &dyn Feed) -> bool {
        let Desk {
            clients,
            lines,
            frames,
            number,
            ..
        } = desk;
        let mut has_room = true;
        let mut take = |parcel: &Parcel<'_>| {
            // Who came while nothing did is to get this one; who acknowledges gets all in order.
            if !feed.is_acknowledged() {
                self.take_in(clients);
            }
            let wants = |format| clients.iter().any(|client| client.line.format == format);
            if wants(Format::Frames) {
                parcel.put_frame(*number, &mut frames.bytes);
                frames.end();
            }
            if wants(Format::Lines) {
                parcel.put_line(&mut lines.bytes);
                lines.end();
            }
            *number += 1;
            has_room = frames.bytes.len().max(lines.bytes.len()) < MUCH;
            has_room
        };
        let mut goes_on = true;
        while goes_on && feed.next(&mut |parcel| goes_on = take(parcel)) {}
        has_room
    }

    /// Sends what was taken, and what was kept; whether any of that went on.
    fn send(&self, desk: &mut Desk) -> bool {
        let Desk {
            clients, lines, frames, ..
        } = desk;
        let mut went_on = false;
        for client in clients {
            let batch = match client.line.format {
                Format::Lines => &*lines,
                Format::Frames => &*frames,
            };
            client.send(batch, &self.delivered);
            went_on |= client.catch_up(&self.delivered);
        }
        lines.clear();
        frames.clear();
        went_on
    }

    /// Takes in who has come; whether somebody has.
    fn take_in(&self, clients: &mut Vec<Client>) -> bool {
        if !self.has_mail.swap(false, Ordering::SeqCst) {
            return false;
        }
        clients.extend(self.inbox.lock().lines.drain(..).map(|line| Client {
            line,
            begun: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }));
        true
    }

    /// Lets go of clients that are gone: whether one of those that are left is behind, and one has room. None if none is left, or
    /// nothing will come any more.
    fn keep_on(&self, feed: &dyn Feed) -> Option<(bool, bool)> {
        let mut desk = self.desk.lock();
        let clients = &mut desk.clients;
        if self.take_in(clients) {
            feed.begin();
        }
        let before = clients.len();
        clients.retain(|client| !client.line.is_gone.load(Ordering::Relaxed));
        self.delivered
            .clients
            .fetch_sub(before - clients.len(), Ordering::SeqCst);
        let is_over = feed.is_over() || self.is_stopped.load(Ordering::SeqCst);
        if clients.is_empty() || is_over {
            let mut inbox = self.inbox.lock();
            if inbox.lines.is_empty() || is_over {
                inbox.lines.drain(..).for_each(|line| line.end());
                clients.drain(..).for_each(|client| client.line.end());
                feed.is_served_by(None);
                desk.feed = None;
                inbox.is_running = false;
                self.delivered.clients.store(0, Ordering::SeqCst);
                return None;
            }
        }
        self.is_left.store(false, Ordering::SeqCst);
        Some((desk.clients.iter().any(Client::is_behind), desk.has_room()))
    }
}

impl Desk {
    /// Whether there is a client for whom more can be taken.
    fn has_room(&self) -> bool {
        self.clients.iter().any(|client| client.waiting.len() < BEHIND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Encoder, IdRef, Kind, Record, Schema};
    use crate::service::parcel::Content;
    use crate::service::scheduling::{LevelPolicy, policies};
    use crate::value::Val;
    use serde_json::Map;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Condvar;
    use std::sync::Mutex;
    use std::time::Instant;

    /// Numbers that wait to be delivered, each in an event of some size.
    struct Numbers {
        waiting: Mutex<VecDeque<u64>>,
        changed: Condvar,
        is_over: AtomicBool,
        size: usize,
    }

    impl Feed for Numbers {
        fn described(&self) -> Map<String, crate::json::Json> {
            Map::new()
        }

        fn policy(&self) -> LevelPolicy {
            policies(1, false, None)[0]
        }

        fn wait(&self, timeout: Duration, give_up: &dyn Fn() -> bool) {
            let waiting = self.waiting.lock().unwrap();
            if waiting.is_empty() && !give_up() {
                drop(self.changed.wait_timeout(waiting, timeout).unwrap());
            }
        }

        fn next(&self, take: &mut dyn FnMut(&Parcel<'_>)) -> bool {
            let Some(number) = self.waiting.lock().unwrap().pop_front() else {
                return false;
            };
            let schema = Schema::new(0, [Kind::Bytes]);
            let mut encoder = Encoder::new();
            encoder.start(&schema, 0, IdRef::Int(number as i64)).unwrap();
            encoder.set(&schema, 0, &Val::Bytes(&vec![7; self.size])).unwrap();
            take(&Parcel {
                content: Content::Event(Record::read(encoder.finish(), &schema).unwrap(), &[]),
                end: None,
                marks: 0,
                delay: None,
                supplied: None,
                acks: None,
            });
            true
        }

        fn is_over(&self) -> bool {
            self.is_over.load(Ordering::SeqCst)
        }
    }

    struct Set {
        numbers: Arc<Numbers>,
        feed: Arc<dyn Feed>,
        pump: Arc<Pump>,
    }

    impl Set {
        fn new(size: usize) -> Set {
            let numbers = Arc::new(Numbers {
                waiting: Mutex::default(),
                changed: Condvar::new(),
                is_over: AtomicBool::new(false),
                size,
            });
            Set {
                feed: Arc::clone(&numbers) as Arc<dyn Feed>,
                numbers,
                pump: Arc::default(),
            }
        }

        fn client(&self) -> UnixStream {
            let (near, far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let line = Line {
                stream: Stream::Unix(near),
                format: Format::Frames,
                acknowledges: false,
                is_gone: AtomicBool::new(false),
            };
            Pump::join(&self.pump, &self.feed, Arc::new(line)).unwrap();
            far
        }

        /// As a worker does; whether it could deliver by itself.
        fn push(&self, number: u64) -> bool {
            self.numbers.waiting.lock().unwrap().push_back(number);
            let delivered = self.pump.deliver_now();
            if !delivered {
                self.numbers.changed.notify_all();
            }
            delivered
        }

        /// Pushes until the thread has taken its clients in and left the desk; how many that took.
        fn settle(&self, from: u64, expected: bool) -> u64 {
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut next = from;
            loop {
                next += 1;
                if self.push(next - 1) == expected {
                    return next;
                }
                assert!(Instant::now() < deadline);
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    impl Drop for Set {
        fn drop(&mut self) {
            self.numbers.is_over.store(true, Ordering::SeqCst);
            self.pump.stop();
            self.numbers.changed.notify_all();
        }
    }

    /// The numbers of so many events.
    fn read(from: &mut UnixStream, count: u64) -> Vec<u64> {
        from.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut found = Vec::new();
        for _ in 0..count {
            let mut length = [0; 4];
            from.read_exact(&mut length).unwrap();
            let mut frame = vec![0; u32::from_le_bytes(length) as usize - 4];
            from.read_exact(&mut frame).unwrap();
            let word = |at: usize| u64::from_le_bytes(frame[at - 4..at + 4].try_into().unwrap());
            // The id of the record, which is behind the frame's head and the record's length and time.
            assert_eq!(word(8), found.len() as u64);
            found.push(word(crate::service::parcel::FRAME_HEAD + 16));
        }
        found
    }

    #[test]
    fn who_pushes_delivers_to_a_client_that_reads() {
        let set = Set::new(100);
        assert!(!set.push(0));
        let mut far = set.client();
        let next = set.settle(1, true);
        assert!(set.push(next));
        assert_eq!(read(&mut far, next + 1), (0..=next).collect::<Vec<_>>());
        assert_eq!(set.pump.delivered.sent.get(), next + 1);
        // To two clients the thread delivers.
        let _other = set.client();
        assert!(!set.push(next + 1));
        assert!(!set.push(next + 2));
    }

    #[test]
    fn what_a_socket_does_not_take_is_left_to_the_thread_in_its_order() {
        let set = Set::new(50_000);
        let mut far = set.client();
        let mut next = set.settle(0, true);
        // Its socket is full soon.
        next = set.settle(next, false);
        for _ in 0..30 {
            assert!(!set.push(next));
            next += 1;
        }
        assert_eq!(read(&mut far, next), (0..next).collect::<Vec<_>>());
        assert_eq!(set.pump.delivered.lost.get(), 0);
    }
}
