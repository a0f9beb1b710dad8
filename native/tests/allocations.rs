//! In steady state nothing is allocated on the event path: an allocator that counts says so, over all threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use _native::record::{Encoder, IdRef};
use _native::service::books::Fate;
use _native::service::engine::{Accepted, Engine};
use _native::service::operators::Given;
use _native::service::spec::Spec;
use _native::value::Val;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Two sensors fused, transformed and sealed, over three levels, and a number with its threshold and aggregates, filtered and mapped;
/// and a consumer for which everything is stale.
const SPEC: &str = r#"{
  "name": "steady", "levels": ["high", "middle", "low"], "cores": 2, "prioritised": false,
  "streams": [
    {"name": "n", "level": 1, "valid_for": null, "ring": 4, "replace": true, "waiting": 64, "attributes": [["x", "float"]]},
    {"name": "s", "level": 0, "valid_for": 1000000000, "ring": 4, "replace": false, "waiting": 64,
     "attributes": [["x", "array<uint8>"]]},
    {"name": "t", "level": 0, "valid_for": 1000000000, "ring": 4, "replace": false, "waiting": 64,
     "attributes": [["x", "array<uint8>"]]}],
  "operators": [
    {"name": "fused", "kind": "ekf", "level": 0, "inputs": [1, 2], "relative": [{"inputs": [0, 1], "within": 1000}],
     "fire": "all", "stale": "mark", "ring": 4, "depth": 4, "attributes": [["x", "array<uint8>"]],
     "parameters": {"payload": [0, 0], "process_noise": 0.001, "measurement_noise": 0.1}},
    {"name": "spectrum", "kind": "fft", "level": 1, "inputs": [3], "relative": [], "fire": "all", "stale": "mark",
     "ring": 4, "depth": 4, "attributes": [["x", "array<float>"]], "parameters": {"payload": [0]}},
    {"name": "both", "kind": "cat", "level": 2, "inputs": [4, 4], "relative": [], "fire": "all", "stale": "mark",
     "ring": 4, "depth": 4, "attributes": [["x", "array<float>"]], "parameters": {"payload": [0, 0]}},
    {"name": "sealed", "kind": "aes", "level": 2, "inputs": [5], "relative": [], "fire": "all", "stale": "mark",
     "ring": 4, "depth": 4, "attributes": [["x", "bytes"]], "parameters": {"payload": [0], "key": null}},
    {"name": "least", "kind": "aggregate", "level": 1, "inputs": [0], "relative": [], "fire": "all", "stale": "mark",
     "ring": 4, "depth": 4, "attributes": [["x", "float"]], "parameters": {"payload": [0], "function": "min", "last": 8}},
    {"name": "alarm", "kind": "threshold", "level": 2, "inputs": [7], "relative": [], "fire": "all", "stale": "mark",
     "ring": 4, "depth": 4, "attributes": [["x", "float"], ["on", "bool"]],
     "parameters": {"payload": [0], "above": 3.0, "below": null, "reset": null}},
    {"name": "kept", "kind": "filter", "level": 1, "inputs": [0], "relative": [], "fire": "all", "stale": "mark",
     "ring": 4, "depth": 4, "attributes": [["x", "float"]],
     "parameters": {"where": [["compare", ">", ["attribute", 0, [[0, 0]], true], ["int", -1]]], "slots": [0],
                    "select": [["attribute", 0, [[0, -1]], false]]}},
    {"name": "twice", "kind": "map", "level": 2, "inputs": [9], "relative": [], "fire": "all", "stale": "mark",
     "ring": 4, "depth": 4, "attributes": [["x", "float"]],
     "parameters": {"select": [["arithmetic", "*", ["attribute", 0, [[0, 0]], true], ["int", 2]]], "slots": [0],
                    "where": []}}],
  "consumers": [
    {"name": "a", "input": 3, "level": 0, "stale": "mark", "capacity": 8},
    {"name": "b", "input": 6, "level": 2, "stale": "mark", "capacity": 8},
    {"name": "c", "input": 8, "level": 2, "stale": "mark", "capacity": 8},
    {"name": "d", "input": 10, "level": 2, "stale": "mark", "capacity": 8},
    {"name": "shedding", "input": 3, "level": 0, "stale": "shed", "capacity": 8}]
}"#;

/// Rounds from this number on, in stretches of so many, until one takes nothing from the allocator; how many rounds there were.
///
/// On a machine that others fill a worker may see an operator for the first time late, and its place for results gets its size then.
fn until_steady(round: &mut impl FnMut(i64), from: i64, stretch: i64) -> i64 {
    for number in 1..=5 {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (from + (number - 1) * stretch..from + number * stretch).for_each(&mut *round);
        if ALLOCATIONS.load(Ordering::Relaxed) == before {
            return number * stretch;
        }
    }
    panic!("something is allocated in every stretch of {stretch} rounds");
}

#[test]
fn nothing_is_allocated_once_everything_has_its_size() {
    let spec = Spec::read(SPEC).unwrap();
    let engine = Engine::start(spec.clone(), Given::new()).unwrap();
    let samples: Vec<u8> = (0..512).map(|i| i as u8).collect();
    let mut encoder = Encoder::new();
    let mut round = |number: i64| {
        for (stream, schema) in spec.streams.iter().map(|stream| &stream.schema).enumerate() {
            let value = if stream == 0 {
                Val::Float((number % 7) as f64)
            } else {
                Val::Bytes(&samples)
            };
            encoder.clear();
            encoder.start(schema, 1_000_000 + number, IdRef::Int(number)).unwrap();
            encoder.set(schema, 0, &value).unwrap();
            assert_eq!(engine.push(stream, encoder.finish()), Ok(Accepted::Yes));
        }
        assert!(engine.settle(Duration::from_secs(10)));
        // A slow reader: it reads half of what comes, and the rest is lost.
        for consumer in (0..4).filter(|_| number % 2 == 0) {
            let (token, _) = engine.read(consumer, Some(Duration::ZERO)).unwrap();
            engine.shared().store.release(token, Fate::Used);
        }
    };
    (0..100).for_each(&mut round);
    let done = 100 + until_steady(&mut round, 100, 300);
    let graph = engine.shared().graph();
    for operator in &graph.parts.operators {
        assert_eq!(
            (operator.book.fired.get(), operator.book.failed.get()),
            (done as u64, 0)
        );
    }
    assert!(graph.parts.consumers[1].book.lost.get() > 0);
    assert_eq!(graph.parts.consumers[4].book.edge.ended(Fate::Expired), done as u64);
    drop(graph);
    // After a change that puts another operator in the place of one, it is the same again.
    engine
        .change(spec.clone(), Given::new(), &["least".to_owned()])
        .unwrap();
    (done..done + 100).for_each(&mut round);
    std::thread::sleep(Duration::from_millis(200));
    let more = 100 + until_steady(&mut round, done + 100, 200);
    assert_eq!(engine.shared().graph().parts.operators[4].book.fired.get(), more as u64);
}
