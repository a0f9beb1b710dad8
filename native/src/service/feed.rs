//! Where what a consumer elsewhere gets comes from: a consumer's queue in the graph, or the matches of a query.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, json};

use crate::found_columns::Names;
use crate::json::Json;
use crate::plan::Plan;
use crate::record::Record;
use crate::service::books::Fate;
use crate::service::engine::Shared;
use crate::service::kept::{Acknowledged, Kept};
use crate::service::matches::{Delivery, Matches};
use crate::service::parcel::{Content, Parcel};
use crate::service::parts::Consumer;
use crate::service::pump::Pump;
use crate::service::scheduling::LevelPolicy;

/// What can be delivered.
pub trait Feed: Send + Sync {
    /// What a client has to know to read frames: `attributes`, names and types; or the names of `select`, whose types each
    /// frame says.
    fn described(&self) -> Map<String, Json>;

    /// How the thread that delivers is to run.
    fn policy(&self) -> LevelPolicy;

    /// Waits until there is something, at most so long, or until `give_up` says so to who is woken.
    fn wait(&self, timeout: Duration, give_up: &dyn Fn() -> bool);

    /// Gives `take` the next; whether there was one.
    fn next(&self, take: &mut dyn FnMut(&Parcel<'_>)) -> bool;

    /// From now on a pump delivers; None: from now on none does. Who brings something may ask it to do so at once.
    fn is_served_by(&self, _pump: Option<&Arc<Pump>>) {}

    /// All that was given was written to those who read it.
    fn sent(&self) {}

    /// Whether what it gives is acknowledged; then it has one client, and what that has not acknowledged is given again.
    fn is_acknowledged(&self) -> bool {
        false
    }

    /// A client comes.
    fn begin(&self) {}

    /// The client has handled what is before a number.
    fn acknowledge(&self, _number: u64) -> Acknowledged {
        Acknowledged::Unknown
    }

    /// Whether nothing is kept that is not acknowledged, but there is more in the log.
    fn is_spent(&self) -> bool {
        false
    }

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

    fn wait(&self, timeout: Duration, give_up: &dyn Fn() -> bool) {
        let is_over = || self.shared.is_stopping() || self.consumer.closed.get().is_some() || give_up();
        self.consumer
            .queue
            .wait_for_one(Some(Instant::now() + timeout), is_over);
    }

    fn next(&self, take: &mut dyn FnMut(&Parcel<'_>)) -> bool {
        let shared = &*self.shared;
        let Some((token, marks)) = shared.read(&self.consumer, Some(Duration::ZERO)) else {
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
                acks: None,
            });
        }
        shared.store.release(token, Fate::Used);
        true
    }

    fn is_served_by(&self, pump: Option<&Arc<Pump>>) {
        self.consumer.pump.store(pump.cloned());
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

impl MatchFeed {
    fn parcel<'a>(&'a self, delivery: &'a Delivery, acks: Option<(u64, u64)>) -> Parcel<'a> {
        Parcel {
            content: Content::Match(&delivery.found, &self.plan, &self.names, delivery.knowledge),
            end: delivery.end,
            marks: delivery.marks,
            supplied: None,
            delay: delivery.delay,
            acks,
        }
    }
}

impl Feed for MatchFeed {
    fn described(&self) -> Map<String, Json> {
        Map::from_iter([("select".to_owned(), json!(self.names.outputs))])
    }

    fn policy(&self) -> LevelPolicy {
        self.policy
    }

    fn wait(&self, timeout: Duration, _give_up: &dyn Fn() -> bool) {
        self.matches[self.number].wait(timeout);
    }

    fn next(&self, take: &mut dyn FnMut(&Parcel<'_>)) -> bool {
        let Some(delivery) = self.matches[self.number].next_to_send() else {
            return false;
        };
        take(&self.parcel(&delivery, None));
        true
    }

    fn is_served_by(&self, pump: Option<&Arc<Pump>>) {
        self.matches[self.number].listen(pump.is_some());
    }

    fn sent(&self) {
        self.matches[self.number].sent();
    }

    fn is_over(&self) -> bool {
        self.shared.is_stopping() || self.matches[self.number].is_over()
    }
}

/// A query in the fast lane, whose matches are acknowledged.
pub struct AcknowledgedFeed(pub MatchFeed);

impl AcknowledgedFeed {
    fn matches(&self) -> &Matches {
        &self.0.matches[self.0.number]
    }
}

impl Feed for AcknowledgedFeed {
    fn described(&self) -> Map<String, Json> {
        let mut found = self.0.described();
        found.insert("acks".to_owned(), self.matches().keep().into());
        found
    }

    fn policy(&self) -> LevelPolicy {
        self.0.policy
    }

    fn wait(&self, timeout: Duration, _give_up: &dyn Fn() -> bool) {
        self.matches().wait_to_give(timeout);
    }

    fn next(&self, take: &mut dyn FnMut(&Parcel<'_>)) -> bool {
        let Some((delivery, number, done)) = self.matches().with_kept(Kept::give) else {
            return false;
        };
        take(&self.0.parcel(&delivery, Some((number, done))));
        true
    }

    fn is_acknowledged(&self) -> bool {
        true
    }

    fn begin(&self) {
        self.matches().with_kept(Kept::begin);
    }

    fn acknowledge(&self, number: u64) -> Acknowledged {
        self.matches().acknowledge(number)
    }

    fn is_spent(&self) -> bool {
        self.matches().with_kept(|kept| kept.spent().is_some())
    }

    fn is_over(&self) -> bool {
        self.0.shared.is_stopping() || self.matches().is_ended()
    }
}
