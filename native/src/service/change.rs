//! Changes what runs while it runs: finds what is different, makes what is new aside, and puts another graph in the place of the old.
//!
//! Nobody stops for it. Each event is handed on by one graph, the old or the new. The lock of a level is taken only if its queues
//! need more room, which is made before. Only where operators go to another level
//! the levels' locks are held, for as long as it takes to set some numbers; what waits on their edges is bound at once, so that
//! events keep their order. A part that was removed gets nothing new from those that stay; what it holds runs to its end, and
//! then its counters go into the books of what was removed, and its ring to the next part. A thread without a priority sees to that,
//! because no worker is to wait for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::json::{Fault, fault};
use crate::service::binding::Bound;
use crate::service::books::Fate;
use crate::service::engine::Shared;
use crate::service::graph::{Graph, Place, Producer, Reader, Source};
use crate::service::next::{Next, set_policies};
use crate::service::operators::Given;
use crate::service::parts::{Consumer, Operator};
use crate::service::processor::{Level, State};
use crate::service::queues::Edge;
use crate::service::queues::{MovingQ, PendingQ};
use crate::service::removed::Removed;
use crate::service::report::{consumer_report, operator_report, stream_report};
use crate::service::spec::Spec;
use crate::service::sync::PiGuard;
use crate::service::threads;

/// So long what waits for a removed consumer can still be read; then it is lost, and counted.
const GRACE: Duration = Duration::from_secs(1);

/// What became of parts of a kind, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Were not there.
    pub added: Vec<String>,
    /// Are not there any more.
    pub removed: Vec<String>,
    /// Mean something else now: they were removed, and others added in their place.
    pub changed: Vec<String>,
    /// Went on as they are.
    pub kept: Vec<String>,
}

/// What a change changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Streams.
    pub streams: Changed,
    /// Operators.
    pub operators: Changed,
    /// Consumers.
    pub consumers: Changed,
    /// Levels.
    pub levels: Changed,
}

/// What changes are made with; one at a time has it.
#[derive(Debug, Default)]
pub struct Control {
    /// Graphs of before that someone may still look at.
    pub(super) old: Vec<Arc<Graph>>,
    /// Edges that no graph has any more, by the numbers of the level and the edge.
    pub(super) ended_edges: Vec<(usize, usize)>,
    /// Levels that have InputQs of before.
    before: Vec<Arc<Level>>,
    /// Whether a thread clears away.
    pub(super) is_tidied: bool,
    /// Levels that no graph has any more; their threads are to end.
    ending: Vec<Place>,
    pub(super) removed: Removed,
}

/// See `Engine::change`.
pub(super) fn change(shared: &Arc<Shared>, spec: Spec, given: Given, renewed: &[String]) -> Result<Changes, Fault> {
    let mut control = shared.control.lock();
    if shared.is_stopping() {
        return fault("the engine has stopped");
    }
    tidy(shared, &mut control);
    let old = shared.current.load_full();
    let next = Next::build(shared, &control, &old, spec, given, renewed)?;
    for (ring, first, bound, is_new) in &next.rings {
        if *is_new {
            shared.store.open(*ring, *first, *bound);
        } else {
            shared.store.widen(*ring, *bound);
        }
    }
    make_room(&old, &next);
    for (level, input) in &next.before {
        let mut state = level.state.lock();
        let mut roomy = Vec::new();
        while roomy.capacity() <= state.before.len() {
            let room = state.before.len() + 1;
            drop(state);
            roomy.reserve(room);
            state = level.state.lock();
        }
        roomy.append(&mut state.before);
        roomy.push(Arc::clone(input));
        let small = std::mem::replace(&mut state.before, roomy);
        drop(state);
        drop(small);
        control.before.push(Arc::clone(level));
    }
    let changes = next.changes.clone();
    let graph = Arc::new(next.graph);
    if next.moves.is_empty() && next.flushed.is_empty() {
        shared.current.store(Arc::clone(&graph));
    } else {
        move_levels(shared, &old, &graph, &next.moves, &next.flushed);
    }
    control.ended_edges.extend(next.ended);
    let woken = to_wake(&old, &graph, &next.moves, &next.flushed);
    control.old.push(old);
    for place in graph.levels() {
        let number = place.level.number;
        let mut own = graph
            .producers
            .iter()
            .flatten()
            .filter(|producer| producer.level == number);
        if place.runs {
            threads::start(shared, &place.level, true)?;
        }
        if own.any(|producer| !producer.readers.remote.is_empty()) {
            threads::start(shared, &place.level, false)?;
        }
        if woken.contains(&place.level.number) {
            place.level.wake_all();
        }
    }
    if !tidy(shared, &mut control) && !control.is_tidied {
        threads::tidy(shared)?;
        control.is_tidied = true;
    }
    Ok(changes)
}

