//! A lane at work: it follows the log, and delivers what its queries find.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::group::{Clock, Group};
use super::spec::{LaneSpec, QuerySpec};
use super::steps::Steps;
use crate::event::Name;
use crate::found::Match;
use crate::log::{Error, Follower, schema};
use crate::record::{self, Record, Schema};
use crate::service::derived::{Announced, Unlogged};
use crate::service::knowing::{Coming, Update};
use crate::service::matches::{Delivery, Matches};
use crate::service::reads::{Read, Reads};
use crate::service::recorder::{Track, What};
use crate::service::restart::{Marks, Point};
use crate::service::rests::{Account, Rests, Used};
use crate::service::scheduling::{LevelPolicy, adopt, monotonic, now};
use crate::service::store::{RECOVERED, RELATIVE, STALE};

const COMMITTED_EVERY: Duration = Duration::from_secs(1);
/// So long it waits for the log before it looks at the clock.
const PATIENCE: Duration = Duration::from_millis(5);
/// So often it looks whether what it asked for was brought back.
const RESTORED_EVERY: Duration = Duration::from_millis(100);

/// A lane on its thread.
pub(super) struct Running {
    pub(super) spec: LaneSpec,
    pub(super) policy: LevelPolicy,
    pub(super) rests: Arc<Rests>,
    pub(super) folder: PathBuf,
    pub(super) coming: Arc<Coming>,
    pub(super) versions: Arc<Vec<AtomicU64>>,
    pub(super) strangers: Arc<Vec<AtomicU64>>,
    pub(super) removed: Arc<Vec<AtomicBool>>,
    pub(super) track: Arc<Track>,
    pub(super) follower: Follower,
    pub(super) groups: Vec<Group>,
    pub(super) matches: Arc<Vec<Matches>>,
    pub(super) unlogged: Arc<Vec<Unlogged>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) reads: Reads,
    /// By query, whether all that it finds now is new to who reads it.
    pub(super) is_loud: Vec<bool>,
    /// Where the log ended when the lane began. What came before that is recovered; clocks, which may step, can't tell.
    pub(super) end: u64,
    /// When the batch that was read last came to the log.
    pub(super) arrived: Option<i64>,
    /// From when on it needs what happened, until somebody has said at which offset that begins.
    pub(super) since: Option<i64>,
    /// Whether it has asked for what the log has no longer.
    pub(super) is_wanting: bool,
    /// Of which offset it was said last that it is missing.
    pub(super) told: Option<u64>,
    pub(super) marks: Marks,
    pub(super) announced: Arc<Announced>,
    /// What was derived before this lane began is in the log up to here.
    pub(super) announced_from: u64,
    pub(super) layouts: Vec<Schema>,
    pub(super) generation: Option<u64>,
    pub(super) steps: Steps,
}

impl Running {
    /// Follows the log until it is stopped.
    pub(super) fn run(&mut self) {
        // Queries that come anew go through what the log has without a priority: they are not to delay those that run.
        let mut is_late = self.is_loud.iter().all(|is_loud| *is_loud);
        let mut share = 0;
        let mut committed = Instant::now();
        let mut used = Used::default();
        let mut is_at_its_level = false;
        while !self.stop.load(Ordering::SeqCst) {
            is_late &= self.follower.offset() < self.end;
            if !is_late && !is_at_its_level {
                is_at_its_level = true;
                let _ = adopt(self.policy.worker);
                share = self.policy.share.unwrap_or(0);
                // What it took of no level's time it does not owe.
                used = Used::default();
                used.begin(share, monotonic());
            }
            let mut waiting = self.unlogged.iter().enumerate();
            if waiting.any(|(number, unlogged)| unlogged.is_full() && !self.is_removed(number)) || self.is_ahead() {
                thread::sleep(PATIENCE);
                used.begin(share, monotonic());
                continue;
            }
            self.let_go();
            if let Some(since) = self.since
                && !self.begin_since(since)
            {
                used.begin(share, monotonic());
                continue;
            }
            let begun = monotonic();
            let went_on = match self.follow() {
                Err(Error::Gone { first, .. }) => {
                    self.want(first);
                    used.begin(share, monotonic());
                    continue;
                }
                followed => followed.unwrap_or(false),
            };
            if went_on {
                self.track.note(begun, What::Begin, 0);
                self.track.note(monotonic(), What::End, 0);
            } else {
                self.advance(None);
                let now = monotonic();
                self.rest(&mut used, share, now);
                self.track.note(now, What::Sleep, 0);
                let _ = self.follower.wait(PATIENCE);
                let now = monotonic();
                self.track.note(now, What::Wake, 0);
                used.begin(share, now);
            }
            if committed.elapsed() >= COMMITTED_EVERY {
                self.commit();
                committed = Instant::now();
            }
            self.rest(&mut used, share, monotonic());
        }
        self.rests.end();
        // What was read up to the end is read: who ends in order has written it to its sockets.
        self.commit();
        self.commit();
        if self.is_wanting {
            let _ = fs::remove_file(self.wanted());
        }
        self.matches.iter().for_each(Matches::end);
        self.unlogged.iter().for_each(Unlogged::end);
    }

