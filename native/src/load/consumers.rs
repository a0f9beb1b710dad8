//! Consumers that note when each event reached them.
//!
//! One thread reads all connections. The time of receipt is taken when a read has returned with the event's last byte; samples stay in
//! memory until the end.

use std::io::{ErrorKind, Read, Write};

use serde::{Deserialize, Serialize};

use super::{Trouble, above_the_service, cpu};
use crate::intake::line::Line;
use crate::service::scheduling::{monotonic, now};

/// What consumers are told.
#[derive(Clone, Debug, Deserialize)]
pub struct Task {
    /// Where they connect.
    pub address: String,
    /// Their names.
    pub consumers: Vec<String>,
    /// Samples are kept of events whose last supplier event was pushed so many seconds after the start,
    pub from: f64,
    /// and before so many.
    pub to: f64,
    /// When they end.
    pub end: f64,
    /// The real-time priority.
    pub priority: i32,
}

/// What they found, besides the samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// Events received, in and outside the time of the samples.
    pub received: u64,
    /// Bytes received.
    pub bytes: u64,
    /// CPU seconds of the process.
    pub cpu: f64,
    /// Whether the real-time priority was granted.
    pub realtime: bool,
}

/// The event was labelled stale, or as breaking a relative interval, as the service does.
pub const STALE: u8 = 1;
/// See `STALE`.
pub const RELATIVE: u8 = 2;
/// It was received when its validity had ended.
pub const ENDED: u8 = 4;

/// An event that was received, as two words: when the last supplier event in it was pushed, microseconds since the epoch; and from then to
/// its receipt, in microseconds (32 bits), the consumer's number (16), and the flags above (8).
pub type Sample = [u64; 2];

fn sample(pushed: i64, received: i64, consumer: usize, flags: u8) -> Sample {
    let latency = (received - pushed).clamp(0, i64::from(u32::MAX)) as u64;
    [
        pushed as u64,
        latency | (consumer as u64 & 0xFFFF) << 32 | u64::from(flags) << 48,
    ]
}

/// Where the end of validity, the labels and the record stand in a frame.
const END: usize = 16;
const MARKS: usize = 40;
const RECORD: usize = 48;

/// What stands at the start of a buffer: an event's length in bytes, its time, the end of its validity, and its labels.
struct Head {
    length: usize,
    time: i64,
    end: i64,
    marks: u8,
}

struct Connection {
    line: Line,
    buffer: Vec<u8>,
    /// From where to where in the buffer something was received and not looked at.
    begun: usize,
    filled: usize,
    is_open: bool,
}

impl Connection {
    fn open(address: &str, consumer: &str) -> Result<Connection, Trouble> {
        let trouble = |error: std::io::Error| format!("{address}: {error}");
        let mut line = Line::connect(address).map_err(trouble)?;
        let hello = serde_json::json!({"consumer": consumer, "format": "frames"});
        line.write_all(format!("{hello}\n").as_bytes()).map_err(trouble)?;
        let mut answer = Vec::new();
        while answer.last() != Some(&b'\n') {
            let mut byte = [0];
            if line.read(&mut byte).map_err(trouble)? == 0 {
                return Err(format!("{address}: it closed the connection"));
            }
            answer.push(byte[0]);
        }
        let answer = String::from_utf8_lossy(&answer);
        if answer.contains("\"error\"") {
            return Err(format!("{address}: {answer}"));
        }
        line.set_nonblocking(true).map_err(trouble)?;
        Ok(Connection {
            line,
            buffer: vec![0; 64 << 10],
            begun: 0,
            filled: 0,
            is_open: true,
        })
    }

    /// Reads once; whether there may be more.
    fn read(&mut self) -> bool {
        if self.begun == self.filled {
            (self.begun, self.filled) = (0, 0);
        } else if self.filled == self.buffer.len() {
            if self.begun > 0 {
                self.buffer.copy_within(self.begun..self.filled, 0);
                self.filled -= self.begun;
                self.begun = 0;
            } else {
                self.buffer.resize(2 * self.filled, 0);
            }
        }
        match self.line.read(&mut self.buffer[self.filled..]) {
            Ok(0) => {
                self.is_open = false;
                false
            }
            Ok(found) => {
                self.filled += found;
                true
            }
            Err(error) => {
                self.is_open = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                false
            }
        }
    }
}