/// The levels whose threads are to look at what has changed: for others nothing has.
fn to_wake(
    old: &Graph,
    graph: &Graph,
    moves: &[(Arc<Operator>, usize)],
    flushed: &[(usize, usize, Reader)],
) -> HashSet<usize> {
    let runs_otherwise = |place: &&Place| {
        let before = old.place(place.level.number);
        before.is_none_or(|before| (before.policy, before.runs) != (place.policy, place.runs))
    };
    let others = graph.levels().filter(runs_otherwise).map(|place| place.level.number);
    // Where operators have gone to another level, those who wait may wait for what has gone there.
    let all = graph.levels().filter(|_| !moves.is_empty() || !flushed.is_empty());
    others.chain(all.map(|place| place.level.number)).collect()
}

/// How many operators each level of a graph has, by number.
fn operators_by_level(graph: &Graph) -> Vec<usize> {
    let mut counts = vec![0; graph.places.len()];
    for operator in graph.operators() {
        let producer = graph.producer(operator.ring);
        counts[producer.map_or_else(|| operator.level.load(Ordering::SeqCst), |producer| producer.level)] += 1;
    }
    counts
}

/// For a level of a graph, how many events may be on its edges, by the number of the level that they go to.
fn rooms(graph: &Graph, level: usize) -> Vec<usize> {
    let mut rooms = vec![0; graph.places.len()];
    for producer in graph.producers.iter().flatten().filter(|p| p.level == level) {
        for (reader, _) in &producer.readers.remote {
            let target = graph.producer(reader.operator.ring);
            let target = target.map_or_else(|| reader.operator.level.load(Ordering::SeqCst), |target| target.level);
            rooms[target] += reader.operator.spec.depth;
        }
    }
    rooms
}

/// Gives the queues of the levels that need it room for what is to come, made aside: the locks are held to move what is in them.
fn make_room(old: &Graph, next: &Next) {
    let graph = &next.graph;
    let (had, needed) = (operators_by_level(old), operators_by_level(graph));
    for place in graph.levels() {
        let level = &place.level;
        if needed[level.number] > had.get(level.number).copied().unwrap_or(0) {
            let roomy = PendingQ::new(needed[level.number]);
            let left = level.state.lock().pending.move_to(roomy);
            drop(left);
        }
        let rooms = rooms(graph, level.number);
        let mut edges = Vec::new();
        for producer in graph.producers.iter().flatten().filter(|p| p.level == level.number) {
            for (reader, number) in &producer.readers.remote {
                if next.new_edges.contains(&(level.number, *number)) {
                    let target = next.level_of(&reader.operator);
                    edges.push((*number, Edge::new(reader.clone(), target, reader.operator.spec.depth)));
                }
            }
        }
        // Without new edges there is room, unless they go by another order of levels now.
        if edges.is_empty() && (old.order == graph.order || rooms.iter().all(|room| *room == 0)) {
            continue;
        }
        let roomy = MovingQ::new(next.edges_at(level.number), &rooms, graph.order.clone());
        let mut moving = level.moving.lock();
        let left = moving.move_to(roomy);
        for (number, edge) in edges {
            moving.set_edge(number, edge);
        }
        drop(moving);
        drop(left);
    }
}

