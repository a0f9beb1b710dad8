//! The parts of a running graph: streams, operators and consumers, each with what belongs to it alone.
//!
//! A part is made once and shared; it keeps its state, its ring and its books through every change of the graph that leaves it
//! as it is (change.rs).

use std::cell::UnsafeCell;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use arc_swap::ArcSwapOption;

use crate::record::Kind;
use crate::service::binding::Binding;
use crate::service::books::{ConsumerBook, Counter, OperatorBook, StreamBook};
use crate::service::consumer::ConsumerQueue;
use crate::service::histogram::Histogram;
use crate::service::instance::Instance;
use crate::service::processor::State;
use crate::service::pump::Pump;
use crate::service::spec::{ConsumerSpec, OperatorSpec, Spec, Stale, StreamSpec};
use crate::service::sync::PiMutex;

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// What it is.
    pub spec: StreamSpec,
    /// The number of its ring.
    pub ring: usize,
    /// The number of the level whose InputQ its events go to. It follows the graph as soon as none of them waits, so that
    /// they keep their order.
    pub home: AtomicUsize,
    /// What happened at its door.
    pub book: StreamBook,
}

impl Stream {
    /// Whether it is what another spec says; levels and sizes may differ.
    pub fn is(&self, other: &StreamSpec) -> bool {
        let own = &self.spec;
        own.name == other.name
            && own.valid_for == other.valid_for
            && own.replace == other.replace
            && own.attributes == other.attributes
            && own.schema.kinds == other.schema.kinds
    }
}

/// An input of an operator: the producer's name, and what its records look like.
type Input = (String, Vec<String>, Box<[Kind]>);

/// What an operator does, whatever its numbers and its level are.
#[derive(Debug, PartialEq)]
pub struct Meaning {
    kind: String,
    parameters: String,
    inputs: Vec<Input>,
    relative: Vec<(Vec<usize>, i64)>,
    fire_any: bool,
    sheds: bool,
    depth: usize,
    attributes: Vec<String>,
    kinds: Box<[Kind]>,
}

impl Meaning {
    /// Of the operator at a place of a spec.
    pub fn new(spec: &Spec, place: usize) -> Meaning {
        let operator = &spec.operators[place];
        let input = |input: &usize| {
            let kinds = spec.schema(*input).kinds.clone();
            (spec.name_of(*input).to_owned(), spec.attributes(*input).to_vec(), kinds)
        };
        Meaning {
            kind: operator.kind.clone(),
            parameters: operator.parameters.to_string(),
            inputs: operator.inputs.iter().map(input).collect(),
            relative: operator.relative.clone(),
            fire_any: operator.fire_any,
            sheds: operator.stale == Stale::Shed,
            depth: operator.depth,
            attributes: operator.attributes.clone(),
            kinds: operator.schema.kinds.clone(),
        }
    }
}

/// An operator as its level sees it.
#[derive(Debug)]
pub struct Node {
    /// Its inputs.
    pub binding: Binding,
    /// Whether a worker runs it now.
    pub running: bool,
}

/// An operator.
pub struct Operator {
    /// What it is.
    pub spec: OperatorSpec,
    /// What tells whether another spec means the same.
    pub meaning: Meaning,
    /// The producers' names, by edge.
    pub sources: Vec<String>,
    /// The number of its ring.
    pub ring: usize,
    /// The number of its level. It changes only under the locks of all levels.
    pub level: AtomicUsize,
    /// What happened at it.
    pub book: OperatorBook,
    /// How long it runs.
    pub run_times: Histogram,
    /// How long it has run lately, in nanoseconds.
    pub usual: AtomicU64,
    /// What it failed of last.
    pub trouble: PiMutex<Option<String>>,
    /// Times that the watchdog found it not to return.
    pub stuck: Counter,
    node: UnsafeCell<Node>,
    instance: UnsafeCell<Instance>,
}

