//! The threads of an engine: workers and movers of its levels, who ends their rests, the watchdog, and after a change one that clears away what has left.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::json::{Fault, fault};
use crate::service::change;
use crate::service::engine::Shared;
use crate::service::processor::Level;
use crate::service::scheduling::{Policy, WATCHDOG, adopt, monotonic};
use crate::service::seat::Seat;

/// How long an operator may run before the watchdog names it, in nanoseconds.
pub(super) const PATIENCE: u64 = 1_000_000_000;
/// How often the watchdog looks.
const ROUND: Duration = Duration::from_millis(50);

fn spawn(shared: &Arc<Shared>, name: String, run: impl FnOnce(&Arc<Shared>) + Send + 'static) -> Result<(), Fault> {
    let own = Arc::clone(shared);
    shared.running.fetch_add(1, Ordering::SeqCst);
    let spawned = thread::Builder::new().name(name).spawn(move || {
        run(&own);
        own.running.fetch_sub(1, Ordering::SeqCst);
    });
    match spawned {
        Ok(_) => Ok(()),
        Err(error) => {
            shared.running.fetch_sub(1, Ordering::SeqCst);
            fault(format!("can't start a thread: {error}"))
        }
    }
}

/// Starts the workers of a level, or its movers, unless that was done before.
pub(super) fn start(shared: &Arc<Shared>, level: &Arc<Level>, is_worker: bool) -> Result<(), Fault> {
    if level.started[usize::from(!is_worker)].swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let threads = level.tracks.len();
    let numbers = if is_worker {
        0..threads / 2
    } else {
        threads / 2..threads
    };
    for number in numbers {
        let (kind, own) = (if is_worker { "work" } else { "move" }, Arc::clone(level));
        spawn(shared, format!("cep-{kind}-{}", level.number), move |shared| {
            let seat = Seat {
                shared,
                level: &own,
                number,
                is_worker,
                to_move: Cell::default(),
            };
            if is_worker {
                seat.work();
            } else {
                seat.move_on();
            }
            shared.rests.end();
        })?;
    }
    Ok(())
}

/// Starts the watchdog.
pub(super) fn watch(shared: &Arc<Shared>) -> Result<(), Fault> {
    spawn(shared, "cep-watchdog".to_owned(), |shared| {
        let _ = adopt(Policy::RoundRobin(WATCHDOG));
        // The runs that were named: since when, of which thread.
        let mut named: Vec<(u64, usize, usize)> = Vec::new();
        while !shared.is_stopping() {
            thread::sleep(ROUND);
            name_the_stuck(shared, &mut named);
        }
    })
}

/// Starts the thread that ends rests.
pub(super) fn keep_rests(shared: &Arc<Shared>) -> Result<(), Fault> {
    spawn(shared, "cep-rests".to_owned(), |shared| {
        let _ = adopt(Policy::RoundRobin(WATCHDOG));
        shared.rests.keep(|| shared.is_stopping());
    })
}

/// Starts a thread that clears away what has left, until nothing has. It has no priority: books are added up, memory goes back,
/// and no worker is to wait for either.
pub(super) fn tidy(shared: &Arc<Shared>) -> Result<(), Fault> {
    spawn(shared, "cep-tidy".to_owned(), |shared| {
        while !shared.is_stopping() {
            thread::sleep(ROUND);
            let mut control = shared.control.lock();
            if change::tidy(shared, &mut control) {
                control.is_tidied = false;
                return;
            }
        }
    })
}

fn name_the_stuck(shared: &Shared, named: &mut Vec<(u64, usize, usize)>) {
    let graph = shared.graph();
    let mut stuck = Vec::new();
    for place in graph.levels() {
        for (number, working) in place.level.workings.iter().enumerate() {
            let since = working.since.load(Ordering::Acquire);
            let operator = working.operator.load(Ordering::Relaxed);
            let ran = monotonic().saturating_sub(since);
            if since != 0 && ran > ROUND.as_nanos() as u64 {
                // It runs longer than it did, and others may have been left to it, or something to move.
                place.level.workers.wake();
                place.level.movers.wake();
            }
            if since == 0 || ran <= PATIENCE {
                continue;
            }
            let run = (since, place.level.number, number);
            stuck.push(run);
            if let Some(operator) = graph.operator(operator)
                && !named.contains(&run)
            {
                operator.stuck.add(1);
                // It may never, and would take a core from all below it, and from whoever looks what is wrong.
                let demoted = if working.demote(since) {
                    "; until it does, its thread has no real-time priority"
                } else {
                    ""
                };
                let name = &operator.spec.name;
                eprintln!(
                    "cepheid: operator '{name}' has not returned for {} ms{demoted}",
                    ran / 1_000_000
                );
            }
        }
    }
    *named = stuck;
}
