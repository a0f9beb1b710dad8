//! Moving windows of one variable: sliding, batch, session and length (rules W1 to W5).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use crate::aggregate::{Running, aggregate};
use crate::event::Event;
use crate::expr::Bindings;
use crate::found::{Bound, Match, Row};
use crate::plan::{Kind, Plan};
use crate::value::{Key, Value};

type GroupKey = Arc<[Key]>;

/// From this many events on a group's aggregates are followed rather than computed anew; they take some space.
const FOLLOWED_FROM: usize = 32;
/// Below this many no longer.
const FOLLOWED_TO: usize = 8;

/// The events of a group, and its aggregates where they are followed.
#[derive(Debug, Default)]
struct Group {
    events: VecDeque<Arc<Event>>,
    running: Option<Vec<Running>>,
}

impl Group {
    fn push(&mut self, plan: &Plan, event: Arc<Event>) {
        if let Some(running) = &mut self.running {
            for (running, aggregate) in running.iter_mut().zip(&plan.aggregates) {
                running.add(aggregate, &event);
            }
        }
        self.events.push_back(event);
    }

    fn pop(&mut self, plan: &Plan) -> bool {
        let Some(event) = self.events.pop_front() else {
            return false;
        };
        if self.events.len() < FOLLOWED_TO {
            self.running = None;
        } else if let Some(running) = &mut self.running {
            for (running, aggregate) in running.iter_mut().zip(&plan.aggregates) {
                running.remove(aggregate, &event);
            }
        }
        true
    }

    /// The aggregates of a window that moves.
    fn moving(&mut self, plan: &Plan) -> Vec<Value> {
        if self.events.len() < FOLLOWED_FROM && self.running.is_none() {
            return aggregates(plan, self.events.iter());
        }
        let running = self.running.get_or_insert_with(|| {
            let mut fresh: Vec<Running> = plan.aggregates.iter().map(|_| Running::new()).collect();
            for (running, aggregate) in fresh.iter_mut().zip(&plan.aggregates) {
                self.events.iter().for_each(|event| running.add(aggregate, event));
            }
            fresh
        });
        let pairs = running.iter().zip(&plan.aggregates);
        pairs
            .map(|(running, aggregate)| running.value(aggregate, &self.events))
            .collect()
    }
}

/// The state of a query with a moving window.
#[derive(Debug)]
pub struct Windows {
    plan: Arc<Plan>,
    kind: Kind,
    size: i64,
    groups: HashMap<GroupKey, Group>,
    /// Sliding: the events of the newest time, which see each other. All windows but length: see `expire`.
    newest: Vec<(GroupKey, Arc<Event>)>,
    /// Sliding: the groups of events by age.
    ages: VecDeque<(i64, GroupKey)>,
    /// Batch and session: when a group may be due.
    due: BinaryHeap<Reverse<(i64, GroupKey)>>,
    held: usize,
}

impl Windows {
    /// No event yet.
    pub fn new(plan: Arc<Plan>, kind: Kind, size: i64) -> Self {
        Windows {
            plan,
            kind,
            size,
            groups: HashMap::new(),
            newest: Vec::new(),
            ages: VecDeque::new(),
            due: BinaryHeap::new(),
            held: 0,
        }
    }

    /// How many events are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many groups there are.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Whether a match is due as soon as the watermark reaches its time, because no later event can change it.
    pub fn due_at_time(&self) -> bool {
        matches!(self.kind, Kind::Batch | Kind::Session)
    }

    /// All events up to, and without, this time are known.
    pub fn pass(&mut self, time: i64, out: &mut Vec<Match>) {
        match self.kind {
            Kind::Sliding => {
                if self.newest.first().is_some_and(|(_, event)| event.time < time) {
                    self.slide(out);
                }
                self.expire(time);
            }
            Kind::Batch | Kind::Session => self.close(time, out),
            Kind::Length => {}
        }
    }

    /// The next event in E2's order.
    pub fn event(&mut self, event: Event, out: &mut Vec<Match>) {
        let event = Arc::new(event);
        let key: GroupKey = self.plan.group_by.iter().map(|a| Key(a.kept(&event))).collect();
        let group = self.groups.entry(Arc::clone(&key)).or_default();
        group.push(&self.plan, Arc::clone(&event));
        self.held += 1;
        match self.kind {
            Kind::Sliding => {
                self.ages.push_back((event.time, Arc::clone(&key)));
                self.newest.push((key, event));
            }
            Kind::Length => {
                if group.events.len() as i64 > self.size {
                    group.pop(&self.plan);
                    self.held -= 1;
                }
                let aggregates = group.moving(&self.plan);
                out.extend(row_of_event(&self.plan, &event, &aggregates));
            }
            Kind::Batch => {
                let end = self.batch_of(event.time).1;
                self.due.push(Reverse((end, key)));
            }
            Kind::Session => self.due.push(Reverse((event.time.saturating_add(self.size), key))),
        }
    }

