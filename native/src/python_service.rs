//! The service for Python. Its types are in src/cepheid/_native.pyi.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyMapping, PyTuple};

use crate::digest::hex;
use crate::found::Match;
use crate::found_columns::Names;
use crate::json::{Fault, Json};
use crate::known::read_entries;
use crate::machine;
use crate::plan::Plan;
use crate::python::guard;
use crate::python_operator::PythonFunction;
use crate::python_record::{self, Builder};
use crate::python_shown::Shown;
use crate::record::{Record, Schema};
use crate::service::books::Fate;
use crate::service::change::Changed;
use crate::service::derived::{Announced, TO_LOG, Unlogged};
use crate::service::engine::{Accepted, Engine, Shared};
use crate::service::feed::{ConsumerFeed, MatchFeed};
use crate::service::feeder::{Feeder, Relay};
use crate::service::knowing::{self, Update};
use crate::service::lane::{Lane, LaneSpec, Refused};
use crate::service::matches::Matches;
use crate::service::operators::{Given, Process, foreign};
use crate::service::outlet::Directory;
use crate::service::parts::Consumer;
use crate::service::queue_costs::{Cost, measure};
use crate::service::report::{engine_report, engine_trace, matches_report};
use crate::service::scheduling::{LevelPolicy, now, policies};
use crate::service::spec::{ConsumerSpec, Spec};
use crate::service::store::{Event, Head};
use crate::service::virtual_clock::VirtualClock;

/// consumer, id, time, attributes, end of validity, labels
type Delivered<'py> = (
    String,
    Bound<'py, PyAny>,
    i64,
    Bound<'py, PyDict>,
    Option<i64>,
    Vec<&'static str>,
);

fn refused(fault: Fault) -> PyErr {
    PyValueError::new_err(fault.to_string())
}

fn stream_named(spec: &Spec, name: &str) -> PyResult<usize> {
    let found = spec.streams.iter().position(|stream| stream.name == name);
    found.ok_or_else(|| PyKeyError::new_err(format!("the service reads no stream '{name}'")))
}

/// An event for Python: of a consumer, from a ring whose records have those attributes and that schema.
fn delivered<'py>(
    py: Python<'py>,
    consumer: &str,
    (attributes, schema): (&[String], &Schema),
    event: &Event<'_>,
    head: &Head,
) -> PyResult<Delivered<'py>> {
    // SAFETY: as for the inputs of operators, what is in a ring fits its producer's schema.
    let record = unsafe { Record::trusted(event.bytes, schema) };
    Ok((
        consumer.to_owned(),
        python_record::id(py, &record)?,
        record.time(),
        python_record::attributes(py, &record, attributes)?,
        (head.end != i64::MAX).then_some(head.end),
        python_record::labels(head.marks),
    ))
}

/// The operators that the program gives: Python functions, and functions by their addresses.
fn given(spec: &Spec, functions: HashMap<String, Py<PyAny>>, addresses: HashMap<String, usize>) -> PyResult<Given> {
    let mut given = Given::new();
    for operator in &spec.operators {
        let process: Box<dyn Process> = if let Some(function) = functions.get(&operator.name) {
            let function = Python::attach(|py| function.clone_ref(py));
            Box::new(PythonFunction::new(function, operator, spec))
        } else if let Some(address) = addresses.get(&operator.name) {
            let pointer = *address as *const std::ffi::c_void;
            if pointer.is_null() {
                return Err(PyValueError::new_err(format!("'{}' is at address 0", operator.name)));
            }
            // SAFETY: whoever gives an address says that a function of this signature is there (docs/operators.md).
            let function: foreign::Function = unsafe { std::mem::transmute(pointer) };
            let attributes = operator.inputs.iter().map(|input| spec.attributes(*input).len());
            // SAFETY: the same.
            Box::new(unsafe { foreign::Foreign::new(function, attributes.collect(), operator.schema.kinds.to_vec()) })
        } else {
            continue;
        };
        given.insert(operator.name.clone(), process);
    }
    Ok(given)
}

/// A graph on the virtual clock.
#[pyclass(name = "VirtualClock", module = "cepheid._native")]
pub struct PyVirtualClock(Mutex<VirtualClock>);

