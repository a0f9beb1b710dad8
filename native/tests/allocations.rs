//! In steady state nothing is allocated on the event path, from the log through the engine to consumers' sockets: an allocator that
//! counts says so, over all threads but those that no event ever waits for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use _native::log::{Log, Options, StreamSchema};
use _native::record::{Encoder, IdRef};
use _native::service::books::Fate;
use _native::service::engine::{Accepted, Engine};
use _native::service::feed::{ConsumerFeed, Feed};
use _native::service::feeder::{Feeder, Relay};
use _native::service::operators::Given;
use _native::service::outlet::Outlet;
use _native::service::scheduling::policies;
use _native::service::spec::Spec;
use _native::value::Val;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Held by the test that counts.
static COUNTED: Mutex<()> = Mutex::new(());

/// Counts, but not what the thread takes that once a second writes down in a file how far the log was read: no event waits for it. The
/// thread that brings the log to disk is counted: suppliers wait for it.
fn count() {
    let mut name = [0_u8; 16];
    // SAFETY: writes the calling thread's name, of at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    if !name.starts_with(b"cep-keeper") {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
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
    for number in 1..=30 {
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
    let _counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
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

/// A client of a consumer, which has said who it is.
fn client(address: &str, consumer: &str, format: &str) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(address.trim_start_matches("unix:")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    writeln!(stream, r#"{{"consumer": "{consumer}", "format": "{format}"}}"#).unwrap();
    let mut reader = BufReader::with_capacity(1 << 16, stream);
    reader.skip_until(b'\n').unwrap();
    reader
}

/// Reads a frame into a buffer.
fn read_frame(client: &mut BufReader<UnixStream>, buffer: &mut [u8]) {
    client.read_exact(&mut buffer[..4]).unwrap();
    let length = u32::from_le_bytes(*buffer.first_chunk().unwrap()) as usize;
    client.read_exact(&mut buffer[4..length]).unwrap();
}

/// From the log into the engine, and out to sockets: written by the worker that has pushed, by the thread of a consumer with two
/// clients, and as lines.
#[test]
fn nothing_is_allocated_from_the_log_to_the_sockets() {
    let _counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::read(SPEC).unwrap();
    let engine = Engine::start(spec.clone(), Given::new()).unwrap();
    let streams = spec.streams.iter().map(|stream| StreamSchema {
        name: stream.name.clone(),
        attributes: stream
            .attributes
            .iter()
            .cloned()
            .zip(stream.schema.kinds.iter().map(|kind| kind.name().to_owned()))
            .collect(),
    });
    let state = serde_json::json!({ "streams": streams.collect::<Vec<_>>() }).to_string();
    let mut log = Log::open(
        &folder.path().join("log"),
        Options::default(),
        |_| Ok(state.clone().into_bytes()),
        || (),
    )
    .unwrap();
    let feeder = Feeder::start(engine.share(), folder.path().join("log"), Arc::new(Relay::default())).unwrap();
    let shared = engine.share();
    let directory = move |name: &str, _: bool| {
        let graph = shared.graph();
        let place = graph.spec.consumers.iter().position(|consumer| consumer.name == name);
        Ok(Arc::new(ConsumerFeed {
            shared: Arc::clone(&shared),
            consumer: Arc::clone(&graph.parts.consumers[place.unwrap()]),
            attributes: Vec::new(),
            policy: policies(1, false, None)[0],
        }) as Arc<dyn Feed>)
    };
    let address = format!("unix:{}", folder.path().join("deliver.sock").display());
    let outlet = Outlet::open(&address, None, Box::new(directory), Box::new(|_| String::new())).unwrap();
    let mut alone = client(&address, "d", "frames");
    let mut both = [client(&address, "b", "frames"), client(&address, "b", "frames")];
    // What it reads is stale, so that there is a mark to write.
    let mut lines = client(&address, "a", "lines");
    // Who was answered may not have come in yet.
    while [("a", 1), ("b", 2), ("d", 1)]
        .iter()
        .any(|(name, count)| outlet.report()[name]["clients"] != *count)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    let samples: Vec<u8> = (0..512).map(|i| i as u8).collect();
    let (mut encoder, mut buffer, mut line) = (Encoder::new(), vec![0; 1 << 16], Vec::new());
    let mut round = |number: i64| {
        encoder.clear();
        for (stream, schema) in spec.streams.iter().map(|stream| &stream.schema).enumerate() {
            let value = if stream == 0 {
                Val::Float((number % 7) as f64)
            } else {
                Val::Bytes(&samples)
            };
            encoder.start(schema, 1_000_000 + number, IdRef::Int(number)).unwrap();
            encoder.set(schema, 0, &value).unwrap();
            encoder.finish();
        }
        log.reserve(encoder.bytes().len() + 128, Vec::new).unwrap();
        let (begun, staged) = log.begin();
        staged.extend_from_slice(encoder.bytes());
        log.finish(begun, 3, 0, 0);
        log.commit().unwrap();
        // As an intake does, which answers its suppliers by it.
        log.durable().unwrap();
        read_frame(&mut alone, &mut buffer);
        both.iter_mut().for_each(|client| read_frame(client, &mut buffer));
        line.clear();
        lines.read_until(b'\n', &mut line).unwrap();
    };
    (0..100).for_each(&mut round);
    let done = 100 + until_steady(&mut round, 100, 300);
    // What has come is counted a moment later.
    let is_counted =
        || feeder.fed.accepted.load(Ordering::Relaxed) == 3 * done as u64 && outlet.report()["b"]["sent"] == 2 * done;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_counted() {
        assert!(Instant::now() < deadline, "{}", outlet.report());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(line.windows(7).any(|part| part == b"\"stale\""), "there was no mark");
    drop((outlet, feeder));
    log.tail().remove();
}
