//! The state of a pattern: partitions by key (rule S7), each with the events that can still matter, oldest first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use crate::bounds::FOREVER;
use crate::event::Event;
use crate::expr::Attribute;
use crate::found::Match;
use crate::judge::{Judge, Pending, Sink};
use crate::plan::{Plan, Policy, Role};
use crate::runs::{self, Run};
use crate::value::Key;

/// Events of one variable, in E2's order.
pub type List = VecDeque<Arc<Event>>;

/// Events by variable, and by what the indexes say.
#[derive(Debug)]
pub struct Store {
    lists: Vec<List>,
    indexes: Vec<HashMap<Key, List>>,
}

impl Store {
    fn new(plan: &Plan) -> Self {
        Store {
            lists: vec![List::new(); plan.variables.len()],
            indexes: vec![HashMap::new(); plan.indexes.len()],
        }
    }

    /// All events of a variable.
    pub fn list(&self, variable: usize) -> &List {
        &self.lists[variable]
    }

    /// The events of a variable that have a value where an index looks.
    pub fn indexed(&self, index: usize, key: &Key) -> Option<&List> {
        self.indexes[index].get(key)
    }

    fn push(&mut self, plan: &Plan, variable: usize, event: &Arc<Event>) {
        self.lists[variable].push_back(Arc::clone(event));
        for (index, plan) in plan
            .indexes
            .iter()
            .enumerate()
            .filter(|(_, plan)| plan.variable == variable)
        {
            if let Some(key) = plan.key(plan.attribute.kept(event)) {
                self.indexes[index].entry(key).or_default().push_back(Arc::clone(event));
            }
        }
    }

    fn pop(&mut self, plan: &Plan, variable: usize) {
        let Some(event) = self.lists[variable].pop_front() else {
            return;
        };
        for (index, plan) in plan
            .indexes
            .iter()
            .enumerate()
            .filter(|(_, plan)| plan.variable == variable)
        {
            if let Some(key) = plan.key(plan.attribute.kept(&event))
                && let Some(list) = self.indexes[index].get_mut(&key)
            {
                list.pop_front();
                if list.is_empty() {
                    self.indexes[index].remove(&key);
                }
            }
        }
    }
}

/// One partition.
#[derive(Debug)]
struct Partition {
    key: Arc<[Key]>,
    store: Store,
    runs: Vec<Run>,
    /// By when they are due, and a number that makes them differ.
    pending: BTreeMap<(i64, u64), Pending>,
}

impl Partition {
    fn new(key: Arc<[Key]>, plan: &Plan) -> Self {
        Partition {
            key,
            store: Store::new(plan),
            runs: Vec::new(),
            pending: BTreeMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.runs.is_empty() && self.store.lists.iter().all(VecDeque::is_empty)
    }
}

/// All partitions of a query that is a pattern.
#[derive(Debug)]
pub struct Partitions {
    plan: Arc<Plan>,
    places: HashMap<Arc<[Key]>, usize>,
    partitions: Vec<Option<Partition>>,
    free: Vec<usize>,
    /// The events of NOT variables that the key does not reach.
    shared: Store,
    /// By variable: when its events came and into which partition, to let go of the oldest without a search.
    ages: Vec<VecDeque<(i64, usize)>>,
    /// When which partition has a pending match to decide.
    due: BinaryHeap<Reverse<(i64, usize)>>,
    /// Events held in lists; one that qualifies for two variables counts twice.
    held: usize,
    /// MATCH STRICT: how many events each partition has had, and when the last one came.
    seen: HashMap<Arc<[Key]>, (u64, i64)>,
    seen_limit: usize,
    /// How many pending matches there ever were.
    pendings: u64,
}

impl Partitions {
    /// No partition yet.
    pub fn new(plan: Arc<Plan>) -> Self {
        let count = plan.variables.len();
        Partitions {
            places: HashMap::new(),
            partitions: Vec::new(),
            free: Vec::new(),
            shared: Store::new(&plan),
            ages: vec![VecDeque::new(); count],
            due: BinaryHeap::new(),
            held: 0,
            seen: HashMap::new(),
            seen_limit: 1024,
            pendings: 0,
            plan,
        }
    }

    /// How many events are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many partitions, runs and pending matches there are.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let live = self.partitions.iter().flatten();
        let runs = live.clone().map(|p| p.runs.len()).sum();
        (self.places.len(), runs, live.map(|p| p.pending.len()).sum())
    }