/// Waits without the GIL, which the holder may need to go on: building records and operators can run Python code. A panic
/// under the lock leaves what is valid at every step, so that the next call may go on.
fn lock<'m, T>(py: Python<'_>, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
    mutex.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Each supplier's thread builds records in buffers of its own.
    static BUILDER: RefCell<Builder> = RefCell::default();
}

/// Runs `f` with this thread's builder, or with a fresh one where a mapping's own code pushes an event while it is read.
fn with_builder<T>(f: impl FnOnce(&mut Builder) -> T) -> T {
    BUILDER.with(|builder| match builder.try_borrow_mut() {
        Ok(mut builder) => f(&mut builder),
        Err(_) => f(&mut Builder::default()),
    })
}

#[pymethods]
impl PyVirtualClock {
    /// For a spec of src/cepheid/service/lowering.py.
    #[new]
    #[pyo3(signature = (spec, functions=None, addresses=None))]
    fn new(
        spec: &str,
        functions: Option<HashMap<String, Py<PyAny>>>,
        addresses: Option<HashMap<String, usize>>,
    ) -> PyResult<Self> {
        guard(|| {
            let spec = Spec::read(spec).map_err(refused)?;
            let given = given(&spec, functions.unwrap_or_default(), addresses.unwrap_or_default())?;
            let clock = VirtualClock::new(spec, given).map_err(refused)?;
            Ok(PyVirtualClock(Mutex::new(clock)))
        })
    }

    /// A supplier's event arrives; it is not taken before `run`. False if it was refused.
    fn push(
        &self,
        py: Python<'_>,
        stream: &str,
        id: &Bound<'_, PyAny>,
        time: i64,
        attributes: &Bound<'_, PyMapping>,
    ) -> PyResult<bool> {
        guard(|| {
            let clock = &mut *lock(py, &self.0);
            let number = stream_named(clock.spec(), stream)?;
            with_builder(|builder| {
                let spec = &clock.spec().streams[number];
                let names = spec.attributes.clone();
                let bytes = builder.build(&spec.schema, &names, id, time, attributes)?;
                let pushed = clock.push(number, bytes);
                pushed.map_err(|fault| python_record::error(fault, &names))
            })
        })
    }

    /// The clock says `now`, and everything that can run does: what consumers receive.
    fn run<'py>(&self, py: Python<'py>, now: i64) -> PyResult<Vec<Delivered<'py>>> {
        guard(|| {
            let clock = &mut *lock(py, &self.0);
            let mut found = Vec::new();
            for delivery in clock.run(now) {
                let event = clock.store().read(&delivery.token);
                let (spec, consumer) = (clock.spec(), &clock.spec().consumers[delivery.consumer]);
                let records = (spec.attributes(consumer.input), spec.schema(consumer.input));
                let seen = delivered(py, &consumer.name, records, &event, &delivery.head);
                clock.store().release(delivery.token, Fate::Used);
                found.push(seen);
            }
            found.into_iter().collect()
        })
    }

    /// The books, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| Ok(lock(py, &self.0).report()))
    }
}

/// a match as a tuple, end of validity, labels, version of the knowledge
type Found<'py> = (Bound<'py, PyTuple>, Option<i64>, Vec<&'static str>, Option<u64>);

/// a query, its plan if that changes, and by table what is known of keys, as JSON
type Learned = (String, Option<String>, Vec<(usize, String)>);

/// matches as tuples, and the watermark behind them
type Derived<'py> = (Vec<Bound<'py, PyTuple>>, Option<i64>);

/// A query of a lane.
struct LaneQuery {
    lane: Arc<Lane>,
    matches: Arc<Vec<Matches>>,
    unlogged: Arc<Vec<Unlogged>>,
    number: usize,
    plan: Arc<Plan>,
    names: Arc<Names>,
    shown: Shown,
    policy: LevelPolicy,
}

/// A graph run by native threads.
#[pyclass(name = "Engine", module = "cepheid._native")]
pub struct PyEngine {
    engine: Engine,
    /// When it began, in microseconds.
    began: i64,
    /// What feeds it from a log, if something does.
    feeder: Mutex<Option<Feeder>>,
    /// How an intake in this process tells that.
    relay: Arc<Relay>,
    /// The lanes of queries, and for each query its lane, its number there, and its names.
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// How far derived streams have come.
    announced: Arc<Announced>,
    queries: Arc<Mutex<HashMap<String, LaneQuery>>>,
}

