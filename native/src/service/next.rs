//! The graph that is to follow another: which parts go on, which are made, which leave, and who reads what then.
//!
//! Nothing of what runs is touched here, so that a spec can be refused at any step.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::json::{Fault, fault};
use crate::service::binding::Binding;
use crate::service::books::StreamBook;
use crate::service::change::{Changed, Changes, Control};
use crate::service::engine::Shared;
use crate::service::graph::{Graph, Parts, Place, Producer, Reader, Readers, Source};
use crate::service::instance::Instance;
use crate::service::operators::{Given, build};
use crate::service::parts::{Consumer, Meaning, Operator, Stream, Unbuilt};
use crate::service::processor::Level;
use crate::service::queues::InputQ;
use crate::service::scheduling::policies;
use crate::service::spec::Spec;
use crate::service::store::MAX_RINGS;
use crate::service::topology::Topology;
use crate::service::virtual_clock::rules;

/// A graph to come, and what has to be done to get there.
pub(super) struct Next {
    pub(super) graph: Graph,
    pub(super) changes: Changes,
    /// Rings: number, slots to begin with, the most slots, and whether it is new.
    pub(super) rings: Vec<(usize, usize, usize, bool)>,
    /// Operators that go to another level.
    pub(super) moves: Vec<(Arc<Operator>, usize)>,
    /// Edges that are not there yet, by the numbers of the level and the edge.
    pub(super) new_edges: HashSet<(usize, usize)>,
    /// Edges that the new graph does not have.
    pub(super) ended: Vec<(usize, usize)>,
    /// Those of them whose events are bound at once, because a newer one could overtake them on another way.
    pub(super) flushed: Vec<(usize, usize, Reader)>,
    /// InputQs that have become too small, by level.
    pub(super) before: Vec<(Arc<Level>, Arc<InputQ>)>,
    used_edges: HashSet<(usize, usize)>,
}

/// The first number from 0 on that is not used.
fn unused(used: &mut HashSet<usize>) -> usize {
    let number = (0..).find(|number| !used.contains(number)).unwrap_or(usize::MAX);
    used.insert(number);
    number
}

fn sorted(changed: &mut Changed, old: impl Iterator<Item = String>, new: &[String], kept: &HashSet<String>) {
    let old: Vec<String> = old.collect();
    let known: HashSet<&String> = old.iter().collect();
    for name in new {
        let list = if kept.contains(name) {
            &mut changed.kept
        } else if known.contains(name) {
            &mut changed.changed
        } else {
            &mut changed.added
        };
        list.push(name.clone());
    }
    changed.removed = old.into_iter().filter(|name| !new.contains(name)).collect();
}

/// The levels' threads, by what runs: see scheduling.rs.
pub(super) fn set_policies(graph: &mut Graph, real_time: Option<i32>) {
    let mut running: HashSet<usize> = HashSet::new();
    for producer in graph.producers.iter().flatten() {
        running.insert(producer.level);
        if let Source::Stream(stream) = &producer.source {
            running.insert(stream.home.load(Ordering::SeqCst));
        }
    }
    let order: Vec<usize> = graph
        .order
        .iter()
        .filter(|level| running.contains(level))
        .copied()
        .collect();
    let chosen = policies(order.len(), graph.spec.prioritised, real_time);
    let plain = policies(1, false, None)[0];
    for (level, place) in graph.places.iter_mut().enumerate() {
        if let Some(place) = place {
            let rank = order.iter().position(|other| *other == level);
            place.runs = rank.is_some();
            place.policy = rank.map_or(plain, |rank| chosen[rank]);
        }
    }
}

