//! What an engine derives and queries read goes into its log (rule G7): a thread a derived stream takes what an operator or a query
//! gives and pushes it to the intake. src/cepheid/service/derived.py says which streams those are.
//!
//! None is lost on the way: what was found stays with its lane until the log has it, and the feeder says that it is done with
//! an offset only when the log has what came of it (feeder.rs).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::digest::hex;
use crate::found_columns::Names;
use crate::json::{Fault, Json, Reading};
use crate::log::StreamSchema;
use crate::plan::Plan;
use crate::record::{self, Encoder, IdRef, Schema};
use crate::service::books::Fate;
use crate::service::derived::{Announced, TO_LOG, Unlogged};
use crate::service::engine::Shared;
use crate::service::feeder::Fed;
use crate::service::matches::Delivery;
use crate::service::parts::Consumer;
use crate::service::scheduling::{Busy, LevelPolicy, adopt, monotonic, sleep_until};
use crate::service::supplier::{MOST, Supplier};
use crate::steady;

/// So many are pushed at once, or so many bytes.
const MANY: usize = 1024;
const MUCH: usize = 1 << 20;
/// So many bytes may wait to be acknowledged.
const WINDOW: usize = 4 << 20;
/// So long it waits before it looks at the time and whether it is to end.
const PATIENCE: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_millis(1);

/// A stream that a derived one comes from.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    lateness: i64,
    idle: Option<i64>,
}

/// A derived stream.
#[derive(Clone, Debug)]
pub struct DerivedSpec {
    /// What it is in the log.
    pub stream: StreamSchema,
    /// Whether an operator gives it, or a query.
    pub is_operators: bool,
    sources: Vec<Source>,
}

impl DerivedSpec {
    /// Those of a job, as src/cepheid/service/derived.py writes them.
    pub fn read(json: &Json) -> Result<Vec<DerivedSpec>, Fault> {
        let source = |item: &Json| {
            Ok(Source {
                name: item.member("name")?.text()?.to_owned(),
                lateness: item.member("lateness")?.int()?,
                idle: item.member("idle")?.optional(Json::int)?,
            })
        };
        let attribute = |item: &Json| {
            let pair = item.each(|text| Ok(text.text()?.to_owned()))?;
            match <[String; 2]>::try_from(pair) {
                Ok([name, kind]) => Ok((name, kind)),
                Err(_) => crate::json::fault("an attribute is a name and a type"),
            }
        };
        json.each(|item| {
            Ok(DerivedSpec {
                stream: StreamSchema {
                    name: item.member("name")?.text()?.to_owned(),
                    attributes: item.member("attributes")?.each(attribute)?,
                },
                is_operators: item.member("operator")?.bool()?,
                sources: item.member("sources")?.each(source)?,
            })
        })
    }
}

/// Who gives a derived stream.
#[derive(Clone)]
pub enum Origin {
    /// An operator: what it gives waits at a consumer of its.
    Operator(Arc<Consumer>),
    /// A query, by its number in its lane.
    Query {
        /// Its lane's.
        unlogged: Arc<Vec<Unlogged>>,
        /// Its number there.
        number: usize,
        /// What was compiled.
        plan: Arc<Plan>,
        /// What its values are called.
        names: Arc<Names>,
    },
}

impl Origin {
    /// Whether both are the same part, and not one of the same name.
    fn is(&self, other: &Origin) -> bool {
        match (self, other) {
            (Origin::Operator(one), Origin::Operator(other)) => Arc::ptr_eq(one, other),
            (
                Origin::Query { unlogged, number, .. },
                Origin::Query {
                    unlogged: others,
                    number: place,
                    ..
                },
            ) => Arc::ptr_eq(unlogged, others) && number == place,
            _ => false,
        }
    }
}

/// What the threads of all derived streams are told.
pub struct Surroundings {
    /// The engine's.
    pub shared: Arc<Shared>,
    /// How far derived streams have come.
    pub announced: Arc<Announced>,
    /// What the log's streams have come to.
    pub fed: Arc<Fed>,
    /// Where the intake is.
    pub address: String,
    /// What it asks for.
    pub token: Option<String>,
}