impl PyEngine {
    fn consumer_named(&self, name: &str) -> PyResult<Arc<Consumer>> {
        let graph = self.engine.shared().graph();
        let found = graph.parts.consumers.iter().find(|consumer| consumer.spec.name == name);
        found
            .cloned()
            .ok_or_else(|| PyKeyError::new_err(format!("the service has no consumer '{name}'")))
    }

    fn unlogged_of(&self, py: Python<'_>, query: &str) -> PyResult<(Arc<Vec<Unlogged>>, usize)> {
        let queries = lock(py, &self.queries);
        let known = queries.get(query);
        let known = known.ok_or_else(|| PyKeyError::new_err(format!("no query '{query}' runs here")))?;
        Ok((Arc::clone(&known.unlogged), known.number))
    }

    /// How the threads of a level run, by its rank.
    fn policy(&self, level: usize) -> PyResult<LevelPolicy> {
        let policy = level_policies(&self.engine.shared().graph().spec).get(level).copied();
        policy.ok_or_else(|| PyValueError::new_err(format!("there is no level {level}")))
    }

    /// Finds consumers and queries, for who delivers.
    pub(crate) fn directory(&self) -> Directory {
        let shared = self.engine.share();
        let queries = Arc::clone(&self.queries);
        let began = self.began;
        Box::new(move |name| {
            let graph = shared.graph();
            let consumers = &graph.spec.consumers;
            let is_open = |consumer: &&ConsumerSpec| !consumer.name.starts_with(TO_LOG);
            if !name.starts_with(TO_LOG)
                && let Some(place) = consumers.iter().position(|consumer| consumer.name == name)
            {
                let spec = &graph.spec;
                let input = consumers[place].input;
                let kinds = spec.schema(input).kinds.iter().map(|kind| kind.name());
                return Ok(Arc::new(ConsumerFeed {
                    shared: Arc::clone(&shared),
                    consumer: Arc::clone(&graph.parts.consumers[place]),
                    attributes: spec.attributes(input).iter().cloned().zip(kinds).collect(),
                    began: (input >= spec.streams.len()).then_some(began),
                    policy: level_policies(spec)[consumers[place].level],
                }));
            }
            let queries = queries.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(query) = queries.get(name) {
                return Ok(Arc::new(MatchFeed {
                    shared: Arc::clone(&shared),
                    matches: Arc::clone(&query.matches),
                    number: query.number,
                    plan: Arc::clone(&query.plan),
                    names: Arc::clone(&query.names),
                    policy: query.policy,
                }));
            }
            let mut known: Vec<&str> = queries.keys().map(String::as_str).collect();
            known.sort_unstable();
            let known: Vec<&str> = consumers
                .iter()
                .filter(is_open)
                .map(|c| c.name.as_str())
                .chain(known)
                .collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            Err(format!("there is no consumer '{name}'; there are: {known}"))
        })
    }
}

/// How the threads of each level run.
fn level_policies(spec: &Spec) -> Vec<LevelPolicy> {
    let real_time = spec.prioritised.then(|| machine::probe().sched_rr.ok()).flatten();
    policies(spec.levels.len(), spec.prioritised, real_time)
}

fn read<'py>(
    py: Python<'py>,
    shared: &Shared,
    consumer: &Consumer,
    timeout: Option<f64>,
) -> PyResult<Option<Delivered<'py>>> {
    let timeout = timeout.map(seconds).transpose()?;
    let Some((token, marks)) = py.detach(|| shared.read(consumer, timeout)) else {
        return Ok(None);
    };
    let graph = shared.graph();
    let event = shared.store.read(&token);
    let head = Head { marks, ..*event.head };
    // What is held has its producer in the graph, be it on the way out.
    let records = graph.records(token.ring());
    let records = records.ok_or_else(|| PyKeyError::new_err("the event's producer is gone"));
    let seen = records.and_then(|records| delivered(py, &consumer.spec.name, records, &event, &head));
    shared.store.release(token, Fate::Used);
    seen.map(Some)
}

