//! The state of a pattern: partitions by key (rule S7), each with the events that can still matter, oldest first.

mod tables;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

use crate::bounds::FOREVER;
use crate::event::{Events, Handle, Held, Name};
use crate::found::Match;
use crate::judge::Desk;
use crate::partial::{Pending, Sink};
use crate::plan::{Plan, Policy};
use crate::runs::{self, Changes, Runs};
use crate::value::Key;

pub use tables::Lists;
use tables::{SHARED, SMALL, Tables, Waiting};

/// All partitions of a query that is a pattern.
#[derive(Debug)]
pub struct Partitions {
    tables: Tables,
    hasher: DefaultHashBuilder,
    /// By variable: its events, in the order in which they came, and their places, to let go of the oldest without a
    /// search. Where runs say all, a place may be another partition's by then, in which nothing holds the event.
    ages: Vec<VecDeque<(Handle, u32)>>,
    /// When which partition has a pending match to decide.
    due: BinaryHeap<Reverse<(i64, u32)>>,
    /// Events held in lists; one that qualifies for two variables counts twice.
    held: usize,
    /// MATCH STRICT: how many events each partition has had, and when the last one came.
    seen: HashMap<Arc<[Key]>, (u64, i64)>,
    seen_limit: usize,
    /// How many pending matches there ever were.
    pendings: u64,
    desk: Desk,
    changes: Changes,
    /// MATCH NEXT: runs, by partition, that an event took; its copies may take them too.
    spent: Vec<(u32, u32)>,
    /// Likewise what waited for a last `?e?`.
    met: Vec<(u32, (i64, u64))>,
    /// The last event, where it has copies, and its number.
    last: Option<Name>,
    last_number: u64,
}

impl Partitions {
    /// No partition yet.
    pub fn new(plan: &Plan) -> Self {
        let mut partitions = Partitions {
            tables: Tables::default(),
            hasher: DefaultHashBuilder::default(),
            ages: vec![VecDeque::new(); plan.variables.len()],
            due: BinaryHeap::new(),
            held: 0,
            seen: HashMap::new(),
            seen_limit: 1024,
            pendings: 0,
            desk: Desk::default(),
            changes: Changes::default(),
            spent: Vec::new(),
            met: Vec::new(),
            last: None,
            last_number: 0,
        };
        partitions.tables.add_place(plan);
        partitions
    }

