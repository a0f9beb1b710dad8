//! The consumers' socket: who connects names a consumer, and gets its events as frames or lines (docs/wire.md).
//!
//! One thread accepts, reads first lines and acknowledgements, and notices who has gone; a thread a consumer delivers (`pump`). Who names no
//! consumer wants something else, such as the books: what is answered is not decided here, and may take its time.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use serde_json::{Map, json};

use crate::intake::config::Address;
use crate::intake::connection::Stream;
use crate::intake::listen::{Listener, raise_file_limit};
use crate::json::Json;
use crate::service::feed::Feed;
use crate::service::kept::Acknowledged;
use crate::service::parcel::Format;
use crate::service::pump::{Line, Pump};

/// How many connections there can be.
const CONNECTIONS: usize = 1024;
/// How many of them can wait for an answer at once.
const ANSWERS: usize = 32;
/// A first line is no longer than this, and comes within this time.
const HELLO: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(10);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);

/// The kind of a frame that acknowledges, and its bytes.
const ACK: u8 = 4;
const ACK_LENGTH: usize = 16;

/// Finds a consumer or query by its name, and whether what it gives is to be acknowledged; or says that there is none.
pub type Directory = Box<dyn Fn(&str, bool) -> Result<Arc<dyn Feed>, String> + Send + Sync>;
/// Answers a first line that names no consumer, with a line.
pub type Answer = Box<dyn Fn(&str) -> String + Send + Sync>;

struct State {
    directory: Directory,
    answer: Answer,
    token: Option<String>,
    /// By consumer, and whether it acknowledges.
    pumps: Mutex<HashMap<(String, bool), Arc<Pump>>>,
    answering: AtomicUsize,
    is_stopping: AtomicBool,
}