/// The reading end of a consumer; it stays when the consumer is removed, until what waits is read.
#[pyclass(name = "Consumer", module = "cepheid._native")]
pub struct PyConsumer {
    shared: Arc<Shared>,
    consumer: Arc<Consumer>,
}

#[pymethods]
impl PyConsumer {
    /// The next event, waited for at most so many seconds (None: until the engine stops or the consumer is removed).
    #[pyo3(signature = (timeout=None))]
    fn read<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Delivered<'py>>> {
        guard(|| read(py, &self.shared, &self.consumer, timeout))
    }

    /// Whether nothing more will come.
    fn is_over(&self) -> bool {
        let closed = self.consumer.closed.get().is_some() || self.shared.is_stopping();
        closed && self.consumer.queue.is_empty()
    }
}

/// What a change did to parts of a kind: added, removed, changed and kept, by name.
type ChangedNames = (Vec<String>, Vec<String>, Vec<String>, Vec<String>);

fn names(changed: Changed) -> ChangedNames {
    (changed.added, changed.removed, changed.changed, changed.kept)
}

fn word(accepted: Accepted) -> &'static str {
    match accepted {
        Accepted::Yes => "accepted",
        Accepted::Duplicate => "duplicate",
        Accepted::Unread => "unread",
        Accepted::Full => "full",
        Accepted::Closed => "closed",
    }
}

fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| PyValueError::new_err("a time to wait is not negative"))
}

#[pymethods]
impl PyEngine {
    /// Starts the threads of a spec.
    #[new]
    #[pyo3(signature = (spec, functions=None, addresses=None))]
    fn new(
        py: Python<'_>,
        spec: &str,
        functions: Option<HashMap<String, Py<PyAny>>>,
        addresses: Option<HashMap<String, usize>>,
    ) -> PyResult<Self> {
        guard(|| {
            let spec = Spec::read(spec).map_err(refused)?;
            let given = given(&spec, functions.unwrap_or_default(), addresses.unwrap_or_default())?;
            let engine = py.detach(|| Engine::start(spec, given)).map_err(refused)?;
            Ok(PyEngine {
                engine,
                began: now(),
                feeder: Mutex::default(),
                relay: Arc::default(),
                lanes: Mutex::default(),
                announced: Arc::default(),
                queries: Arc::default(),
            })
        })
    }