impl Next {
    /// The graph of a spec, after another one.
    pub(super) fn build(
        shared: &Shared,
        control: &Control,
        old: &Graph,
        spec: Spec,
        mut given: Given,
        renewed: &[String],
    ) -> Result<Next, Fault> {
        if (spec.cores, spec.prioritised) != (old.spec.cores, old.spec.prioritised) {
            return fault("the number of cores and `prioritised` can't change while it runs: start the service again");
        }
        let mut next = Next {
            graph: Graph::empty(spec.cores, spec.prioritised),
            changes: Changes::default(),
            rings: Vec::new(),
            moves: Vec::new(),
            new_edges: HashSet::new(),
            ended: Vec::new(),
            flushed: Vec::new(),
            before: Vec::new(),
            used_edges: control.ended_edges.iter().copied().collect(),
        };
        let graphs: Vec<&Graph> = control.old.iter().map(|graph| &**graph).chain([old]).collect();
        let mut used_rings = HashSet::new();
        for graph in &graphs {
            for producer in graph.producers.iter().flatten() {
                used_rings.insert(producer.source.ring());
                let edges = producer.readers.remote.iter();
                next.used_edges
                    .extend(edges.map(|(_, number)| (producer.level, *number)));
            }
        }
        next.levels(&graphs, old, &spec)?;
        let topology = Topology::new(&spec);
        next.parts(old, &spec, &topology, &mut given, renewed, &mut used_rings)?;
        if used_rings.iter().any(|ring| *ring >= MAX_RINGS) {
            return fault("there are more streams and operators than numbers for them");
        }
        next.graph.spec = spec;
        next.producers(old, &topology);
        next.edges(old);
        next.sizes(old);
        set_policies(&mut next.graph, shared.real_time);
        Ok(next)
    }

    /// The level that an operator will have.
    pub(super) fn level_of(&self, operator: &Arc<Operator>) -> usize {
        let producer = self.graph.producer(operator.ring);
        producer.map_or_else(|| operator.level.load(Ordering::SeqCst), |producer| producer.level)
    }

    /// The least number that no edge of a level has.
    pub(super) fn edges_at(&self, level: usize) -> usize {
        let own = self.used_edges.iter().filter(|(other, _)| *other == level);
        own.map(|(_, number)| number + 1).max().unwrap_or(0)
    }

    fn levels(&mut self, graphs: &[&Graph], old: &Graph, spec: &Spec) -> Result<(), Fault> {
        let graph = &mut self.graph;
        let places = graphs.iter().flat_map(|graph| graph.places.iter().enumerate());
        let mut used: HashSet<usize> = places.filter(|(_, place)| place.is_some()).map(|(n, _)| n).collect();
        graph.places = old.places.clone();
        let mut kept = HashSet::new();
        for name in &spec.levels {
            let mut known = old.order.iter().filter_map(|level| Some((*level, old.place(*level)?)));
            let number = match known.find(|(_, place)| place.level.name == *name) {
                Some((number, _)) => {
                    kept.insert(name.clone());
                    number
                }
                None => {
                    let number = unused(&mut used);
                    if graph.places.len() <= number {
                        graph.places.resize(number + 1, None);
                    }
                    graph.places[number] = Some(Place {
                        level: Arc::new(Level::new(name.clone(), number, spec.cores)),
                        input: Arc::new(InputQ::new(1, 0)),
                        policy: policies(1, false, None)[0],
                        runs: false,
                    });
                    number
                }
            };
            graph.ranks.push(number);
        }
        let at = |level: &usize| old.order.iter().position(|other| other == level);
        let known: Vec<usize> = graph.ranks.iter().filter_map(at).collect();
        if !known.is_sorted() {
            return fault("levels can't change places while it runs: start the service again");
        }
        graph.order = graph.ranks.clone();
        for (place, level) in old
            .order
            .iter()
            .enumerate()
            .filter(|(_, level)| !graph.ranks.contains(level))
        {
            let above = old.order[..place].iter().rev();
            let above = above
                .filter_map(|other| graph.order.iter().position(|level| level == other))
                .next();
            let place = above.map_or(0, |above| above + 1);
            graph.order.insert(place, *level);
        }
        sorted(
            &mut self.changes.levels,
            old.spec.levels.iter().cloned(),
            &spec.levels,
            &kept,
        );
        Ok(())
    }

