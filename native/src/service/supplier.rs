//! The engine as a supplier of its own intake (docs/wire.md), of one stream. What is not acknowledged is kept, and sent again over
//! the next connection; the intake recognises what it had.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use crate::intake::line::Line;
use crate::intake::wire::{self, Found, Frame, GREETING, HEAD, Kind, MAX_FRAME};
use crate::log::{StreamSchema, fingerprint};

/// Records of so many bytes fit into a frame.
pub const MOST: usize = MAX_FRAME - HEAD;
/// A connection over which nothing goes for so long is given up.
const STALLED: Duration = Duration::from_secs(5);
/// So long it waits for an answer at a time.
const ROUND: Duration = Duration::from_millis(20);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);
/// What keeps what waits from the log is said after so long.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// Records that were sent, or are to be.
#[derive(Debug)]
struct Batch {
    first: u64,
    count: u64,
    frame: Vec<u8>,
}

/// What the intake says first.
#[derive(Deserialize)]
struct Welcome {
    known: bool,
    sequence: u64,
}

/// What it says when it does not take something.
#[derive(Deserialize)]
struct Refused {
    reason: String,
    fatal: bool,
}

/// A supplier of one stream, whose number in its records is 0.
#[derive(Debug)]
pub struct Supplier {
    address: String,
    token: Option<String>,
    stream: StreamSchema,
    session: u64,
    /// The number of the next record.
    next: u64,
    waiting: VecDeque<Batch>,
    held: usize,
    line: Option<Line>,
    answers: Vec<u8>,
    /// How many records the log has.
    pub acknowledged: u64,
    /// The log's offset behind what was acknowledged last.
    pub offset: u64,
    /// Since when nothing can be sent, and whether that was said.
    trouble: Option<(Instant, bool)>,
    /// When it last connected, or tried to.
    tried: Option<Instant>,
}

impl Supplier {
    /// It connects when there is something to send.
    pub fn new(address: String, token: Option<String>, stream: StreamSchema) -> Supplier {
        Supplier {
            address,
            token,
            stream,
            session: session(),
            next: 0,
            waiting: VecDeque::new(),
            held: 0,
            line: None,
            answers: Vec::new(),
            acknowledged: 0,
            offset: 0,
            trouble: None,
            tried: None,
        }
    }

    /// Sends records that lie one behind another, at most `MOST` bytes of them.
    pub fn push(&mut self, count: u64, records: &[u8]) {
        let mut frame = Vec::with_capacity(HEAD + records.len());
        wire::write(&mut frame, Kind::Batch, self.next, records);
        self.held += frame.len();
        let sent = self.line.as_mut().map(|line| line.write_all(&frame));
        if sent.is_some_and(|sent| sent.is_err()) {
            self.line = None; // the next connection takes it
        }
        self.waiting.push_back(Batch {
            first: self.next,
            count,
            frame,
        });
        self.next += count;
        if self.line.is_none() && self.tried.is_none_or(|tried| tried.elapsed() >= PAUSE) {
            self.try_to(Supplier::connect);
        }
    }

    /// Goes on until at most so many bytes are not acknowledged; false if `give_up` said so before.
    pub fn flush(&mut self, left: usize, give_up: &dyn Fn() -> bool) -> bool {
        while self.held > left {
            if give_up() {
                return false;
            }
            if !self.try_to(Supplier::go_on) {
                thread::sleep(PAUSE);
            }
        }
        true
    }

    /// Does something with the connection, which is over if that fails; whether it did not.
    fn try_to(&mut self, act: impl FnOnce(&mut Supplier) -> Result<(), String>) -> bool {
        let done = act(self);
        match &done {
            Ok(()) => self.trouble = None,
            Err(reason) => {
                self.line = None;
                self.say(reason);
            }
        }
        done.is_ok()
    }

    /// Takes what the intake has said, without waiting for it.
    pub fn hear(&mut self) {
        if self.line.is_some() && self.answers(Duration::ZERO).is_err() {
            self.line = None;
        }
    }

    fn go_on(&mut self) -> Result<(), String> {
        if self.line.is_none() {
            self.connect()?;
        }
        let before = self.acknowledged;
        let began = Instant::now();
        while self.acknowledged == before && began.elapsed() < ROUND {
            self.answers(ROUND)?;
        }
        Ok(())
    }

    fn say(&mut self, reason: &str) {
        let (since, said) = self.trouble.get_or_insert((Instant::now(), false));
        if !*said && since.elapsed() > SAID_AFTER {
            *said = true;
            eprintln!(
                "cepheid: what '{}' gives does not come into the log: {reason}",
                self.stream.name
            );
        }
    }