    /// A real-time thread leaves some time to others, so that Linux never stops all of them.
    fn rest(&self, used: &mut Used, share: u64, now: u64) {
        if share > 0 && used.account(&self.rests, share, self.policy.worker, now) == Account::Spent {
            self.track.note(now, What::Pause, 0);
        }
    }

    /// Asks for what the log has no longer: who has the archive brings it back (src/cepheid/history/restore.py). Until
    /// then nothing can be found, because it would be incomplete.
    fn want(&mut self, first: u64) {
        let from = self.follower.offset();
        if self.told != Some(from) {
            self.told = Some(from);
            eprintln!(
                "{}: the events of offsets {from} to {} are not in the log any more; they are awaited from the archive \
                 (cepheid pipeline)",
                self.spec.consumer,
                first.saturating_sub(1)
            );
        }
        if !self.is_wanting {
            // A full disk: then it is tried again.
            self.is_wanting = fs::write(self.wanted(), from.to_string()).is_ok();
        }
        thread::sleep(RESTORED_EVERY);
    }

    /// Asks for what happened since a time; whether it is there. Who brings it back (restore.py) says then in the same
    /// file at which offset it begins.
    fn begin_since(&mut self, since: i64) -> bool {
        let answer = fs::read_to_string(self.wanted()).unwrap_or_default();
        if self.is_wanting
            && let Ok(offset) = answer.trim().parse()
        {
            // What has gone again meanwhile is asked for by its offset.
            self.since = match self.follower.seek(offset) {
                Ok(()) | Err(Error::Gone { .. }) => None,
                Err(_) => self.since,
            };
            return self.since.is_none();
        }
        if !self.is_wanting || answer.is_empty() {
            self.is_wanting = fs::write(self.wanted(), format!("since {since}")).is_ok();
        }
        thread::sleep(RESTORED_EVERY);
        false
    }

    fn wanted(&self) -> PathBuf {
        self.folder.join(format!("{}.wanted", self.spec.consumer))
    }

    fn is_removed(&self, number: usize) -> bool {
        self.removed[number].load(Ordering::Relaxed)
    }

    /// Whether who reads its matches can't follow: what is recovered comes faster than anything live, and is not to be
    /// lost for that.
    fn is_ahead(&self) -> bool {
        let mut each = self.matches.iter().enumerate();
        self.follower.offset() < self.end
            && each.any(|(number, matches)| matches.is_pressed() && !self.is_removed(number))
    }

    /// Lets go of queries that stand together when none of them is wanted any more.
    fn let_go(&mut self) {
        let removed = &self.removed;
        let is_wanted = |number: &usize| !removed[*number].load(Ordering::Relaxed);
        self.groups.retain(|group| group.queries.iter().any(is_wanted));
    }

