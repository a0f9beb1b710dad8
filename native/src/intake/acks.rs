//! What a round has brought is written together, and acknowledged when it is safe.

use std::collections::HashSet;

use super::server::Server;
use super::wire::{Kind, Refusal};
use crate::log::Error;

/// What an acknowledgement says when it is due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// A session has come to this number, and the log to this offset.
    Reached(u64, u64),
    /// The end of the lines.
    Summary,
}

/// An acknowledgement that waits until what it is about is safe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    ticket: u64,
    dead_ticket: u64,
    bytes: usize,
    at: usize,
    generation: u64,
    due: Due,
}

impl Server {
    /// Commits; if there is no room, nothing is read until there is.
    pub(super) fn commit_or_wait(&mut self) -> Result<(), String> {
        match self.commit() {
            Ok(()) => self.blocked = false,
            Err(Error::Full(_)) if self.blocked => {}
            Err(Error::Full(_)) => {
                self.blocked = true;
                self.counters.full += 1;
            }
            Err(error) => return Err(error.to_string()),
        }
        Ok(())
    }

    /// Writes what the round has brought: dead letters first, then events.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        let bytes = self.log.staged();
        let dead_ticket = self.dead.commit()?;
        let ticket = self.log.commit()?;
        self.unsynced += bytes;
        let mut bytes = bytes;
        for (at, generation, due) in self.fresh.drain(..) {
            self.waiting.push_back(Waiting {
                ticket,
                dead_ticket,
                bytes,
                at,
                generation,
                due,
            });
            bytes = 0;
        }
        if bytes > 0 {
            // Of nobody's who waits: lines, whose senders are told in the end.
            let due = Due::Reached(0, 0);
            self.waiting.push_back(Waiting {
                ticket,
                dead_ticket,
                bytes,
                at: usize::MAX,
                generation: 0,
                due,
            });
        }
        Ok(())
    }

    /// Tells those who wait for acknowledgements that the disk has no room for what they sent, if so.
    pub(super) fn tell_who_waits(&mut self) {
        if !self.log.is_full() {
            return;
        }
        let waiting: HashSet<_> = self
            .waiting
            .iter()
            .map(|waiting| (waiting.at, waiting.generation))
            .collect();
        for (at, generation) in waiting {
            let connection = self.connections.get_mut(at).and_then(Option::as_mut);
            if let Some(connection) = connection.filter(|known| known.generation == generation && !known.told_waiting) {
                connection.told_waiting = true;
                let reason = "there is no room on disk for what was sent; it waits until there is".to_owned();
                connection.refuse(0, &Refusal::for_now("disk-full", reason));
                self.flush(at);
            }
        }
    }

    /// Tells suppliers what is safe.
    pub(super) fn acknowledge(&mut self) -> Result<(), String> {
        let (durable, dead) = (self.log.durable()?, self.dead.durable()?);
        let mut reached = std::mem::take(&mut self.reached);
        while let Some(waiting) = self.waiting.front().copied() {
            if waiting.ticket > durable || waiting.dead_ticket > dead {
                break;
            }
            self.waiting.pop_front();
            self.unsynced = self.unsynced.saturating_sub(waiting.bytes);
            reached.insert(waiting.at, (waiting.generation, waiting.due));
        }
        for (at, (generation, due)) in reached.drain() {
            let connection = self.connections.get_mut(at).and_then(Option::as_mut);
            let Some(connection) = connection.filter(|connection| connection.generation == generation) else {
                continue;
            };
            connection.told_waiting = false;
            match due {
                Due::Reached(number, offset) => {
                    let mut payload = [0; 16];
                    payload[..8].copy_from_slice(&offset.to_le_bytes());
                    payload[8..].copy_from_slice(&connection.dead.to_le_bytes());
                    connection.send(Kind::Ack, number, &payload);
                }
                Due::Summary => {
                    let (accepted, dead) = (connection.accepted, connection.dead);
                    connection.send_line(&serde_json::json!({ "accepted": accepted, "dead_letters": dead }));
                    connection.closing = true;
                }
            }
            self.flush(at);
        }
        self.reached = reached;
        Ok(())
    }
}