    /// All events up to, and without, this time are known: decides what was waiting for that, frees what is past.
    pub fn pass(&mut self, time: i64, out: &mut Vec<Match>) {
        while let Some(&Reverse((due, place))) = self.due.peek() {
            if due >= time {
                break;
            }
            self.due.pop();
            self.decide(place, due, out);
        }
        self.forget(time);
    }

    /// The input is complete: decides everything.
    pub fn end(&mut self, out: &mut Vec<Match>) {
        self.pass(i64::MAX, out);
        for place in 0..self.partitions.len() {
            self.decide(place, i64::MAX, out);
        }
    }

    fn decide(&mut self, place: usize, due: i64, out: &mut Vec<Match>) {
        let Some(Some(partition)) = self.partitions.get_mut(place) else {
            return;
        };
        let mut sink = Sink::default();
        while let Some(entry) = partition.pending.first_entry()
            && entry.key().0 <= due
        {
            let pending = entry.remove();
            Judge::new(&self.plan, &partition.store, &self.shared).resolve(&pending, &mut sink);
        }
        out.append(&mut sink.matches);
        self.release(place);
    }

    fn release(&mut self, place: usize) {
        if let Some(Some(partition)) = self.partitions.get(place)
            && partition.is_empty()
        {
            self.places.remove(&partition.key);
            self.partitions[place] = None;
            self.free.push(place);
        }
    }

    /// Lets go of events that no match of this time or later can hold.
    fn forget(&mut self, time: i64) {
        for variable in 0..self.ages.len() {
            let kept = self.plan.variables[variable].kept;
            if kept >= FOREVER {
                continue;
            }
            while let Some(&(age, _)) = self.ages[variable].front() {
                if age.saturating_add(kept) >= time {
                    break;
                }
                self.drop_oldest(variable, time);
            }
        }
    }

    fn drop_oldest(&mut self, variable: usize, time: i64) {
        let Some((_, place)) = self.ages[variable].pop_front() else {
            return;
        };
        self.held -= 1;
        if place == SHARED {
            self.shared.pop(&self.plan, variable);
            return;
        }
        if let Some(Some(partition)) = self.partitions.get_mut(place) {
            partition.store.pop(&self.plan, variable);
            if !partition.runs.is_empty() {
                partition.runs.retain(|run| run.expires >= time);
            }
        }
        self.release(place);
    }

    /// Sheds the oldest event held; false if there is none.
    pub fn shed(&mut self) -> bool {
        let ages = self.ages.iter().enumerate();
        let oldest = ages
            .filter_map(|(v, ages)| ages.front().map(|&(age, _)| (age, v)))
            .min();
        match oldest {
            Some((_, variable)) => {
                self.drop_oldest(variable, i64::MIN);
                true
            }
            None => false,
        }
    }

    /// The place of the partition of a key, made if need be; None if a value of the key is null.
    fn place(&mut self, attributes: &[Attribute], event: &Event) -> Option<usize> {
        let key = self.plan.key(attributes, event, true)?;
        if let Some(&place) = self.places.get(key.as_slice()) {
            return Some(place);
        }
        let key: Arc<[Key]> = key.into();
        let partition = Some(Partition::new(Arc::clone(&key), &self.plan));
        let place = match self.free.pop() {
            Some(place) => {
                self.partitions[place] = partition;
                place
            }
            None => {
                self.partitions.push(partition);
                self.partitions.len() - 1
            }
        };
        self.places.insert(key, place);
        Some(place)
    }

    /// The next event in E2's order. All before its time were passed on already.
    pub fn event(&mut self, mut event: Event, out: &mut Vec<Match>) {
        let plan = Arc::clone(&self.plan);
        if plan.policy == Policy::Strict && event.number == 0 {
            event.number = self.next_number(&plan, &event);
        }
        if event.mask == 0 {
            return;
        }
        let event = Arc::new(event);
        for (place, mask) in self.homes(&plan, &event) {
            if place == SHARED {
                self.keep(&plan, &event, place, mask);
                continue;
            }
            self.arrive(&plan, &event, place, mask, out);
            self.keep(&plan, &event, place, mask);
            self.release(place);
        }
    }

    /// The number of an event among all of its partition; 0 if it is in none. A restored event has its number already.
    fn next_number(&mut self, plan: &Plan, event: &Event) -> u64 {
        let Some(key) = plan.partition(event) else {
            return 0;
        };
        if self.seen.len() > self.seen_limit && plan.horizon < FOREVER {
            let oldest = event.time.saturating_sub(plan.horizon.max(0));
            self.seen.retain(|_, (_, last)| *last >= oldest);
            self.seen_limit = (self.seen.len() * 2).max(1024);
        }
        let entry = self.seen.entry(key.into()).or_default();
        *entry = (entry.0 + 1, event.time);
        entry.0
    }