    /// Connects, is welcomed, and sends again what was not acknowledged.
    fn connect(&mut self) -> Result<(), String> {
        self.tried = Some(Instant::now());
        let trouble = |error: std::io::Error| format!("{}: {error}", self.address);
        let mut line = Line::connect(&self.address).map_err(trouble)?;
        line.set_write_timeout(STALLED).map_err(trouble)?;
        let print = fingerprint(&self.stream);
        let mut hello = GREETING.to_vec();
        let mut said = json!({
            "version": 1, "role": "supplier", "session": format!("{:016x}", self.session),
            "streams": {self.stream.name.as_str(): print}, "numbers": [[self.stream.name, print]],
        });
        if let Some(token) = &self.token {
            said["token"] = token.as_str().into();
        }
        wire::write_json(&mut hello, Kind::Hello, 0, &said);
        line.write_all(&hello).map_err(trouble)?;
        self.answers.clear();
        self.line = Some(line);
        let deadline = Instant::now() + STALLED;
        while Instant::now() < deadline {
            if self.answers(ROUND)? {
                return Ok(());
            }
        }
        Err("no welcome came".to_owned())
    }

    /// Takes what the intake has sent, waiting so long for something; whether a welcome was among it.
    fn answers(&mut self, timeout: Duration) -> Result<bool, String> {
        let line = self.line.as_mut().ok_or("there is no connection")?;
        let trouble = |error: std::io::Error| error.to_string();
        if !line.has_more(timeout).map_err(trouble)? {
            return Ok(false);
        }
        let mut chunk = [0; 4096];
        let count = line.read(&mut chunk).map_err(trouble)?;
        if count == 0 {
            return Err("the intake has closed the connection".to_owned());
        }
        self.answers.extend_from_slice(&chunk[..count]);
        let answers = std::mem::take(&mut self.answers);
        let (mut at, mut welcomed) = (0, false);
        loop {
            match wire::read(&answers[at..], MAX_FRAME) {
                Found::Whole(frame, length) => {
                    welcomed |= self.take(&frame)?;
                    at += length;
                }
                Found::Part => break,
                Found::Wrong(reason) => return Err(reason),
            }
        }
        self.answers.extend_from_slice(&answers[at..]);
        Ok(welcomed)
    }

    /// Takes a frame of the intake; whether it is the welcome.
    fn take(&mut self, frame: &Frame<'_>) -> Result<bool, String> {
        match frame.kind {
            Kind::Welcome => {
                let welcome = serde_json::from_slice(frame.payload).map_err(|error| error.to_string())?;
                self.resume(&welcome)?;
                return Ok(true);
            }
            Kind::Ack => {
                let is_safe = |batch: &&Batch| batch.first + batch.count <= frame.number;
                let safe = self.waiting.iter().take_while(is_safe).count();
                for batch in self.waiting.drain(..safe) {
                    self.held -= batch.frame.len();
                    self.acknowledged += batch.count;
                }
                let offset = frame.payload.first_chunk().copied();
                self.offset = offset.map_or(self.offset, u64::from_le_bytes);
            }
            Kind::Error => {
                let refused: Refused = serde_json::from_slice(frame.payload).map_err(|error| error.to_string())?;
                // What is not fatal is counted there, or a full disk, which is waited for.
                if refused.fatal {
                    return Err(refused.reason);
                }
            }
            _ => {}
        }
        Ok(false)
    }

    fn resume(&mut self, welcome: &Welcome) -> Result<(), String> {
        let known = if welcome.known { welcome.sequence } else { 0 };
        if welcome.known && self.waiting.front().is_some_and(|batch| known < batch.first) {
            // The log is not the one that acknowledged what came before: what is left begins a session of its own.
            self.session = session();
            self.next = 0;
            for batch in &mut self.waiting {
                batch.first = self.next;
                batch.frame[8..HEAD].copy_from_slice(&self.next.to_le_bytes());
                self.next += batch.count;
            }
            return Err("the log does not know this session's beginning".to_owned());
        }
        let line = self.line.as_mut().ok_or("there is no connection")?;
        for batch in self.waiting.iter().filter(|batch| batch.first + batch.count > known) {
            line.write_all(&batch.frame).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// A session that nobody else has.
fn session() -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: fills the bytes that we own. Were there nothing random, the clock and the process tell sessions apart.
    let found = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    let clock = crate::service::scheduling::monotonic() ^ u64::from(std::process::id()) << 40;
    (if found == 8 { u64::from_le_bytes(bytes) } else { clock }) | 1
}
