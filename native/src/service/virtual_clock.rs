//! A graph on the virtual clock (rule G6): one thread, no time but the one that is given, always the same outcome.
//!
//! Supplier events wait until `run`, which takes them in the order of their arrival; all that one makes ready runs before
//! the next, in order of level and position. It is what the threaded engine is compared with, and is itself compared
//! with tests/reference/graph.py.

use std::collections::VecDeque;

use serde_json::json;

use crate::intake::base64;
use crate::json::{Fault, Json, Reading, fault, parse};
use crate::record;
use crate::service::binding::{Binding, Bound, Found, Rules};
use crate::service::books::{Books, Fate};
use crate::service::instance::Instance;
use crate::service::operators::{Given, build};
use crate::service::report::report;
use crate::service::spec::{Spec, Stale, StreamSpec};
use crate::service::store::{Head, STALE, Store, Token};
use crate::service::topology::Topology;

/// How many events of a type can be there besides the valid ones.
const SLOTS: usize = 1_024;

/// What a consumer was given.
#[derive(Debug)]
pub struct Delivery {
    /// Its place.
    pub consumer: usize,
    /// The event.
    pub token: Token,
    /// What is known of it; labels that the push added are in it.
    pub head: Head,
}

/// A graph at work.
pub struct VirtualClock {
    spec: Spec,
    topology: Topology,
    store: Store,
    books: Books,
    bindings: Vec<Binding>,
    instances: Vec<Instance>,
    input_queue: VecDeque<Token>,
    deliveries: Vec<Delivery>,
    now: i64,
}

/// The validity of a supplier event (rule G1): the stream's, or less where the event came with an end from elsewhere.
pub fn supplier_head(stream: &StreamSpec, bytes: &[u8], pushed: u64) -> Head {
    let begin = record::time(bytes);
    let end = stream.valid_for.map_or(i64::MAX, |span| begin.saturating_add(span));
    Head {
        begin,
        end: record::end(bytes).map_or(end, |given| given.min(end)),
        pushed,
        marks: record::marks(bytes),
    }
}

/// What an operator's binding has to know.
pub fn rules(spec: &Spec, topology: &Topology, operator: usize) -> Rules {
    let inputs = &topology.inputs[operator];
    let operator = &spec.operators[operator];
    Rules {
        edges: inputs.sources.len(),
        fire_any: operator.fire_any,
        sheds: operator.stale == Stale::Shed,
        depth: operator.depth,
        relative: inputs.relative.clone(),
    }
}

/// The labels of an event that is pushed to a consumer now; None if it must not be (rule G3).
#[inline]
pub fn judged_at_push(head: &Head, stale: Stale, now: i64) -> Option<u8> {
    match stale {
        _ if now < head.end => Some(head.marks),
        Stale::Mark => Some(head.marks | STALE),
        Stale::Shed => None,
    }
}

/// The operators of a spec, ready to run.
pub fn instances(spec: &Spec, topology: &Topology, mut given: Given) -> Result<Vec<Instance>, Fault> {
    let operators = spec.operators.iter().enumerate();
    operators
        .map(|(place, operator)| {
            let process = build(operator, &mut given)?;
            let ring = spec.streams.len() + place;
            Ok(Instance::new(spec, &topology.inputs[place], place, ring, process))
        })
        .collect()
}

impl VirtualClock {
    /// For a spec, with the operators that are the program's own.
    pub fn new(spec: Spec, given: Given) -> Result<VirtualClock, Fault> {
        let topology = Topology::new(&spec);
        let rings = spec.streams.iter().map(|s| s.ring);
        let rings = rings.chain(spec.operators.iter().map(|o| o.ring));
        let edges = topology.inputs.iter().map(|inputs| inputs.sources.len());
        let positions = 0..spec.operators.len();
        Ok(VirtualClock {
            store: Store::new(rings.map(|ring| (ring, ring + SLOTS))),
            books: Books::new(spec.streams.len(), edges, spec.consumers.len()),
            bindings: positions
                .map(|place| Binding::new(rules(&spec, &topology, place)))
                .collect(),
            instances: instances(&spec, &topology, given)?,
            input_queue: VecDeque::new(),
            deliveries: Vec::new(),
            now: i64::MIN,
            topology,
            spec,
        })
    }

    /// What runs.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The events.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The books, as JSON.
    pub fn report(&self) -> String {
        Json::Object(report(&self.spec, &self.topology, &self.store, &self.books)).to_string()
    }

    /// A supplier's record arrives; it must fit its stream. It is not taken before `run`. False if it was refused.
    pub fn push(&mut self, stream: usize, bytes: &[u8]) -> Result<bool, record::Fault> {
        let spec = &self.spec.streams[stream];
        let length = record::check(bytes, &spec.schema)?;
        let book = &self.books.streams[stream];
        if record::flags(bytes) & record::DUPLICATE != 0 {
            book.duplicate.add(1);
            return Ok(false);
        }
        let Some(mut writer) = self.store.claim(stream) else {
            book.refused.add(1);
            return Ok(false);
        };
        writer.body().copy(&bytes[..length]);
        let token = writer.publish(supplier_head(spec, bytes, 0));
        book.queue.came.add(1);
        let waiting = self.input_queue.iter_mut().find(|other| other.ring() == stream);
        match waiting {
            Some(waiting) if spec.replace => {
                let older = std::mem::replace(waiting, token);
                book.queue.end(Fate::Replaced);
                self.store.release(older, Fate::Replaced);
            }
            _ => self.input_queue.push_back(token),
        }
        Ok(true)
    }

