//! Moving windows of one variable: sliding, batch, session and length (rules W1 to W5).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use crate::aggregate::{Running, aggregate};
use crate::event::{Events, Handle};
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
    events: VecDeque<Handle>,
    running: Option<Vec<Running>>,
}

impl Group {
    fn push(&mut self, plan: &Plan, events: &Events, event: Handle) {
        if let Some(running) = &mut self.running {
            for (running, aggregate) in running.iter_mut().zip(&plan.aggregates) {
                running.add(aggregate, events.row(event));
            }
        }
        self.events.push_back(event);
    }

    fn pop(&mut self, plan: &Plan, events: &mut Events) -> bool {
        let Some(event) = self.events.pop_front() else {
            return false;
        };
        if self.events.len() < FOLLOWED_TO {
            self.running = None;
        } else if let Some(running) = &mut self.running {
            for (running, aggregate) in running.iter_mut().zip(&plan.aggregates) {
                running.remove(aggregate, events.row(event));
            }
        }
        events.release(event);
        true
    }

    /// The aggregates of a window that moves.
    fn moving(&mut self, plan: &Plan, events: &Events) -> Vec<Value> {
        if self.events.len() < FOLLOWED_FROM && self.running.is_none() {
            return aggregates(plan, events, &self.events);
        }
        let running = self.running.get_or_insert_with(|| {
            let mut fresh: Vec<Running> = plan.aggregates.iter().map(|_| Running::new()).collect();
            for (running, aggregate) in fresh.iter_mut().zip(&plan.aggregates) {
                self.events
                    .iter()
                    .for_each(|event| running.add(aggregate, events.row(*event)));
            }
            fresh
        });
        let pairs = running.iter().zip(&plan.aggregates);
        pairs
            .map(|(running, aggregate)| running.value(aggregate, events, &self.events))
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
    newest: Vec<(GroupKey, Handle)>,
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
    pub fn pass(&mut self, events: &mut Events, time: i64, out: &mut Vec<Match>) {
        match self.kind {
            Kind::Sliding => {
                if self.newest.first().is_some_and(|(_, event)| events.time(*event) < time) {
                    self.slide(events, out);
                }
                self.expire(events, time);
            }
            Kind::Batch | Kind::Session => self.close(events, time, out),
            Kind::Length => {}
        }
    }

    /// The next event in E2's order.
    pub fn event(&mut self, events: &mut Events, event: Handle, out: &mut Vec<Match>) {
        let group_by = self.plan.group_by.iter();
        let key: GroupKey = group_by.map(|a| Key(a.kept(events.row(event)))).collect();
        let time = events.time(event);
        let group = self.groups.entry(Arc::clone(&key)).or_default();
        events.hold(event);
        group.push(&self.plan, events, event);
        self.held += 1;
        match self.kind {
            Kind::Sliding => {
                self.ages.push_back((time, Arc::clone(&key)));
                self.newest.push((key, event));
            }
            Kind::Length => {
                if group.events.len() as i64 > self.size {
                    group.pop(&self.plan, events);
                    self.held -= 1;
                }
                let aggregates = group.moving(&self.plan, events);
                rows_of_event(&self.plan, events, event, &aggregates, out);
            }
            Kind::Batch => {
                let end = self.batch_of(time).1;
                self.due.push(Reverse((end, key)));
            }
            Kind::Session => self.due.push(Reverse((time.saturating_add(self.size), key))),
        }
    }

    fn batch_of(&self, time: i64) -> (i64, i64) {
        let start = time.div_euclid(self.size).saturating_mul(self.size);
        (start, start.saturating_add(self.size))
    }

    fn slide(&mut self, events: &mut Events, out: &mut Vec<Match>) {
        let newest = std::mem::take(&mut self.newest);
        if let Some((_, event)) = newest.first() {
            self.expire(events, events.time(*event));
        }
        let mut known: HashMap<&GroupKey, Vec<Value>> = HashMap::new();
        for (key, event) in &newest {
            let values = known.entry(key).or_insert_with(|| match self.groups.get_mut(key) {
                Some(group) => group.moving(&self.plan, events),
                None => Vec::new(),
            });
            rows_of_event(&self.plan, events, *event, values, out);
        }
    }

    /// Lets go of events that are outside of (time - size, time].
    fn expire(&mut self, events: &mut Events, time: i64) {
        let limit = time.saturating_sub(self.size);
        while self.ages.front().is_some_and(|(age, _)| *age <= limit) {
            let Some((_, key)) = self.ages.pop_front() else {
                return;
            };
            self.pop(events, &key);
        }
    }

    fn pop(&mut self, events: &mut Events, key: &GroupKey) {
        if let Some(group) = self.groups.get_mut(key) {
            self.held -= usize::from(group.pop(&self.plan, events));
            if group.events.is_empty() {
                self.groups.remove(key);
            }
        }
    }

    /// Ends the batches and sessions that no event of this time or later can join.
    fn close(&mut self, events: &mut Events, time: i64, out: &mut Vec<Match>) {
        while let Some(Reverse((due, _))) = self.due.peek() {
            if *due > time {
                return;
            }
            let Some(Reverse((due, key))) = self.due.pop() else {
                return;
            };
            let Some(Some(last)) = self
                .groups
                .get(&key)
                .map(|group| group.events.back().map(|e| events.time(*e)))
            else {
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
                self.rows(&key, events, &group.events, end, out);
                group.events.iter().for_each(|event| events.release(*event));
            }
        }
    }

    fn rows(&self, key: &GroupKey, events: &Events, group: &VecDeque<Handle>, end: i64, out: &mut Vec<Match>) {
        let Some(&first) = group.front() else { return };
        let aggregates = aggregates(&self.plan, events, group);
        let scope = Bindings {
            events,
            bound: &[Some(first)],
            tried: None,
            aggregates: &aggregates,
        };
        let start = match self.kind {
            Kind::Batch => self.batch_of(events.time(first)).0,
            _ => events.time(first),
        };
        out.extend(self.plan.select(&scope).map(|(head, select)| Match {
            time: end,
            events: Vec::new(),
            select,
            row: Some(Row {
                group: key.to_vec(),
                start,
                end,
            }),
            key: None,
            head,
        }));
    }

    /// Sheds the oldest event, and says when it was; None if there is none.
    pub fn shed(&mut self, events: &mut Events) -> Option<i64> {
        let oldest = self.groups.iter();
        let oldest = oldest.filter_map(|(key, group)| group.events.front().map(|e| (events.time(*e), key)));
        let (time, key) = oldest.min_by_key(|(time, _)| *time)?;
        let key = Arc::clone(key);
        self.newest
            .retain(|(_, event)| Some(event) != self.groups[&key].events.front());
        self.pop(events, &key);
        if let Some(place) = self.ages.iter().position(|(_, other)| *other == key) {
            self.ages.remove(place);
        }
        Some(time)
    }

    /// All events held; there is one variable.
    pub fn events(&self) -> Vec<(Handle, u64)> {
        let groups = self.groups.values();
        groups
            .flat_map(|group| &group.events)
            .map(|event| (*event, 1))
            .collect()
    }

    /// The earliest time at which something is due without an event.
    pub fn due(&self) -> Option<i64> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }
}

fn aggregates(plan: &Plan, events: &Events, window: &VecDeque<Handle>) -> Vec<Value> {
    let over = |a| aggregate(a, window.iter().map(|event| events.row(*event)));
    plan.aggregates.iter().map(over).collect()
}

fn rows_of_event(plan: &Plan, events: &Events, event: Handle, aggregates: &[Value], out: &mut Vec<Match>) {
    let scope = Bindings {
        events,
        bound: &[Some(event)],
        tried: None,
        aggregates,
    };
    out.extend(plan.select(&scope).map(|(head, select)| Match {
        time: events.time(event),
        events: vec![Bound::One(events.name(event).clone())],
        select,
        row: None,
        key: None,
        head,
    }));
}
