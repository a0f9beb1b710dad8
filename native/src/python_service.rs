//! The service for Python. Its types are in src/cepheid/_native.pyi.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};

use crate::digest::hex;
use crate::found_columns::Names;
use crate::json::{Json, parse};
use crate::machine;
use crate::plan::Plan;
use crate::python::guard;
use crate::python_consumer::{PyConsumer, read};
use crate::python_graph::{Delivered, given, lock, refused, seconds, stream_named, with_builder};
use crate::python_record;
use crate::python_shown::Shown;
use crate::service::change::Changed;
use crate::service::derived::{Announced, TO_LOG};
use crate::service::engine::{Accepted, Engine};
use crate::service::feeder::{Feeder, Relay};
use crate::service::knowing::{self, Update};
use crate::service::lane::{Lane, LaneSpec, Refused};
use crate::service::matches::Matches;
use crate::service::parts::Consumer;
use crate::service::report::{engine_report, engine_trace, histograms_report, matches_report};
use crate::service::scheduling::{LevelPolicy, policies};
use crate::service::spec::Spec;
use crate::service::supply::{DerivedSpec, Origin, Supply, Surroundings};

/// a match as a tuple, end of validity, labels, version of the knowledge
type Found<'py> = (Bound<'py, PyTuple>, Option<i64>, Vec<&'static str>, Option<u64>);

/// a query, its plan if that changes, and by table what is known of keys, as JSON
type Learned = (String, Option<String>, Vec<(usize, String)>);

/// A query of a lane.
pub(crate) struct LaneQuery {
    lane: Arc<Lane>,
    pub(crate) matches: Arc<Vec<Matches>>,
    pub(crate) number: usize,
    pub(crate) plan: Arc<Plan>,
    pub(crate) names: Arc<Names>,
    shown: Shown,
    pub(crate) policy: LevelPolicy,
}

/// A query of a lane: its name, the level that delivers it, its plan, and the names of its outputs and group values.
type Named = (String, usize, String, Vec<String>, Vec<String>);

/// A graph run by native threads.
#[pyclass(name = "Engine", module = "cepheid._native")]
pub struct PyEngine {
    pub(crate) engine: Engine,
    /// What feeds it from a log, if something does.
    feeder: Mutex<Option<Feeder>>,
    /// How an intake in this process tells that.
    relay: Arc<Relay>,
    /// The lanes of queries, and for each query its lane, its number there, and its names.
    lanes: Mutex<Vec<Arc<Lane>>>,
    /// How far derived streams have come.
    announced: Arc<Announced>,
    /// What brings derived streams into the log.
    supplies: Mutex<Vec<Supply>>,
    pub(crate) queries: Arc<Mutex<HashMap<String, LaneQuery>>>,
}

impl PyEngine {
    /// Takes a query out of its lane; a lane that has none left ends.
    fn retire(&self, py: Python<'_>, query: LaneQuery) {
        if !query.lane.remove(query.number) {
            let mut lanes = lock(py, &self.lanes);
            lanes.retain(|lane| !Arc::ptr_eq(lane, &query.lane));
            drop(lanes);
            py.detach(|| drop(query.lane));
        }
    }

    fn consumer_named(&self, name: &str) -> PyResult<Arc<Consumer>> {
        let graph = self.engine.shared().graph();
        let found = graph.parts.consumers.iter().find(|consumer| consumer.spec.name == name);
        found
            .cloned()
            .ok_or_else(|| PyKeyError::new_err(format!("the service has no consumer '{name}'")))
    }

