//! Readers of the log from elsewhere: a request and its answer at a time, each reader on a thread of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::connection::Stream;
use super::server::{receive, send_all};
use super::wire::{self, Found, HEAD, Kind, Refusal};
use crate::log::follower::From;
use crate::log::{Error, Follower, consumers, frame};

/// More are refused.
const MAX_READERS: usize = 64;
/// An answer is not much longer.
const MAX_ANSWER: usize = 8 << 20;
const MAX_REQUEST: usize = 4096;
/// A reader that takes nothing for so long is cut off.
const PATIENCE: Duration = Duration::from_secs(30);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The readers that there are.
pub struct Pool {
    folder: PathBuf,
    count: Arc<AtomicUsize>,
}

impl Pool {
    /// Of the log in this folder.
    pub fn new(folder: PathBuf) -> Pool {
        Pool {
            folder,
            count: Arc::default(),
        }
    }

    /// Whether one more can be had.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.count.load(Ordering::Relaxed) < MAX_READERS {
            return Ok(());
        }
        Err(Refusal::fatal(
            "too-many-readers",
            format!("there are {MAX_READERS} readers, and no more are taken"),
        ))
    }

    /// Answers on a thread of its own, from the events' log or that of dead letters; `rest` was read of the connection
    /// already.
    pub fn start(&self, stream: Stream, rest: Vec<u8>, reads_dead: bool) {
        let (mut folder, count) = (self.folder.clone(), Arc::clone(&self.count));
        if reads_dead {
            folder.push(super::dead::FOLDER);
        }
        count.fetch_add(1, Ordering::Relaxed);
        let counted = Arc::clone(&count);
        let work = move || {
            let _ = serve(&stream, rest, &folder);
            counted.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new()
            .name("log-reader".to_owned())
            .spawn(work)
            .is_err()
        {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a request asks for.
struct Request {
    from: u64,
    most: usize,
    wait: Duration,
    durable_only: bool,
}

struct Reader<'a> {
    folder: &'a Path,
    follower: Option<(Follower, bool)>,
    /// The generation of the streams that the reader was told.
    told: Option<u64>,
    /// A batch that was read and belongs to the next answer, its first offset and the one after it.
    carried: Option<(Vec<u8>, u64, u64)>,
}

fn serve(stream: &Stream, rest: Vec<u8>, folder: &Path) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(PATIENCE)?;
    let mut reader = Reader {
        folder,
        follower: None,
        told: None,
        carried: None,
    };
    let mut input = rest;
    let mut output = Vec::new();
    loop {
        let length = loop {
            match wire::read(&input, MAX_REQUEST) {
                Found::Whole(frame, length) => {
                    output.clear();
                    let answered = reader.answer(&frame, &mut output);
                    if let Err(refusal) = &answered {
                        wire::write_json(&mut output, Kind::Error, 0, refusal);
                    }
                    send_all(stream, &output)?;
                    if answered.is_err_and(|refusal| refusal.fatal) {
                        return Ok(());
                    }
                    break length;
                }
                Found::Part => {
                    let wanted = if input.len() < HEAD { HEAD } else { length_of(&input) };
                    let had = input.len();
                    input.resize(wanted, 0);
                    receive(stream, &mut input[had..])?;
                }
                Found::Wrong(reason) => {
                    output.clear();
                    wire::write_json(&mut output, Kind::Error, 0, &Refusal::fatal("malformed-frame", reason));
                    return send_all(stream, &output);
                }
            }
        };
        input.drain(..length);
    }
}

fn length_of(head: &[u8]) -> usize {
    head.first_chunk()
        .map_or(HEAD, |length| u32::from_le_bytes(*length) as usize)
}

fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Gone { first, .. } => Refusal {
            code: "gone",
            reason: error.to_string(),
            fatal: false,
            first: Some(*first),
        },
        _ => Refusal::fatal("log", error.to_string()),
    }
}