/// The locks of a level.
type Held<'l> = (PiGuard<'l, State>, PiGuard<'l, MovingQ<Reader>>);

/// Puts the new graph in place while all levels are locked, and operators to their new levels.
fn move_levels(
    shared: &Shared,
    old: &Graph,
    graph: &Arc<Graph>,
    moves: &[(Arc<Operator>, usize)],
    flushed: &[(usize, usize, Reader)],
) {
    let levels: Vec<&Arc<Level>> = graph.levels().map(|place| &place.level).collect();
    let mut held: HashMap<usize, Held<'_>> = HashMap::with_capacity(levels.len());
    for level in &levels {
        // Evaluated in this order, which is that of the locks.
        held.insert(level.number, (level.state.lock(), level.moving.lock()));
    }
    for (level, number, reader) in flushed {
        let Some(events) = held.get_mut(level).map(|(_, moving)| moving.end_edge(*number)) else {
            continue;
        };
        let at = reader.operator.level.load(Ordering::SeqCst);
        for token in events {
            let head = *shared.store.read(&token).head;
            if let Some((state, _)) = held.get_mut(&at) {
                shared.bind(state, reader, token, head);
            }
        }
    }
    for (operator, to) in moves {
        let from = operator.level.load(Ordering::SeqCst);
        let Some((state, _)) = held.get_mut(&from) else {
            continue;
        };
        // SAFETY: all levels are locked, and the node is held for this look only.
        let (waits, running) = unsafe {
            let node = operator.node(state);
            (node.binding.waiting() > 0, node.running)
        };
        if waits {
            state.backlog -= 1;
            if !running {
                state.pending.take(|other| Arc::ptr_eq(other, operator));
            }
            if let Some((state, _)) = held.get_mut(to) {
                state.backlog += 1;
                if !running {
                    state.pending.push(Arc::clone(operator));
                }
            }
        }
    }
    // The graph first: who sees an operator's new level then finds that level in it.
    shared.current.store(Arc::clone(graph));
    for (operator, to) in moves {
        operator.level.store(*to, Ordering::SeqCst);
    }
    for level in levels.iter().rev() {
        drop(held.remove(&level.number));
    }
    debug_assert!(old.places.len() <= graph.places.len());
}

/// Clears away what has left, as far as nobody can reach it any more; whether that is all. It is called again and again until then.
pub(super) fn tidy(shared: &Shared, control: &mut Control) -> bool {
    // A graph that is not the current one, and that nobody else has, nobody can get.
    control.old.retain_mut(|graph| Arc::get_mut(graph).is_none());
    if !control.old.is_empty() {
        return false;
    }
    clear_away(shared, control);
    let graph = shared.current.load();
    control.old.is_empty()
        && control.ended_edges.is_empty()
        && control.before.is_empty()
        && control.ending.is_empty()
        && graph.leaving.is_empty()
        && graph.producers.iter().flatten().all(|producer| match &producer.source {
            Source::Stream(stream) => stream.home.load(Ordering::SeqCst) == producer.level,
            Source::Operator(_) => true,
        })
}

