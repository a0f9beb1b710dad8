//! The ids of a stream: one kind, and either all given or all counted, as in src/cepheid/model/records.py.

use serde::{Deserialize, Serialize};

use super::decode::Misfit;
use crate::record::IdRef;

/// A kind of id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdKind {
    /// Numbers.
    Int,
    /// Text.
    String,
}

impl IdKind {
    /// The kind of an id.
    pub fn of(id: IdRef<'_>) -> IdKind {
        match id {
            IdRef::Int(_) => IdKind::Int,
            IdRef::Text(_) => IdKind::String,
        }
    }

    fn name(self) -> &'static str {
        match self {
            IdKind::Int => "int",
            IdKind::String => "string",
        }
    }
}

/// What is known about the ids of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ids {
    /// The kind that is declared, or that the first event showed.
    pub kind: Option<IdKind>,
    /// Whether events gave their ids.
    pub given: bool,
    /// How many were counted.
    pub counted: i64,
}

impl Ids {
    /// Whether an id that is given can be taken.
    pub fn check(&self, id: IdRef<'_>, stream: &str) -> Result<(), Misfit> {
        if self.counted > 0 {
            let reason = format!("'id': earlier events of stream '{stream}' gave none and were counted");
            return Err(Misfit::new("wrong-type", reason));
        }
        let kind = IdKind::of(id);
        match self.kind {
            Some(expected) if expected != kind => {
                let (expected, found) = (expected.name(), kind.name());
                let reason = format!("'id': expected {expected} as for the others of stream '{stream}', found {found}");
                Err(Misfit::new("wrong-type", reason))
            }
            _ => Ok(()),
        }
    }

    /// Takes an id that is given.
    pub fn give(&mut self, id: IdRef<'_>, stream: &str) -> Result<(), Misfit> {
        self.check(id, stream)?;
        self.kind = Some(IdKind::of(id));
        self.given = true;
        Ok(())
    }

    /// The id of an event that gives none.
    pub fn count(&mut self, stream: &str) -> Result<i64, Misfit> {
        if self.kind == Some(IdKind::String) {
            let reason = format!("no 'id', and the ids of stream '{stream}' are strings");
            return Err(Misfit::new("missing-id", reason));
        }
        if self.given {
            let reason = format!("no 'id', and earlier events of stream '{stream}' gave one");
            return Err(Misfit::new("missing-id", reason));
        }
        self.kind = Some(IdKind::Int);
        self.counted += 1;
        Ok(self.counted)
    }

    /// What a record of the log shows.
    pub fn saw(&mut self, id: IdRef<'_>, counted: bool) {
        self.kind = Some(IdKind::of(id));
        match id {
            IdRef::Int(number) if counted => self.counted = self.counted.max(number),
            _ => self.given = true,
        }
    }
}