    /// How many events are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// How many partitions, runs and pending matches there are.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let waiting = self.tables.waiting.iter().flatten();
        let runs = waiting.clone().map(|w| w.runs.len()).sum();
        (self.tables.places.len(), runs, waiting.map(|w| w.pending.len()).sum())
    }

    /// The earliest time at which something is due without an event.
    pub fn due(&self) -> Option<i64> {
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    /// All events up to, and without, this time are known: decides what was waiting for that, frees what is past.
    #[inline]
    pub fn pass(&mut self, plan: &Plan, events: &mut Events, time: i64, out: &mut Vec<Match>) {
        if self.last.as_ref().is_some_and(|last| last.time < time) {
            self.spend(plan, events);
        }
        while let Some(&Reverse((due, place))) = self.due.peek() {
            if due >= time {
                break;
            }
            self.due.pop();
            self.decide(plan, events, place, due, out);
        }
        self.forget(plan, events, time);
    }

    /// The input is complete: decides everything, and lets go of it.
    pub fn end(&mut self, plan: &Plan, events: &mut Events, out: &mut Vec<Match>) {
        self.pass(plan, events, i64::MAX, out);
        for place in 0..self.tables.waiting.len() as u32 {
            self.decide(plan, events, place, i64::MAX, out);
        }
    }

    fn decide(&mut self, plan: &Plan, events: &mut Events, place: u32, due: i64, out: &mut Vec<Match>) {
        let Some(Some(mut waiting)) = self.tables.waiting.get_mut(place as usize).map(Option::take) else {
            return;
        };
        let mut sink = Sink::default();
        while let Some(entry) = waiting.pending.first_entry()
            && entry.key().0 <= due
        {
            let pending = entry.remove();
            let branch = plan.branch(pending.branch);
            let mut judge = self.tables.judge(branch, events, place, &mut self.desk);
            judge.resolve(&pending, &mut sink);
            self.desk = judge.leave();
            release_pending(events, &pending);
        }
        out.append(&mut sink.matches);
        self.tables.wait(place, waiting);
        self.release(plan, place);
    }

    fn release(&mut self, plan: &Plan, place: u32) {
        if place != SHARED && self.tables.is_empty(plan, place) {
            self.tables.remove(plan, &self.hasher, place);
        }
        if self.tables.waiting.len() > SMALL && self.tables.places.is_empty() && self.held == 0 {
            self.tables = Tables::default();
            self.tables.add_place(plan);
            self.ages.iter_mut().for_each(VecDeque::shrink_to_fit);
        }
    }

    /// Lets go of events that no match of this time or later can hold.
    #[inline]
    fn forget(&mut self, plan: &Plan, events: &mut Events, time: i64) {
        for variable in 0..self.ages.len() {
            let kept = plan.variables[variable].kept;
            if kept >= FOREVER {
                continue;
            }
            while let Some(&(oldest, _)) = self.ages[variable].front() {
                if events.time(oldest).saturating_add(kept) >= time {
                    break;
                }
                self.drop_oldest(plan, events, variable, time);
            }
        }
    }

    fn drop_oldest(&mut self, plan: &Plan, events: &mut Events, variable: usize, time: i64) {
        let Some((event, place)) = self.ages[variable].pop_front() else {
            return;
        };
        self.held -= 1;
        self.tables.pop(plan, events, place, variable);
        if let Some(mut waiting) = self.tables.waiting[place as usize].take() {
            waiting.runs.expire(plan, events, time);
            self.tables.wait(place, waiting);
        }
        events.release(event);
        self.release(plan, place);
    }

    /// Sheds the oldest event held, and the partial matches that it is in; None if there is none.
    pub fn shed(&mut self, plan: &Plan, events: &mut Events) -> Option<i64> {
        self.spend(plan, events);
        let oldest = self.ages.iter().enumerate();
        let oldest = oldest.filter_map(|(variable, ages)| ages.front().map(|&(event, place)| (event, place, variable)));
        let (event, place, variable) = oldest.min_by(|a, b| events.order(a.0, b.0))?;
        let time = events.time(event);
        if let Some(waiting) = &mut self.tables.waiting[place as usize] {
            let has = |_: &_, bound: &[Option<Handle>]| bound[variable] == Some(event);
            waiting.runs.remove_if(plan, events, has);
            waiting.pending.retain(|_, pending| {
                let stays = !pending.events[variable].handles().contains(&event);
                if !stays {
                    release_pending(events, pending);
                }
                stays
            });
        }
        self.drop_oldest(plan, events, variable, i64::MIN);
        Some(time)
    }

    /// The next event in E2's order, which qualifies for the variables of `mask`. All before its time were passed on
    /// already.
    pub fn event(&mut self, plan: &Plan, events: &mut Events, event: Handle, mask: u64, out: &mut Vec<Match>) {
        let is_copy = plan.copies && self.last.as_ref() == Some(events.name(event));
        if plan.copies && !is_copy {
            self.spend(plan, events);
            self.last = Some(events.name(event).clone());
        }
        if plan.policy == Policy::Strict && events.number(event) == 0 {
            let number = match is_copy {
                true => self.last_number,
                false => self.next_number(plan, events.row(event)),
            };
            events.set_number(event, number);
        }
        self.last_number = events.number(event);
        let mut left = mask;
        while left != 0 {
            let variable = left.trailing_zeros() as usize;
            let Some(place) = self.home(plan, events.row(event), variable) else {
                left &= left - 1;
                continue;
            };
            // Those of its variables that lead to the same place.
            let mut here = 1 << variable;
            let mut rest = left & (left - 1);
            while rest != 0 {
                let other = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                // Where runs say all, only some variables make a place.
                let alike = !plan.runs_only && plan.variables[other].home == plan.variables[variable].home;
                if alike || self.home(plan, events.row(event), other) == Some(place) {
                    here |= 1 << other;
                }
            }
            left &= !here;
            if place != SHARED {
                self.arrive(plan, events, event, place, here, out);
            }
            self.keep(plan, events, event, place, here);
            self.release(plan, place);
        }
    }

    /// Lets go of the runs that an event took, now that all its copies are through.
    fn spend(&mut self, plan: &Plan, events: &mut Events) {
        self.last = None;
        let mut spent = std::mem::take(&mut self.spent);
        spent.sort_unstable();
        spent.dedup();
        for (place, run) in spent.drain(..) {
            if let Some(mut waiting) = self.tables.waiting.get_mut(place as usize).and_then(Option::take) {
                waiting.runs.remove(plan, events, run);
                self.tables.wait(place, waiting);
            }
            self.release(plan, place);
        }
        self.spent = spent;
        let mut met = std::mem::take(&mut self.met);
        for (place, number) in met.drain(..) {
            if let Some(mut waiting) = self.tables.waiting.get_mut(place as usize).and_then(Option::take) {
                if let Some(pending) = waiting.pending.remove(&number) {
                    release_pending(events, &pending);
                }
                self.tables.wait(place, waiting);
            }
            self.release(plan, place);
        }
        self.met = met;
    }

    /// The number of an event among all of its partition; 0 if it is in none. A restored event has its number already.
    fn next_number(&mut self, plan: &Plan, event: Held<'_>) -> u64 {
        let Some(key) = plan.partition(event) else {
            return 0;
        };
        let time = event.name.time;
        if self.seen.len() > self.seen_limit && plan.horizon < FOREVER {
            let oldest = time.saturating_sub(plan.horizon.max(0));
            self.seen.retain(|_, (_, last)| *last >= oldest);
            self.seen_limit = (self.seen.len() * 2).max(1024);
        }
        let entry = self.seen.entry(key).or_default();
        *entry = (entry.0 + 1, time);
        entry.0
    }

    /// The place of an event as one of a variable; None if a null in its key excludes it.
    #[inline]
    fn home(&mut self, plan: &Plan, event: Held<'_>, variable: usize) -> Option<u32> {
        match &plan.variables[variable].key {
            // Where there is no run, only an event of the first step makes one.
            Some(key) if plan.runs_only && plan.steps[0].mask >> variable & 1 == 0 => {
                let (_, found) = self.tables.find(plan, &self.hasher, key, event)?;
                Some(found.unwrap_or(SHARED))
            }
            Some(key) => self.tables.place(plan, &self.hasher, key, event),
            None => Some(SHARED),
        }
    }

    /// What an event completes or starts in its partition.
    fn arrive(&mut self, plan: &Plan, events: &mut Events, event: Handle, place: u32, mask: u64, out: &mut Vec<Match>) {
        let mut sink = Sink {
            matches: std::mem::take(out),
            pending: Vec::new(),
        };
        let mut waiting = self.tables.waiting[place as usize].take();
        if let Some(waiting) = &mut waiting {
            self.wake(plan, events, waiting, (event, mask), place, &mut sink);
        }
        if plan.policy == Policy::Next {
            let none = Runs::default();
            let runs = waiting.as_ref().map_or(&none, |waiting| &waiting.runs);
            let mut judge = self.tables.judge(plan, events, place, &mut self.desk);
            let changes = &mut self.changes;
            runs::next(plan, events, &mut judge, runs, (event, mask), changes, &mut sink);
            self.desk = judge.leave();
            if !changes.is_empty() {
                let waiting = waiting.get_or_insert_with(|| self.tables.spare.pop().unwrap_or_default());
                waiting.runs.change(plan, events, changes);
            }
            self.spent.extend(changes.spent.drain(..).map(|run| (place, run)));
        } else {
            let mut judge = self.tables.judge(plan, events, place, &mut self.desk);
            let mut left = mask;
            while left != 0 {
                let variable = left.trailing_zeros() as usize;
                left &= left - 1;
                for &(branch, last) in &plan.completes[variable] {
                    judge.turn_to(plan.branch(branch));
                    judge.search(last, variable, event, &mut sink);
                }
            }
            self.desk = judge.leave();
        }
        *out = sink.matches;
        for pending in sink.pending {
            self.due.push(Reverse((pending.due, place)));
            self.pendings += 1;
            pending
                .events
                .iter()
                .flat_map(|part| part.handles())
                .for_each(|h| events.hold(*h));
            let waiting = waiting.get_or_insert_with(|| self.tables.spare.pop().unwrap_or_default());
            waiting.pending.insert((pending.due, self.pendings), pending);
        }
        if let Some(waiting) = waiting {
            self.tables.wait(place, waiting);
        }
    }

    /// Gives an event to the pending matches whose last step is a `?e?` that it qualifies for.
    fn wake(
        &mut self,
        plan: &Plan,
        events: &mut Events,
        waiting: &mut Waiting,
        (event, mask): (Handle, u64),
        place: u32,
        sink: &mut Sink,
    ) {
        if plan.wakes & mask == 0 || waiting.pending.is_empty() {
            return;
        }
        let mut judge = self.tables.judge(plan, events, place, &mut self.desk);
        let is_next = plan.policy == Policy::Next;
        let mut over = Vec::new();
        for (number, pending) in &mut waiting.pending {
            let branch = plan.branch(pending.branch);
            // What is there still and has its event is there for the copies of that.
            let is_met = is_next && pending.found && !self.met.contains(&(place, *number));
            if branch.wakes & mask == 0 || is_met {
                continue;
            }
            judge.turn_to(branch);
            if judge.arrive(pending, event, sink) {
                match (is_next, plan.copies) {
                    (true, true) if !pending.found => self.met.push((place, *number)),
                    (true, false) => over.push(*number),
                    _ => {}
                }
                pending.found = true;
            }
        }
        self.desk = judge.leave();
        for number in over {
            if let Some(pending) = waiting.pending.remove(&number) {
                release_pending(events, &pending);
            }
        }
    }

    fn keep(&mut self, plan: &Plan, events: &mut Events, event: Handle, place: u32, mask: u64) {
        let mut left = mask;
        while left != 0 {
            let variable = left.trailing_zeros() as usize;
            left &= left - 1;
            if plan.variables[variable].kept < 0 {
                continue;
            }
            events.hold(event);
            if !plan.runs_only {
                self.tables.push(plan, events, place, variable, event);
            }
            self.ages[variable].push_back((event, place));
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

    /// All events held, with the variables that hold them.
    pub fn events(&self) -> Vec<(Handle, u64)> {
        let mut held: HashMap<Handle, u64> = HashMap::with_capacity(self.held);
        for (variable, ages) in self.ages.iter().enumerate() {
            for (event, _) in ages {
                *held.entry(*event).or_default() |= 1 << variable;
            }
        }
        // What completed all but a last open step is in no list that anything looks into, but in what waits.
        let waiting = self.tables.waiting.iter().flatten();
        for pending in waiting.flat_map(|waiting| waiting.pending.values()) {
            for (variable, part) in pending.events.iter().enumerate() {
                for event in part.handles() {
                    *held.entry(*event).or_default() |= 1 << variable;
                }
            }
        }
        held.into_iter().collect()
    }
}

fn release_pending(events: &mut Events, pending: &Pending) {
    let handles = pending.events.iter().flat_map(|part| part.handles());
    handles.for_each(|event| events.release(*event));
}