fn clear_away(shared: &Shared, control: &mut Control) {
    let graph = shared.current.load_full();
    control.ended_edges.retain(|(level, number)| {
        let Some(place) = graph.place(*level) else { return false };
        let mut moving = place.level.moving.lock();
        if moving.is_idle(*number) {
            moving.end_edge(*number);
            return false;
        }
        true
    });
    control.before.retain(|level| {
        let mut state = level.state.lock();
        state.before.retain(|input| !input.is_empty());
        !state.before.is_empty()
    });
    for place in std::mem::take(&mut control.ending) {
        end_level(shared, &graph, &place);
    }
    follow_levels(&graph);
    let vanished = vanished(&graph);
    if graph.leaving.is_empty() && vanished.is_empty() {
        return;
    }
    let done = exhausted(shared, &graph);
    let gone = |ring: usize| done.contains(&ring) && shared.store.book(ring).held() == 0;
    let (streams, operators): (Vec<usize>, Vec<usize>) = {
        let streams = graph.leaving.streams.iter().map(|stream| stream.ring);
        let operators = graph.leaving.operators.iter().map(|operator| operator.ring);
        (
            streams.filter(|ring| gone(*ring)).collect(),
            operators.filter(|ring| gone(*ring)).collect(),
        )
    };
    let consumers: Vec<Arc<Consumer>> = graph
        .leaving
        .consumers
        .iter()
        .filter(|consumer| is_read_out(shared, &graph, &done, consumer))
        .cloned()
        .collect();
    if streams.is_empty() && operators.is_empty() && consumers.is_empty() && vanished.is_empty() {
        return;
    }
    let mut next = Graph::clone(&graph);
    for stream in &graph.leaving.streams {
        if streams.contains(&stream.ring) {
            let books = stream_report(shared, stream, "");
            control.removed.add("streams", &stream.spec.name, books);
        }
    }
    for operator in &graph.leaving.operators {
        if operators.contains(&operator.ring) {
            let books = operator_report(shared, operator, "");
            control.removed.add("operators", &operator.spec.name, books);
        }
    }
    for consumer in &consumers {
        let books = consumer_report(consumer, "");
        control.removed.add("consumers", &consumer.spec.name, books);
    }
    next.leaving.streams.retain(|stream| !streams.contains(&stream.ring));
    next.leaving
        .operators
        .retain(|operator| !operators.contains(&operator.ring));
    next.leaving
        .consumers
        .retain(|consumer| !consumers.iter().any(|gone| Arc::ptr_eq(gone, consumer)));
    for producer in next.producers.iter_mut().flatten() {
        // What will produce nothing more may be held by others still; those that read it are gone all the same.
        let own = producer.level;
        let readers = &mut producer.readers;
        let is_gone = |reader: &Reader| operators.contains(&reader.operator.ring);
        let edges = readers.remote.iter().filter(|(reader, _)| is_gone(reader));
        control.ended_edges.extend(edges.map(|(_, number)| (own, *number)));
        readers.remote.retain(|(reader, _)| !is_gone(reader));
        readers.local.retain(|reader| !is_gone(reader));
        let stays = |consumer: &Arc<Consumer>| !consumers.iter().any(|gone| Arc::ptr_eq(gone, consumer));
        readers.consumers.retain(|(consumer, _)| stays(consumer));
    }
    for ring in streams.iter().chain(&operators) {
        if let Some(producer) = next.producers[*ring].take() {
            let edges = producer.readers.remote.iter();
            control
                .ended_edges
                .extend(edges.map(|(_, number)| (producer.level, *number)));
        }
    }
    for level in &vanished {
        if let Some(place) = next.places[*level].take() {
            control.ending.push(place);
        }
        next.order.retain(|other| other != level);
    }
    set_policies(&mut next, shared.real_time);
    shared.current.store(Arc::new(next));
    control.old.push(graph);
}

/// Ends a level that nobody can push to any more; what was pushed at the last moment goes where its stream is now.
fn end_level(shared: &Shared, graph: &Graph, place: &Place) {
    let mut state = place.level.state.lock();
    let before = std::mem::take(&mut state.before);
    for input in before.iter().chain([&place.input]) {
        // SAFETY: the level is locked.
        while let Some(token) = unsafe { input.pop() } {
            match graph.producer(token.ring()) {
                Some(Producer {
                    source: Source::Stream(stream),
                    level,
                    ..
                }) => shared.forward(graph, stream, *level, token),
                _ => shared.store.forget(token),
            }
        }
    }
    drop(state);
    place.level.end();
}

