//! The books as JSON, for `stats()` and everything that shows them.

use serde_json::{Map, json};

use crate::json::Json;
use crate::service::books::{Books, EdgeBook, FATES};
use crate::service::spec::Spec;
use crate::service::store::Store;
use crate::service::topology::Topology;

fn edge(book: &EdgeBook) -> Map<String, Json> {
    let mut found = Map::new();
    found.insert("came".into(), book.came.get().into());
    for fate in FATES {
        found.insert(fate.name().into(), book.ended(fate).into());
    }
    found.insert("held".into(), book.held().into());
    found
}

fn ring(store: &Store, number: usize) -> Json {
    let book = store.book(number);
    let mut found = Map::new();
    found.insert("created".into(), book.created.into());
    for (fate, count) in FATES.iter().zip(book.fates) {
        found.insert(fate.name().into(), count.into());
    }
    found.insert("held".into(), book.held().into());
    found.insert("refused".into(), book.refused.into());
    found.insert("slots".into(), book.slots.into());
    found.insert("bound".into(), book.bound.into());
    Json::Object(found)
}

/// Everything that was counted. `events` are the fates of whole events, `inputs` those at each reader.
pub fn report(spec: &Spec, topology: &Topology, store: &Store, books: &Books) -> Map<String, Json> {
    let mut streams = Map::new();
    for (number, stream) in spec.streams.iter().enumerate() {
        let book = &books.streams[number];
        let found = json!({
            "level": spec.levels[stream.level],
            "queue": edge(&book.queue),
            "refused": book.refused.get(),
            "duplicate": book.duplicate.get(),
            "events": ring(store, number),
        });
        streams.insert(stream.name.clone(), found);
    }
    let mut operators = Map::new();
    for (place, operator) in spec.operators.iter().enumerate() {
        let book = &books.operators[place];
        let mut inputs = Map::new();
        for (source, counted) in topology.inputs[place].sources.iter().zip(&book.edges) {
            inputs.insert(spec.name_of(*source).to_owned(), edge(counted).into());
        }
        let found = json!({
            "kind": operator.kind,
            "level": spec.levels[operator.level],
            "invoked": book.invoked.get(),
            "fired": book.fired.get(),
            "emitted": book.emitted.get(),
            "stale": book.stale.get(),
            "relative": book.relative.get(),
            "failed": book.failed.get(),
            "refused": book.refused.get(),
            "inputs": inputs,
            "events": ring(store, spec.streams.len() + place),
        });
        operators.insert(operator.name.clone(), found);
    }
    let mut consumers = Map::new();
    for (consumer, book) in spec.consumers.iter().zip(&books.consumers) {
        let mut found = edge(&book.edge);
        found.insert("level".into(), spec.levels[consumer.level].clone().into());
        found.insert("stale".into(), book.stale.get().into());
        found.insert("lost".into(), book.lost.get().into());
        found.insert("read".into(), book.read.get().into());
        consumers.insert(consumer.name.clone(), found.into());
    }
    let mut report = Map::new();
    report.insert("application".into(), spec.name.clone().into());
    report.insert("streams".into(), streams.into());
    report.insert("operators".into(), operators.into());
    report.insert("consumers".into(), consumers.into());
    report
}