    fn batch_of(&self, time: i64) -> (i64, i64) {
        let start = time.div_euclid(self.size).saturating_mul(self.size);
        (start, start.saturating_add(self.size))
    }

    fn slide(&mut self, out: &mut Vec<Match>) {
        let newest = std::mem::take(&mut self.newest);
        if let Some((_, event)) = newest.first() {
            self.expire(event.time);
        }
        let mut known: HashMap<&GroupKey, Vec<Value>> = HashMap::new();
        for (key, event) in &newest {
            let values = known.entry(key).or_insert_with(|| match self.groups.get_mut(key) {
                Some(group) => group.moving(&self.plan),
                None => Vec::new(),
            });
            out.extend(row_of_event(&self.plan, event, values));
        }
    }

    /// Lets go of events that are outside of (time - size, time].
    fn expire(&mut self, time: i64) {
        let limit = time.saturating_sub(self.size);
        while self.ages.front().is_some_and(|(age, _)| *age <= limit) {
            let Some((_, key)) = self.ages.pop_front() else {
                return;
            };
            self.pop(&key);
        }
    }

    fn pop(&mut self, key: &GroupKey) {
        if let Some(group) = self.groups.get_mut(key) {
            self.held -= usize::from(group.pop(&self.plan));
            if group.events.is_empty() {
                self.groups.remove(key);
            }
        }
    }

    /// Ends the batches and sessions that no event of this time or later can join.
    fn close(&mut self, time: i64, out: &mut Vec<Match>) {
        while let Some(Reverse((due, _))) = self.due.peek() {
            if *due > time {
                return;
            }
            let Some(Reverse((due, key))) = self.due.pop() else {
                return;
            };
            let Some(Some(last)) = self.groups.get(&key).map(|group| group.events.back().map(|e| e.time)) else {
                continue;
            };
            // Of several entries of a group the last one counts.
            let end = match self.kind {
                Kind::Batch => self.batch_of(last).1,
                _ => last.saturating_add(self.size),
            };
            if end != due {
                continue;
            }
            if let Some(group) = self.groups.remove(&key) {
                self.held -= group.events.len();
                out.extend(self.row(&key, &group.events, end));
            }
        }
    }

    fn row(&self, key: &GroupKey, group: &VecDeque<Arc<Event>>, end: i64) -> Option<Match> {
        let first = group.front()?;
        let aggregates = aggregates(&self.plan, group.iter());
        let events = [Some(first.as_ref())];
        let scope = Bindings {
            events: &events,
            aggregates: &aggregates,
        };
        let select = self.plan.select(&scope)?;
        let start = match self.kind {
            Kind::Batch => self.batch_of(first.time).0,
            _ => first.time,
        };
        Some(Match {
            time: end,
            events: Vec::new(),
            select,
            row: Some(Row {
                group: key.to_vec(),
                start,
                end,
            }),
        })
    }

    /// Sheds an event of the oldest kind there is; false if there is none.
    pub fn shed(&mut self) -> bool {
        let oldest = self
            .groups
            .iter()
            .filter_map(|(key, group)| group.events.front().map(|e| (e.time, key)));
        let Some(key) = oldest.min_by_key(|(time, _)| *time).map(|(_, key)| Arc::clone(key)) else {
            return false;
        };
        self.pop(&key);
        if let Some(place) = self.ages.iter().position(|(_, other)| *other == key) {
            self.ages.remove(place);
        }
        true
    }

    /// All events held, in E2's order.
    pub fn events(&self) -> Vec<Arc<Event>> {
        let mut events: Vec<Arc<Event>> = self.groups.values().flat_map(|group| &group.events).cloned().collect();
        events.sort_by(|a, b| a.order(b));
        events
    }
}

fn aggregates<'a>(plan: &Plan, events: impl Iterator<Item = &'a Arc<Event>> + Clone) -> Vec<Value> {
    let over = |a| aggregate(a, events.clone().map(|event| event.as_ref()));
    plan.aggregates.iter().map(over).collect()
}

fn row_of_event(plan: &Plan, event: &Arc<Event>, aggregates: &[Value]) -> Option<Match> {
    let events = [Some(event.as_ref())];
    let scope = Bindings {
        events: &events,
        aggregates,
    };
    let select = plan.select(&scope)?;
    Some(Match {
        time: event.time,
        events: vec![Bound::One(Arc::clone(event))],
        select,
        row: None,
    })
}