    fn parts(
        &mut self,
        old: &Graph,
        spec: &Spec,
        topology: &Topology,
        given: &mut Given,
        renewed: &[String],
        used: &mut HashSet<usize>,
    ) -> Result<(), Fault> {
        let mut parts = Parts::default();
        let (mut kept, mut names) = (HashSet::new(), Vec::new());
        for stream in &spec.streams {
            let same = old.parts.streams.iter().find(|other| other.is(stream));
            if same.is_some() {
                kept.insert(stream.name.clone());
            }
            names.push(stream.name.clone());
            parts.streams.push(same.cloned().unwrap_or_else(|| {
                Arc::new(Stream {
                    spec: stream.clone(),
                    ring: unused(used),
                    home: AtomicUsize::new(self.graph.ranks[stream.level]),
                    book: StreamBook::default(),
                })
            }));
        }
        let known = old.parts.streams.iter().map(|stream| stream.spec.name.clone());
        sorted(&mut self.changes.streams, known, &names, &kept);
        (kept, names) = (HashSet::new(), Vec::new());
        for (place, operator) in spec.operators.iter().enumerate() {
            let meaning = Meaning::new(spec, place);
            let same = old.parts.operators.iter().find(|other| {
                other.spec.name == operator.name && other.meaning == meaning && !renewed.contains(&operator.name)
            });
            names.push(operator.name.clone());
            if let Some(same) = same {
                kept.insert(operator.name.clone());
                parts.operators.push(Arc::clone(same));
                continue;
            }
            let process = build(operator, given)?;
            let inputs = &topology.inputs[place];
            let sources = inputs.sources.iter().map(|source| spec.name_of(*source).to_owned());
            let (level, ring) = (self.graph.ranks[operator.level], unused(used));
            let binding = Binding::new(rules(spec, topology, place));
            let unbuilt = Unbuilt::new(spec, place, sources.collect(), level, binding, ring);
            let instance = Instance::new(spec, inputs, place, ring, process);
            let made = unbuilt.build(instance);
            parts.operators.push(Arc::new(made));
        }
        let known = old.parts.operators.iter().map(|operator| operator.spec.name.clone());
        sorted(&mut self.changes.operators, known, &names, &kept);
        (kept, names) = (HashSet::new(), Vec::new());
        for (place, consumer) in spec.consumers.iter().enumerate() {
            let same = old.parts.consumers.iter().find(|other| other.is(spec, place));
            if same.is_some() {
                kept.insert(consumer.name.clone());
            }
            names.push(consumer.name.clone());
            let made = || Arc::new(Consumer::new(spec, place));
            parts.consumers.push(same.cloned().unwrap_or_else(made));
        }
        let known = old.parts.consumers.iter().map(|consumer| consumer.spec.name.clone());
        sorted(&mut self.changes.consumers, known, &names, &kept);
        let leaving = &mut self.graph.leaving;
        *leaving = old.leaving.clone();
        leaving.streams.extend(gone(&old.parts.streams, &parts.streams));
        leaving.operators.extend(gone(&old.parts.operators, &parts.operators));
        leaving.consumers.extend(gone(&old.parts.consumers, &parts.consumers));
        self.graph.parts = parts;
        Ok(())
    }

