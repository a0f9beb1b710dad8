//! The consumers' socket: who connects names a consumer, and gets its events as frames or lines (docs/wire.md).
//!
//! One thread accepts, reads first lines and notices who has gone; a thread a consumer delivers (`pump`). Who names no
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

/// Finds a consumer or query by its name; or says that there is none.
pub type Directory = Box<dyn Fn(&str) -> Result<Arc<dyn Feed>, String> + Send + Sync>;
/// Answers a first line that names no consumer, with a line.
pub type Answer = Box<dyn Fn(&str) -> String + Send + Sync>;

struct State {
    directory: Directory,
    answer: Answer,
    token: Option<String>,
    pumps: Mutex<HashMap<String, Arc<Pump>>>,
    answering: AtomicUsize,
    is_stopping: AtomicBool,
}

impl State {
    fn pumps(&self) -> MutexGuard<'_, HashMap<String, Arc<Pump>>> {
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
        let pumps = self.state.pumps();
        let each = pumps.iter().map(|(name, pump)| {
            let delivered = &pump.delivered;
            let found = json!({
                "clients": delivered.clients.load(Ordering::SeqCst),
                "sent": delivered.sent.get(),
                "lost": delivered.lost.get(),
            });
            (name.clone(), found)
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
    Client(Arc<Line>),
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
                Connection::Client(line) => !line.is_gone.load(Ordering::Relaxed),
            });
        }
        for connection in self.connections.values() {
            if let Connection::Client(line) = connection {
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
                Connection::Client(line) => &line.stream,
            };
            let count = match (&mut &*stream).read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            match connection {
                // A client has nothing more to say.
                Connection::Client(_) if count > 0 => {}
                Connection::Client(line) => {
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
                if !say(&stream, &answer) {
                    return;
                }
                let line = Arc::new(Line {
                    stream,
                    format,
                    is_gone: AtomicBool::new(false),
                });
                let pump = Arc::clone(self.state.pumps().entry(name).or_default());
                if Pump::join(&pump, &feed, Arc::clone(&line)).is_ok() {
                    self.connections.insert(token, Connection::Client(line));
                }
            }
            Ok(None) => self.ask(stream, String::from_utf8_lossy(&input[..end]).into_owned()),
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
        let feed = (self.state.directory)(name)?;
        let mut answer = Map::from_iter([("consumer".to_owned(), name.into())]);
        if format == Format::Frames {
            answer.extend(feed.described());
        }
        let mut line = Json::Object(answer).to_string().into_bytes();
        line.push(b'\n');
        Ok((name.to_owned(), format, feed, line))
    }

    /// Lets someone else answer, on a thread of its own.
    fn ask(&self, stream: Stream, hello: String) {
        let state = Arc::clone(&self.state);
        if state.answering.fetch_add(1, Ordering::SeqCst) >= ANSWERS {
            state.answering.fetch_sub(1, Ordering::SeqCst);
            say(
                &stream,
                &error_line(&format!("{ANSWERS} others wait for an answer; try again")),
            );
            return;
        }
        let _ = self.poll.registry().deregister(&mut SourceFd(&stream.fd()));
        let spawned = thread::Builder::new().name("cep-answer".to_owned()).spawn({
            let state = Arc::clone(&state);
            move || {
                let mut line = (state.answer)(&hello).into_bytes();
                line.push(b'\n');
                let _ = stream.set_nonblocking(false);
                let _ = stream.set_write_timeout(PATIENCE);
                let _ = (&mut &stream).write_all(&line);
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
