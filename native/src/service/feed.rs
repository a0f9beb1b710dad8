//! Where what a consumer elsewhere gets comes from: a consumer's queue in the graph, or the matches of a query.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};

use crate::found_columns::Names;
use crate::json::Json;
use crate::plan::Plan;
use crate::record::Record;
use crate::service::books::Fate;
use crate::service::engine::Shared;
use crate::service::matches::Matches;
use crate::service::parcel::{Content, Parcel};
use crate::service::parts::Consumer;
use crate::service::scheduling::LevelPolicy;

/// What can be delivered.
pub trait Feed: Send + Sync {
    /// What a client has to know to read frames: `attributes`, names and types; or the names of `select`, whose types each
    /// frame says.
    fn described(&self) -> Map<String, Json>;

    /// How the thread that delivers is to run.
    fn policy(&self) -> LevelPolicy;

    /// Gives `take` the next, waited for at most so long; whether there was one.
    fn next(&self, timeout: Duration, take: &mut dyn FnMut(&Parcel<'_>)) -> bool;

    /// All that was given was written to those who read it.
    fn sent(&self) {}

    /// Whether nothing will come any more.
    fn is_over(&self) -> bool;
}

/// A consumer of the graph.
pub struct ConsumerFeed {
    /// The engine's.
    pub shared: Arc<Shared>,
    /// Which consumer.
    pub consumer: Arc<Consumer>,
    /// The attributes of what it reads, by name and type.
    pub attributes: Vec<(String, &'static str)>,
    /// Its level's.
    pub policy: LevelPolicy,
}

impl Feed for ConsumerFeed {
    fn described(&self) -> Map<String, Json> {
        Map::from_iter([("attributes".to_owned(), json!(self.attributes))])
    }

    fn policy(&self) -> LevelPolicy {
        self.policy
    }

    fn next(&self, timeout: Duration, take: &mut dyn FnMut(&Parcel<'_>)) -> bool {
        let shared = &*self.shared;
        let Some((token, marks)) = shared.read(&self.consumer, Some(timeout)) else {
            return false;
        };
        let graph = shared.graph();
        // What is held has its producer in the graph, be it on the way out.
        if let Some((attributes, schema)) = graph.records(token.ring()) {
            let event = shared.store.read(&token);
            // SAFETY: as for the inputs of operators, what is in a ring fits its producer's schema.
            let record = unsafe { Record::trusted(event.bytes, schema) };
            take(&Parcel {
                content: Content::Event(record, attributes),
                end: (event.head.end != i64::MAX).then_some(event.head.end),
                marks,
                supplied: Some(event.head.pushed),
                delay: None,
            });
        }
        shared.store.release(token, Fate::Used);
        true
    }

    fn is_over(&self) -> bool {
        self.shared.is_stopping() || (self.consumer.closed.get().is_some() && self.consumer.queue.is_empty())
    }
}

/// A query in the fast lane.
pub struct MatchFeed {
    /// The engine's.
    pub shared: Arc<Shared>,
    /// Its lane's.
    pub matches: Arc<Vec<Matches>>,
    /// Its number in the lane.
    pub number: usize,
    /// What was compiled.
    pub plan: Arc<Plan>,
    /// What its values are called.
    pub names: Arc<Names>,
    /// Its level's.
    pub policy: LevelPolicy,
}

impl Feed for MatchFeed {
    fn described(&self) -> Map<String, Json> {
        Map::from_iter([("select".to_owned(), json!(self.names.outputs))])
    }

    fn policy(&self) -> LevelPolicy {
        self.policy
    }

    fn next(&self, timeout: Duration, take: &mut dyn FnMut(&Parcel<'_>)) -> bool {
        let Some(delivery) = self.matches[self.number].next_to_send(timeout) else {
            return false;
        };
        take(&Parcel {
            content: Content::Match(&delivery.found, &self.plan, &self.names, delivery.knowledge),
            end: delivery.end,
            marks: delivery.marks,
            supplied: None,
            delay: delivery.delay,
        });
        true
    }

    fn sent(&self) {
        self.matches[self.number].sent();
    }

    fn is_over(&self) -> bool {
        self.shared.is_stopping() || self.matches[self.number].is_over()
    }
}