    /// A supplier's event; what became of it.
    fn push(
        &self,
        stream: &str,
        id: &Bound<'_, PyAny>,
        time: i64,
        attributes: &Bound<'_, PyMapping>,
    ) -> PyResult<&'static str> {
        guard(|| {
            let shared = self.engine.shared();
            let known = {
                let graph = shared.graph();
                let number = stream_named(&graph.spec, stream)?;
                Arc::clone(&graph.parts.streams[number])
            };
            let spec = &known.spec;
            with_builder(|builder| {
                // Building may run Python code, which may take its time: so the graph is looked at after that.
                let bytes = builder.build(&spec.schema, &spec.attributes, id, time, attributes)?;
                let graph = shared.graph();
                let number = stream_named(&graph.spec, stream)?;
                let pushed = shared.push_to(&graph, &graph.parts.streams[number], &spec.schema, bytes);
                pushed
                    .map(word)
                    .map_err(|fault| python_record::error(fault, &spec.attributes))
            })
        })
    }

    /// Records that lie one behind another, as in rows of numpy or the log: how many were accepted, were duplicates, unread, found
    /// no room, or came when the engine had stopped.
    fn push_records(&self, py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<[usize; 5]> {
        guard(|| {
            // Copied before it is checked: nobody can change it in between.
            let bytes = PyBuffer::<u8>::get(records)?.to_vec(py)?;
            self.engine
                .push_all(&bytes)
                .map_err(|(at, fault)| PyValueError::new_err(format!("the record at byte {at}: {fault}")))
        })
    }

    /// The next event of a consumer, waited for at most so many seconds (None: until the engine stops).
    #[pyo3(signature = (consumer, timeout=None))]
    fn read<'py>(&self, py: Python<'py>, consumer: &str, timeout: Option<f64>) -> PyResult<Option<Delivered<'py>>> {
        guard(|| read(py, self.engine.shared(), &*self.consumer_named(consumer)?, timeout))
    }

    /// The reading end of a consumer.
    fn consumer(&self, name: &str) -> PyResult<PyConsumer> {
        guard(|| {
            Ok(PyConsumer {
                shared: self.engine.share(),
                consumer: self.consumer_named(name)?,
            })
        })
    }

    /// Goes on with another spec; operators in `renewed` are taken for others even if the specs say the same. What became of
    /// streams, operators, consumers and levels. A ValueError says why it can't, and then nothing has changed.
    #[pyo3(signature = (spec, functions=None, addresses=None, renewed=Vec::new()))]
    fn change(
        &self,
        py: Python<'_>,
        spec: &str,
        functions: Option<HashMap<String, Py<PyAny>>>,
        addresses: Option<HashMap<String, usize>>,
        renewed: Vec<String>,
    ) -> PyResult<HashMap<&'static str, ChangedNames>> {
        guard(|| {
            let spec = Spec::read(spec).map_err(refused)?;
            let given = given(&spec, functions.unwrap_or_default(), addresses.unwrap_or_default())?;
            let changes = py
                .detach(|| self.engine.change(spec, given, &renewed))
                .map_err(refused)?;
            Ok(HashMap::from([
                ("streams", names(changes.streams)),
                ("operators", names(changes.operators)),
                ("consumers", names(changes.consumers)),
                ("levels", names(changes.levels)),
            ]))
        })
    }

    /// The books and latencies, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| Ok(py.detach(|| engine_report(self.engine.shared()).to_string())))
    }

    /// The flight recorder's last moments, as JSON that Perfetto and Chrome read.
    fn trace(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| Ok(py.detach(|| engine_trace(self.engine.shared()))))
    }

    /// Begins the latencies and run times anew, as after a warm-up.
    fn reset_latencies(&self) {
        self.engine.reset_latencies();
    }

    /// What the engine has to say of the machine.
    fn notices(&self) -> Vec<String> {
        self.engine.shared().notices.clone()
    }

    /// Waits until nothing is left to do; false if that was not within so many seconds.
    fn settle(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        guard(|| {
            let timeout = seconds(timeout)?;
            Ok(py.detach(|| self.engine.settle(timeout)))
        })
    }

    /// Feeds it from the log in a folder, from where it last came to.
    fn follow(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        guard(|| {
            let shared = self.engine.share();
            let feeder = py.detach(|| Feeder::start(shared, folder, Arc::clone(&self.relay)));
            *lock(py, &self.feeder) = Some(feeder.map_err(|error| PyOSError::new_err(error.to_string()))?);
            Ok(())
        })
    }

    /// Runs queries of a level over the log in a folder: for each its name, its plan, and the names of its outputs and
    /// group values; `spec` says the rest (src/cepheid/service/lowering.py).
    fn start_lane(
        &self,
        py: Python<'_>,
        folder: PathBuf,
        spec: &str,
        queries: Vec<(String, String, Vec<String>, Vec<String>)>,
    ) -> PyResult<()> {
        guard(|| {
            let lane = LaneSpec::read(spec).map_err(refused)?;
            let level = lane.level;
            let policy = self.policy(level)?;
            let started = py.detach(|| Lane::start(lane, policy, folder, Arc::clone(&self.announced)));
            let lane = started.map_err(|error| match error {
                Refused::Plan(fault) => refused(fault),
                Refused::Log(error) => PyOSError::new_err(error.to_string()),
            })?;
            let lane = Arc::new(lane);
            for (number, (name, plan, outputs, groups)) in queries.into_iter().enumerate() {
                let plan = Plan::read(&plan).map_err(refused)?;
                let names = Names { outputs, groups };
                let query = LaneQuery {
                    lane: Arc::clone(&lane),
                    matches: Arc::clone(&lane.matches),
                    unlogged: Arc::clone(&lane.unlogged),
                    number,
                    shown: Shown::new(py, &plan, &names),
                    plan: Arc::new(plan),
                    names: Arc::new(names),
                    policy,
                };
                lock(py, &self.queries).insert(name, query);
            }
            lock(py, &self.lanes).push(lane);
            Ok(())
        })
    }

    /// Takes queries out of their lanes; a lane that has none left ends.
    fn remove_queries(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        guard(|| {
            for name in names {
                let Some(query) = lock(py, &self.queries).remove(&name) else {
                    continue;
                };
                if !query.lane.remove(query.number) {
                    let mut lanes = lock(py, &self.lanes);
                    lanes.retain(|lane| !Arc::ptr_eq(lane, &query.lane));
                    drop(lanes);
                    py.detach(|| drop(query.lane));
                }
            }
            Ok(())
        })
    }

    /// Queries are judged by another version of the knowledge, all from the same offset of the log on, which is given.
    fn learn(&self, py: Python<'_>, version: u64, learned: Vec<Learned>) -> PyResult<u64> {
        guard(|| {
            let queries = lock(py, &self.queries);
            let mut found: Vec<(Arc<Lane>, Vec<Update>)> = Vec::new();
            for (name, plan, tables) in learned {
                let Some(query) = queries.get(&name) else {
                    continue; // it was removed
                };
                let entries = |(table, text): (usize, String)| Ok((table, read_entries(&text)?));
                let update = Update {
                    query: query.number,
                    version,
                    plan: plan.map(|plan| Plan::read(&plan)).transpose().map_err(refused)?,
                    tables: tables
                        .into_iter()
                        .map(entries)
                        .collect::<Result<_, _>>()
                        .map_err(refused)?,
                };
                match found.iter_mut().find(|(lane, _)| Arc::ptr_eq(lane, &query.lane)) {
                    Some((_, updates)) => updates.push(update),
                    None => found.push((Arc::clone(&query.lane), vec![update])),
                }
            }
            drop(queries);
            let Some(folder) = found.first().map(|(lane, _)| lane.folder.clone()) else {
                return Ok(0);
            };
            let changing = lock(py, &self.lanes); // one at a time
            let updates = found
                .iter_mut()
                .map(|(lane, updates)| (&*lane.coming, std::mem::take(updates)));
            let from = knowing::put_in_force(&folder, updates.collect());
            drop(changing);
            from.map_err(|error| PyOSError::new_err(error.to_string()))
        })
    }

    /// By query with PATHs, the version of the knowledge by which the last event was judged.
    fn knowledge(&self, py: Python<'_>) -> HashMap<String, u64> {
        let queries = lock(py, &self.queries);
        let versions = queries.iter().map(|(name, query)| {
            let version = query.lane.versions[query.number].load(Ordering::Relaxed);
            (name.clone(), version)
        });
        versions.filter(|(_, version)| *version > 0).collect()
    }

    /// The next match of a query, as `Matcher.advance` gives them, with the end of its validity, its labels, and
    /// the version of the knowledge; waited for at most so many seconds (None: until the engine stops).
    #[pyo3(signature = (query, timeout=None))]
    fn read_match<'py>(&self, py: Python<'py>, query: &str, timeout: Option<f64>) -> PyResult<Option<Found<'py>>> {
        guard(|| {
            let timeout = timeout.map(seconds).transpose()?;
            let (matches, number) = {
                let queries = lock(py, &self.queries);
                let known = queries.get(query);
                let known = known.ok_or_else(|| PyKeyError::new_err(format!("no query '{query}' runs here")))?;
                (Arc::clone(&known.matches), known.number)
            };
            let Some(delivery) = py.detach(|| matches[number].next(timeout)) else {
                return Ok(None);
            };
            let queries = lock(py, &self.queries);
            let Some(known) = queries.get(query) else {
                return Ok(None);
            };
            let id = hex(&delivery.found.id(&known.plan));
            let tuple = known.shown.tuple(py, &delivery.found, &id)?;
            let labels = python_record::labels(delivery.marks);
            Ok(Some((tuple, delivery.end, labels, delivery.knowledge)))
        })
    }

    /// The first matches of a query that the log does not have yet, as `read_match` gives them, and its watermark if that is
    /// new and behind all of them; waited for at most so many seconds. None when the engine has stopped and the log has
    /// all. They stay until `logged`.
    fn unlogged<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        most: usize,
        patience: f64,
    ) -> PyResult<Option<Derived<'py>>> {
        guard(|| {
            let patience = seconds(patience)?;
            let (unlogged, number) = self.unlogged_of(py, query)?;
            let Some((found, watermark)) = py.detach(|| unlogged[number].first(most, patience)) else {
                return Ok(None);
            };
            let queries = lock(py, &self.queries);
            let Some(known) = queries.get(query) else {
                return Ok(None);
            };
            let tuple = |found: &Arc<Match>| known.shown.tuple(py, found, &hex(&found.id(&known.plan)));
            let rows = found.iter().map(tuple).collect::<PyResult<_>>()?;
            Ok(Some((rows, watermark)))
        })
    }

    /// The log has so many more matches of a query.
    fn logged(&self, py: Python<'_>, query: &str, count: usize) -> PyResult<()> {
        guard(|| {
            let (unlogged, number) = self.unlogged_of(py, query)?;
            unlogged[number].logged(count);
            Ok(())
        })
    }

    /// No event of a derived stream before this time comes at this offset of the log or behind it.
    fn announce(&self, stream: &str, watermark: i64, offset: u64) {
        self.announced.announce(stream, watermark, offset);
    }

    /// By stream that the log had events of: the greatest time seen, and for how many microseconds none has come.
    fn heard(&self, py: Python<'_>) -> HashMap<String, (i64, u64)> {
        let feeder = lock(py, &self.feeder);
        let heard = feeder.as_ref().map(|feeder| lock(py, &feeder.fed.heard).clone());
        let since = |heard: Instant| u64::try_from(heard.elapsed().as_micros()).unwrap_or(u64::MAX);
        let found = heard.into_iter().flatten();
        found
            .map(|(name, (greatest, heard))| (name, (greatest, since(heard))))
            .collect()
    }

    /// What became of the matches of each query, and their latencies; as JSON.
    fn query_stats(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| {
            let queries = lock(py, &self.queries);
            let books = queries
                .iter()
                .map(|(name, query)| (name.clone(), matches_report(&query.matches[query.number])));
            Ok(Json::Object(books.collect()).to_string())
        })
    }

    /// What became of the log's events: counts by outcome, the next offset, and what is wrong; None without a log.
    fn fed<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        guard(|| {
            let feeder = lock(py, &self.feeder);
            let Some(feeder) = feeder.as_ref() else {
                return Ok(None);
            };
            let fed = &feeder.fed;
            let found = PyDict::new(py);
            for (name, counter) in [
                ("offset", &fed.offset),
                ("accepted", &fed.accepted),
                ("full", &fed.full),
                ("duplicate", &fed.duplicate),
                ("unread", &fed.unread),
                ("unfit", &fed.unfit),
            ] {
                found.set_item(name, counter.load(Ordering::Relaxed))?;
            }
            found.set_item("trouble", lock(py, &fed.trouble).clone())?;
            Ok(Some(found))
        })
    }

    /// Ends the threads; false if one did not end within so many seconds.
    fn stop(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        guard(|| {
            let timeout = seconds(timeout)?;
            let feeder = lock(py, &self.feeder).take();
            let lanes = std::mem::take(&mut *lock(py, &self.lanes));
            py.detach(|| {
                lanes.iter().for_each(|lane| lane.stop());
                drop((feeder, lanes));
            });
            Ok(py.detach(|| self.engine.stop(timeout)))
        })
    }
}

impl PyEngine {
    /// How an intake in this process tells it what was written.
    pub(crate) fn relay(&self) -> Arc<Relay> {
        Arc::clone(&self.relay)
    }
}

impl Drop for PyEngine {
    /// Operators in Python need the GIL to end.
    fn drop(&mut self) {
        Python::attach(|py| py.detach(|| self.engine.stop(Duration::from_secs(1))));
    }
}

/// A queue's name and four costs.
type Costs = (&'static str, f64, f64, f64, f64);

/// Nanoseconds of the queues' operations: name, enqueue and dequeue uncontended, then with two threads at each end.
#[pyfunction]
pub fn queue_costs(py: Python<'_>, operations: usize) -> PyResult<Vec<Costs>> {
    guard(|| {
        let found = py.detach(|| measure(operations));
        let row =
            |(name, one, two): (&'static str, Cost, Cost)| (name, one.enqueue, one.dequeue, two.enqueue, two.dequeue);
        Ok(found.into_iter().map(row).collect())
    })
}
