//! Suppliers that push at their times, whatever the service does.
//!
//! A loop sleeps until the next group of streams is due, on an absolute clock, stamps its events with the time and sends them, an event
//! a frame (docs/wire.md), a write a group. If the socket takes no more, what is due goes into a buffer here and keeps its stamp:
//! a service that is slow to read makes its own events old, not rare. Only when that buffer is full are events lost, and counted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{ErrorKind, Read, Write};

use serde::{Deserialize, Serialize};

use super::{Trouble, above_the_service, cpu, wait_for};
use crate::intake::line::Line;
use crate::intake::wire::{self, Found, GREETING, HEAD, Kind as Frame};
use crate::record::{Encoder, IdRef, Kind, Schema};
use crate::service::histogram::Histogram;
use crate::service::scheduling::{monotonic, now, sleep_until};
use crate::value::Val;

/// Bytes that wait for a service that does not read, a connection; a second or so of the largest load.
const BUFFER: usize = 256 << 20;
/// Answers of the service are read so often, in nanoseconds.
const ANSWERS_EVERY: u64 = 5_000_000;

/// Streams that are pushed from one timer.
#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    /// Their names; they have one attribute, array<uint8>.
    pub streams: Vec<String>,
    /// Between pushes, in microseconds.
    pub period: u64,
    /// How much earlier or later a push may be, at random, in microseconds.
    pub jitter: u64,
    /// How many bytes an event carries, by stream.
    pub bytes: Vec<usize>,
    /// Over which connection it is sent.
    pub connection: usize,
}

/// What suppliers are told.
#[derive(Clone, Debug, Deserialize)]
pub struct Task {
    /// Where they connect.
    pub address: String,
    /// What they push.
    pub groups: Vec<Group>,
    /// For so many seconds; each group begins somewhere in its first period.
    pub seconds: f64,
    /// Of the phases and of what is at random.
    pub seed: u64,
    /// The real-time priority.
    pub priority: i32,
}

/// What they did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// Events that were sent, or wait in a buffer here.
    pub pushed: u64,
    /// Events that found the buffer full.
    pub lost: u64,
    /// Of those pushed, how many the service has acknowledged.
    pub acknowledged: u64,
    /// Events that the service refused as dead letters.
    pub dead: u64,
    /// Most bytes that waited in a buffer.
    pub waited: usize,
    /// How late pushes were, in nanoseconds: median, 99th percentile, most.
    pub late: [u64; 3],
    /// CPU seconds of the process.
    pub cpu: f64,
    /// Whether the real-time priority was granted.
    pub realtime: bool,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// A connection to the intake, as a supplier.
struct Connection {
    line: Line,
    /// The number of its next record.
    next: u64,
    /// What the socket did not take yet, and how much of it is sent.
    waiting: Vec<u8>,
    sent: usize,
    answers: Vec<u8>,
    acknowledged: u64,
    dead: u64,
}

/// What the intake says first.
#[derive(Deserialize)]
struct Welcome {
    sequence: u64,
    streams: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

impl Connection {
    fn open(address: &str, session: u64) -> Result<(Connection, Vec<String>), Trouble> {
        let trouble = |error: std::io::Error| format!("{address}: {error}");
        let mut line = Line::connect(address).map_err(trouble)?;
        let mut hello = GREETING.to_vec();
        let said = serde_json::json!({"version": 1, "role": "supplier", "session": format!("{session:016x}")});
        wire::write_json(&mut hello, Frame::Hello, 0, &said);
        line.write_all(&hello).map_err(trouble)?;
        let mut answers = Vec::new();
        let mut chunk = [0; 16 << 10];
        let welcome: Welcome = loop {
            let found = line.read(&mut chunk).map_err(trouble)?;
            if found == 0 {
                return Err(format!("{address}: it closed the connection"));
            }
            answers.extend_from_slice(&chunk[..found]);
            match wire::read(&answers, wire::MAX_FRAME) {
                Found::Whole(frame, length) if frame.kind == Frame::Welcome => {
                    let welcome = serde_json::from_slice(frame.payload).map_err(|error| error.to_string())?;
                    answers.drain(..length);
                    break welcome;
                }
                Found::Whole(frame, _) => return Err(String::from_utf8_lossy(frame.payload).into_owned()),
                Found::Part => {}
                Found::Wrong(reason) => return Err(reason),
            }
        };
        line.set_nonblocking(true).map_err(trouble)?;
        let connection = Connection {
            line,
            next: welcome.sequence,
            waiting: Vec::new(),
            sent: 0,
            answers,
            acknowledged: 0,
            dead: 0,
        };
        Ok((
            connection,
            welcome.streams.into_iter().map(|stream| stream.name).collect(),
        ))
    }

