//! The service for Python. Its types are in src/cepheid/_native.pyi.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyMapping, PyTuple};

use crate::digest::hex;
use crate::found_columns::Names;
use crate::json::Fault;
use crate::machine;
use crate::plan::Plan;
use crate::python::guard;
use crate::python_operator::PythonFunction;
use crate::python_record::{self, Builder};
use crate::python_shown::Shown;
use crate::record::Record;
use crate::service::books::Fate;
use crate::service::engine::{Accepted, Engine};
use crate::service::feed::{ConsumerFeed, MatchFeed};
use crate::service::feeder::Feeder;
use crate::service::lane::{Lane, LaneSpec, Matches, Refused};
use crate::service::operators::{Given, Process, foreign};
use crate::service::outlet::Directory;
use crate::service::queue_costs::{Cost, measure};
use crate::service::report::{engine_report, engine_trace};
use crate::service::scheduling::{LevelPolicy, now, policies};
use crate::service::spec::Spec;
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

fn delivered<'py>(
    py: Python<'py>,
    spec: &Spec,
    consumer: usize,
    event: &Event<'_>,
    head: &Head,
) -> PyResult<Delivered<'py>> {
    let consumer = &spec.consumers[consumer];
    // SAFETY: as for the inputs of operators, what is in a ring fits its producer's schema.
    let record = unsafe { Record::trusted(event.bytes, spec.schema(consumer.input)) };
    Ok((
        consumer.name.clone(),
        python_record::id(py, &record)?,
        record.time(),
        python_record::attributes(py, &record, spec.attributes(consumer.input))?,
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
                let seen = delivered(py, clock.spec(), delivery.consumer, &event, &delivery.head);
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

/// a match as a tuple, end of validity, whether it is stale
type Found<'py> = (Bound<'py, PyTuple>, Option<i64>, bool);

/// A query of a lane.
struct LaneQuery {
    matches: Arc<Vec<Matches>>,
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
    /// The lanes of queries, and for each query its lane, its number there, and its names.
    lanes: Mutex<Vec<Lane>>,
    queries: Arc<Mutex<HashMap<String, LaneQuery>>>,
}

impl PyEngine {
    fn consumer(&self, name: &str) -> PyResult<usize> {
        let consumers = &self.engine.shared().spec.consumers;
        let found = consumers.iter().position(|consumer| consumer.name == name);
        found.ok_or_else(|| PyKeyError::new_err(format!("the service has no consumer '{name}'")))
    }

    /// How the threads of a level run, by its rank.
    fn policy(&self, level: usize) -> PyResult<LevelPolicy> {
        let policy = level_policies(&self.engine.shared().spec).get(level).copied();
        policy.ok_or_else(|| PyValueError::new_err(format!("there is no level {level}")))
    }

    /// Finds consumers and queries, for who delivers.
    pub(crate) fn directory(&self) -> Directory {
        let shared = self.engine.share();
        let queries = Arc::clone(&self.queries);
        let (policies, began) = (level_policies(&shared.spec), self.began);
        Box::new(move |name| {
            let consumers = &shared.spec.consumers;
            if let Some(consumer) = consumers.iter().position(|consumer| consumer.name == name) {
                return Ok(Arc::new(ConsumerFeed {
                    shared: Arc::clone(&shared),
                    consumer,
                    began,
                    policy: policies[consumers[consumer].level],
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
            let known: Vec<&str> = consumers.iter().map(|c| c.name.as_str()).chain(known).collect();
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
                lanes: Mutex::default(),
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
            let spec = &self.engine.shared().spec;
            let number = stream_named(spec, stream)?;
            let stream = &spec.streams[number];
            with_builder(|builder| {
                let bytes = builder.build(&stream.schema, &stream.attributes, id, time, attributes)?;
                let pushed = self.engine.push(number, bytes);
                pushed
                    .map(word)
                    .map_err(|fault| python_record::error(fault, &stream.attributes))
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
        guard(|| {
            let number = self.consumer(consumer)?;
            let timeout = timeout.map(seconds).transpose()?;
            let Some((token, marks)) = py.detach(|| self.engine.read(number, timeout)) else {
                return Ok(None);
            };
            let shared = self.engine.shared();
            let event = shared.store.read(&token);
            let head = Head { marks, ..*event.head };
            let seen = delivered(py, &shared.spec, number, &event, &head);
            shared.store.release(token, Fate::Used);
            seen.map(Some)
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
            let feeder = py.detach(|| Feeder::start(shared, folder));
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
            let started = py.detach(|| Lane::start(lane, policy, folder));
            let lane = started.map_err(|error| match error {
                Refused::Plan(fault) => refused(fault),
                Refused::Log(error) => PyOSError::new_err(error.to_string()),
            })?;
            for (number, (name, plan, outputs, groups)) in queries.into_iter().enumerate() {
                let plan = Plan::read(&plan).map_err(refused)?;
                let names = Names { outputs, groups };
                let query = LaneQuery {
                    matches: Arc::clone(&lane.matches),
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

    /// The next match of a query, as `Matcher.advance` gives them, with the end of its validity and whether it is stale;
    /// waited for at most so many seconds (None: until the engine stops).
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
            Ok(Some((tuple, delivery.end, delivery.stale)))
        })
    }

    /// What became of the matches of each query: found, shed and lost.
    fn query_counts(&self, py: Python<'_>) -> HashMap<String, (u64, u64, u64)> {
        let queries = lock(py, &self.queries);
        let counts = queries.iter().map(|(name, query)| {
            let counts = query.matches[query.number].counts();
            (name.clone(), (counts.found, counts.shed, counts.lost))
        });
        counts.collect()
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
            py.detach(|| drop((feeder, lanes)));
            Ok(py.detach(|| self.engine.stop(timeout)))
        })
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