// SAFETY: the node is reached only under the lock of the operator's level, the instance only by the worker that has set `running`
// there; both can be sent between threads.
unsafe impl Sync for Operator {}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("name", &self.spec.name)
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// The operator's node.
    ///
    /// # Safety
    /// `_state` is that of the operator's level, which the caller has locked; no other node is held of the same operator.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn node<'s>(&'s self, _state: &State) -> &'s mut Node {
        // SAFETY: the lock gives the node to one thread at a time, and that one takes it once at a time.
        unsafe { &mut *self.node.get() }
    }

    /// The operator's instance.
    ///
    /// # Safety
    /// The caller has set `running`, or found the operator in the PendingQ and holds the level's lock.
    #[inline]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn instance(&self) -> &mut Instance {
        // SAFETY: `running` and the PendingQ give the instance to one worker at a time.
        unsafe { &mut *self.instance.get() }
    }
}

/// An operator that has no instance yet.
pub struct Unbuilt {
    spec: OperatorSpec,
    meaning: Meaning,
    sources: Vec<String>,
    level: usize,
    binding: Binding,
    ring: usize,
    book: OperatorBook,
}

impl Unbuilt {
    /// Of the operator at a place of a spec, at the level with that number.
    pub fn new(
        spec: &Spec,
        place: usize,
        sources: Vec<String>,
        level: usize,
        binding: Binding,
        ring: usize,
    ) -> Unbuilt {
        let operator = spec.operators[place].clone();
        Unbuilt {
            meaning: Meaning::new(spec, place),
            book: OperatorBook::new(sources.len()),
            spec: operator,
            sources,
            level,
            binding,
            ring,
        }
    }

    /// With its instance.
    pub fn build(self, instance: Instance) -> Operator {
        Operator {
            spec: self.spec,
            meaning: self.meaning,
            sources: self.sources,
            ring: self.ring,
            level: AtomicUsize::new(self.level),
            book: self.book,
            run_times: Histogram::default(),
            // As nobody knows yet: a second.
            usual: AtomicU64::new(1_000_000_000),
            trouble: PiMutex::new(None),
            stuck: Counter::default(),
            node: UnsafeCell::new(Node {
                binding: self.binding,
                running: false,
            }),
            instance: UnsafeCell::new(instance),
        }
    }
}

/// A consumer.
#[derive(Debug)]
pub struct Consumer {
    /// What it is; the numbers in it are those of the spec that it came with.
    pub spec: ConsumerSpec,
    /// The name of what it reads.
    pub input: String,
    /// What waits for it.
    pub queue: ConsumerQueue,
    /// What happened at it.
    pub book: ConsumerBook,
    /// Who delivers to its clients, if it has any.
    pub pump: ArcSwapOption<Pump>,
    /// From the push of the last supplier event to the push to it.
    pub latency: Histogram,
    /// Since when nothing more comes, if that is so.
    pub closed: OnceLock<Instant>,
    /// Of one whose events go into the log: how many it has, of those that were read.
    pub logged: AtomicU64,
}

impl Consumer {
    /// Of a spec.
    pub fn new(spec: &Spec, place: usize) -> Consumer {
        let consumer = spec.consumers[place].clone();
        Consumer {
            input: spec.name_of(consumer.input).to_owned(),
            queue: ConsumerQueue::new(consumer.capacity),
            book: ConsumerBook::default(),
            pump: ArcSwapOption::empty(),
            latency: Histogram::default(),
            closed: OnceLock::new(),
            logged: AtomicU64::new(0),
            spec: consumer,
        }
    }

    /// Whether it is what another spec says at a place; its level may differ.
    pub fn is(&self, spec: &Spec, place: usize) -> bool {
        let other = &spec.consumers[place];
        self.spec.name == other.name
            && self.input == spec.name_of(other.input)
            && self.spec.stale == other.stale
            && self.spec.capacity == other.capacity
    }
}
