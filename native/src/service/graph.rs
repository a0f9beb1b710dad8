//! A graph as it runs: which parts there are and who reads what, fixed. A change makes another, beside it, and puts it in its place.
//!
//! Whoever works looks at the graph anew for each event, and hands an event on by one graph. Parts that were removed are in
//! `leaving` until what they hold has ended.

use std::sync::Arc;

use crate::record::Schema;
use crate::service::parts::{Consumer, Operator, Stream};
use crate::service::processor::Level;
use crate::service::queues::InputQ;
use crate::service::scheduling::LevelPolicy;
use crate::service::spec::Spec;

/// Streams, operators and consumers.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Streams.
    pub streams: Vec<Arc<Stream>>,
    /// Operators.
    pub operators: Vec<Arc<Operator>>,
    /// Consumers.
    pub consumers: Vec<Arc<Consumer>>,
}

impl Parts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.operators.is_empty() && self.consumers.is_empty()
    }
}

/// An edge into an operator.
#[derive(Clone, Debug)]
pub struct Reader {
    /// The operator.
    pub operator: Arc<Operator>,
    /// The edge's place among those of the operator.
    pub edge: usize,
}

/// Who reads a producer's events.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    /// Consumers, with the levels that their latency counts for.
    pub consumers: Vec<(Arc<Consumer>, Arc<Level>)>,
    /// Operators of the producer's own level.
    pub local: Vec<Reader>,
    /// Operators of lower levels, the highest of them first, with the numbers of the edges in the MovingQ.
    pub remote: Vec<(Reader, usize)>,
}

impl Readers {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.consumers.len() + self.local.len() + self.remote.len()
    }
}

/// What produces events.
#[derive(Clone, Debug)]
pub enum Source {
    /// Suppliers.
    Stream(Arc<Stream>),
    /// An operator.
    Operator(Arc<Operator>),
}

impl Source {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Source::Stream(stream) => &stream.spec.name,
            Source::Operator(operator) => &operator.spec.name,
        }
    }

    /// The number of its ring.
    pub fn ring(&self) -> usize {
        match self {
            Source::Stream(stream) => stream.ring,
            Source::Operator(operator) => operator.ring,
        }
    }
}

/// A stream or an operator, and who reads it.
#[derive(Clone, Debug)]
pub struct Producer {
    /// Which.
    pub source: Source,
    /// The number of its level.
    pub level: usize,
    /// Who reads it.
    pub readers: Readers,
}

/// A level, and how it runs in this graph.
#[derive(Clone, Debug)]
pub struct Place {
    /// The level.
    pub level: Arc<Level>,
    /// Where suppliers push to; what is in the level's older queues comes before it.
    pub input: Arc<InputQ>,
    /// How its threads run.
    pub policy: LevelPolicy,
    /// Whether something runs at it.
    pub runs: bool,
}

/// Everything, as it is until the next change.
#[derive(Clone, Debug)]
pub struct Graph {
    /// What was asked for.
    pub spec: Spec,
    /// Its parts, by their places in the spec.
    pub parts: Parts,
    /// Parts that were removed and still hold something.
    pub leaving: Parts,
    /// By the numbers of the rings.
    pub producers: Vec<Option<Producer>>,
    /// By the numbers of the levels.
    pub places: Vec<Option<Place>>,
    /// The numbers of the levels, the highest first.
    pub order: Vec<usize>,
    /// The same by the ranks of the spec.
    pub ranks: Vec<usize>,
}

impl Graph {
    /// With nothing in it.
    pub fn empty(cores: usize, prioritised: bool) -> Graph {
        let spec = Spec {
            name: String::new(),
            levels: Vec::new(),
            streams: Vec::new(),
            operators: Vec::new(),
            consumers: Vec::new(),
            cores,
            prioritised,
        };
        Graph {
            spec,
            parts: Parts::default(),
            leaving: Parts::default(),
            producers: Vec::new(),
            places: Vec::new(),
            order: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// The producer with a ring.
    #[inline]
    pub fn producer(&self, ring: usize) -> Option<&Producer> {
        self.producers.get(ring)?.as_ref()
    }

    /// The level with a number.
    #[inline]
    pub fn place(&self, level: usize) -> Option<&Place> {
        self.places.get(level)?.as_ref()
    }

    /// All levels, the highest first.
    pub fn levels(&self) -> impl Iterator<Item = &Place> {
        self.order.iter().filter_map(|level| self.place(*level))
    }

    /// All operators, those that leave too.
    pub fn operators(&self) -> impl Iterator<Item = &Arc<Operator>> {
        self.parts.operators.iter().chain(&self.leaving.operators)
    }

    /// The operator with a ring.
    pub fn operator(&self, ring: usize) -> Option<&Arc<Operator>> {
        match &self.producer(ring)?.source {
            Source::Operator(operator) => Some(operator),
            Source::Stream(_) => None,
        }
    }

    /// The names of streams and operators by the numbers of their rings, for traces.
    pub fn names(&self) -> Vec<&str> {
        let producers = self.producers.iter().map(Option::as_ref);
        producers
            .map(|producer| producer.map_or("?", |producer| producer.source.name()))
            .collect()
    }

    /// The attributes of what is in a ring, by name, and what its records look like.
    pub fn records(&self, ring: usize) -> Option<(&[String], &Schema)> {
        match &self.producer(ring)?.source {
            Source::Stream(stream) => Some((&stream.spec.attributes, &stream.spec.schema)),
            Source::Operator(operator) => Some((&operator.spec.attributes, &operator.spec.schema)),
        }
    }
}
