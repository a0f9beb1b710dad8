//! Frames of suppliers: who they are, and batches of records.

use serde::Deserialize;
use std::collections::HashMap;

use super::acks::Due;
use super::connection::{Connection, Mode};
use super::dead::{OVERHEAD, Place};
use super::decode::Misfit;
use super::ids::IdKind;
use super::server::Server;
use super::turns::Taken;
use super::wire::{Frame, Kind, MAX_FRAME, Refusal};
use crate::log::{Error, fingerprint, frame};
use crate::record::{self, DUPLICATE, ENDS, LATE, TEXT_ID};

const VERSION: u32 = 1;
/// What so many records were found in is kept for the next batch.
const FOUND_KEPT: usize = 4096;

#[derive(Deserialize)]
struct Hello {
    version: u32,
    role: Role,
    /// Sixteen hex digits; a supplier's own, the same after it connects again.
    #[serde(default)]
    session: String,
    /// What the supplier means by streams: their fingerprints.
    #[serde(default)]
    streams: HashMap<String, String>,
    #[serde(default)]
    token: Option<String>,
    /// The stream of lines of JSON that name none.
    #[serde(default)]
    default_stream: Option<String>,
    /// Whether numbers may be left out, as those of messages of a broker.
    #[serde(default)]
    sparse: bool,
    /// What its numbers of streams mean, by name and fingerprint, if it has numbers from an earlier connection.
    #[serde(default)]
    numbers: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    Supplier,
    Reader,
    /// A reader of what was refused.
    DeadLetters,
}

/// A record of a batch, and why it is none if it is not.
pub(super) struct Found {
    from: usize,
    to: usize,
    stream: u16,
    misfit: Option<Misfit>,
}