    fn producers(&mut self, old: &Graph, topology: &Topology) {
        let Graph {
            spec,
            parts,
            leaving,
            places,
            ranks,
            order,
            ..
        } = &self.graph;
        let place_of = |level: usize| order.iter().position(|other| *other == level).unwrap_or(usize::MAX);
        // Levels of operators, by ring: where they are to be.
        let mut levels: HashMap<usize, usize> = HashMap::new();
        for (place, operator) in parts.operators.iter().enumerate() {
            levels.insert(operator.ring, ranks[spec.operators[place].level]);
        }
        for producer in old.producers.iter().flatten() {
            levels.entry(producer.source.ring()).or_insert(producer.level);
        }
        for (stream, said) in parts.streams.iter().zip(&spec.streams) {
            levels.insert(stream.ring, ranks[said.level]);
        }
        let mut found: Vec<Producer> = Vec::new();
        let level_named = |rank: usize| places[ranks[rank]].as_ref().map(|place| Arc::clone(&place.level));
        let streams = parts.streams.iter().cloned().map(Source::Stream);
        let operators = parts.operators.iter().cloned().map(Source::Operator);
        for (number, source) in streams.chain(operators).enumerate() {
            let read = &topology.readers[number];
            let consumers = read.consumers.iter().filter_map(|consumer| {
                let level = level_named(spec.consumers[*consumer].level)?;
                Some((Arc::clone(&parts.consumers[*consumer]), level))
            });
            let readers = Readers {
                consumers: consumers.collect(),
                ..Readers::default()
            };
            let mut own: Vec<Reader> = Vec::new();
            for reader in read.local.iter().chain(&read.remote) {
                own.push(Reader {
                    operator: Arc::clone(&parts.operators[reader.operator]),
                    edge: reader.edge,
                });
            }
            found.push(producer(source, readers, own, &levels));
        }
        // What leaves goes on to all that read it before: those that stay, and those that leave with it.
        let is_leaving = |source: &Source| match source {
            Source::Stream(stream) => leaving.streams.iter().any(|other| Arc::ptr_eq(other, stream)),
            Source::Operator(operator) => leaving.operators.iter().any(|other| Arc::ptr_eq(other, operator)),
        };
        let left: Vec<&Producer> = old
            .producers
            .iter()
            .flatten()
            .filter(|p| is_leaving(&p.source))
            .collect();
        // A producer is never below its readers, some of which may have been raised; as often as there are steps.
        for _ in 0..=left.len() {
            for producer in &left {
                for reader in all(&producer.readers) {
                    let (own, other) = (levels[&producer.source.ring()], levels[&reader.operator.ring]);
                    if place_of(other) < place_of(own) {
                        levels.insert(producer.source.ring(), other);
                    }
                }
            }
        }
        for left in left {
            let readers = Readers {
                consumers: left.readers.consumers.clone(),
                ..Readers::default()
            };
            found.push(producer(
                left.source.clone(),
                readers,
                all(&left.readers).cloned().collect(),
                &levels,
            ));
        }
        for producer in &mut found {
            let remote = &mut producer.readers.remote;
            remote.sort_by_key(|(reader, _)| place_of(levels[&reader.operator.ring]));
        }
        self.moves = found
            .iter()
            .filter_map(|producer| match &producer.source {
                Source::Operator(operator) => Some((Arc::clone(operator), producer.level)),
                Source::Stream(_) => None,
            })
            .filter(|(operator, level)| operator.level.load(Ordering::SeqCst) != *level)
            .collect();
        let most = found.iter().map(|producer| producer.source.ring() + 1).max();
        let mut producers: Vec<Option<Producer>> = vec![None; most.unwrap_or(0)];
        for producer in found {
            let ring = producer.source.ring();
            producers[ring] = Some(producer);
        }
        self.graph.producers = producers;
    }

    /// Numbers the edges to lower levels: one that goes on keeps its number, with what is on it.
    fn edges(&mut self, old: &Graph) {
        let level_of = |graph: &Graph, operator: &Operator| graph.producer(operator.ring).map(|p| p.level);
        let mut known: HashMap<[usize; 4], (usize, Option<usize>)> = HashMap::new();
        for producer in old.producers.iter().flatten() {
            for (reader, number) in &producer.readers.remote {
                let key = [
                    producer.level,
                    producer.source.ring(),
                    reader.operator.ring,
                    reader.edge,
                ];
                known.insert(key, (*number, level_of(old, &reader.operator)));
            }
        }
        let levels: HashMap<usize, usize> = self
            .graph
            .producers
            .iter()
            .flatten()
            .map(|p| (p.source.ring(), p.level))
            .collect();
        let mut taken = HashSet::new();
        for producer in self.graph.producers.iter_mut().flatten() {
            let own = producer.level;
            for (reader, number) in &mut producer.readers.remote {
                let key = [own, producer.source.ring(), reader.operator.ring, reader.edge];
                let to = levels.get(&reader.operator.ring).copied();
                match known.get(&key) {
                    Some((same, level)) if *level == to => *number = *same,
                    _ => {
                        *number = (0..)
                            .find(|n| !self.used_edges.contains(&(own, *n)))
                            .unwrap_or(usize::MAX);
                        self.used_edges.insert((own, *number));
                        self.new_edges.insert((own, *number));
                    }
                }
                taken.insert((own, *number));
            }
        }
        for producer in old.producers.iter().flatten() {
            for (reader, number) in &producer.readers.remote {
                if taken.contains(&(producer.level, *number)) {
                    continue;
                }
                // Levels have changed if the reader stays: an edge to one that leaves just runs empty, unless that moves.
                let is_it = |other: &Arc<Operator>| Arc::ptr_eq(other, &reader.operator);
                let moves = self.moves.iter().any(|(other, _)| is_it(other));
                if moves || self.graph.parts.operators.iter().any(is_it) {
                    self.flushed.push((producer.level, *number, reader.clone()));
                }
                self.ended.push((producer.level, *number));
            }
        }
    }

