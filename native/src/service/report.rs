//! The books as JSON, for `stats()` and everything that shows them.

use serde_json::{Map, json};

use crate::json::Json;
use crate::service::books::{Books, EdgeBook, FATES, OperatorBook};
use crate::service::engine::Shared;
use crate::service::histogram::Histogram;
use crate::service::recorder::{Names, trace};
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

fn summary(histogram: &Histogram) -> Json {
    let found = histogram.summary();
    json!({
        "count": found.count,
        "mean_ns": found.mean,
        "p50_ns": found.p50,
        "p90_ns": found.p90,
        "p99_ns": found.p99,
        "p999_ns": found.p999,
        "max_ns": found.max,
    })
}

fn add(section: &mut Map<String, Json>, name: &str, values: impl IntoIterator<Item = (&'static str, Json)>) {
    if let Some(Json::Object(found)) = section.get_mut(name) {
        found.extend(values.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
}

/// The books of an engine, with its latencies and what its threads are.
pub fn engine_report(shared: &Shared) -> Json {
    let spec = &shared.spec;
    let mut found = report(spec, &shared.topology, &shared.store, &shared.books);
    if let Some(Json::Object(operators)) = found.get_mut("operators") {
        for (place, operator) in spec.operators.iter().enumerate() {
            let trouble = shared.troubles[place].lock().clone();
            let values = [
                ("run", summary(&shared.run_times[place])),
                ("trouble", trouble.map_or(Json::Null, Json::from)),
                ("stuck", shared.stuck[place].get().into()),
            ];
            add(operators, &operator.name, values);
        }
    }
    if let Some(Json::Object(consumers)) = found.get_mut("consumers") {
        for (place, consumer) in spec.consumers.iter().enumerate() {
            let waiting = shared.consumers[place].len();
            let values = [
                ("latency", summary(&shared.latency[place])),
                ("waiting", waiting.into()),
            ];
            add(consumers, &consumer.name, values);
        }
    }
    let mut levels = Map::new();
    for (place, level) in shared.levels.iter().enumerate() {
        let own = spec.operators.iter().zip(&shared.books.operators);
        let own = own
            .filter(|(operator, _)| operator.level == level.rank)
            .map(|(_, book)| book);
        let total = |of: fn(&OperatorBook) -> u64| own.clone().map(of).sum::<u64>();
        let shown = json!({
            "fired": total(|book| book.fired.get()),
            "stale": total(|book| book.stale.get()),
            "relative": total(|book| book.relative.get()),
            "failed": total(|book| book.failed.get()),
            "workers": format!("{:?}", level.policy.worker),
            "movers": format!("{:?}", level.policy.mover),
            "latency": summary(&shared.level_latency[level.rank]),
            "pauses": shared.pauses[place].get(),
            "input": level.input.len(),
            "moving": level.moving.lock().len(),
            "pending": level.state.lock().pending.len(),
        });
        levels.insert(spec.levels[level.rank].clone(), shown);
    }
    found.insert("levels".into(), levels.into());
    found.insert("notices".into(), shared.notices.clone().into());
    found.into()
}

/// The flight recorder's last moments, as Perfetto and Chrome read them.
pub fn engine_trace(shared: &Shared) -> String {
    let names = Names {
        operators: shared.spec.operators.iter().map(|o| o.name.as_str()).collect(),
        streams: shared.spec.streams.iter().map(|s| s.name.as_str()).collect(),
    };
    trace(shared.tracks.iter(), &names)
}