/// Streams of which nothing waits go to their levels without waiting for their next event.
fn follow_levels(graph: &Graph) {
    for producer in graph.producers.iter().flatten() {
        if let Source::Stream(stream) = &producer.source
            && stream.home.load(Ordering::SeqCst) != producer.level
            && stream.book.queue.held() == 0
        {
            stream.home.store(producer.level, Ordering::SeqCst);
        }
    }
}

/// Levels that the spec does not have any more, and where nothing is left.
fn vanished(graph: &Graph) -> Vec<usize> {
    let is_used = |level: usize| {
        let mut producers = graph.producers.iter().flatten();
        producers.any(|producer| {
            producer.level == level
                || matches!(&producer.source, Source::Stream(s) if s.home.load(Ordering::SeqCst) == level)
        })
    };
    let unnamed = graph.order.iter().filter(|level| !graph.ranks.contains(level));
    unnamed.filter(|level| !is_used(**level)).copied().collect()
}

/// The rings of removed streams and operators that will produce nothing more. What was bound at such an operator and waited for
/// others ends here.
fn exhausted(shared: &Shared, graph: &Graph) -> HashSet<usize> {
    let fed = shared.fed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut done: HashSet<usize> = HashSet::new();
    for stream in &graph.leaving.streams {
        // What the log has of it still comes.
        let may_come = fed.as_ref().is_some_and(|fed| fed.contains(&stream.ring));
        if !may_come && stream.book.queue.held() == 0 {
            done.insert(stream.ring);
        }
    }
    loop {
        let before = done.len();
        for operator in &graph.leaving.operators {
            if !done.contains(&operator.ring)
                && feeders(graph, |reader| Arc::ptr_eq(&reader.operator, operator)).all(|ring| done.contains(&ring))
                && unbind(shared, graph, operator)
            {
                done.insert(operator.ring);
            }
        }
        if done.len() == before {
            return done;
        }
    }
}

/// The rings of the producers that an operator reads.
fn feeders<'g>(graph: &'g Graph, is_it: impl Fn(&Reader) -> bool + 'g) -> impl Iterator<Item = usize> + 'g {
    let producers = graph.producers.iter().flatten();
    let feeding = producers.filter(move |producer| {
        let remote = producer.readers.remote.iter().map(|(reader, _)| reader);
        producer.readers.local.iter().chain(remote).any(&is_it)
    });
    feeding.map(|producer| producer.source.ring())
}

/// If an operator has nothing to run with and nothing comes, it lets go of what is bound; whether that is so.
fn unbind(shared: &Shared, graph: &Graph, operator: &Arc<Operator>) -> bool {
    let Some(place) = graph.place(operator.level.load(Ordering::SeqCst)) else {
        return true;
    };
    let state = place.level.state.lock();
    // SAFETY: the operator's level is locked; only changes move it, and this is called by who makes them.
    let node = unsafe { operator.node(&state) };
    let held: u64 = operator.book.edges.iter().map(|edge| edge.held()).sum();
    let is_idle = node.binding.waiting() == 0 && !node.running && held == node.binding.bound() as u64;
    if is_idle {
        node.binding.unbind(&mut |edge: usize, bound: Bound, fate| {
            shared.ended(operator, edge, bound.token, fate);
        });
    }
    is_idle
}