    /// The partitions that an event belongs to, and for which variables in each.
    fn homes(&mut self, plan: &Plan, event: &Event) -> Vec<(usize, u64)> {
        let mut homes: Vec<(usize, u64)> = Vec::with_capacity(1);
        for &variable in &plan.streams[usize::from(event.stream)].variables {
            if !event.qualifies(variable) {
                continue;
            }
            let place = match &plan.variables[variable].key {
                Some(key) => self.place(key, event),
                None => Some(SHARED),
            };
            let Some(place) = place else { continue };
            match homes.iter_mut().find(|(known, _)| *known == place) {
                Some((_, mask)) => *mask |= 1 << variable,
                None => homes.push((place, 1 << variable)),
            }
        }
        homes
    }

    /// What an event completes or starts in its partition.
    fn arrive(&mut self, plan: &Plan, event: &Arc<Event>, place: usize, mask: u64, out: &mut Vec<Match>) {
        let Some(Some(partition)) = self.partitions.get_mut(place) else {
            return;
        };
        let mut sink = Sink::default();
        wake(plan, partition, &self.shared, event, mask, &mut sink);
        if plan.policy == Policy::Next {
            let judge = Judge::new(plan, &partition.store, &self.shared);
            let mut changes = runs::next(plan, judge, &partition.runs, event, mask, &mut sink);
            for place in changes.gone.into_iter().rev() {
                partition.runs.swap_remove(place);
            }
            partition.runs.append(&mut changes.new);
        } else {
            let starts = plan
                .last_places
                .iter()
                .flat_map(|&p| plan.places[p].variables.iter().map(move |&v| (p, v)));
            for (last, variable) in starts.filter(|(_, v)| mask >> v & 1 == 1) {
                let mut judge = Judge::new(plan, &partition.store, &self.shared);
                judge.search(last, variable, event, &mut sink);
            }
        }
        out.append(&mut sink.matches);
        for pending in sink.pending {
            self.due.push(Reverse((pending.due, place)));
            self.pendings += 1;
            partition.pending.insert((pending.due, self.pendings), pending);
        }
    }

    fn keep(&mut self, plan: &Plan, event: &Arc<Event>, place: usize, mask: u64) {
        for variable in 0..plan.variables.len() {
            if mask >> variable & 1 == 0 || plan.variables[variable].kept < 0 {
                continue;
            }
            if place == SHARED {
                self.shared.push(plan, variable, event);
            } else if let Some(Some(partition)) = self.partitions.get_mut(place) {
                partition.store.push(plan, variable, event);
            }
            self.ages[variable].push_back((event.time, place));
            self.held += 1;
        }
    }

    /// How many events each partition has had, and when the last one came, by key.
    pub fn seen(&self) -> &HashMap<Arc<[Key]>, (u64, i64)> {
        &self.seen
    }

    /// Restores what `seen` said.
    pub fn set_seen(&mut self, key: &[Key], seen: (u64, i64)) {
        self.seen.insert(key.into(), seen);
    }

    /// All events held, each once, in E2's order.
    pub fn events(&self) -> Vec<Arc<Event>> {
        let lists = self
            .partitions
            .iter()
            .flatten()
            .flat_map(|partition| &partition.store.lists);
        let mut events: Vec<Arc<Event>> = lists.chain(&self.shared.lists).flatten().cloned().collect();
        events.sort_by(|a, b| a.order(b));
        events.dedup_by(|a, b| Arc::ptr_eq(a, b));
        events
    }
}

/// Stands for the lists outside of partitions.
const SHARED: usize = usize::MAX;

/// Gives an event to the pending matches whose last step is a `?e?` that it qualifies for.
fn wake(plan: &Plan, partition: &mut Partition, shared: &Store, event: &Arc<Event>, mask: u64, sink: &mut Sink) {
    let Some(step) = plan.trailing() else { return };
    let step = &plan.steps[step];
    if step.role != Role::Maybe || mask >> step.variables[0] & 1 == 0 || partition.pending.is_empty() {
        return;
    }
    let mut pending = std::mem::take(&mut partition.pending);
    let mut arrived = Vec::with_capacity(pending.len());
    let mut judge = Judge::new(plan, &partition.store, shared);
    for waiting in pending.values() {
        arrived.push(judge.arrive(waiting, event, sink));
    }
    let mut place = 0;
    pending.retain(|_, waiting| {
        let found = arrived[place];
        place += 1;
        waiting.found |= found;
        !(found && plan.policy == Policy::Next)
    });
    partition.pending = pending;
}