    /// Sends bytes behind what waits; false if there is no room for them.
    fn send(&mut self, bytes: &[u8]) -> Result<bool, Trouble> {
        self.flush()?;
        let mut taken = 0;
        if self.waiting.is_empty() {
            taken = self.write(bytes)?;
        } else if self.waiting.len() - self.sent + bytes.len() > BUFFER {
            return Ok(false);
        }
        self.waiting.extend_from_slice(&bytes[taken..]);
        Ok(true)
    }

    /// Sends what waits, as far as the socket takes it.
    fn flush(&mut self) -> Result<(), Trouble> {
        while self.sent < self.waiting.len() {
            let waiting = std::mem::take(&mut self.waiting);
            let taken = self.write(&waiting[self.sent..]);
            self.waiting = waiting;
            match taken? {
                0 => return Ok(()),
                taken => self.sent += taken,
            }
        }
        self.waiting.clear();
        self.sent = 0;
        Ok(())
    }

    /// How many bytes the socket took.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Trouble> {
        loop {
            match self.line.write(bytes) {
                Ok(taken) => return Ok(taken),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("the service is gone: {error}")),
            }
        }
    }

    /// Reads what the service has answered.
    fn hear(&mut self) -> Result<(), Trouble> {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.line.read(&mut chunk) {
                Ok(0) => return Err("the service closed a connection".to_owned()),
                Ok(found) => self.answers.extend_from_slice(&chunk[..found]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("the service is gone: {error}")),
            }
        }
        let mut at = 0;
        while let Found::Whole(frame, length) = wire::read(&self.answers[at..], wire::MAX_FRAME) {
            match frame.kind {
                Frame::Ack => {
                    self.acknowledged = frame.number;
                    let dead = frame.payload.get(8..16).and_then(|bytes| bytes.try_into().ok());
                    self.dead = dead.map_or(self.dead, u64::from_le_bytes);
                }
                Frame::Error => return Err(String::from_utf8_lossy(frame.payload).into_owned()),
                _ => {}
            }
            at += length;
        }
        self.answers.drain(..at);
        Ok(())
    }
}

/// A stream's frame, ready to be stamped and sent.
struct Pattern {
    bytes: Vec<u8>,
    id: i64,
}

impl Pattern {
    fn new(stream: u16, samples: &[u8]) -> Result<Pattern, Trouble> {
        let schema = Schema::new(stream, [Kind::Uint8Array]);
        let mut encoder = Encoder::new();
        encoder
            .start(&schema, 0, IdRef::Int(0))
            .and_then(|()| encoder.set(&schema, 0, &Val::Bytes(samples)))
            .map_err(|fault| fault.to_string())?;
        let mut bytes = Vec::new();
        wire::write(&mut bytes, Frame::Batch, 0, encoder.finish());
        Ok(Pattern { bytes, id: 0 })
    }

    /// Appends the next event, created now.
    fn append(&mut self, output: &mut Vec<u8>, number: u64) {
        self.id += 1;
        self.bytes[8..16].copy_from_slice(&number.to_le_bytes());
        self.bytes[HEAD + 8..HEAD + 16].copy_from_slice(&now().to_le_bytes());
        self.bytes[HEAD + 16..HEAD + 24].copy_from_slice(&self.id.to_le_bytes());
        output.extend_from_slice(&self.bytes);
    }
}

struct Running {
    task: Task,
    connections: Vec<Connection>,
    /// By group.
    patterns: Vec<Vec<Pattern>>,
    late: Histogram,
    done: Done,
}