    /// The most events of each producer that can be held at once, one for each place that can hold one (see lowering.py); and
    /// InputQs with room for those of their streams.
    fn sizes(&mut self, old: &Graph) {
        let graph = &mut self.graph;
        let is_new = |ring: usize| old.producer(ring).is_none();
        // In the hands of suppliers, workers and movers.
        let hands = 4 * graph.spec.cores + 4;
        let mut bounds: HashMap<usize, usize> = HashMap::new();
        for producer in graph.producers.iter().flatten() {
            let ring = producer.source.ring();
            let (first, waiting) = match &producer.source {
                Source::Stream(stream) if stream.spec.replace => (stream.spec.ring, 2),
                Source::Stream(stream) => (stream.spec.ring, stream.spec.waiting),
                Source::Operator(operator) => (operator.spec.ring, 0),
            };
            // Those that have left hold some too, until they have ended.
            let before = old
                .producer(ring)
                .map_or(0, |producer| held_by(&producer.readers, Some(&graph.leaving)));
            let bound = waiting + held_by(&producer.readers, None) + before + hands;
            bounds.insert(ring, bound.max(first));
            self.rings.push((ring, first, bound.max(first), is_new(ring)));
        }
        let (mut rooms, mut streams): (HashMap<usize, usize>, HashMap<usize, usize>) = Default::default();
        for producer in graph.producers.iter().flatten() {
            let Source::Stream(stream) = &producer.source else {
                continue;
            };
            let room = if stream.spec.replace { 1 } else { bounds[&stream.ring] };
            for level in HashSet::from([producer.level, stream.home.load(Ordering::SeqCst)]) {
                *rooms.entry(level).or_default() += room;
                let most = streams.entry(level).or_default();
                *most = stream.ring.max(*most);
            }
        }
        for (level, room) in rooms {
            let count = streams[&level] + 1;
            let Some(place) = graph.places[level].as_mut() else {
                continue;
            };
            if !place.input.has_room(room, count) {
                let roomy = Arc::new(InputQ::new(room, count));
                let small = std::mem::replace(&mut place.input, roomy);
                self.before.push((Arc::clone(&place.level), small));
            }
        }
    }
}

fn all(readers: &Readers) -> impl Iterator<Item = &Reader> {
    readers
        .local
        .iter()
        .chain(readers.remote.iter().map(|(reader, _)| reader))
}

/// Those of the old ones that the new ones do not have.
fn gone<T>(old: &[Arc<T>], new: &[Arc<T>]) -> Vec<Arc<T>> {
    let stays = |one: &Arc<T>| new.iter().any(|other| Arc::ptr_eq(one, other));
    old.iter().filter(|one| !stays(one)).cloned().collect()
}

/// Sorts readers by whether they are of the producer's own level; the edges have no numbers yet.
fn producer(source: Source, mut readers: Readers, own: Vec<Reader>, levels: &HashMap<usize, usize>) -> Producer {
    let level = levels[&source.ring()];
    for reader in own {
        if levels[&reader.operator.ring] == level {
            readers.local.push(reader);
        } else {
            readers.remote.push((reader, 0));
        }
    }
    Producer { source, level, readers }
}

/// How many events readers can hold: all of them, or those that leave.
fn held_by(readers: &Readers, only: Option<&Parts>) -> usize {
    let counts = |operator: &Arc<Operator>| {
        only.is_none_or(|parts| parts.operators.iter().any(|other| Arc::ptr_eq(other, operator)))
    };
    // Bound, waiting and run with, at each operator; on the way to it too, if it is of another level.
    let at = |reader: &Reader| {
        if counts(&reader.operator) {
            reader.operator.spec.depth + 2
        } else {
            0
        }
    };
    let local: usize = readers.local.iter().map(at).sum();
    let remote: usize = readers.remote.iter().map(|(reader, _)| 2 * at(reader)).sum();
    let consumers = readers.consumers.iter().filter(|(consumer, _)| {
        only.is_none_or(|parts| parts.consumers.iter().any(|other| Arc::ptr_eq(other, consumer)))
    });
    local + remote + consumers.map(|(consumer, _)| consumer.spec.capacity + 1).sum::<usize>()
}
