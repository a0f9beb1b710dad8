//! The fast lane: queries that stand together at a level, on a thread of that level's priority, over the event log.
//!
//! A lane follows the log by itself. So nothing that a query reads is ever replaced or shed on the way (rule G7), late and
//! duplicate are what the log says they are (E4), and after a restart the same log gives the same matches: the lane goes
//! through it again from where its queries hold nothing older (restart.rs), and is silent up to where it had come before.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::event::{Id, Name, Row};
use crate::found::Match;
use crate::json::{self, Fault, Json, Reading};
use crate::log::follower::From;
use crate::log::{Error, Follower, schema};
use crate::matcher::{Budget, Matcher, Overflow};
use crate::record::{self, IdRef, Record, Schema};
use crate::service::derived::{Announced, Unlogged};
use crate::service::knowing::{Coming, Update};
use crate::service::matches::{Delivery, Matches};
use crate::service::reads::{Read, Reads};
use crate::service::restart::{Marks, Point};
use crate::service::scheduling::{LevelPolicy, adopt, now};
use crate::service::store::{RECOVERED, RELATIVE, STALE};
use crate::standing::Standing;
use crate::steady;
use crate::value::Val;

const COMMITTED_EVERY: Duration = Duration::from_secs(1);
/// So long it waits for the log before it looks at the clock.
const PATIENCE: Duration = Duration::from_millis(5);
/// So many events of a group are remembered that came with the end of their validity.
const ENDS: usize = 1 << 16;
/// So often it looks whether what it asked for was brought back.
const RESTORED_EVERY: Duration = Duration::from_millis(100);
/// A real-time thread rests for the rest of such a period when it has used its share: see scheduling.rs.
const PERIOD: Duration = Duration::from_millis(10);

/// A query of a lane.
#[derive(Debug)]
struct QuerySpec {
    plan: String,
    limit: Option<usize>,
    /// VALID, in microseconds.
    valid: Option<i64>,
    sheds: bool,
    /// ALIGN: names of variables, and how far apart their events may be, in microseconds.
    align: Vec<(Vec<String>, i64)>,
    /// Whether its matches are events of the log too.
    is_read: bool,
    /// What it is known by beside the log.
    key: String,
    /// What was found up to here was delivered before.
    read: Read,
    /// The version of the knowledge by which its PATHs are judged in the beginning; 0: it has none.
    knowledge: u64,
    /// By what they are judged later, from offsets of the log on.
    later: Vec<(u64, Update)>,
}

#[derive(Clone, Debug)]
struct StreamSpec {
    name: String,
    lateness: i64,
    idle: Option<i64>,
    valid_for: Option<i64>,
    /// Whether it is derived: then its watermark is announced, and it never follows the clock.
    is_derived: bool,
}

/// A level's queries, as src/cepheid/service/lowering.py writes them.
#[derive(Debug)]
pub struct LaneSpec {
    /// The rank of the level.
    pub level: usize,
    /// Under this name it is written down, beside the log, how far its queries have come.
    consumer: String,
    /// Whether what the log forgets is in an archive.
    is_archived: bool,
    queries: Vec<QuerySpec>,
    streams: Vec<StreamSpec>,
}