impl State {
    fn pumps(&self) -> MutexGuard<'_, HashMap<(String, bool), Arc<Pump>>> {
        self.pumps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves consumers at an address, until it is dropped.
pub struct Outlet {
    address: String,
    state: Arc<State>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Outlet {
    /// Listens; without a token only where nobody from elsewhere can come.
    pub fn open(address: &str, token: Option<String>, directory: Directory, answer: Answer) -> Result<Outlet, String> {
        let place = Address::parse(address).ok_or_else(|| format!("'{address}' is no address"))?;
        raise_file_limit();
        let listener = Listener::open(&place, token.is_some())?;
        let address = listener.address();
        let epoll = |error: io::Error| format!("{address}: {error}");
        let poll = Poll::new().map_err(epoll)?;
        poll.registry()
            .register(&mut SourceFd(&listener.fd()), LISTENER, Interest::READABLE)
            .map_err(epoll)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(epoll)?;
        let state = Arc::new(State {
            directory,
            answer,
            token,
            pumps: Mutex::default(),
            answering: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        });
        let mut desk = Desk {
            listener,
            poll,
            state: Arc::clone(&state),
            connections: HashMap::new(),
            next: 2,
        };
        let thread = thread::Builder::new().name("cep-outlet".to_owned());
        let thread = thread.spawn(move || desk.run()).map_err(epoll)?;
        Ok(Outlet {
            address,
            state,
            waker,
            thread: Some(thread),
        })
    }

    /// The address as clients write it; a port that was chosen is in it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// By consumer, its clients, and how many events they were sent and lost.
    pub fn report(&self) -> Json {
        let mut found: HashMap<String, [u64; 3]> = HashMap::new();
        for ((name, _), pump) in &*self.state.pumps() {
            let delivered = &pump.delivered;
            let counts = [
                delivered.clients.load(Ordering::SeqCst) as u64,
                delivered.sent.get(),
                delivered.lost.get(),
            ];
            let sums = found.entry(name.clone()).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let each = found.into_iter().map(|(name, [clients, sent, lost])| {
            let counts = json!({ "clients": clients, "sent": sent, "lost": lost });
            (name, counts)
        });
        Json::Object(each.collect())
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.state.is_stopping.store(true, Ordering::SeqCst);
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let pumps: Vec<Arc<Pump>> = self.state.pumps().values().cloned().collect();
        pumps.iter().for_each(|pump| pump.stop());
        let deadline = Instant::now() + Duration::from_secs(2);
        // Who answers may be the caller's own code, which should not outlive what it speaks of.
        let is_busy = || self.state.answering.load(Ordering::SeqCst) > 0 || pumps.iter().any(|pump| pump.is_running());
        while is_busy() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A connection whose first line has not come, or a client.
enum Connection {
    New {
        stream: Stream,
        input: Vec<u8>,
        began: Instant,
    },
    Client {
        line: Arc<Line>,
        acks: Option<Acks>,
    },
}

/// What a client says that acknowledges.
struct Acks {
    consumer: String,
    feed: Arc<dyn Feed>,
    input: Vec<u8>,
}

impl Acks {
    /// Takes what has come. The last acknowledgement that is whole says it all.
    fn read(&mut self, bytes: &[u8]) -> Acknowledged {
        self.input.extend_from_slice(bytes);
        let whole = self.input.len() / ACK_LENGTH * ACK_LENGTH;
        let mut last = None;
        for frame in self.input.drain(..whole).collect::<Vec<u8>>().chunks(ACK_LENGTH) {
            let (head, number) = frame.split_at(8);
            if *head != [ACK_LENGTH as u8, 0, 0, 0, ACK, 0, 0, 0] {
                return Acknowledged::Unknown;
            }
            last = number.try_into().ok().map(u64::from_le_bytes);
        }
        last.map_or(Acknowledged::Taken, |number| self.feed.acknowledge(number))
    }
}

/// What the thread that accepts has.
struct Desk {
    listener: Listener,
    poll: Poll,
    state: Arc<State>,
    connections: HashMap<Token, Connection>,
    next: usize,
}

fn error_line(reason: &str) -> Vec<u8> {
    let mut line = json!({ "error": reason }).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Whether it was said whole; a fresh socket takes a line.
fn say(mut stream: &Stream, line: &[u8]) -> bool {
    stream.write(line).is_ok_and(|count| count == line.len())
}

impl Desk {
    fn run(&mut self) {
        let mut events = Events::with_capacity(256);
        while !self.state.is_stopping.load(Ordering::SeqCst) {
            if let Err(error) = self.poll.poll(&mut events, Some(Duration::from_secs(1)))
                && error.kind() != ErrorKind::Interrupted
            {
                // It can't go on without; clients find the address gone.
                eprintln!("cepheid: the consumers' socket can't be watched: {error}");
                return;
            }
            let ready: Vec<Token> = events.iter().map(|event| event.token()).collect();
            for token in ready {
                match token {
                    LISTENER => self.accept(),
                    WAKER => {}
                    token => self.read(token),
                }
            }
            self.connections.retain(|_, connection| match connection {
                Connection::New { began, .. } => began.elapsed() < PATIENCE,
                Connection::Client { line, .. } => !line.is_gone.load(Ordering::Relaxed),
            });
        }
        for connection in self.connections.values() {
            if let Connection::Client { line, .. } = connection {
                line.is_gone.store(true, Ordering::SeqCst);
            }
        }
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => {
                    // No descriptors are left, most likely: it will come again, but not at once; and the poll tells it once
                    // only, unless it is asked again.
                    thread::sleep(Duration::from_millis(10));
                    let registry = self.poll.registry();
                    let _ = registry.reregister(&mut SourceFd(&self.listener.fd()), LISTENER, Interest::READABLE);
                    return;
                }
            };
            if self.connections.len() >= CONNECTIONS {
                say(
                    &stream,
                    &error_line(&format!("{CONNECTIONS} clients are connected, which is the most")),
                );
                continue;
            }
            keep_alive(&stream);
            let token = Token(self.next);
            self.next += 1;
            let registered = self
                .poll
                .registry()
                .register(&mut SourceFd(&stream.fd()), token, Interest::READABLE);
            if registered.is_ok() {
                let connection = Connection::New {
                    stream,
                    input: Vec::new(),
                    began: Instant::now(),
                };
                self.connections.insert(token, connection);
            }
        }
    }

    /// Takes what a connection says. A socket that is dropped is no longer watched.
    fn read(&mut self, token: Token) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let mut buffer = [0; 4096];
        loop {
            let stream = match connection {
                Connection::New { stream, .. } => &*stream,
                Connection::Client { line, .. } => &line.stream,
            };
            let count = match (&mut &*stream).read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            match connection {
                Connection::Client { acks: None, .. } if count > 0 => {} // it has nothing more to say
                Connection::Client { line, acks: Some(acks) } if count > 0 => match acks.read(&buffer[..count]) {
                    Acknowledged::Taken => {}
                    Acknowledged::Spent => {
                        let again = acks.consumer.clone();
                        self.find_again(&again);
                        return self.read(token);
                    }
                    Acknowledged::Unknown => {
                        line.end();
                        self.connections.remove(&token);
                        return;
                    }
                },
                Connection::Client { line, .. } => {
                    line.is_gone.store(true, Ordering::SeqCst);
                    self.connections.remove(&token);
                    return;
                }
                Connection::New { input, .. } => {
                    input.extend_from_slice(&buffer[..count]);
                    if input.contains(&b'\n') {
                        self.hello(token);
                        return;
                    }
                    if count == 0 || input.len() > HELLO {
                        self.refuse(
                            token,
                            "the first line is to name a consumer, such as {\"consumer\": \"plant\"}",
                        );
                        return;
                    }
                }
            }
        }
    }

    fn refuse(&mut self, token: Token, reason: &str) {
        if let Some(Connection::New { stream, .. }) = self.connections.remove(&token) {
            say(&stream, &error_line(reason));
        }
    }

    /// The first line has come.
    fn hello(&mut self, token: Token) {
        let Some(Connection::New { stream, input, .. }) = self.connections.remove(&token) else {
            return;
        };
        let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
        let welcomed = self
            .admitted(&input[..end])
            .and_then(|hello| match hello.get("consumer") {
                Some(name) => self.welcome(name, &hello).map(Some),
                None => Ok(None),
            });
        match welcomed {
            Ok(Some((name, format, feed, answer))) => {
                let acknowledges = feed.is_acknowledged();
                if acknowledges {
                    self.take_over(&name);
                }
                if !say(&stream, &answer) {
                    return;
                }
                let line = Arc::new(Line {
                    stream,
                    format,
                    acknowledges,
                    is_gone: AtomicBool::new(false),
                });
                let pump = self
                    .state
                    .pumps()
                    .entry((name.clone(), acknowledges))
                    .or_default()
                    .clone();
                if Pump::join(&pump, &feed, Arc::clone(&line)).is_err() {
                    return;
                }
                if feed.is_spent() {
                    self.find_again(&name);
                }
                let acks = acknowledges.then(|| Acks {
                    consumer: name,
                    feed,
                    input: Vec::new(),
                });
                self.connections.insert(token, Connection::Client { line, acks });
            }
            Ok(None) => self.ask(Some(stream), String::from_utf8_lossy(&input[..end]).into_owned()),
            Err(reason) => {
                say(&stream, &error_line(&reason));
            }
        }
    }

    fn admitted(&self, line: &[u8]) -> Result<Map<String, Json>, String> {
        let hello = match serde_json::from_slice(line) {
            Ok(Json::Object(hello)) => hello,
            Ok(_) => return Err("the first line is to be an object of JSON".to_owned()),
            Err(error) => return Err(format!("the first line is to be an object of JSON: {error}")),
        };
        if let Some(token) = &self.state.token {
            let given = hello.get("token").and_then(Json::as_str).unwrap_or("");
            if !is_same(given.as_bytes(), token.as_bytes()) {
                return Err("the token is missing or wrong".to_owned());
            }
        }
        Ok(hello)
    }

    /// What a consumer's client is to get, and the line that says so.
    #[allow(clippy::type_complexity)]
    fn welcome(
        &self,
        name: &Json,
        hello: &Map<String, Json>,
    ) -> Result<(String, Format, Arc<dyn Feed>, Vec<u8>), String> {
        let name = name
            .as_str()
            .ok_or_else(|| format!("a consumer's name is text, not {name}"))?;
        let format = match hello.get("format").and_then(Json::as_str) {
            None | Some("lines") => Format::Lines,
            Some("frames") => Format::Frames,
            Some(other) => return Err(format!("there is no format '{other}'; there are: lines, frames")),
        };
        let acks = match hello.get("acks") {
            None | Some(Json::Bool(false)) => false,
            Some(Json::Bool(true)) if format == Format::Frames => true,
            _ => return Err("who acknowledges says \"acks\": true and \"format\": \"frames\"".to_owned()),
        };
        let feed = (self.state.directory)(name, acks)?;
        let mut answer = Map::from_iter([("consumer".to_owned(), name.into())]);
        if format == Format::Frames {
            answer.extend(feed.described());
        }
        let mut line = Json::Object(answer).to_string().into_bytes();
        line.push(b'\n');
        Ok((name.to_owned(), format, feed, line))
    }

    /// One client at a time acknowledges what a consumer gets: who comes takes the place of who was there.
    fn take_over(&mut self, name: &str) {
        self.connections.retain(|_, connection| match connection {
            Connection::Client { line, acks: Some(acks) } if acks.consumer == name => {
                line.end();
                false
            }
            _ => true,
        });
    }

    /// A query is to go through the log again: more was found than was kept, and what was kept is acknowledged.
    fn find_again(&self, name: &str) {
        self.ask(None, json!({ "again": name }).to_string());
    }

    /// Lets someone else answer, on a thread of its own.
    fn ask(&self, stream: Option<Stream>, hello: String) {
        let state = Arc::clone(&self.state);
        if state.answering.fetch_add(1, Ordering::SeqCst) >= ANSWERS {
            state.answering.fetch_sub(1, Ordering::SeqCst);
            if let Some(stream) = stream {
                say(
                    &stream,
                    &error_line(&format!("{ANSWERS} others wait for an answer; try again")),
                );
            }
            return;
        }
        if let Some(stream) = &stream {
            let _ = self.poll.registry().deregister(&mut SourceFd(&stream.fd()));
        }
        let spawned = thread::Builder::new().name("cep-answer".to_owned()).spawn({
            let state = Arc::clone(&state);
            move || {
                let mut line = (state.answer)(&hello).into_bytes();
                line.push(b'\n');
                if let Some(stream) = stream {
                    let _ = stream.set_nonblocking(false);
                    let _ = stream.set_write_timeout(PATIENCE);
                    let _ = (&mut &stream).write_all(&line);
                } else if line.starts_with(b"{\"error") {
                    eprint!("cepheid: {}", String::from_utf8_lossy(&line));
                }
                state.answering.fetch_sub(1, Ordering::SeqCst);
            }
        });
        if spawned.is_err() {
            state.answering.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Has a machine that is silent asked whether it is there, so that one that is gone is noticed within half a minute.
fn keep_alive(stream: &Stream) {
    if let Stream::Tcp(stream) = stream {
        let options = [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
        ];
        for (level, name, value) in options {
            let value: libc::c_int = value;
            // SAFETY: the socket is open, and the value is an int that outlives the call. Where it fails, it is as before.
            unsafe {
                libc::setsockopt(
                    stream.as_raw_fd(),
                    level,
                    name,
                    (&raw const value).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
        }
    }
}

/// In a time that does not tell how much of it is right.
fn is_same(given: &[u8], wanted: &[u8]) -> bool {
    let differences = given.iter().zip(wanted).fold(0, |found, (a, b)| found | (a ^ b));
    differences == 0 && given.len() == wanted.len()
}