    /// Who gives a derived stream, and how who brings it into the log is to run.
    fn origin(&self, py: Python<'_>, spec: &DerivedSpec) -> PyResult<(Origin, LevelPolicy)> {
        let name = &spec.stream.name;
        if spec.is_operators {
            let graph = self.engine.shared().graph();
            let way = format!("{TO_LOG}{name}");
            let place = graph.spec.consumers.iter().position(|consumer| consumer.name == way);
            let place = place.ok_or_else(|| PyKeyError::new_err(format!("the service has no consumer '{way}'")))?;
            let policy = self.policy(graph.spec.consumers[place].level)?;
            return Ok((Origin::Operator(Arc::clone(&graph.parts.consumers[place])), policy));
        }
        let queries = lock(py, &self.queries);
        let known = queries.get(name);
        let known = known.ok_or_else(|| PyKeyError::new_err(format!("no query '{name}' runs here")))?;
        let origin = Origin::Query {
            unlogged: Arc::clone(&known.lane.unlogged),
            number: known.number,
            plan: Arc::clone(&known.plan),
            names: Arc::clone(&known.names),
        };
        Ok((origin, known.policy))
    }

    /// How the threads of a level run, by its rank.
    fn policy(&self, level: usize) -> PyResult<LevelPolicy> {
        let policy = level_policies(&self.engine.shared().graph().spec).get(level).copied();
        policy.ok_or_else(|| PyValueError::new_err(format!("there is no level {level}")))
    }
}

