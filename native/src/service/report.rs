//! The books as JSON, for `stats()` and everything that shows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, json};

use crate::json::Json;
use crate::service::books::{Books, ConsumerBook, EdgeBook, FATES, OperatorBook, StreamBook};
use crate::service::engine::Shared;
use crate::service::histogram::{Histogram, Spread};
use crate::service::lane::Lane;
use crate::service::matches::Matches;
use crate::service::parts::{Consumer, Operator, Stream};
use crate::service::recorder::trace;
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

fn stream_book(level: &str, book: &StreamBook, events: Json) -> Map<String, Json> {
    let mut found = Map::new();
    found.insert("level".into(), level.into());
    found.insert("queue".into(), edge(&book.queue).into());
    found.insert("refused".into(), book.refused.get().into());
    found.insert("duplicate".into(), book.duplicate.get().into());
    found.insert("events".into(), events);
    found
}

fn operator_book<'n>(
    (kind, level): (&str, &str),
    book: &OperatorBook,
    sources: impl Iterator<Item = &'n str>,
    events: Json,
) -> Map<String, Json> {
    let mut inputs = Map::new();
    for (source, counted) in sources.zip(&book.edges) {
        inputs.insert(source.to_owned(), edge(counted).into());
    }
    let mut found = Map::new();
    found.insert("kind".into(), kind.into());
    found.insert("level".into(), level.into());
    for (name, counter) in [
        ("invoked", &book.invoked),
        ("fired", &book.fired),
        ("emitted", &book.emitted),
        ("stale", &book.stale),
        ("relative", &book.relative),
        ("failed", &book.failed),
        ("refused", &book.refused),
    ] {
        found.insert(name.into(), counter.get().into());
    }
    found.insert("inputs".into(), inputs.into());
    found.insert("events".into(), events);
    found
}

fn consumer_book(level: &str, book: &ConsumerBook) -> Map<String, Json> {
    let mut found = edge(&book.edge);
    found.insert("level".into(), level.into());
    found.insert("stale".into(), book.stale.get().into());
    found.insert("lost".into(), book.lost.get().into());
    found.insert("read".into(), book.read.get().into());
    found
}

