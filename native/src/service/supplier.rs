//! Periodic suppliers in this process, for experiments: groups of streams that are pushed together at every period.
//!
//! They run on one thread above all workers, so that the load comes on time however busy the engine is.

use std::time::Duration;

use crate::record::{Encoder, IdRef};
use crate::service::books::Fate;
use crate::service::engine::{Accepted, Engine};
use crate::service::scheduling::{HIGHEST, Policy, adopt, monotonic, now, sleep_until};
use crate::value::Val;

/// Streams that are pushed together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Their numbers; their first attribute is array<uint8>.
    pub streams: Vec<usize>,
    /// Between pushes, in nanoseconds.
    pub period: u64,
    /// How much earlier or later each push may be, at random, in nanoseconds; below half the period.
    pub jitter: u64,
    /// How many bytes an event carries.
    pub bytes: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supplied {
    /// Events that the engine accepted.
    pub accepted: u64,
    /// Events that it did not.
    pub refused: u64,
    /// The most that a push was behind its time, in nanoseconds.
    pub latest: u64,
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

/// Supplies the groups for a time, each beginning somewhere in its first period, and waits until that is done. After each push it
/// reads what waits for the consumers, as they would.
pub fn supply(engine: &Engine, groups: &[Group], time: Duration) -> std::io::Result<Supplied> {
    std::thread::scope(|scope| {
        let supplier = std::thread::Builder::new().name("cep-supplier".to_owned());
        let thread = supplier.spawn_scoped(scope, || {
            // Without the privilege it supplies as it can.
            let _ = adopt(Policy::RoundRobin(HIGHEST + 10));
            run(engine, groups, time)
        })?;
        Ok(thread.join().unwrap_or_default())
    })
}

fn run(engine: &Engine, groups: &[Group], time: Duration) -> Supplied {
    let mut random = Random(7);
    let mut found = Supplied::default();
    let longest = groups.iter().map(|group| group.bytes).max().unwrap_or(0);
    let samples: Vec<u8> = (0..longest).map(|_| random.below(256) as u8).collect();
    let mut encoder = Encoder::new();
    let start = monotonic();
    let end = start + time.as_nanos() as u64;
    // The regular time of each group's next push, and the actual one.
    let mut next: Vec<(u64, u64)> = groups
        .iter()
        .map(|group| start + group.jitter + random.below(group.period))
        .map(|at| (at, at))
        .collect();
    let mut id = 0;
    while let Some((place, at)) = next.iter().map(|(_, at)| *at).enumerate().min_by_key(|(_, at)| *at) {
        if at >= end {
            break;
        }
        sleep_until(at);
        found.latest = found.latest.max(monotonic().saturating_sub(at));
        let group = &groups[place];
        for stream in &group.streams {
            id += 1;
            let graph = engine.shared().graph();
            let schema = &graph.spec.streams[*stream].schema;
            encoder.clear();
            let built = encoder
                .start(schema, now(), IdRef::Int(id))
                .and_then(|()| encoder.set(schema, 0, &Val::Bytes(&samples[..group.bytes])));
            let pushed = built.and_then(|()| engine.push(*stream, encoder.finish()));
            if pushed == Ok(Accepted::Yes) {
                found.accepted += 1;
            } else {
                found.refused += 1;
            }
        }
        for consumer in 0..engine.shared().graph().parts.consumers.len() {
            while let Some((token, _)) = engine.read(consumer, Some(Duration::ZERO)) {
                engine.shared().store.release(token, Fate::Used);
            }
        }
        let regular = next[place].0 + group.period;
        let shift = random.below(2 * group.jitter + 1);
        next[place] = (regular, regular + shift - group.jitter);
    }
    found
}