/// Whether a removed consumer has been read out, or had the time for it; what is left is lost then.
fn is_read_out(shared: &Shared, graph: &Graph, done: &HashSet<usize>, consumer: &Arc<Consumer>) -> bool {
    let mut producers = graph.producers.iter().flatten();
    let may_come = producers.any(|producer| {
        let mut consumers = producer.readers.consumers.iter();
        consumers.any(|(other, _)| Arc::ptr_eq(other, consumer)) && !done.contains(&producer.source.ring())
    });
    if may_come {
        return false;
    }
    let since = consumer.closed.get_or_init(Instant::now);
    consumer.queue.wake_all();
    if !consumer.queue.is_empty() && since.elapsed() < GRACE {
        return false;
    }
    while let Some((token, _)) = consumer.queue.pop() {
        consumer.book.lost.add(1);
        shared.store.release(token, Fate::Used);
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::service::engine::Engine;
    use serde_json::{Value, json};

    /// Two levels with a path each; `more` numbers beside them a stream, an operator and a consumer at the low one, and a consumer
    /// at the high one.
    fn spec(more: &[usize]) -> Spec {
        let named = |kind: &str, number: &usize| format!("{kind}{number}");
        let stream = |name: String, level: usize| {
            json!({"name": name, "level": level, "valid_for": null, "ring": 4, "replace": false, "waiting": 4,
                   "attributes": [["x", "float"]]})
        };
        let operator = |name: String, level: usize, input: usize| {
            json!({"name": name, "kind": "aggregate", "level": level, "inputs": [input], "relative": [], "fire": "all",
                   "stale": "mark", "ring": 4, "depth": 4, "attributes": [["x", "float"]],
                   "parameters": {"payload": [0], "function": "min", "last": 2}})
        };
        let consumer = |name: String, level: usize, input: usize| json!({"name": name, "input": input, "level": level, "stale": "mark", "capacity": 8});
        let mut streams = vec![stream("high".into(), 0), stream("low".into(), 1)];
        streams.extend(more.iter().map(|number| stream(named("stream", number), 1)));
        let count = streams.len();
        let mut operators = vec![operator("above".into(), 0, 0), operator("below".into(), 1, 1)];
        operators.extend(
            more.iter()
                .enumerate()
                .map(|(at, number)| operator(named("operator", number), 1, at + 2)),
        );
        let mut consumers = vec![consumer("a".into(), 0, count), consumer("b".into(), 1, count + 1)];
        for (at, number) in more.iter().enumerate() {
            consumers.push(consumer(named("consumer", number), 1, count + at + 2));
            consumers.push(consumer(named("more", number), 0, count));
        }
        let spec: Value = json!({"name": "changing", "levels": ["high", "low"], "cores": 1, "prioritised": false,
                                 "streams": streams, "operators": operators, "consumers": consumers});
        Spec::read(&spec.to_string()).unwrap()
    }

    /// The test has the locks of a level in which nothing changes: a change that wanted one would not come to its end. Its worker
    /// sleeps all the while, and nobody calls it.
    #[test]
    fn no_worker_waits_for_a_change_beside_it_or_is_woken() {
        let engine = Engine::start(spec(&[]), Given::new()).unwrap();
        let shared = engine.share();
        let place = shared.graph().levels().next().cloned().unwrap();
        assert_eq!(place.level.name, "high");
        let deadline = Instant::now() + Duration::from_secs(60);
        while !place.level.workers.has_idle() {
            assert!(Instant::now() < deadline, "it has no work, and does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
        let calls = || (place.level.workers.calls(), place.level.movers.calls());
        let before = calls();
        let state = place.level.state.lock();
        let moving = place.level.moving.lock();
        let (sender, done) = std::sync::mpsc::channel();
        let changing = std::thread::spawn(move || {
            for more in [&[1][..], &[1, 2], &[3, 2], &[]] {
                engine.change(spec(more), Given::new(), &[]).unwrap();
                while engine.shared().control.lock().is_tidied {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let _ = sender.send(engine.shared().graph().leaving.is_empty());
            engine
        });
        let came = done.recv_timeout(Duration::from_secs(60));
        let after = calls();
        drop((state, moving));
        assert_eq!(came, Ok(true), "it waited for a lock");
        assert_eq!(before, after, "its threads were called");
        assert!(changing.join().unwrap().stop(Duration::from_secs(10)));
    }
}