    /// The clock says `now`, and everything that can run does. The deliveries' tokens are the caller's to release.
    pub fn run(&mut self, now: i64) -> Vec<Delivery> {
        self.now = now;
        while let Some(token) = self.input_queue.pop_front() {
            self.books.streams[token.ring()].queue.end(Fate::Used);
            let head = *self.store.read(&token).head;
            self.share(token, head);
            while let Some(operator) = self.first_ready() {
                self.invoke(operator);
            }
        }
        std::mem::take(&mut self.deliveries)
    }

    /// What waits and what operators remember, as JSON, for `restore` on a clock of the same spec. The books begin anew there.
    pub fn save(&self) -> Result<String, Fault> {
        if !self.input_queue.is_empty() {
            return fault("events wait that were not taken: run the clock first");
        }
        let operators = self.spec.operators.iter().zip(&self.bindings).zip(&self.instances);
        let operators = operators.map(|((operator, binding), instance)| {
            let held = binding.held().map(|(edge, bound)| {
                let mut record = Vec::new();
                base64::encode(self.store.read(&bound.token).bytes, &mut record);
                let (head, record) = (&bound.head, String::from_utf8_lossy(&record));
                json!([edge, head.begin, head.end, head.marks, record])
            });
            json!([operator.name, instance.save(), held.collect::<Vec<_>>()])
        });
        Ok(Json::Array(operators.collect()).to_string())
    }

    /// Goes on with what `save` gave; on a fault it is of no use any more.
    pub fn restore(&mut self, saved: &str) -> Result<(), Fault> {
        let saved = parse(saved)?;
        let names = saved.each(|operator| Ok(operator.at(0)?.text()?.to_owned()))?;
        if !names
            .iter()
            .eq(self.spec.operators.iter().map(|operator| &operator.name))
        {
            return fault(format!("it is of a graph of other operators: {}", names.join(", ")));
        }
        for (place, operator) in saved.list()?.iter().enumerate() {
            self.instances[place].restore(operator.at(1)?)?;
            for held in operator.at(2)?.list()? {
                self.hold(place, held)?;
            }
        }
        Ok(())
    }

    /// Binds an event that was saved to an operator.
    fn hold(&mut self, operator: usize, held: &Json) -> Result<(), Fault> {
        let edge = held.at(0)?.index()?;
        let Some(source) = self.topology.inputs[operator].sources.get(edge).copied() else {
            return fault(format!("it has an event at input {edge}, which there is not"));
        };
        let head = Head {
            begin: held.at(1)?.int()?,
            end: held.at(2)?.int()?,
            pushed: 0,
            marks: u8::try_from(held.at(3)?.int()?).or_else(|_| fault("it has labels that there are not"))?,
        };
        let bytes = base64::decode(held.at(4)?.text()?.as_bytes());
        let bytes = bytes.map_or_else(|| fault("it has an event that is no record"), Ok)?;
        let length = record::check(&bytes, self.spec.schema(source)).or_else(|error| fault(error.to_string()))?;
        let Some(mut writer) = self.store.claim(source) else {
            return fault("it has more events than there is room for");
        };
        writer.body().copy(&bytes[..length]);
        let token = writer.publish(head);
        self.bindings[operator].hold(edge, Bound { token, head });
        Ok(())
    }

    fn first_ready(&self) -> Option<usize> {
        let ready = (0..self.bindings.len()).filter(|place| self.bindings[*place].waiting() > 0);
        ready.min_by_key(|place| (self.spec.operators[*place].level, *place))
    }

    fn share(&mut self, token: Token, head: Head) {
        let readers = &self.topology.readers[token.ring()];
        for consumer in &readers.consumers {
            let book = &self.books.consumers[*consumer];
            book.edge.came.add(1);
            book.stale.add(u64::from(self.now >= head.end));
            let token = self.store.retain(&token);
            match judged_at_push(&head, self.spec.consumers[*consumer].stale, self.now) {
                Some(marks) => {
                    book.edge.end(Fate::Used);
                    self.deliveries.push(Delivery {
                        consumer: *consumer,
                        token,
                        head: Head { marks, ..head },
                    });
                }
                None => {
                    book.edge.end(Fate::Expired);
                    self.store.release(token, Fate::Expired);
                }
            }
        }
        let mut readers: Vec<_> = readers.local.iter().chain(&readers.remote).collect();
        readers.sort_by_key(|reader| reader.operator);
        for reader in readers {
            let book = &self.books.operators[reader.operator];
            book.edges[reader.edge].came.add(1);
            let bound = Bound {
                token: self.store.retain(&token),
                head,
            };
            let store = &self.store;
            self.bindings[reader.operator].bind(reader.edge, bound, &mut |edge: usize, bound: Bound, fate| {
                book.edges[edge].end(fate);
                store.release(bound.token, fate);
            });
        }
        self.store.forget(token);
    }

    fn invoke(&mut self, operator: usize) {
        let book = &self.books.operators[operator];
        let instance = &mut self.instances[operator];
        let store = &self.store;
        let mut found = Found::default();
        let marks = self.bindings[operator].invoke(
            self.now,
            &mut instance.inputs,
            &mut found,
            &mut |edge: usize, bound: Bound, fate| {
                book.edges[edge].end(fate);
                store.release(bound.token, fate);
            },
        );
        book.invoked.add(1);
        book.stale.add(found.stale);
        book.relative.add(found.relative);
        let Some(marks) = marks else { return };
        let mut outputs = Vec::new();
        // A failure is in the books.
        let _ = instance.run(&self.store, book, marks, &mut |token, head| outputs.push((token, head)));
        for (token, head) in outputs {
            self.share(token, head);
        }
    }
}