/// A derived stream's thread. It ends when its origin was removed and the log has what came of it, or is stopped.
pub struct Supply {
    origin: Origin,
    /// When it is to end at the latest, in nanoseconds of the monotonic clock; 0: nobody has said.
    until: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Supply {
    /// Begins.
    pub fn start(
        spec: DerivedSpec,
        origin: Origin,
        around: &Arc<Surroundings>,
        policy: LevelPolicy,
    ) -> Result<Supply, String> {
        let schema = spec.stream.layout(0)?;
        let until = Arc::new(AtomicU64::new(0));
        let mut supplying = Supplying {
            supplier: Supplier::new(around.address.clone(), around.token.clone(), spec.stream.clone()),
            around: Arc::clone(around),
            until: Arc::clone(&until),
            began: Instant::now(),
            records: Vec::new(),
            skipped: 0,
            has_said_lost: false,
            encoder: Encoder::new(),
            spec,
            schema,
            policy,
            busy: Busy::default(),
        };
        let own = origin.clone();
        let thread = thread::Builder::new().name("cep-supply".to_owned());
        let thread = thread
            .spawn(move || supplying.run(&own))
            .map_err(|error| error.to_string())?;
        Ok(Supply { origin, until, thread })
    }

    /// Whether it brings what an origin gives.
    pub fn is_of(&self, origin: &Origin) -> bool {
        self.origin.is(origin) && !self.thread.is_finished()
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Nothing more will come: it ends once the log has what there is, or after so long.
    pub fn end(&self, patience: Duration) {
        self.until
            .store(monotonic() + patience.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Waits until it has ended.
    pub fn join(self) {
        let _ = self.thread.join();
    }
}

/// Whether an end of validity can be said: what ends later than any time does not end.
fn is_instant(end: &i64) -> bool {
    (record::MIN_INSTANT..=record::MAX_INSTANT).contains(end)
}

struct Supplying {
    spec: DerivedSpec,
    schema: Schema,
    around: Arc<Surroundings>,
    supplier: Supplier,
    until: Arc<AtomicU64>,
    began: Instant,
    records: Vec<u8>,
    /// Events that no frame can hold.
    skipped: u64,
    has_said_lost: bool,
    encoder: Encoder,
    policy: LevelPolicy,
    busy: Busy,
}

impl Supplying {
    fn run(&mut self, origin: &Origin) {
        // What is ready never waits for what is not, as with those who deliver.
        let _ = adopt(self.policy.delivery);
        match origin {
            Origin::Operator(way) => self.outputs(way),
            Origin::Query {
                unlogged,
                number,
                plan,
                names,
            } => self.matches(&unlogged[*number], plan, names),
        }
    }

    /// Whether it is to end, with or without what waits.
    fn is_ending(&self) -> bool {
        self.until.load(Ordering::SeqCst) > 0
    }

    fn flush(&mut self, left: usize) -> bool {
        let until = Arc::clone(&self.until);
        let give_up = move || {
            let until = until.load(Ordering::SeqCst);
            until > 0 && monotonic() >= until
        };
        self.supplier.flush(left, &give_up)
    }

    /// Leaves time for threads that are not real-time.
    fn rest(&mut self) {
        if let Some(share) = self.policy.share
            && let Some(until) = self.busy.account(share, monotonic())
        {
            sleep_until(until);
            self.busy.begin(share, monotonic());
        }
    }

    fn outputs(&mut self, way: &Consumer) {
        let mut announced = None;
        loop {
            let is_ending = self.is_ending() || way.closed.get().is_some();
            if self.push_outputs(way, if is_ending { Duration::ZERO } else { PATIENCE }) {
                continue;
            }
            self.supplier.hear();
            self.note(way);
            if is_ending {
                break;
            }
            if self.around.shared.is_stopping() {
                thread::sleep(SOON); // nobody waits at its queue any more
                continue;
            }
            // What the streams have come to first; then, if all that came of it is logged, this one has come there too.
            let watermark = self.watermark();
            if watermark.is_none() || watermark == announced || !self.around.shared.settle(PATIENCE) {
                continue;
            }
            while self.push_outputs(way, Duration::ZERO) {}
            if self.flush(0)
                && let Some(watermark) = watermark
            {
                self.note(way);
                self.announce(watermark);
                announced = Some(watermark);
            }
        }
        self.flush(0);
        self.note(way);
    }

    /// Pushes what an operator has given, waiting so long for the first of it; whether there was something.
    fn push_outputs(&mut self, way: &Consumer, mut patience: Duration) -> bool {
        let around = Arc::clone(&self.around);
        let shared = &*around.shared;
        let mut count = 0;
        self.records.clear();
        while count < MANY
            && self.records.len() < MUCH
            && let Some((token, marks)) = shared.read(way, Some(patience))
        {
            if count == 0 {
                self.busy.begin(self.policy.share.unwrap_or(0), monotonic());
            }
            let event = shared.store.read(&token);
            let end = Some(event.head.end).filter(is_instant);
            if self.put_event(event.bytes, end, marks) {
                count += 1;
            }
            shared.store.release(token, Fate::Used);
            patience = Duration::ZERO;
        }
        if count > 0 {
            self.supplier.push(count as u64, &self.records);
            self.flush(WINDOW);
            self.supplier.hear();
            self.note(way);
            self.rest();
        }
        count > 0
    }

    /// Says how much of what an operator has given needs no care any more, and if some of it was lost: where a run gives
    /// more at once than can wait.
    fn note(&mut self, way: &Consumer) {
        way.logged
            .store(self.supplier.acknowledged + self.skipped, Ordering::SeqCst);
        let lost = way.book.lost.get();
        if lost > 0 && !self.has_said_lost {
            self.has_said_lost = true;
            let (name, most) = (&self.spec.stream.name, way.spec.capacity);
            eprintln!(
                "cepheid: '{name}' gave more than {most} events at once, which is all that can wait for the log: {lost} are lost; \
                 `lost` of the consumer '{TO_LOG}{name}' counts them"
            );
        }
    }

    /// Appends an event's record, of stream 0, with the end of its validity and its marks; whether a frame can hold it.
    fn put_event(&mut self, bytes: &[u8], end: Option<i64>, marks: u8) -> bool {
        if self.records.len() + bytes.len() + 8 > MOST {
            eprintln!(
                "cepheid: an event of '{}' has {} bytes, too many for the log",
                self.spec.stream.name,
                bytes.len()
            );
            self.skipped += 1;
            return false;
        }
        let at = self.records.len();
        self.records.extend_from_slice(bytes);
        let own = &mut self.records[at..];
        own[4..6].copy_from_slice(&0_u16.to_le_bytes());
        own[record::MARKS_AT] = marks & record::MARKS;
        if let Some(end) = end {
            own[..4].copy_from_slice(&(bytes.len() as u32 + 8).to_le_bytes());
            own[record::FLAGS_AT] |= record::ENDS;
            self.records.extend_from_slice(&end.to_le_bytes());
        }
        true
    }

    /// The least watermark of the streams that it comes from (rule E5); None while one of them has none.
    fn watermark(&self) -> Option<i64> {
        let heard = self.around.fed.heard.lock();
        let of = |source: &Source| {
            let known = heard.get(&source.name);
            let silence = known.map_or(self.began.elapsed(), |(_, heard)| heard.elapsed());
            let mut greatest = known.map(|(greatest, _)| *greatest);
            if let Some(idle) = source.idle
                && silence >= Duration::from_micros(idle.unsigned_abs())
            {
                greatest = greatest.max(Some(steady::now().saturating_sub(idle)));
            }
            Some(greatest?.saturating_sub(source.lateness))
        };
        self.spec.sources.iter().map(of).min()?
    }

    fn announce(&self, watermark: i64) {
        let name = &self.spec.stream.name;
        self.around.announced.announce(name, watermark, self.supplier.offset);
    }

    fn matches(&mut self, unlogged: &Unlogged, plan: &Plan, names: &Names) {
        let slot = |name: &String| self.spec.stream.attributes.iter().position(|(known, _)| known == name);
        let slots: Vec<Option<usize>> = names.outputs.iter().map(slot).collect();
        while let Some((found, watermark)) = unlogged.first(MANY, PATIENCE) {
            self.busy.begin(self.policy.share.unwrap_or(0), monotonic());
            let mut rest = &found[..];
            while !rest.is_empty() {
                let taken = self.push_matches(rest, plan, &slots);
                if !self.flush(0) {
                    return; // they are found again
                }
                unlogged.logged(taken);
                rest = &rest[taken..];
                self.rest();
            }
            if let Some(watermark) = watermark {
                self.announce(watermark);
            }
        }
    }

    /// Pushes the first of some matches, as many as a frame holds; how many.
    fn push_matches(&mut self, found: &[Arc<Delivery>], plan: &Plan, slots: &[Option<usize>]) -> usize {
        let (mut taken, mut count) = (0, 0);
        self.records.clear();
        for Delivery { found, end, marks, .. } in found.iter().map(|one| &**one) {
            self.encoder.clear();
            let id = hex(&found.id(plan));
            let started = self.encoder.start(&self.schema, found.time, IdRef::Text(&id));
            let values = slots.iter().zip(&found.select);
            let built = started.and_then(|()| {
                for (slot, value) in values {
                    if let Some(slot) = slot {
                        self.encoder.set(&self.schema, *slot, &value.view())?;
                    }
                }
                self.encoder.limit(end.filter(is_instant), *marks & record::MARKS)
            });
            let bytes = self.encoder.finish();
            match built {
                Err(fault) => {
                    let name = &self.spec.stream.name;
                    eprintln!("cepheid: match {id} of '{name}' does not come into the log: {fault}");
                }
                Ok(()) if bytes.len() > MOST => {
                    let (name, length) = (&self.spec.stream.name, bytes.len());
                    eprintln!("cepheid: match {id} of '{name}' has {length} bytes, too many for the log");
                }
                Ok(()) if self.records.len() + bytes.len() > MOST => break,
                Ok(()) => {
                    self.records.extend_from_slice(bytes);
                    count += 1;
                }
            }
            taken += 1;
        }
        if count > 0 {
            self.supplier.push(count, &self.records);
        }
        taken
    }
}