    /// Takes the next batch; whether there was one.
    fn follow(&mut self) -> Result<bool, Error> {
        let offset = self.follower.offset();
        if !self.follower.advance()? {
            return Ok(false);
        }
        if std::mem::take(&mut self.is_wanting) {
            let _ = fs::remove_file(self.wanted());
        }
        for update in self.coming.due(offset) {
            self.learn(update);
        }
        if self.generation != Some(self.follower.generation()) {
            self.layouts = schema::layouts(self.follower.streams()).unwrap_or_default();
            let streams = self.follower.streams();
            self.groups.iter_mut().for_each(|group| group.place(streams));
            self.generation = Some(self.follower.generation());
        }
        let mut arrival = None;
        if let Some(batch) = self.follower.batch() {
            arrival = Some(batch.head.arrival);
            for (_, bytes) in batch.records() {
                if record::flags(bytes) & (record::LATE | record::DUPLICATE) != 0 {
                    continue;
                }
                let Some(layout) = self.layouts.get(usize::from(record::stream(bytes))) else {
                    continue;
                };
                if let Ok(record) = Record::read(bytes, layout) {
                    self.groups.iter_mut().for_each(|group| group.push(&record));
                }
            }
        }
        self.advance(arrival);
        Ok(true)
    }

    /// Judges what comes from now on by another version of the knowledge.
    fn learn(&mut self, update: Update) {
        for group in &mut self.groups {
            let Some(place) = group.queries.iter().position(|number| *number == update.query) else {
                continue;
            };
            for (table, entries) in update.tables {
                group.standing.learn(place, table, entries);
            }
            if let Some(plan) = update.plan {
                group.standing.replace(place, plan);
                self.generation = None; // it may read other attributes
            }
            self.versions[update.query].store(update.version, Ordering::Relaxed);
            return;
        }
    }

    /// The clocks have gone on, with a batch that came to the log at `arrival`, or by themselves.
    fn advance(&mut self, arrival: Option<i64>) {
        let idle_counts = arrival.is_none();
        self.arrived = arrival.or(self.arrived);
        let offset = self.follower.offset();
        for at in 0..self.groups.len() {
            let group = &mut self.groups[at];
            for clock in group.clocks.iter_mut().filter(|clock| clock.stream.is_derived) {
                if let Some(watermark) = self.announced.watermark(&clock.stream.name, offset)
                    && offset >= self.announced_from
                {
                    clock.announced = clock.announced.max(watermark);
                }
            }
            let watermarks = group.clocks.iter().map(|clock| clock.watermark(idle_counts));
            let Some(watermark) = watermarks.min() else { continue };
            if let Some(before) = self.catch_up(at, offset) {
                self.advance_group(at, before, arrival);
                self.speak(at, offset);
            }
            self.advance_group(at, watermark, arrival);
        }
    }

    /// Where the queries of a group have come to what was read of them before, and not spoken since: the watermark that
    /// they had then. What it brings, and no event, was delivered.
    fn catch_up(&self, at: usize, offset: u64) -> Option<i64> {
        let quiet = self.groups[at].queries.iter().filter(|number| !self.is_loud[**number]);
        let reads = quiet.map(|number| self.spec.queries[*number].read);
        let there = reads.filter(|read| read.offset <= offset);
        there
            .map(|read| {
                if read.offset == offset {
                    read.watermark
                } else {
                    i64::MIN
                }
            })
            .max()
    }

    /// From now on, what those queries find is delivered.
    fn speak(&mut self, at: usize, offset: u64) {
        for number in &self.groups[at].queries {
            self.is_loud[*number] |= self.spec.queries[*number].read.offset <= offset;
        }
    }

    fn advance_group(&mut self, at: usize, watermark: i64, arrival: Option<i64>) {
        let group = &mut self.groups[at];
        group.watermark = group.watermark.max(watermark);
        let offset = self.follower.offset();
        let (steady, now) = ((monotonic() / 1_000) as i64, now());
        self.steps.look(steady, now);
        // What came before the lane began would have been found then.
        let came_before = self.arrived.filter(|_| offset <= self.end);
        let delay = came_before.map(|came| now.saturating_sub(came).max(0));
        for (place, found) in group.standing.advance(Some(watermark)) {
            let number = group.queries[place];
            let query = &self.spec.queries[number];
            if !self.is_loud[number] || self.removed[number].load(Ordering::Relaxed) {
                continue;
            }
            let version = self.versions[number].load(Ordering::Relaxed);
            for found in found {
                let end = end(query, &group.clocks, &group.ends, &found);
                let is_stale = end.is_some_and(|end| now >= end);
                let is_apart = !group.align[place].iter().all(|set| holds(set, &found));
                let marks = if is_stale { STALE } else { 0 }
                    | if is_apart { RELATIVE } else { 0 }
                    | if delay.is_some() { RECOVERED } else { 0 };
                // What is found late, or again, tells how long there was no engine, and not how long this one takes.
                let matches = &self.matches[number];
                match (delay, arrival) {
                    (Some(delay), _) => matches.delay.record((delay as u64).saturating_mul(1_000)),
                    (None, Some(arrival)) => matches.latency.record(self.steps.since(arrival)),
                    (None, None) => {}
                }
                let delivery = Arc::new(Delivery {
                    found,
                    end,
                    marks,
                    delay,
                    knowledge: (version > 0).then_some(version),
                    at: Read {
                        offset,
                        watermark: group.watermark,
                    },
                });
                if query.is_read {
                    self.unlogged[number].put(Arc::clone(&delivery));
                }
                self.matches[number].put(delivery, query.sheds);
            }
        }
        for (place, number) in group.queries.iter().enumerate() {
            self.strangers[*number].store(group.standing.strangers(place), Ordering::Relaxed);
            if self.spec.queries[*number].is_read {
                self.unlogged[*number].pass(watermark);
            }
        }
    }