impl LaneSpec {
    /// Reads it.
    pub fn read(text: &str) -> Result<LaneSpec, Fault> {
        let json = json::parse(text)?;
        let aligned = |item: &Json| {
            let variables = item.member("variables")?.each(|name| Ok(name.text()?.to_owned()))?;
            Ok((variables, item.member("within")?.int()?))
        };
        let mut number = 0..;
        let query = |item: &Json| {
            let number = number.next().unwrap_or_default();
            Ok(QuerySpec {
                plan: item.member("plan")?.text()?.to_owned(),
                limit: item.member("limit")?.optional(Json::index)?,
                valid: item.member("valid")?.optional(Json::int)?,
                sheds: item.member("stale")?.text()? == "shed",
                align: item.member("align")?.each(aligned)?,
                is_read: item.member("read")?.bool()?,
                key: item.member("key")?.text()?.to_owned(),
                read: Read {
                    offset: item.member("silent")?.member("offset")?.index()? as u64,
                    watermark: item.member("silent")?.member("watermark")?.int()?,
                },
                knowledge: item.member("knowledge")?.index()? as u64,
                later: item.member("later")?.each(|update| Update::read(number, update))?,
            })
        };
        let stream = |item: &Json| {
            Ok(StreamSpec {
                name: item.member("name")?.text()?.to_owned(),
                lateness: item.member("lateness")?.int()?,
                idle: item.member("idle")?.optional(Json::int)?,
                valid_for: item.member("valid_for")?.optional(Json::int)?,
                is_derived: item.member("derived")?.bool()?,
            })
        };
        Ok(LaneSpec {
            level: json.member("level")?.index()?,
            consumer: json.member("consumer")?.text()?.to_owned(),
            is_archived: json.member("archived")?.bool()?,
            queries: json.member("queries")?.each(query)?,
            streams: json.member("streams")?.each(stream)?,
        })
    }
}

