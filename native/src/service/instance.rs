//! An operator's instance: what runs it, and the events that it runs with. One thread at a time has it.

use crate::json::{Fault, Json};
use crate::panic;
use crate::record::{self, IdRef, Schema};
use crate::service::binding::Bound;
use crate::service::books::{Fate, OperatorBook};
use crate::service::identity::Identity;
use crate::service::operators::{Draft, Inputs, Output, Process, Trouble};
use crate::service::spec::Spec;
use crate::service::store::{Head, Store, Token};
use crate::service::topology::Inputs as Read;

/// One operator, ready to run.
pub struct Instance {
    /// Where its outputs go.
    ring: usize,
    schema: Schema,
    /// The edge of each input.
    edges: Box<[usize]>,
    /// What comes over each edge.
    sources: Box<[Schema]>,
    process: Box<dyn Process>,
    /// The inputs of the next run, by edge.
    pub inputs: Box<[Option<Bound>]>,
}

/// What an operator's outputs have in common: the overlap of its inputs' validity (rule G1).
fn overlap(inputs: &[Option<Bound>], marks: u8) -> Head {
    let mut head = Head {
        begin: i64::MIN,
        end: i64::MAX,
        pushed: 0,
        marks,
    };
    for bound in inputs.iter().flatten() {
        head.begin = head.begin.max(bound.head.begin);
        head.end = head.end.min(bound.head.end);
        head.pushed = head.pushed.max(bound.head.pushed);
    }
    head
}

struct Emitter<'a, 's> {
    store: &'a Store,
    schema: &'s Schema,
    ring: usize,
    head: Head,
    identity: Identity,
    book: &'a OperatorBook,
    share: &'s mut dyn FnMut(Token, Head),
}

impl Output for Emitter<'_, '_> {
    fn emit(&mut self, fill: &mut dyn FnMut(&mut Draft<'_>) -> Result<(), Trouble>) -> Result<(), Trouble> {
        let Some(mut writer) = self.store.claim(self.ring) else {
            self.book.refused.add(1);
            return Ok(());
        };
        let (schema, time, id) = (self.schema, self.head.begin, self.identity.next());
        let encoder = writer.body().build();
        encoder.start(schema, time, IdRef::Int(id))?;
        let mut draft = Draft {
            encoder,
            schema,
            time,
            id,
        };
        fill(&mut draft)?;
        draft.encoder.finish();
        self.identity.pass();
        self.book.emitted.add(1);
        (self.share)(writer.publish(self.head), self.head);
        Ok(())
    }
}

impl Instance {
    /// Of the operator at that position of a spec, whose outputs go to a ring.
    pub fn new(spec: &Spec, inputs: &Read, operator: usize, ring: usize, process: Box<dyn Process>) -> Instance {
        Instance {
            ring,
            schema: spec.operators[operator].schema.clone(),
            edges: inputs.edges.clone(),
            sources: inputs
                .sources
                .iter()
                .map(|source| spec.schema(*source).clone())
                .collect(),
            process,
            inputs: inputs.sources.iter().map(|_| None).collect(),
        }
    }

    /// What the operator remembers.
    pub fn save(&self) -> Json {
        self.process.save()
    }

    /// Goes on with what `save` gave elsewhere.
    pub fn restore(&mut self, saved: &Json) -> Result<(), Fault> {
        self.process.restore(saved)
    }

    /// Runs it with its inputs; each output goes to `share`. An error or a panic ends the run, not the process.
    pub fn run(
        &mut self,
        store: &Store,
        book: &OperatorBook,
        marks: u8,
        share: &mut dyn FnMut(Token, Head),
    ) -> Result<(), Trouble> {
        let Instance {
            ring,
            schema,
            edges,
            sources,
            process,
            inputs,
        } = self;
        let bound = inputs.iter().enumerate();
        let ids = bound.filter_map(|(edge, bound)| Some((edge, record::id(store.read(&bound.as_ref()?.token).bytes))));
        let identity = Identity::new(inputs.len(), ids);
        let mut out = Emitter {
            store,
            schema,
            ring: *ring,
            head: overlap(inputs, marks),
            identity,
            book,
            share,
        };
        let view = Inputs {
            store,
            bound: inputs,
            edges,
            sources,
        };
        book.fired.add(1);
        let outcome = panic::catch(|| process.run(&view, &mut out));
        let outcome = outcome.unwrap_or_else(|caught| Err(Trouble::Said(caught.to_string())));
        if outcome.is_err() {
            book.failed.add(1);
        }
        for (edge, input) in inputs.iter_mut().enumerate() {
            if let Some(bound) = input.take() {
                book.edges[edge].end(Fate::Used);
                store.release(bound.token, Fate::Used);
            }
        }
        outcome
    }
}