/// Everything that was counted on the virtual clock. `events` are the fates of whole events, `inputs` those at each reader.
pub fn report(spec: &Spec, topology: &Topology, store: &Store, books: &Books) -> Map<String, Json> {
    let mut streams = Map::new();
    for (number, stream) in spec.streams.iter().enumerate() {
        let found = stream_book(&spec.levels[stream.level], &books.streams[number], ring(store, number));
        streams.insert(stream.name.clone(), found.into());
    }
    let mut operators = Map::new();
    for (place, operator) in spec.operators.iter().enumerate() {
        let sources = topology.inputs[place]
            .sources
            .iter()
            .map(|source| spec.name_of(*source));
        let events = ring(store, spec.streams.len() + place);
        let about = (operator.kind.as_str(), spec.levels[operator.level].as_str());
        let found = operator_book(about, &books.operators[place], sources, events);
        operators.insert(operator.name.clone(), found.into());
    }
    let mut consumers = Map::new();
    for (consumer, book) in spec.consumers.iter().zip(&books.consumers) {
        consumers.insert(
            consumer.name.clone(),
            consumer_book(&spec.levels[consumer.level], book).into(),
        );
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

/// What became of the matches of a query.
pub fn matches_report(matches: &Matches) -> Json {
    let counts = matches.counts();
    json!({
        "unacknowledged": matches.with_kept(|kept| Some(kept.count())),
        "found": counts.found,
        "stale": counts.stale,
        "relative": counts.relative,
        "shed": counts.shed,
        "lost": counts.lost,
        "recovered": counts.recovered,
        "latency": summary(&matches.latency),
        "delay": summary(&matches.delay),
    })
}

/// What was counted of an engine's stream.
pub(super) fn stream_report(shared: &Shared, stream: &Stream, level: &str) -> Map<String, Json> {
    stream_book(level, &stream.book, ring(&shared.store, stream.ring))
}

/// What was counted of an engine's operator.
pub(super) fn operator_report(shared: &Shared, operator: &Operator, level: &str) -> Map<String, Json> {
    let sources = operator.sources.iter().map(String::as_str);
    let events = ring(&shared.store, operator.ring);
    operator_book((&operator.spec.kind, level), &operator.book, sources, events)
}

/// What was counted of an engine's consumer.
pub(super) fn consumer_report(consumer: &Consumer, level: &str) -> Map<String, Json> {
    let mut found = consumer_book(level, &consumer.book);
    found.insert("waiting".into(), consumer.queue.len().into());
    found
}

/// The books of an engine, with its latencies and what its threads are.
pub fn engine_report(shared: &Shared) -> Json {
    let removed = shared.removed();
    let graph = shared.graph();
    let spec = &graph.spec;
    let mut streams = Map::new();
    for (stream, said) in graph.parts.streams.iter().zip(&spec.streams) {
        let found = stream_report(shared, stream, &spec.levels[said.level]);
        streams.insert(said.name.clone(), found.into());
    }
    let mut operators = Map::new();
    for (operator, said) in graph.parts.operators.iter().zip(&spec.operators) {
        let mut found = operator_report(shared, operator, &spec.levels[said.level]);
        let trouble = operator.trouble.lock().clone();
        found.insert("run".into(), summary(&operator.run_times));
        found.insert("trouble".into(), trouble.map_or(Json::Null, Json::from));
        found.insert("stuck".into(), operator.stuck.get().into());
        operators.insert(said.name.clone(), found.into());
    }
    let mut consumers = Map::new();
    for (consumer, said) in graph.parts.consumers.iter().zip(&spec.consumers) {
        let mut found = consumer_report(consumer, &spec.levels[said.level]);
        found.insert("latency".into(), summary(&consumer.latency));
        consumers.insert(said.name.clone(), found.into());
    }
    let mut levels = Map::new();
    for place in graph.levels().filter(|place| place.runs) {
        let level = &place.level;
        let is_own = |operator: &&Arc<Operator>| operator.level.load(Ordering::Relaxed) == level.number;
        let own: Vec<&Arc<Operator>> = graph.operators().filter(is_own).collect();
        let total = |of: fn(&OperatorBook) -> u64| own.iter().map(|operator| of(&operator.book)).sum::<u64>();
        let shown = json!({
            "fired": total(|book| book.fired.get()),
            "stale": total(|book| book.stale.get()),
            "relative": total(|book| book.relative.get()),
            "failed": total(|book| book.failed.get()),
            "workers": format!("{:?}", place.policy.worker),
            "movers": format!("{:?}", place.policy.mover),
            "latency": summary(&level.latency),
            "pauses": level.pauses.get(),
            "input": place.input.len(),
            "moving": level.moving.lock().len(),
            "pending": level.state.lock().pending.len(),
        });
        levels.insert(level.name.clone(), shown);
    }
    json!({
        "application": spec.name,
        "streams": streams,
        "operators": operators,
        "consumers": consumers,
        "levels": levels,
        "removed": removed,
        "notices": shared.notices,
    })
}

fn spreads<'n>(each: impl Iterator<Item = (&'n str, &'n Histogram)>) -> BTreeMap<&'n str, Spread> {
    each.map(|(name, histogram)| (name, histogram.spread())).collect()
}

/// The latencies of an engine's consumers, levels and queries, the delays of recovered matches and the run times of operators, as whole
/// histograms by name; as JSON, written as it is: a tree of values would be many times as large.
pub fn histograms_report<'q>(shared: &Shared, queries: impl Iterator<Item = (&'q str, &'q Matches)> + Clone) -> String {
    let graph = shared.graph();
    let spec = &graph.spec;
    let consumers = graph.parts.consumers.iter().zip(&spec.consumers);
    let operators = graph.parts.operators.iter().zip(&spec.operators);
    let levels = graph.levels().filter(|place| place.runs).map(|place| &place.level);
    let found = BTreeMap::from([
        (
            "consumers",
            spreads(consumers.map(|(one, said)| (&*said.name, &one.latency))),
        ),
        ("levels", spreads(levels.map(|level| (&*level.name, &level.latency)))),
        (
            "operators",
            spreads(operators.map(|(one, said)| (&*said.name, &one.run_times))),
        ),
        (
            "queries",
            spreads(queries.clone().map(|(name, matches)| (name, &matches.latency))),
        ),
        ("delays", spreads(queries.map(|(name, matches)| (name, &matches.delay)))),
    ]);
    serde_json::to_string(&found).unwrap_or_default()
}

/// The flight recorder's last moments of workers, movers and lanes, as Perfetto and Chrome read them.
pub fn engine_trace(shared: &Shared, lanes: &[Arc<Lane>]) -> String {
    let graph = shared.graph();
    let names = graph.names();
    let tracks = graph.levels().flat_map(|place| &place.level.tracks);
    let tracks = tracks.map(|track| (track, &names[..]));
    trace(tracks.chain(lanes.iter().map(|lane| (&*lane.track, &["batch"][..]))))
}