    /// Says how far each query had come when it was last here with all that it had found read and logged. What was found
    /// since is found again after a crash, because what was read a moment ago may not have come to its reader.
    fn commit(&mut self) {
        let offset = self.follower.offset();
        for group in &self.groups {
            for number in group.queries.iter().filter(|number| self.is_loud[**number]) {
                let watermark = group.watermark;
                let read = self.matches[*number].read_to(Read { offset, watermark });
                let is_logged = self.unlogged[*number].is_empty();
                self.reads.pass(*number, read.filter(|_| is_logged));
            }
        }
        // Without these a restart takes longer, and says more again.
        let has_acks: Vec<bool> = self.matches.iter().map(Matches::is_kept).collect();
        let is_removed = |number: usize| self.removed[number].load(Ordering::Relaxed);
        let held = (0..has_acks.len()).filter(|number| has_acks[*number] && !is_removed(*number));
        let held = held.map(|number| self.reads.sure(number).offset).min();
        if self.reads.write(is_removed, |number| has_acks[number]).is_ok() {
            for (number, matches) in self.matches.iter().enumerate().filter(|(number, _)| has_acks[*number]) {
                matches.saved(self.reads.sure(number));
            }
        }
        if !(0..has_acks.len()).all(is_removed) {
            let _ = self.mark(held.unwrap_or(u64::MAX));
        }
    }

    /// Remembers this point of the log; what was found behind `held` may be asked for again.
    fn mark(&mut self, held: u64) -> std::io::Result<()> {
        let clocks = || self.groups.iter().flat_map(|group| &group.clocks);
        let mut streams: Vec<(String, i64)> = clocks()
            .filter(|clock| clock.greatest > i64::MIN)
            .map(|clock| (clock.stream.name.clone(), clock.greatest))
            .collect();
        streams.sort_unstable();
        streams.dedup();
        let watermark = clocks().map(|clock| clock.watermark(false)).min().unwrap_or(i64::MIN);
        let holds_nothing = self.groups.iter().all(|group| group.standing.holds_nothing());
        let point = Point {
            offset: self.follower.offset(),
            streams,
        };
        self.marks.pass(point, watermark, holds_nothing, held)
    }
}

/// When a match's validity ends: VALID after its time, or that of its completing event (rule Q7), which may have come with
/// an end of its own.
fn end(query: &QuerySpec, clocks: &[Clock], ends: &BTreeMap<Name, i64>, found: &Match) -> Option<i64> {
    if let Some(valid) = query.valid {
        return Some(found.time.saturating_add(valid));
    }
    let last = found.last()?;
    if let Some(end) = ends.get(last) {
        return Some(*end);
    }
    let valid_for = clocks.get(usize::from(last.stream))?.stream.valid_for?;
    Some(last.time.saturating_add(valid_for))
}

/// Whether the events of variables are no further apart than that (rule G2).
fn holds((variables, within): &(Vec<usize>, i64), found: &Match) -> bool {
    let bound = variables.iter().filter_map(|place| found.events.get(*place));
    let times = || bound.clone().flat_map(|bound| bound.events()).map(|event| event.time);
    match (times().min(), times().max()) {
        (Some(first), Some(last)) => last.saturating_sub(first) <= *within,
        _ => true,
    }
}