/// A lane at work; it ends when it is dropped.
#[derive(Debug)]
pub struct Lane {
    /// By query.
    pub matches: Arc<Vec<Matches>>,
    /// By query, what the log is to have; nothing of those that nobody reads.
    pub unlogged: Arc<Vec<Unlogged>>,
    /// By query, whether it was taken out.
    removed: Arc<Vec<AtomicBool>>,
    /// What comes to be known.
    pub coming: Arc<Coming>,
    /// By query, the version of the knowledge that is in force; 0: it has no PATHs.
    pub versions: Arc<Vec<AtomicU64>>,
    /// By query, how many events had a value of which nothing is known.
    pub strangers: Arc<Vec<AtomicU64>>,
    /// The log's.
    pub folder: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why a lane could not begin.
#[derive(Debug)]
pub enum Refused {
    /// A plan is not right.
    Plan(Fault),
    /// The log can't be read.
    Log(Error),
}

impl Lane {
    /// Begins to follow the log in a folder.
    pub fn start(
        mut spec: LaneSpec,
        policy: LevelPolicy,
        folder: PathBuf,
        announced: Arc<Announced>,
    ) -> Result<Lane, Refused> {
        let mut groups = groups(&spec).map_err(Refused::Plan)?;
        let plans = groups.iter().flat_map(|group| {
            let numbered = group.queries.iter().enumerate();
            numbered.map(|(place, number)| (&**group.standing.plan(place), spec.queries[*number].limit.is_some()))
        });
        let marks = Marks::new(plans, &folder, &spec.consumer);
        let end = Follower::open(&folder, From::End, false)
            .map_err(Refused::Log)?
            .offset();
        // What the log has lost with its machine, because it was not safe yet, comes anew from those who sent it.
        for query in &mut spec.queries {
            if query.read.offset > end {
                query.read = Read {
                    offset: end,
                    watermark: i64::MIN,
                };
            }
        }
        let point = marks.read().filter(|point| point.offset <= end);
        // What new queries do not find is not their loss.
        let had_read = spec.queries.iter().any(|query| query.read != Read::default());
        let is_needed = point.is_some() || had_read;
        let begin = point.unwrap_or_default();
        let mut follower = Follower::open(&folder, From::First, false).map_err(Refused::Log)?;
        if begin.offset >= follower.offset() || (is_needed && spec.is_archived) {
            match follower.seek(begin.offset) {
                Ok(()) | Err(Error::Gone { .. }) => {} // then it is asked for
                Err(error) => return Err(Refused::Log(error)),
            }
        } else if is_needed {
            eprintln!(
                "{}: the events of offsets {} to {} are not in the log any more, and there is no archive: what they \
                 would have matched is lost",
                spec.consumer,
                begin.offset,
                follower.offset() - 1
            );
        }
        for clock in groups.iter_mut().flat_map(|group| &mut group.clocks) {
            let known = begin.streams.iter().find(|(name, _)| *name == clock.stream.name);
            clock.greatest = known.map_or(i64::MIN, |(_, time)| *time);
        }
        let known = spec.queries.iter().map(|query| (query.key.clone(), query.read));
        let reads = Reads::new(known.collect(), &folder, &spec.consumer);
        let is_loud = spec.queries.iter().map(|query| query.read == Read::default()).collect();
        let matches: Arc<Vec<Matches>> = Arc::new(spec.queries.iter().map(|_| Matches::default()).collect());
        let unlogged: Arc<Vec<Unlogged>> = Arc::new(spec.queries.iter().map(|_| Unlogged::default()).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let removed: Arc<Vec<AtomicBool>> = Arc::new(spec.queries.iter().map(|_| AtomicBool::new(false)).collect());
        let versions: Arc<Vec<AtomicU64>> =
            Arc::new(spec.queries.iter().map(|q| AtomicU64::new(q.knowledge)).collect());
        let strangers: Arc<Vec<AtomicU64>> = Arc::new(spec.queries.iter().map(|_| AtomicU64::new(0)).collect());
        let mut later: Vec<(u64, Update)> = spec
            .queries
            .iter_mut()
            .flat_map(|query| query.later.drain(..))
            .collect();
        later.sort_by_key(|(from, _)| *from); // of one query they keep their order
        let coming = Arc::new(Coming::with(later));
        let mut running = Running {
            spec,
            policy,
            folder: folder.clone(),
            coming: Arc::clone(&coming),
            versions: Arc::clone(&versions),
            strangers: Arc::clone(&strangers),
            removed: Arc::clone(&removed),
            follower,
            groups,
            matches: Arc::clone(&matches),
            unlogged: Arc::clone(&unlogged),
            stop: Arc::clone(&stop),
            reads,
            is_loud,
            began: now(),
            end,
            arrived: None,
            is_wanting: false,
            told: None,
            marks,
            announced,
            announced_from: end,
            layouts: Vec::new(),
            generation: None,
        };
        let thread = thread::Builder::new()
            .name("cep-lane".into())
            .spawn(move || running.run());
        let thread = thread.map_err(|error| Refused::Log(Error::Io("start a thread for", PathBuf::new(), error)))?;
        Ok(Lane {
            matches,
            unlogged,
            removed,
            coming,
            versions,
            strangers,
            folder,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends it, and waits until it has.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Takes a query out: it finds nothing more, and who reads it comes to an end. Whether the lane has others left.
    pub fn remove(&self, number: usize) -> bool {
        self.removed[number].store(true, Ordering::SeqCst);
        self.matches[number].end();
        self.unlogged[number].end();
        self.removed.iter().any(|removed| !removed.load(Ordering::SeqCst))
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Queries that read the same streams, and so have one watermark.
struct Group {
    standing: Standing,
    /// By place in `standing`, the query's number.
    queries: Vec<usize>,
    /// By place in `standing`.
    clocks: Vec<Clock>,
    /// By number of the stream in the log: its place here, and where its attributes are.
    places: Vec<Option<(u16, Vec<Option<usize>>)>>,
    /// By query of `queries`, its ALIGNs: the places of their variables, and how far apart their events may be.
    align: Vec<Vec<(Vec<usize>, i64)>>,
    /// The last watermark that they advanced to.
    watermark: i64,
    /// When the validity of events ends that came with that; the newest ones.
    ends: BTreeMap<Name, i64>,
}

/// How far a stream has come.
struct Clock {
    stream: StreamSpec,
    greatest: i64,
    heard: Instant,
    /// The last watermark that was announced of a derived stream.
    announced: i64,
}

impl Clock {
    /// The stream's watermark (rule E5).
    fn watermark(&self, idle_counts: bool) -> i64 {
        let seen = self.greatest.saturating_sub(self.stream.lateness).max(self.announced);
        match self.stream.idle {
            Some(idle)
                if idle_counts
                    && !self.stream.is_derived
                    && self.heard.elapsed() >= Duration::from_micros(idle.unsigned_abs()) =>
            {
                // At the distance of `idle`: what is not heard of for that long is not on its way. And what a watermark
                // has passed is decided, so that a clock that steps is not followed at once.
                seen.max(steady::now().saturating_sub(idle).saturating_sub(self.stream.lateness))
            }
            _ => seen,
        }
    }
}

/// Matchers, with their queries' numbers.
type Numbered = Vec<(usize, Matcher)>;

fn groups(spec: &LaneSpec) -> Result<Vec<Group>, Fault> {
    let mut found: Vec<(Vec<String>, Numbered)> = Vec::new();
    for (number, query) in spec.queries.iter().enumerate() {
        let budget = query.limit.map(|events| Budget {
            events,
            overflow: Overflow::ShedOldest,
        });
        let mut matcher = Matcher::new(&query.plan, budget)?;
        matcher.make_eager();
        let streams: Vec<String> = matcher.plan().streams.iter().map(|s| s.name.to_string()).collect();
        match found.iter_mut().find(|(known, _)| *known == streams) {
            Some((_, queries)) => queries.push((number, matcher)),
            None => found.push((streams, vec![(number, matcher)])),
        }
    }
    let group = |(_, queries): (Vec<String>, Numbered)| {
        let (queries, matchers): (Vec<usize>, Vec<Matcher>) = queries.into_iter().unzip();
        let standing = Standing::new(matchers);
        let clock = |stream: &crate::lookup::Stream| Clock {
            stream: spec
                .streams
                .iter()
                .find(|known| known.name == stream.name)
                .cloned()
                .unwrap_or(StreamSpec {
                    name: stream.name.clone(),
                    lateness: 0,
                    idle: None,
                    valid_for: None,
                    is_derived: false,
                }),
            greatest: i64::MIN,
            heard: Instant::now(),
            announced: i64::MIN,
        };
        let clocks = standing.streams().iter().map(clock).collect();
        let align = queries.iter().enumerate().map(|(place, number)| {
            let variables = &standing.plan(place).variables;
            let place = |name: &String| variables.iter().position(|variable| *variable.name == **name);
            let each = spec.queries[*number].align.iter();
            each.map(|(names, within)| (names.iter().filter_map(place).collect(), *within))
                .collect()
        });
        Group {
            align: align.collect(),
            watermark: i64::MIN,
            standing,
            queries,
            clocks,
            places: Vec::new(),
            ends: BTreeMap::new(),
        }
    };
    Ok(found.into_iter().map(group).collect())
}

/// A record as a group sees it.
struct Seen<'r> {
    record: &'r Record<'r>,
    stream: u16,
    slots: &'r [Option<usize>],
}

impl Row for Seen<'_> {
    fn time(&self) -> i64 {
        self.record.time()
    }

    fn stream(&self) -> u16 {
        self.stream
    }

    fn id(&self) -> Val<'_> {
        Row::id(self.record)
    }

    fn value(&self, slot: usize) -> Val<'_> {
        match self.slots.get(slot) {
            Some(Some(slot)) => self.record.get(*slot),
            _ => Val::Null,
        }
    }
}

struct Running {
    spec: LaneSpec,
    policy: LevelPolicy,
    folder: PathBuf,
    coming: Arc<Coming>,
    versions: Arc<Vec<AtomicU64>>,
    strangers: Arc<Vec<AtomicU64>>,
    removed: Arc<Vec<AtomicBool>>,
    follower: Follower,
    groups: Vec<Group>,
    matches: Arc<Vec<Matches>>,
    unlogged: Arc<Vec<Unlogged>>,
    stop: Arc<AtomicBool>,
    reads: Reads,
    /// By query, whether all that it finds now is new to who reads it.
    is_loud: Vec<bool>,
    /// When the lane began, microseconds; and where the log ended then. What came before that is recovered.
    began: i64,
    end: u64,
    /// When the batch that was read last came to the log.
    arrived: Option<i64>,
    /// Whether it has asked for what the log has no longer.
    is_wanting: bool,
    /// Of which offset it was said last that it is missing.
    told: Option<u64>,
    marks: Marks,
    announced: Arc<Announced>,
    /// What was derived before this lane began is in the log up to here.
    announced_from: u64,
    layouts: Vec<Schema>,
    generation: Option<u64>,
}

impl Running {
    fn run(&mut self) {
        let _ = adopt(self.policy.worker);
        let mut committed = Instant::now();
        let mut period = Instant::now();
        let mut busy = Duration::ZERO;
        while !self.stop.load(Ordering::SeqCst) {
            let mut waiting = self.unlogged.iter().enumerate();
            if waiting.any(|(number, unlogged)| unlogged.is_full() && !self.is_removed(number)) || self.is_ahead() {
                thread::sleep(PATIENCE);
                continue;
            }
            self.let_go();
            let began = Instant::now();
            let went_on = match self.follow() {
                Err(Error::Gone { first, .. }) => {
                    self.want(first);
                    continue;
                }
                followed => followed.unwrap_or(false),
            };
            busy += began.elapsed();
            if !went_on {
                self.advance(None);
                let _ = self.follower.wait(PATIENCE);
            }
            if committed.elapsed() >= COMMITTED_EVERY {
                self.commit();
                committed = Instant::now();
            }
            self.rest(&mut period, &mut busy);
        }
        // What was read up to the end is read: who ends in order has written it to its sockets.
        self.commit();
        self.commit();
        if self.is_wanting {
            let _ = fs::remove_file(self.wanted());
        }
        self.matches.iter().for_each(Matches::end);
        self.unlogged.iter().for_each(Unlogged::end);
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

    /// A real-time thread leaves some time to others, so that Linux never stops all of them.
    fn rest(&self, period: &mut Instant, busy: &mut Duration) {
        let passed = period.elapsed();
        if passed >= PERIOD {
            (*period, *busy) = (Instant::now(), Duration::ZERO);
        } else if let Some(share) = self.policy.share
            && busy.as_micros() * 1000 > PERIOD.as_micros() * u128::from(share)
        {
            thread::sleep(PERIOD - passed);
        }
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
        let now = now();
        // What came before the lane began would have been found then.
        let delay = self
            .arrived
            .filter(|came| *came < self.began)
            .map(|came| now.saturating_sub(came).max(0));
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
                if let Some(arrival) = arrival {
                    let microseconds = u64::try_from(now - arrival).unwrap_or(0);
                    self.matches[number].latency.record(microseconds * 1_000);
                }
                let delivery = Arc::new(Delivery {
                    found,
                    end,
                    marks,
                    delay,
                    knowledge: (version > 0).then_some(version),
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
                let is_read = self.matches[*number].is_read() && self.unlogged[*number].is_empty();
                let watermark = group.watermark;
                self.reads.pass(*number, is_read.then_some(Read { offset, watermark }));
            }
        }
        // Without these a restart takes longer, and says more again.
        let _ = self.reads.write(|number| self.removed[number].load(Ordering::Relaxed));
        let _ = self.mark();
    }

    /// Remembers this point of the log.
    fn mark(&mut self) -> std::io::Result<()> {
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
        self.marks.pass(point, watermark, holds_nothing)
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

impl Group {
    /// Finds the streams of this group among the log's.
    fn place(&mut self, streams: &[schema::StreamSchema]) {
        let of = |stream: &schema::StreamSchema| {
            let own = self.standing.streams();
            let place = own.iter().position(|known| known.name == stream.name)?;
            let slot = |name: &String| stream.attributes.iter().position(|(known, _)| known == name);
            Some((place as u16, own[place].attributes.iter().map(slot).collect()))
        };
        self.places = streams.iter().map(of).collect();
    }

    fn push(&mut self, record: &Record<'_>) {
        let Some(Some((stream, slots))) = self.places.get(usize::from(record.stream())) else {
            return;
        };
        let clock = &mut self.clocks[usize::from(*stream)];
        clock.greatest = clock.greatest.max(record.time());
        clock.heard = Instant::now();
        if let Some(end) = record::end(record.bytes()) {
            let id = match record.id() {
                IdRef::Int(id) => Id::Int(id),
                IdRef::Text(id) => Id::Str(id.into()),
            };
            let name = Name {
                time: record.time(),
                stream: *stream,
                id,
            };
            self.ends.insert(name, end);
            if self.ends.len() > ENDS {
                self.ends.pop_first();
            }
        }
        self.standing.push(&Seen {
            record,
            stream: *stream,
            slots,
        });
    }
}
