//! Dead letters: what fits no stream is kept, with the reason, in a log of its own beside the events' log.

use std::path::Path;

use super::config::Config;
use super::decode::Misfit;
use crate::log::writer::now;
use crate::log::{Error, Log, StreamSchema, frame};
use crate::record::{Encoder, IdRef, Kind, Schema};
use crate::value::Val;

/// Beside the events' log.
pub const FOLDER: &str = "dead";
/// Of a reason, at most so much is kept.
const MAX_REASON: usize = 512;

/// The log of dead letters. Its records are events of a stream `dead_letters`.
pub struct DeadLetters {
    log: Log,
    schema: Schema,
    encoder: Encoder,
    state: Vec<u8>,
    count: u64,
}

/// Where a dead letter stood.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Who sent it.
    pub source: &'a str,
    /// Its number there.
    pub number: u64,
}

/// A bound of what a dead letter takes besides its own bytes.
pub const OVERHEAD: usize = 2048;

impl DeadLetters {
    /// Opens the log in the folder `dead` of the events' log.
    pub fn open(folder: &Path, config: &Config, notify: impl Fn() + Send + 'static) -> Result<DeadLetters, Error> {
        let kinds = [
            ("code", Kind::String),
            ("reason", Kind::String),
            ("stream", Kind::String),
            ("source", Kind::String),
            ("number", Kind::Int),
            ("raw", Kind::Bytes),
        ];
        let stream = StreamSchema {
            name: "dead_letters".to_owned(),
            attributes: kinds
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), kind.name().to_owned()))
                .collect(),
        };
        let state = serde_json::json!({ "streams": [stream] }).to_string().into_bytes();
        // The configuration was checked when it was read.
        let options = config.dead_options().unwrap_or_default();
        let log = Log::open(&folder.join(FOLDER), options, |_| Ok(state.clone()), notify)?;
        let schema = Schema::new(0, kinds.map(|(_, kind)| kind));
        Ok(DeadLetters {
            log,
            schema,
            encoder: Encoder::new(),
            state,
            count: 0,
        })
    }

    /// Sees to it that letters can be kept that take so many bytes, OVERHEAD each included.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Error> {
        let state = &self.state;
        self.log
            .reserve(self.encoder.bytes().len() + bytes + frame::HEAD, || state.clone())
    }

    /// Keeps one, for which room was reserved.
    pub fn keep(&mut self, misfit: &Misfit, stream: Option<&str>, place: Place<'_>, raw: &[u8]) {
        let text = |text: &str| Val::Str(text.chars().take(MAX_REASON / 4).collect::<String>().into());
        let values = [
            text(misfit.code),
            text(&misfit.reason),
            stream.map_or(Val::Null, text),
            text(place.source),
            Val::Int(place.number as i64),
            Val::Bytes(raw),
        ];
        let id = IdRef::Int(self.log.next_offset() as i64 + self.count as i64);
        let written = self.encoder.start(&self.schema, now(), id).and_then(|()| {
            let mut values = values.iter().enumerate();
            values.try_for_each(|(slot, value)| self.encoder.set(&self.schema, slot, value))
        });
        // Only what is longer than any record fails; lines and frames are bounded far below that.
        if written.is_ok() {
            self.encoder.finish();
            self.count += 1;
        }
    }

    /// Writes what was kept; the ticket that becomes safe in time. The letters are there before the batch they came in is,
    /// so that none is lost with it.
    pub fn commit(&mut self) -> Result<u64, Error> {
        if self.count > 0 {
            let (begun, buffer) = self.log.begin();
            buffer.extend_from_slice(self.encoder.bytes());
            self.log.finish(begun, self.count as u32, 0, 0);
            self.encoder.clear();
            self.count = 0;
        }
        self.log.commit()
    }

    /// The newest ticket that is safe.
    pub fn durable(&mut self) -> Result<u64, String> {
        self.log.durable()
    }

    /// Removes the oldest if there are too many.
    pub fn retain(&mut self) -> Result<usize, Error> {
        self.log.retain()
    }
}
