//! A connection of a supplier: its socket, what came and was not taken yet, and what is to be sent.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::pace::Patience;
use super::wire::{self, Kind, Refusal};

/// Of a connection, so much is read before the others have their turn.
const TURN: u64 = 256 << 10;
/// Who does not read what is sent is cut off at this many bytes.
const MAX_OUTPUT: usize = 1 << 20;
/// From this many bytes on, single refusals are counted but not sent.
const MUCH_OUTPUT: usize = 256 << 10;

/// A socket.
#[derive(Debug)]
pub enum Stream {
    /// Of the network.
    Tcp(TcpStream),
    /// Of this machine.
    Unix(UnixStream),
}

impl Stream {
    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Whether its calls wait.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(on),
            Stream::Unix(stream) => stream.set_nonblocking(on),
        }
    }

    /// Writing gives up after this time.
    pub fn set_write_timeout(&self, time: std::time::Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(time)),
        }
    }

    fn end_output(&self) {
        let _ = match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).read(buffer),
            Stream::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a connection talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Its first bytes have not come.
    New,
    /// In frames, without having said who it is.
    Framed,
    /// In frames, of this session.
    Supplier(u64),
    /// In lines of JSON; of one that is too long, the length so far.
    Text {
        /// Whether it may, or has to say the token first.
        allowed: bool,
        /// Of a line that is too long: how much of it came.
        skipping: Option<usize>,
    },
}

/// What a turn of reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// There may be more.
    More,
    /// That is all for now.
    Nothing,
    /// The other side ended.
    End,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub stream: Stream,
    /// Who is there, for dead letters and messages.
    pub source: String,
    /// Whether it needs no token.
    pub trusted: bool,
    /// How it talks.
    pub mode: Mode,
    /// What came and was not taken.
    pub input: Vec<u8>,
    /// What is to be sent.
    output: Vec<u8>,
    /// How much of that was.
    sent: usize,
    /// Tells it from an earlier one at the same place.
    pub generation: u64,
    /// Lines that came.
    pub lines: u64,
    /// The stream of lines that name none, if the supplier said one.
    pub default_stream: Option<String>,
    /// Whether numbers in its session may be left out.
    pub sparse: bool,
    /// Whether it reads dead letters.
    pub reads_dead: bool,
    /// What its numbers of streams mean: name and fingerprint.
    pub streams: Vec<(String, String)>,
    /// The numbers here of its streams; None: there is none like that now.
    pub numbers: Vec<Option<u16>>,
    /// Events that were taken.
    pub accepted: u64,
    /// Those that became dead letters.
    pub dead: u64,
    /// Dead letters since the last event that was taken.
    pub dead_in_a_row: u64,
    /// Whether the other side ended.
    pub ended: bool,
    /// Whether all that it sent was taken, and its summary is due.
    pub finished: bool,
    /// Whether it is told that there is no room.
    pub told_full: bool,
    /// Whether it is told that what it waits for has no room.
    pub told_waiting: bool,
    /// Whether it waits for its turn.
    pub queued: bool,
    /// Whether its events can wait, and whether they do.
    pub(super) patience: Patience,
    pub(super) is_patient: bool,
    /// When it was made.
    pub began: Instant,
    /// Whether it ends when everything is sent.
    pub closing: bool,
}

impl Connection {
    /// A new one.
    pub fn new(stream: Stream, source: String, trusted: bool, generation: u64) -> Connection {
        Connection {
            stream,
            source,
            trusted,
            mode: Mode::New,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            generation,
            lines: 0,
            default_stream: None,
            sparse: false,
            reads_dead: false,
            streams: Vec::new(),
            numbers: Vec::new(),
            accepted: 0,
            dead: 0,
            dead_in_a_row: 0,
            ended: false,
            finished: false,
            told_full: false,
            told_waiting: false,
            queued: false,
            patience: Patience::default(),
            is_patient: false,
            began: Instant::now(),
            closing: false,
        }
    }

    /// Reads a turn's worth behind what is there.
    pub fn read(&mut self) -> io::Result<Came> {
        let before = self.input.len();
        match (&self.stream).take(TURN).read_to_end(&mut self.input) {
            Ok(_) if (self.input.len() - before) as u64 == TURN => Ok(Came::More),
            Ok(_) => Ok(Came::End),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Came::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Whether something is to be sent.
    pub fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Sends what can be sent; whether the connection is to be kept.
    pub fn flush(&mut self) -> bool {
        while self.has_output() {
            match (&self.stream).write(&self.output[self.sent..]) {
                Ok(0) => return false,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.output.len() - self.sent <= MAX_OUTPUT;
                }
                Err(_) => return false,
            }
        }
        self.output.clear();
        self.sent = 0;
        if self.closing {
            self.stream.end_output();
        }
        !self.closing
    }

    /// Puts a frame into the output.
    pub fn send(&mut self, kind: Kind, number: u64, payload: &[u8]) {
        wire::write(&mut self.output, kind, number, payload);
    }

    /// Puts a frame of JSON into the output.
    pub fn send_json(&mut self, kind: Kind, number: u64, payload: &impl serde::Serialize) {
        wire::write_json(&mut self.output, kind, number, payload);
    }

    /// Puts a line of JSON into the output.
    pub fn send_line(&mut self, line: &impl serde::Serialize) {
        // What is sent consists of names and numbers, which always have a JSON text.
        self.output
            .extend_from_slice(&serde_json::to_vec(line).unwrap_or_default());
        self.output.push(b'\n');
    }

    /// Says that something was refused, in the way the connection talks.
    pub fn refuse(&mut self, number: u64, refusal: &Refusal) {
        self.closing |= refusal.fatal;
        if !refusal.fatal && self.output.len() - self.sent > MUCH_OUTPUT {
            return;
        }
        if let Mode::Text { .. } = self.mode {
            let Refusal { code, reason, .. } = refusal;
            self.send_line(&serde_json::json!({ "error": code, "reason": reason, "line": number }));
        } else {
            self.send_json(Kind::Error, number, refusal);
        }
    }
}