/// Connects, asks `ready` when to start (nanoseconds of the monotonic clock), pushes, and waits a while for the last acknowledgements.
pub fn run(task: Task, ready: impl FnOnce() -> Result<u64, Trouble>) -> Result<Done, Trouble> {
    let mut random = Random(task.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let count = task.groups.iter().map(|group| group.connection + 1).max().unwrap_or(0);
    let mut connections = Vec::new();
    let mut names = Vec::new();
    for place in 0..count {
        let session = u64::from(std::process::id()) << 32 | (monotonic() & 0xFFFF_FF00) | (place as u64 + 1);
        let (connection, streams) = Connection::open(&task.address, session)?;
        connections.push(connection);
        names = streams;
    }
    let longest = task
        .groups
        .iter()
        .flat_map(|group| &group.bytes)
        .max()
        .copied()
        .unwrap_or(0);
    let samples: Vec<u8> = (0..longest).map(|_| random.below(256) as u8).collect();
    let number = |name: &String| {
        let found = names.iter().position(|known| known == name);
        found.map_or_else(
            || Err(format!("the service has no stream '{name}'")),
            |place| Ok(place as u16),
        )
    };
    let pattern = |(name, bytes): (&String, &usize)| Pattern::new(number(name)?, &samples[..*bytes]);
    let of_group = |group: &Group| group.streams.iter().zip(&group.bytes).map(pattern).collect();
    let patterns = task.groups.iter().map(of_group).collect::<Result<_, Trouble>>()?;
    let mut running = Running {
        done: Done::default(),
        task,
        connections,
        patterns,
        late: Histogram::default(),
    };
    let start = ready()?;
    running.done.realtime = above_the_service(running.task.priority);
    running.push_all(start, &mut random)?;
    running.finish()?;
    Ok(running.done)
}

impl Running {
    fn push_all(&mut self, start: u64, random: &mut Random) -> Result<(), Trouble> {
        let end = start + (self.task.seconds * 1e9) as u64;
        let groups = self.task.groups.clone();
        let mut due: BinaryHeap<Reverse<(u64, u64, usize)>> = BinaryHeap::new();
        for (place, group) in groups.iter().enumerate() {
            let regular = start + group.jitter * 1_000 + random.below(group.period * 1_000);
            due.push(Reverse((regular, regular, place)));
        }
        let mut frames = Vec::new();
        let mut heard = monotonic();
        while let Some(Reverse((at, regular, place))) = due.pop() {
            if at >= end {
                break;
            }
            self.wait_until(at)?;
            let group = &groups[place];
            let begun = monotonic();
            self.late.record(begun - at);
            let connection = &mut self.connections[group.connection];
            frames.clear();
            for (next, pattern) in (connection.next..).zip(&mut self.patterns[place]) {
                pattern.append(&mut frames, next);
            }
            let events = group.streams.len() as u64;
            if connection.send(&frames)? {
                connection.next += events;
                self.done.pushed += events;
                self.done.waited = self.done.waited.max(connection.waiting.len() - connection.sent);
            } else {
                self.done.lost += events;
            }
            if begun - heard > ANSWERS_EVERY {
                heard = begun;
                self.hear()?;
            }
            let regular = regular + group.period * 1_000;
            let jitter = group.jitter * 1_000;
            due.push(Reverse((
                regular + random.below(2 * jitter + 1) - jitter,
                regular,
                place,
            )));
        }
        Ok(())
    }

    /// Waits for a moment; meanwhile sends what waits in buffers.
    fn wait_until(&mut self, at: u64) -> Result<(), Trouble> {
        loop {
            let now = monotonic();
            if now >= at {
                return Ok(());
            }
            let full = self.connections.iter().filter(|line| !line.waiting.is_empty());
            let mut full: Vec<libc::pollfd> = full
                .map(|connection| libc::pollfd {
                    fd: connection.line.descriptor(),
                    events: libc::POLLOUT,
                    revents: 0,
                })
                .collect();
            if full.is_empty() {
                sleep_until(at);
                continue;
            }
            wait_for(&mut full, at - now).map_err(|error| error.to_string())?;
            for connection in &mut self.connections {
                connection.flush()?;
            }
        }
    }

    fn hear(&mut self) -> Result<(), Trouble> {
        self.connections.iter_mut().try_for_each(Connection::hear)
    }

    /// What is left is sent and acknowledged, or not, within a second.
    fn finish(&mut self) -> Result<(), Trouble> {
        self.done.cpu = cpu();
        let deadline = monotonic() + 1_000_000_000;
        while monotonic() < deadline && self.connections.iter().any(|one| one.acknowledged < one.next) {
            sleep_until(monotonic() + 5_000_000);
            for connection in &mut self.connections {
                connection.flush()?;
            }
            self.hear()?;
        }
        let late = self.late.summary();
        self.done.late = [late.p50, late.p99, late.max];
        self.done.acknowledged = self.connections.iter().map(|one| one.acknowledged).sum();
        self.done.dead = self.connections.iter().map(|one| one.dead).sum();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{self, Record};

    #[test]
    fn a_pattern_is_an_event_of_its_stream_each_time_a_new_one() {
        let mut pattern = Pattern::new(3, &[1, 2, 3]).unwrap();
        let mut frames = Vec::new();
        pattern.append(&mut frames, 10);
        pattern.append(&mut frames, 11);
        let schema = Schema::new(3, [Kind::Uint8Array]);
        let mut at = 0;
        for (number, id) in [(10, 1), (11, 2)] {
            let Found::Whole(frame, length) = wire::read(&frames[at..], wire::MAX_FRAME) else {
                panic!("no frame at {at}");
            };
            assert_eq!((frame.kind, frame.number), (Frame::Batch, number));
            // As it lies in memory it need not be aligned.
            let mut encoder = vec![0_u64; frame.payload.len() / 8];
            bytemuck::cast_slice_mut(&mut encoder).copy_from_slice(frame.payload);
            let bytes: &[u8] = bytemuck::cast_slice(&encoder);
            assert_eq!(record::check(bytes, &schema), Ok(bytes.len()));
            let found = Record::read(bytes, &schema).unwrap();
            assert_eq!(found.id(), IdRef::Int(id));
            assert!(matches!(found.get(0), Val::Bytes([1, 2, 3])));
            assert!(found.time() > 0);
            at += length;
        }
        assert_eq!(at, frames.len());
    }
}