/// Compares in a time that does not tell how much is equal.
pub(super) fn is_token(config: Option<&str>, said: Option<&str>) -> bool {
    match (config, said) {
        (Some(token), Some(said)) => {
            let differs = token.bytes().zip(said.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
            token.len() == said.len() && differs == 0
        }
        _ => false,
    }
}

impl Server {
    /// Takes a frame.
    pub(super) fn take_frame(
        &mut self,
        at: usize,
        connection: &mut Connection,
        frame: &Frame<'_>,
    ) -> Result<Taken, Error> {
        match (frame.kind, connection.mode) {
            (Kind::Hello, Mode::Framed) => match self.greet(at, connection, frame.payload) {
                Ok(Role::Supplier) => {}
                Ok(role) => {
                    connection.reads_dead = role == Role::DeadLetters;
                    return Ok(Taken::Reader);
                }
                Err(refusal) => connection.refuse(0, &refusal),
            },
            (Kind::Batch, Mode::Supplier(session)) => return self.take_batch(at, connection, session, frame),
            (Kind::Lines, Mode::Supplier(session)) => return self.take_lines_frame(at, connection, session, frame),
            (Kind::Status, Mode::Supplier(_)) => {
                self.counters.dead_letters.retain(|_, count| *count > 0);
                let counters = serde_json::json!({
                    "counters": self.counters,
                    "next_offset": self.log.next_offset(),
                    "first_offset": self.log.first_offset(),
                    "durable_offset": self.log.tail().durable(),
                    "log_bytes": self.log.bytes(),
                });
                connection.send_json(Kind::Counters, 0, &counters);
            }
            (kind, _) => {
                let reason = format!("a frame of kind {} can't come here", kind as u8);
                connection.refuse(0, &Refusal::fatal("unexpected-frame", reason));
            }
        }
        Ok(Taken::Yes)
    }

    fn greet(&mut self, at: usize, connection: &mut Connection, payload: &[u8]) -> Result<Role, Refusal> {
        let text = payload.trim_ascii_end();
        let hello: Hello = serde_json::from_slice(text)
            .map_err(|error| Refusal::fatal("malformed-hello", format!("the hello can't be read: {error}")))?;
        if hello.version != VERSION {
            let reason = format!(
                "version {} of the wire is not spoken here, but {VERSION}",
                hello.version
            );
            return Err(Refusal::fatal("version", reason));
        }
        if !connection.trusted && !is_token(self.config.token.as_deref(), hello.token.as_deref()) {
            return Err(Refusal::fatal("token", "the token is missing or wrong".to_owned()));
        }
        let schemas = self.config.schemas();
        for (name, theirs) in &hello.streams {
            match schemas.iter().find(|stream| stream.name == *name) {
                None => {
                    let reason = format!("there is no stream '{name}' here");
                    return Err(Refusal::fatal("unknown-stream", reason));
                }
                Some(stream) if fingerprint(stream) != *theirs => {
                    let reason = format!("stream '{name}' has other attributes or types here");
                    return Err(Refusal::fatal("schema", reason));
                }
                Some(_) => {}
            }
        }
        if hello.role != Role::Supplier {
            return Ok(hello.role);
        }
        if let Some(name) = hello
            .default_stream
            .as_ref()
            .filter(|name| schemas.iter().all(|s| s.name != **name))
        {
            return Err(Refusal::fatal(
                "unknown-stream",
                format!("there is no stream '{name}' here"),
            ));
        }
        connection.default_stream = hello.default_stream;
        connection.sparse = hello.sparse;
        // What the supplier's numbers mean: as it says, and then the streams that it does not know, in their order.
        connection.streams = hello.numbers;
        for schema in &schemas {
            if connection.streams.iter().all(|(name, _)| *name != schema.name) {
                connection.streams.push((schema.name.clone(), fingerprint(schema)));
            }
        }
        self.renumber(connection);
        let session = u64::from_str_radix(&hello.session, 16)
            .ok()
            .filter(|session| *session != 0);
        let session =
            session.ok_or_else(|| Refusal::fatal("malformed-hello", "the session is not 16 hex digits".to_owned()))?;
        if let Some(before) = self.suppliers.insert(session, at).filter(|before| *before != at) {
            let reason = "the session goes on in another connection".to_owned();
            self.suppliers.remove(&session);
            self.refuse_and_close(before, &Refusal::fatal("session-taken", reason));
            self.suppliers.insert(session, at);
        }
        connection.mode = Mode::Supplier(session);
        let streams: Vec<_> = schemas
            .iter()
            .zip(&self.config.streams)
            .map(|(schema, stream)| {
                serde_json::json!({ "name": schema.name, "attributes": schema.attributes, "id": stream.id,
                    "fingerprint": fingerprint(schema) })
            })
            .collect();
        let sequence = self.sequencer.next_in(session);
        let welcome = serde_json::json!({
            "version": VERSION, "session": hello.session, "known": sequence.is_some(),
            "sequence": sequence.unwrap_or(0), "streams": streams, "max_frame": MAX_FRAME,
            "durability": self.config.log.durability,
        });
        connection.send_json(Kind::Welcome, sequence.unwrap_or(0), &welcome);
        if let Some(reached) = sequence {
            // What came before the connection broke is acknowledged too, once it is safe.
            let due = Due::Reached(reached, self.log.next_offset());
            self.fresh.push((at, connection.generation, due));
        }
        Ok(Role::Supplier)
    }

    /// Finds the streams that a supplier's numbers mean.
    pub(super) fn renumber(&self, connection: &mut Connection) {
        let schemas = self.config.schemas();
        let find = |(name, theirs): &(String, String)| {
            let number = schemas.iter().position(|schema| schema.name == *name)?;
            (fingerprint(&schemas[number]) == *theirs).then_some(number as u16)
        };
        connection.numbers = connection.streams.iter().map(find).collect();
    }

    fn take_batch(
        &mut self,
        at: usize,
        connection: &mut Connection,
        session: u64,
        frame: &Frame<'_>,
    ) -> Result<Taken, Error> {
        let Some(next) = self.next_for(connection, session, frame.number) else {
            return Ok(Taken::Yes);
        };
        let skip = (next - frame.number) as usize;
        let mut found = std::mem::take(&mut self.found);
        let taken = match self.judge_records(connection, frame.payload, skip, &mut found) {
            Some(total) => {
                self.counters.resent += skip.min(total) as u64;
                self.take_judged(
                    at,
                    connection,
                    session,
                    frame,
                    &found,
                    next.max(frame.number + total as u64),
                )
            }
            None => {
                let reason = "the lengths of the records are not those of the batch".to_owned();
                connection.refuse(frame.number, &Refusal::fatal("malformed-batch", reason));
                Ok(Taken::Yes)
            }
        };
        if found.len() <= FOUND_KEPT {
            found.clear();
            self.found = found;
        }
        taken
    }

    /// Takes what was found in a batch, with which the session reaches a number.
    fn take_judged(
        &mut self,
        at: usize,
        connection: &mut Connection,
        session: u64,
        frame: &Frame<'_>,
        found: &[Found],
        reached: u64,
    ) -> Result<Taken, Error> {
        if !found.is_empty() {
            let wrong = found.iter().filter(|found| found.misfit.is_some());
            let dead: usize = wrong.map(|found| found.to - found.from + OVERHEAD).sum();
            if !self.room(connection, frame.payload.len() + 2 * frame::HEAD, dead)? {
                return Ok(Taken::NotNow);
            }
            self.append(connection, session, frame, found, reached);
        }
        self.fresh
            .push((at, connection.generation, Due::Reached(reached, self.log.next_offset())));
        Ok(Taken::Yes)
    }

    /// What comes next in a session, if a batch that begins with `number` can come now.
    pub(super) fn next_for(&self, connection: &mut Connection, session: u64, number: u64) -> Option<u64> {
        // A session that is not known begins where the supplier says: it is new, or was silent for too long.
        let next = self.sequencer.next_in(session).unwrap_or(number);
        if number > next && connection.sparse {
            return Some(number);
        }
        if number > next {
            let reason = format!("batch {number} came, and {next} is next");
            connection.refuse(number, &Refusal::fatal("gap", reason));
            return None;
        }
        Some(next)
    }

    /// Finds the records of a batch but the first `skip`, each with what is wrong with it; how many there are in all, or None if
    /// their lengths make no sense. Nothing else is changed.
    fn judge_records(
        &self,
        connection: &Connection,
        payload: &[u8],
        skip: usize,
        found: &mut Vec<Found>,
    ) -> Option<usize> {
        let (mut from, mut total) = (0, 0);
        // The kinds of ids that streams without one get by this batch.
        let mut kinds: HashMap<u16, IdKind> = HashMap::new();
        while from < payload.len() {
            let length = record::length(&payload[from..])?;
            let to = from + length;
            let bytes = payload.get(from..to)?;
            if total >= skip {
                let (stream, misfit) = match self.judge_record(connection, bytes, &mut kinds) {
                    Ok(stream) => (stream, None),
                    Err(misfit) => (0, Some(misfit)),
                };
                found.push(Found {
                    from,
                    to,
                    stream,
                    misfit,
                });
            }
            total += 1;
            from = to;
        }
        Some(total)
    }

    /// The stream of a record, or what is wrong with it.
    fn judge_record(
        &self,
        connection: &Connection,
        bytes: &[u8],
        kinds: &mut HashMap<u16, IdKind>,
    ) -> Result<u16, Misfit> {
        let theirs = usize::from(record::stream(bytes));
        let Some(stream) = connection.numbers.get(theirs).copied().flatten() else {
            let reason = match connection.streams.get(theirs) {
                Some((name, _)) => format!("stream '{name}' is not here any more, or has other attributes or types"),
                None => format!("there is no stream of number {theirs}"),
            };
            return Err(Misfit::new("unknown-stream", reason));
        };
        let of_stream = |misfit: Misfit| Misfit {
            stream: Some(stream),
            ..misfit
        };
        let config = &self.config.streams[usize::from(stream)];
        if let Err(fault) = record::check_but_stream(bytes, &self.layouts[usize::from(stream)]) {
            let mut reason = fault.to_string();
            if let Some((name, _)) = fault.slot().and_then(|slot| config.attributes.get(slot)) {
                let slot = fault.slot().unwrap_or_default();
                reason = reason.replacen(&format!("attribute {slot}"), &format!("attribute '{name}'"), 1);
            }
            return Err(of_stream(Misfit::new(fault.code(), reason)));
        }
        let id = record::id(bytes);
        let known = self.sequencer.ids_of(stream);
        known.check(id, &config.name).map_err(of_stream)?;
        if known.kind.is_none() && *kinds.entry(stream).or_insert(IdKind::of(id)) != IdKind::of(id) {
            let reason = "'id': of another kind than those before it".to_owned();
            return Err(of_stream(Misfit::new("wrong-type", reason)));
        }
        Ok(stream)
    }

    /// Appends the records of a batch that are in order, and keeps the others as dead letters.
    fn append(&mut self, connection: &mut Connection, session: u64, frame: &Frame<'_>, found: &[Found], reached: u64) {
        let Server {
            log,
            sequencer,
            counters,
            dead,
            config,
            ..
        } = self;
        let (begun, buffer) = log.begin();
        let mut count = 0;
        let first = reached - found.len() as u64;
        for (
            number,
            Found {
                from,
                to,
                stream,
                misfit,
            },
        ) in (first..).zip(found)
        {
            let bytes = &frame.payload[*from..*to];
            if let Some(misfit) = misfit {
                *counters.dead_letters.entry(misfit.code).or_default() += 1;
                connection.dead += 1;
                let stream = misfit.stream.and_then(|stream| config.streams.get(usize::from(stream)));
                let place = Place {
                    source: &connection.source,
                    number,
                };
                dead.keep(misfit, stream.map(|stream| stream.name.as_str()), place, bytes);
                let refusal = Refusal {
                    code: misfit.code,
                    reason: misfit.reason.clone(),
                    fatal: false,
                    first: None,
                };
                connection.refuse(number, &refusal);
                continue;
            }
            let (stream, id) = (*stream, record::id(bytes));
            connection.patience.note(config.streams[usize::from(stream)].patient);
            sequencer.ids()[usize::from(stream)].saw(id, false);
            let marks = sequencer.judge(stream, record::time(bytes), id);
            counters.late += u64::from(marks & LATE != 0);
            counters.duplicates += u64::from(marks & DUPLICATE != 0);
            let start = buffer.len();
            buffer.extend_from_slice(bytes);
            record::set_stream(&mut buffer[start..], stream);
            // What the supplier says about late, duplicate and counted does not count.
            buffer[start + record::FLAGS_AT] = record::flags(bytes) & (TEXT_ID | ENDS) | marks;
            count += 1;
        }
        counters.accepted += u64::from(count);
        connection.accepted += u64::from(count);
        log.finish(begun, count, session, reached);
        sequencer.advance(session, reached);
    }
}