/// The frame at the start of some bytes (docs/wire.md), if it is whole.
fn head(bytes: &[u8]) -> Option<Head> {
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..at + 8)?.first_chunk()?));
    let length = (word(0)? & 0xFFFF_FFFF) as usize;
    if bytes.len() < length.max(RECORD + 16) {
        return None;
    }
    Some(Head {
        length,
        time: word(RECORD + 8)? as i64,
        end: word(END)? as i64,
        marks: word(MARKS)? as u8 & (STALE | RELATIVE),
    })
}

/// Connects, asks `ready` when the suppliers start (nanoseconds of the monotonic clock), and receives until the end.
pub fn run(task: &Task, ready: impl FnOnce() -> Result<u64, Trouble>) -> Result<(Done, Vec<Sample>), Trouble> {
    let open = |name: &String| Connection::open(&task.address, name);
    let mut connections = task.consumers.iter().map(open).collect::<Result<Vec<_>, Trouble>>()?;
    let mut poll = mio::Poll::new().map_err(|error| error.to_string())?;
    for (number, connection) in connections.iter().enumerate() {
        let descriptor = connection.line.descriptor();
        poll.registry()
            .register(
                &mut mio::unix::SourceFd(&descriptor),
                mio::Token(number),
                mio::Interest::READABLE,
            )
            .map_err(|error| error.to_string())?;
    }
    // Room for all, so that nothing is allocated while it is measured.
    let mut samples: Vec<Sample> = Vec::with_capacity(8 << 20);
    let mut events = mio::Events::with_capacity(1024);
    let start = ready()?;
    let mut done = Done {
        realtime: above_the_service(task.priority),
        ..Done::default()
    };
    // The same moment on the clock that events are stamped with.
    let epoch = now() + (start as i64 - monotonic() as i64) / 1_000;
    let kept = epoch + (task.from * 1e6) as i64..epoch + (task.to * 1e6) as i64;
    let end = start + (task.end * 1e9) as u64;
    loop {
        let left = end.saturating_sub(monotonic());
        if left == 0 || connections.iter().all(|connection| !connection.is_open) {
            break;
        }
        let timeout = std::time::Duration::from_nanos(left.min(100_000_000));
        match poll.poll(&mut events, Some(timeout)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.to_string()),
            _ => {}
        }
        for event in &events {
            let consumer = event.token().0;
            let connection = &mut connections[consumer];
            while connection.read() {
                let received = now();
                while let Some(head) = head(&connection.buffer[connection.begun..connection.filled]) {
                    connection.begun += head.length;
                    done.received += 1;
                    done.bytes += head.length as u64;
                    if kept.contains(&head.time) {
                        let ended = u8::from(received >= head.end) * ENDED;
                        samples.push(sample(head.time, received, consumer, head.marks | ended));
                    }
                }
            }
        }
    }
    done.cpu = cpu();
    Ok((done, samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_when_it_is_whole() {
        let mut frame = vec![0; RECORD + 48];
        frame[..4].copy_from_slice(&(RECORD as u32 + 48).to_le_bytes());
        frame[END..END + 8].copy_from_slice(&2_000_i64.to_le_bytes());
        frame[MARKS] = STALE | RELATIVE;
        frame[RECORD + 8..RECORD + 16].copy_from_slice(&1_000_i64.to_le_bytes());
        for cut in 0..frame.len() {
            assert!(head(&frame[..cut]).is_none());
        }
        let found = head(&frame).unwrap();
        assert_eq!(
            (found.length, found.time, found.end, found.marks),
            (frame.len(), 1_000, 2_000, STALE | RELATIVE)
        );
    }

    #[test]
    fn a_sample_keeps_its_parts() {
        let [pushed, rest] = sample(1_000, 1_250, 7, ENDED);
        assert_eq!((pushed, rest), (1_000, 250 | 7 << 32 | 4 << 48));
        assert_eq!(sample(1_000, 900, 0, 0)[1], 0);
    }
}
