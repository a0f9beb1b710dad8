//! Connections take turns: what came of each is read, and what is whole of it is taken.

use mio::unix::SourceFd;

use super::acks::Due;
use super::connection::{Came, Connection, Mode};
use super::server::Server;
use super::wire::{self, Found, GREETING, Refusal};
use crate::log::Error;

/// Input that all connections may hold together; beyond it the one that wants more is closed.
const MAX_HELD: usize = 256 << 20;
/// What is collected before it is written.
const ROUND: usize = 1 << 20;

/// What became of something that a connection sent.
#[derive(Debug)]
pub(super) enum Taken {
    /// It was taken.
    Yes,
    /// There is no room now; it is to be tried again.
    NotNow,
    /// The connection becomes a reader of the log.
    Reader,
}

/// What becomes of a connection after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    Idle,
    Queued,
    Stalled,
    Closed,
    Elsewhere,
}

impl Server {
    /// Gives each connection that has something its turn.
    pub(super) fn turns(&mut self) -> Result<(), String> {
        self.queue_patient().map_err(|error| format!("epoll: {error}"))?;
        for at in std::mem::take(&mut self.stalled) {
            self.queue(at);
        }
        for _ in 0..self.ready.len() {
            let Some(at) = self.ready.pop_front() else { break };
            let Some(mut connection) = self.connections[at].take() else {
                continue;
            };
            connection.queued = false;
            let outcome = self.turn(at, &mut connection);
            let keep = match outcome {
                Ok(keep) => keep,
                Err(error) => return Err(error.to_string()),
            };
            if keep == Keep::Elsewhere {
                self.hand_over(at, connection);
                continue;
            }
            let alive = connection.flush();
            let is_patient = connection.patience.end_turn();
            self.set_patient(at, &mut connection, is_patient);
            self.connections[at] = Some(connection);
            match keep {
                _ if !alive => self.close(at),
                Keep::Queued => self.queue_again(at, is_patient),
                Keep::Stalled => self.stalled.push(at),
                Keep::Closed => self.close(at),
                Keep::Idle | Keep::Elsewhere => {}
            }
            if self.log.staged() > ROUND {
                self.commit_or_wait()?;
            }
            if self.blocked {
                break;
            }
        }
        Ok(())
    }

    fn turn(&mut self, at: usize, connection: &mut Connection) -> Result<Keep, Error> {
        if connection.input.capacity() < self.spare.capacity() {
            // The large buffer, with what is there of a frame: else that would grow to its size step by step, again and again.
            let rest = std::mem::replace(&mut connection.input, std::mem::take(&mut self.spare));
            connection.input.extend_from_slice(&rest);
        }
        // Nothing is read while what came has no room on disk; it is when that is taken, as nobody tells again.
        let was_full = connection.told_full;
        let mut came = Came::Nothing;
        if !connection.ended && !was_full {
            came = match connection.read() {
                Ok(came) => came,
                Err(_) => Came::End,
            };
            connection.ended = came == Came::End;
        }
        let input = std::mem::take(&mut connection.input);
        let (used, taken) = self.take(at, connection, &input)?;
        let keep = match taken {
            _ if connection.closing => {
                self.counters.refused += 1;
                Keep::Closed
            }
            Taken::NotNow => Keep::Stalled,
            Taken::Reader => Keep::Elsewhere,
            Taken::Yes if connection.ended => {
                if connection.finished {
                    Keep::Idle
                } else if let Mode::Text { .. } = connection.mode {
                    connection.finished = true;
                    self.fresh.push((at, connection.generation, Due::Summary));
                    Keep::Idle
                } else {
                    self.counters.cut += u64::from(used < input.len());
                    Keep::Closed
                }
            }
            Taken::Yes if was_full || came == Came::More => Keep::Queued,
            Taken::Yes => Keep::Idle,
        };
        self.put_back(connection, input, used);
        if connection.input.len() > ROUND && self.held() > MAX_HELD {
            let reason = "too much is held of frames that are not whole; try again later".to_owned();
            connection.refuse(0, &Refusal::fatal("busy", reason));
            return Ok(Keep::Closed);
        }
        Ok(keep)
    }

