//! The edges of a graph: who reads what, and over which edge. Inputs that an operator reads twice are one edge.

use crate::service::spec::Spec;

/// A relative set: the edges that must have begun so many microseconds apart at most.
#[derive(Clone, Debug)]
pub struct Relative {
    /// In the order of the operator's inputs.
    pub edges: Box<[usize]>,
    /// Microseconds.
    pub within: i64,
}

/// An edge into an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The operator's position.
    pub operator: usize,
    /// The edge's place among those of the operator.
    pub edge: usize,
}

/// What an operator reads.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The producer of each edge.
    pub sources: Box<[usize]>,
    /// The edge of each input.
    pub edges: Box<[usize]>,
    /// The relative sets, by edges.
    pub relative: Box<[Relative]>,
}

/// Who reads a producer's events.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    /// Consumers, by their places.
    pub consumers: Vec<usize>,
    /// Operators of the producer's own level.
    pub local: Vec<Reader>,
    /// Operators of lower levels, the highest of them first.
    pub remote: Vec<Reader>,
}

impl Readers {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.consumers.len() + self.local.len() + self.remote.len()
    }
}

/// All edges.
#[derive(Clone, Debug)]
pub struct Topology {
    /// By operator.
    pub inputs: Vec<Inputs>,
    /// By producer.
    pub readers: Vec<Readers>,
}

impl Topology {
    /// Of a spec.
    pub fn new(spec: &Spec) -> Topology {
        let mut readers = vec![Readers::default(); spec.streams.len() + spec.operators.len()];
        let mut inputs = Vec::new();
        for (place, consumer) in spec.consumers.iter().enumerate() {
            readers[consumer.input].consumers.push(place);
        }
        for (position, operator) in spec.operators.iter().enumerate() {
            let mut sources: Vec<usize> = Vec::new();
            let mut edges = Vec::new();
            for input in &operator.inputs {
                let edge = sources.iter().position(|source| source == input);
                edges.push(edge.unwrap_or(sources.len()));
                if edge.is_none() {
                    sources.push(*input);
                }
            }
            for (edge, source) in sources.iter().enumerate() {
                let reader = Reader {
                    operator: position,
                    edge,
                };
                if spec.level_of(*source) == operator.level {
                    readers[*source].local.push(reader);
                } else {
                    readers[*source].remote.push(reader);
                }
            }
            let relative = operator.relative.iter().map(|(places, within)| {
                let mut edges: Vec<usize> = places.iter().map(|place| edges[*place]).collect();
                edges.sort_unstable();
                edges.dedup();
                Relative {
                    edges: edges.into(),
                    within: *within,
                }
            });
            inputs.push(Inputs {
                relative: relative.collect(),
                sources: sources.into(),
                edges: edges.into(),
            });
        }
        for readers in &mut readers {
            readers
                .remote
                .sort_by_key(|reader| spec.operators[reader.operator].level);
        }
        Topology { inputs, readers }
    }
}
