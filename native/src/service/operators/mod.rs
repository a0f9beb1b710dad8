//! The operators: each takes the records of its inputs and produces none, one or several.
//!
//! An operator has state of its own and is run by one thread at a time. What it needs besides (buffers, plans of a transform)
//! it keeps, so that nothing is allocated once it has met its largest input.

mod aes;
mod aggregate;
mod cat;
pub mod columns;
mod ekf;
#[cfg(feature = "exported")]
pub mod exported;
mod expressions;
mod fft;
pub mod foreign;
mod threshold;

use std::collections::HashMap;
use std::fmt;

use crate::json::{Fault, Json, Reading, fault};
use crate::record::{self, Encoder, Record, Schema};
use crate::service::binding::Bound;
use crate::service::spec::OperatorSpec;
use crate::service::store::Store;
use crate::value::Val;

/// Why an operator failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// What it produced is no event.
    Record(record::Fault),
    /// In its own words.
    Said(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Record(fault) => write!(f, "its output is no event: {fault}"),
            Trouble::Said(text) => f.write_str(text),
        }
    }
}

impl From<record::Fault> for Trouble {
    fn from(fault: record::Fault) -> Trouble {
        Trouble::Record(fault)
    }
}

/// The events that an operator fires with, one an input; with `fire: any` only one is there.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Where they are.
    pub store: &'a Store,
    /// By edge.
    pub bound: &'a [Option<Bound>],
    /// The edge of each input.
    pub edges: &'a [usize],
    /// What their producers' records look like, by edge.
    pub sources: &'a [Schema],
}

impl<'a> Inputs<'a> {
    /// How many inputs the operator has.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether it has none, which no operator in a plan does.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// The record of an input, if it is there.
    pub fn get(&self, input: usize) -> Option<Record<'a>> {
        let edge = *self.edges.get(input)?;
        let bound = self.bound.get(edge)?.as_ref()?;
        let schema = self.sources.get(edge)?;
        // SAFETY: what is in a ring was checked against its producer's schema when a supplier pushed it, or was built by an
        // Encoder with that schema; both keep it in words, so it is aligned.
        Some(unsafe { Record::trusted(self.store.read(&bound.token).bytes, schema) })
    }

    /// The records that are there, with the numbers of their inputs.
    pub fn present(&self) -> impl Iterator<Item = (usize, Record<'a>)> + '_ {
        (0..self.len()).filter_map(|input| Some((input, self.get(input)?)))
    }
}

/// A record that is being built; what is not set is null.
pub struct Draft<'a> {
    /// Where it is built.
    pub encoder: &'a mut Encoder,
    /// What it has to fit.
    pub schema: &'a Schema,
    /// Its time: when its validity begins.
    pub time: i64,
    /// Its id, which says what it is made of (identity.rs).
    pub id: i64,
}

impl Draft<'_> {
    /// Gives an attribute its value.
    pub fn set(&mut self, slot: usize, value: &Val<'_>) -> Result<(), Trouble> {
        Ok(self.encoder.set(self.schema, slot, value)?)
    }
}

/// Where outputs go.
pub trait Output {
    /// Builds one record in the EventStore and shares it.
    fn emit(&mut self, fill: &mut dyn FnMut(&mut Draft<'_>) -> Result<(), Trouble>) -> Result<(), Trouble>;
}

/// An operator at work. Queries come in here too: their matches are outputs, of which there may be several.
pub trait Process: Send {
    /// Fires. An error is counted and named, and the inputs count as used.
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble>;

    /// What it remembers from run to run, to go on elsewhere; null if nothing.
    fn save(&self) -> Json {
        Json::Null
    }

    /// Goes on with what `save` gave to one that is as this one when it was new.
    fn restore(&mut self, _saved: &Json) -> Result<(), Fault> {
        Ok(())
    }
}

/// The attribute that each input's payload is in, as the plan found it.
pub(crate) fn payload(parameters: &Json) -> Result<Vec<usize>, Fault> {
    parameters.member("payload")?.each(Json::index)
}

/// Operators that the program gives, by the names of the operators in the spec.
pub type Given = HashMap<String, Box<dyn Process>>;

/// The operator that a spec describes, unless the program gave it.
pub fn build(operator: &OperatorSpec, given: &mut Given) -> Result<Box<dyn Process>, Fault> {
    if let Some(process) = given.remove(&operator.name) {
        return Ok(process);
    }
    let parameters = &operator.parameters;
    let only = || {
        payload(parameters)?
            .first()
            .copied()
            .map_or_else(|| fault("no payload"), Ok)
    };
    let kind = || {
        operator
            .schema
            .kinds
            .first()
            .copied()
            .map_or_else(|| fault("no output"), Ok)
    };
    let number = |name: &str| parameters.member(name)?.optional(Json::float);
    Ok(match operator.kind.as_str() {
        "ekf" => {
            let noise = |name: &str| parameters.member(name)?.float();
            let (process, measurement) = (noise("process_noise")?, noise("measurement_noise")?);
            Box::new(ekf::Ekf::new(payload(parameters)?, kind()?, process, measurement))
        }
        "fft" => Box::new(fft::Fft::new(only()?)),
        "cat" => Box::new(cat::Cat::new(payload(parameters)?, kind()?)),
        "aes" => {
            let key = parameters.member("key")?.optional(|key| Ok(key.text()?.to_owned()))?;
            Box::new(aes::Encrypt::new(only()?, key.as_deref())?)
        }
        "aggregate" => {
            let function = parameters.member("function")?.text()?;
            let last = parameters.member("last")?.index()?;
            Box::new(aggregate::Aggregate::new(only()?, function, last)?)
        }
        "threshold" => {
            let (above, below, reset) = (number("above")?, number("below")?, number("reset")?);
            Box::new(threshold::Threshold::new(only()?, above, below, reset))
        }
        "filter" => Box::new(expressions::Filter::new(parameters)?),
        "map" => Box::new(expressions::Map::new(parameters)?),
        "python" | "native" => return fault(format!("nobody gave the function of operator '{}'", operator.name)),
        other => return fault(format!("operator '{}' is of an unknown kind, '{other}'", operator.name)),
    })
}