    /// Takes what is whole in the input; how much of it was used.
    fn take(&mut self, at: usize, connection: &mut Connection, input: &[u8]) -> Result<(usize, Taken), Error> {
        let mut used = 0;
        if connection.mode == Mode::New {
            let known = input.len().min(GREETING.len());
            if input[..known] != GREETING[..known] {
                connection.mode = Mode::Text {
                    allowed: connection.trusted,
                    skipping: None,
                };
            } else if known == GREETING.len() {
                connection.mode = Mode::Framed;
                used = known;
            } else {
                return Ok((0, Taken::Yes));
            }
        }
        if let Mode::Text { .. } = connection.mode {
            return self.take_lines(at, connection, input);
        }
        while !connection.closing {
            let most = match connection.mode {
                Mode::Supplier(_) => wire::MAX_FRAME,
                _ => wire::MAX_FIRST_FRAME,
            };
            match wire::read(&input[used..], most) {
                Found::Part => break,
                Found::Wrong(reason) => connection.refuse(0, &Refusal::fatal("malformed-frame", reason)),
                Found::Whole(frame, length) => match self.take_frame(at, connection, &frame)? {
                    Taken::NotNow => return Ok((used, Taken::NotNow)),
                    Taken::Reader => return Ok((used + length, Taken::Reader)),
                    Taken::Yes => used += length,
                },
            }
        }
        Ok((used, Taken::Yes))
    }

    /// Keeps what was not used, in memory of its size; the large buffer goes to whoever reads next.
    fn put_back(&mut self, connection: &mut Connection, mut input: Vec<u8>, used: usize) {
        let rest = input.len() - used;
        if rest > 64 << 10 {
            input.drain(..used);
            connection.input = input;
            return;
        }
        connection.input = input[used..].to_vec();
        input.clear();
        if input.capacity() > self.spare.capacity() && input.capacity() <= 2 * ROUND {
            self.spare = input;
        }
    }

    fn held(&self) -> usize {
        self.connections
            .iter()
            .flatten()
            .map(|connection| connection.input.len())
            .sum()
    }

    /// Makes room for frames of so many bytes and dead letters of so many; whether there is.
    pub(super) fn room(&mut self, connection: &mut Connection, bytes: usize, dead: usize) -> Result<bool, Error> {
        // The dead letters of what is staged have to be there before it is.
        let committed = if self.log.needs_segment(bytes) {
            self.commit()
        } else {
            Ok(())
        };
        let Server { sequencer, log, .. } = self;
        let reserved = committed.and_then(|()| log.reserve(bytes, || sequencer.state()));
        let reserved = reserved.and_then(|()| match dead {
            0 => Ok(()),
            dead => self.dead.reserve(dead),
        });
        match reserved {
            Ok(()) => {
                connection.told_full = false;
                Ok(true)
            }
            Err(Error::Full(error)) => {
                if !connection.told_full {
                    connection.told_full = true;
                    self.counters.full += 1;
                    let reason = format!("there is no room for the log ({error}); what is sent waits until there is");
                    connection.refuse(0, &Refusal::for_now("disk-full", reason));
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a connection that reads the log to a thread of its own.
    fn hand_over(&mut self, at: usize, mut connection: Connection) {
        let _ = self
            .registry_of(&connection)
            .deregister(&mut SourceFd(&connection.stream.fd()));
        self.counters.open -= 1;
        self.free.push(at);
        if let Err(refusal) = self.readers.check() {
            connection.refuse(0, &refusal);
            connection.flush();
            return;
        }
        let rest = std::mem::take(&mut connection.input);
        connection.flush();
        self.readers.start(connection.stream, rest, connection.reads_dead);
    }
}