/// How the threads of each level run.
pub(crate) fn level_policies(spec: &Spec) -> Vec<LevelPolicy> {
    let real_time = spec.prioritised.then(|| machine::probe().sched_rr.ok()).flatten();
    policies(spec.levels.len(), spec.prioritised, real_time)
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
                feeder: Mutex::default(),
                relay: Arc::default(),
                lanes: Mutex::default(),
                announced: Arc::default(),
                supplies: Mutex::default(),
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
        guard(|| {
            let lanes = lock(py, &self.lanes).clone();
            Ok(py.detach(|| engine_trace(self.engine.shared(), &lanes)))
        })
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

    /// Runs queries together over the log in a folder; `spec` says more of each (src/cepheid/service/running/lanes.py). One that
    /// runs already goes on in this lane instead.
    fn start_lane(&self, py: Python<'_>, folder: PathBuf, spec: &str, queries: Vec<Named>) -> PyResult<()> {
        guard(|| {
            let lane = LaneSpec::read(spec).map_err(refused)?;
            let policy = self.policy(lane.level)?;
            let rests = Arc::clone(&self.engine.shared().rests);
            let started = py.detach(|| Lane::start(lane, policy, rests, folder, Arc::clone(&self.announced)));
            let lane = started.map_err(|error| match error {
                Refused::Plan(fault) => refused(fault),
                Refused::Log(error) => PyOSError::new_err(error.to_string()),
            })?;
            let lane = Arc::new(lane);
            for (number, (name, level, plan, outputs, groups)) in queries.into_iter().enumerate() {
                let plan = Plan::read(&plan).map_err(refused)?;
                let names = Names { outputs, groups };
                let query = LaneQuery {
                    lane: Arc::clone(&lane),
                    matches: Arc::clone(&lane.matches),
                    number,
                    shown: Shown::new(py, &plan, &names),
                    plan: Arc::new(plan),
                    names: Arc::new(names),
                    policy: self.policy(level)?,
                };
                let before = lock(py, &self.queries).insert(name, query);
                if let Some(before) = before {
                    self.retire(py, before);
                }
            }
            lock(py, &self.lanes).push(lane);
            Ok(())
        })
    }

    /// Takes queries out of their lanes; a lane that has none left ends.
    fn remove_queries(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        guard(|| {
            for name in names {
                let query = lock(py, &self.queries).remove(&name);
                if let Some(query) = query {
                    self.retire(py, query);
                }
            }
            Ok(())
        })
    }

    /// The offset and the watermark up to which a query's matches are acknowledged, if nothing is kept of it and there is more in the
    /// log: then it is to go through it again.
    fn spent(&self, py: Python<'_>, name: &str) -> Option<(u64, i64)> {
        let queries = lock(py, &self.queries);
        let query = queries.get(name)?;
        let point = query.matches[query.number].with_kept(|kept| kept.spent())?;
        Some((point.offset, point.watermark))
    }

    /// Queries are judged by another version of the knowledge, all from the same offset of the log on, which is given,
    /// and appended to a file first.
    fn learn(&self, py: Python<'_>, version: u64, learned: Vec<Learned>, file: PathBuf) -> PyResult<u64> {
        guard(|| {
            let queries = lock(py, &self.queries);
            let mut found: Vec<(Arc<Lane>, Vec<Update>)> = Vec::new();
            for (name, plan, tables) in learned {
                let Some(query) = queries.get(&name) else {
                    continue; // it was removed
                };
                let update = Update::new(query.number, version, plan.as_deref(), &tables).map_err(refused)?;
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
            let from = knowing::put_in_force(&folder, &file, updates.collect());
            drop(changing);
            from.map_err(|error| PyOSError::new_err(error.to_string()))
        })
    }

    /// By query with PATHs, the version of the knowledge by which the last event was judged, and how many events had a
    /// value of which nothing is known.
    fn knowledge(&self, py: Python<'_>) -> HashMap<String, (u64, u64)> {
        let queries = lock(py, &self.queries);
        let versions = queries.iter().map(|(name, query)| {
            let of_query = |counts: &[AtomicU64]| counts[query.number].load(Ordering::Relaxed);
            let lane = &query.lane;
            (name.clone(), (of_query(&lane.versions), of_query(&lane.strangers)))
        });
        versions.filter(|(_, (version, _))| *version > 0).collect()
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

    /// Brings what is derived and read into the log, through the intake at an address: `derived` has all such streams, as JSON
    /// (src/cepheid/service/derived.py). Those that are brought already go on.
    #[pyo3(signature = (derived, intake, token=None))]
    fn supply(&self, py: Python<'_>, derived: &str, intake: &str, token: Option<String>) -> PyResult<()> {
        guard(|| {
            let specs = DerivedSpec::read(&parse(derived).map_err(refused)?).map_err(refused)?;
            let feeder = lock(py, &self.feeder);
            let fed = feeder.as_ref().map(|feeder| Arc::clone(&feeder.fed));
            drop(feeder);
            let fed = fed.ok_or_else(|| PyValueError::new_err("the engine follows no log"))?;
            let around = Arc::new(Surroundings {
                shared: self.engine.share(),
                announced: Arc::clone(&self.announced),
                fed,
                address: intake.to_owned(),
                token,
            });
            let mut supplies = lock(py, &self.supplies);
            supplies.retain(|supply| !supply.is_over());
            for spec in specs {
                let (origin, policy) = self.origin(py, &spec)?;
                if !supplies.iter().any(|supply| supply.is_of(&origin)) {
                    supplies.push(Supply::start(spec, origin, &around, policy).map_err(PyOSError::new_err)?);
                }
            }
            Ok(())
        })
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

    /// The latencies of consumers, levels and queries, the delays of recovered matches and the run times of operators, as whole
    /// histograms by name; as JSON.
    fn histograms(&self, py: Python<'_>) -> PyResult<String> {
        guard(|| {
            let queries = lock(py, &self.queries);
            let matches = queries
                .iter()
                .map(|(name, query)| (name.as_str(), &query.matches[query.number]));
            Ok(histograms_report(self.engine.shared(), matches))
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
            found.set_item("trouble", fed.trouble.lock().clone())?;
            Ok(Some(found))
        })
    }

    /// Ends the threads; false if one did not end within so many seconds.
    fn stop(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        guard(|| {
            let timeout = seconds(timeout)?;
            let feeder = lock(py, &self.feeder).take();
            let lanes = std::mem::take(&mut *lock(py, &self.lanes));
            let supplies = std::mem::take(&mut *lock(py, &self.supplies));
            Ok(py.detach(|| {
                lanes.iter().for_each(|lane| lane.stop());
                drop((feeder, lanes));
                let is_over = self.engine.stop(timeout);
                // What they have is all there is.
                supplies.iter().for_each(|supply| supply.end(timeout));
                supplies.into_iter().for_each(Supply::join);
                is_over
            }))
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
        let supplies = std::mem::take(self.supplies.get_mut().unwrap_or_else(PoisonError::into_inner));
        Python::attach(|py| py.detach(|| self.engine.stop(Duration::from_secs(1))));
        supplies.iter().for_each(|supply| supply.end(Duration::ZERO));
    }
}