impl Reader<'_> {
    fn answer(&mut self, frame: &wire::Frame<'_>, output: &mut Vec<u8>) -> Result<(), Refusal> {
        match frame.kind {
            Kind::Read => {
                let word = |at: usize| frame.payload.get(at..at + 4).and_then(|word| word.try_into().ok());
                let (Some(most), Some(wait), Some(flags)) = (word(0), word(4), word(8)) else {
                    return Err(Refusal::fatal(
                        "malformed-frame",
                        "a request to read has 16 bytes".to_owned(),
                    ));
                };
                let request = Request {
                    from: frame.number,
                    most: (u32::from_le_bytes(most) as usize).min(MAX_ANSWER),
                    wait: Duration::from_millis(u64::from(u32::from_le_bytes(wait))).min(MAX_WAIT),
                    durable_only: u32::from_le_bytes(flags) & 1 == 0,
                };
                self.read(&request, output).map_err(|error| {
                    self.follower = None;
                    self.carried = None;
                    refusal(&error)
                })
            }
            Kind::Commit => {
                let name = std::str::from_utf8(frame.payload).unwrap_or("").trim_end_matches('\0');
                if !consumers::is_name(name) {
                    return Err(Refusal::fatal(
                        "malformed-frame",
                        "that is no name of a consumer".to_owned(),
                    ));
                }
                consumers::commit(self.folder, name, frame.number).map_err(|error| refusal(&error))?;
                wire::write(output, Kind::Done, frame.number, &[]);
                Ok(())
            }
            _ => Err(Refusal::fatal(
                "unexpected-frame",
                "a reader reads and commits".to_owned(),
            )),
        }
    }

    fn read(&mut self, request: &Request, output: &mut Vec<u8>) -> Result<(), Error> {
        let here = self.follower.as_ref().is_some_and(|(follower, durable_only)| {
            let at = self.carried.as_ref().map_or(follower.offset(), |(_, first, _)| *first);
            *durable_only == request.durable_only && at == request.from
        });
        if !here {
            self.carried = None;
            self.told = None;
            let from = if request.from == u64::MAX {
                From::End
            } else {
                From::Offset(request.from)
            };
            self.follower = Some((
                Follower::open(self.folder, from, request.durable_only)?,
                request.durable_only,
            ));
        }
        let Some((follower, _)) = &mut self.follower else {
            return Ok(());
        };
        let (mut data, mut next) = (Vec::new(), follower.offset());
        if let Some((batch, _, after)) = self.carried.take() {
            (data, next) = (batch, after);
        }
        let mut waited = request.wait.is_zero();
        // The streams of what is answered; None: it is not known yet which they are.
        let mut schema = (!data.is_empty()).then(|| (follower.generation(), follower.streams().to_vec()));
        while data.len() < request.most.max(1) {
            let Some(batch) = follower.next_batch()? else {
                if data.is_empty() && !waited {
                    waited = true;
                    follower.wait(request.wait)?;
                    continue;
                }
                break;
            };
            let (head, after, before) = (batch.head, batch.next_offset(), data.len());
            // Written anew, as what comes before the offset that was asked for is left out.
            let begun = frame::begin(&mut data);
            data.extend_from_slice(batch.body);
            frame::finish(&mut data, begun, &head);
            let generation = schema
                .get_or_insert_with(|| (follower.generation(), follower.streams().to_vec()))
                .0;
            if generation != follower.generation() {
                // The streams change here, so this is for the next answer.
                self.carried = Some((data.split_off(before), head.offset, after));
                break;
            }
            next = after;
        }
        let (generation, streams) = schema.unwrap_or_else(|| (follower.generation(), follower.streams().to_vec()));
        if self.told != Some(generation) {
            self.told = Some(generation);
            wire::write_json(
                output,
                Kind::Schema,
                request.from,
                &serde_json::json!({ "streams": streams }),
            );
        }
        wire::write(output, Kind::Data, next, &data);
        Ok(())
    }
}
