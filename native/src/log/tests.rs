//! Tests of the log as a whole: what is written comes back, through crashes, cuts, rolls and retention.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::follower::From;
use super::*;
use crate::record::{Encoder, IdRef, Kind, Schema};

const STATE: &[u8] = br#"{"streams":[{"name":"s","attributes":[["x","int"]]}]}"#;

fn options() -> Options {
    Options {
        durability: Durability::Each,
        ..Options::default()
    }
}

fn open(folder: &Path, options: Options) -> Log {
    Log::open(folder, options, |_| Ok(STATE.to_vec()), || ()).unwrap()
}

/// Appends records of which the ids are the offsets.
fn append(log: &mut Log, count: u32) -> Result<u64, Error> {
    let schema = Schema::new(0, [Kind::Int]);
    let mut encoder = Encoder::new();
    for id in log.next_offset()..log.next_offset() + u64::from(count) {
        encoder.start(&schema, id as i64, IdRef::Int(id as i64)).unwrap();
        encoder.finish();
    }
    log.reserve(encoder.bytes().len() + frame::HEAD, || STATE.to_vec())?;
    let (begun, buffer) = log.begin();
    buffer.extend_from_slice(encoder.bytes());
    log.finish(begun, count, 0, 0);
    log.commit()
}

/// Reads what there is, checks that ids are offsets, and gives the first and the next offset.
fn read(folder: &Path, from: From) -> (u64, u64) {
    let mut follower = Follower::open(folder, from, false).unwrap();
    let first = follower.offset();
    let mut expected = first;
    while let Some(batch) = follower.next_batch().unwrap() {
        for (offset, bytes) in batch.records() {
            assert_eq!(offset, expected);
            let schema = Schema::new(0, [Kind::Int]);
            let record = crate::record::Record::read(bytes, &schema).unwrap();
            assert_eq!(record.id(), IdRef::Int(offset as i64));
            expected += 1;
        }
    }
    assert_eq!(follower.offset(), expected);
    (first, expected)
}

#[test]
fn what_was_appended_is_read_from_any_offset() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    for count in [1, 3, 10, 1, 7] {
        append(&mut log, count).unwrap();
    }
    for from in 0..=22 {
        assert_eq!(read(folder.path(), From::Offset(from)), (from, 22));
    }
    assert_eq!(read(folder.path(), From::First), (0, 22));
    assert_eq!(read(folder.path(), From::End), (22, 22));
    log.tail().remove();
}

#[test]
fn segments_are_rolled_and_read_across() {
    let folder = tempfile::tempdir().unwrap();
    let small = Options {
        segment_bytes: 4096,
        ..options()
    };
    let mut log = open(folder.path(), small.clone());
    let mut follower = Follower::open(folder.path(), From::First, false).unwrap();
    let mut seen = 0;
    for _ in 0..200 {
        append(&mut log, 5).unwrap();
        while let Some(batch) = follower.next_batch().unwrap() {
            assert_eq!(batch.head.offset, seen);
            seen = batch.next_offset();
        }
    }
    assert_eq!(seen, 1000);
    assert_eq!(follower.streams()[0].name, "s");
    assert!(segment::list(folder.path()).unwrap().len() > 5);
    for from in [0, 1, 499, 500, 999, 1000] {
        assert_eq!(read(folder.path(), From::Offset(from)), (from, 1000));
    }
    drop(log);
    let mut log = open(folder.path(), small);
    append(&mut log, 5).unwrap();
    assert_eq!(follower.next_batch().unwrap().unwrap().head.offset, 1000);
    assert_eq!(read(folder.path(), From::First), (0, 1005));
    log.tail().remove();
}

#[test]
fn a_tail_that_is_torn_anywhere_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    append(&mut log, 3).unwrap();
    let whole = log.bytes();
    append(&mut log, 2).unwrap();
    let all = log.bytes();
    log.tail().remove();
    drop(log);
    let path = segment::path(folder.path(), 0);
    let bytes = fs::read(&path).unwrap();
    for cut in (whole..=all).step_by(4) {
        fs::write(&path, &bytes[..cut as usize]).unwrap();
        let next = if cut == all { 5 } else { 3 };
        let mut log = open(folder.path(), options());
        assert_eq!(log.next_offset(), next, "{cut}");
        append(&mut log, 4).unwrap();
        assert_eq!(read(folder.path(), From::First), (0, next + 4));
    }
    // Not only cut: bytes that never reached the disk, with some behind them that did.
    for wrong in (whole..all).step_by(8) {
        fs::write(&path, &bytes).unwrap();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all_at(&[0x5a; 8], wrong)
            .unwrap();
        let mut log = open(folder.path(), options());
        assert_eq!(log.next_offset(), 3, "{wrong}");
        append(&mut log, 4).unwrap();
        assert_eq!(read(folder.path(), From::First), (0, 7));
        log.tail().remove();
    }
}

#[test]
fn a_segment_whose_forerunner_was_lost_goes_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(
        folder.path(),
        Options {
            segment_bytes: 1024,
            ..options()
        },
    );
    while log.next_offset() < 40 {
        append(&mut log, 5).unwrap();
    }
    log.tail().remove();
    drop(log);
    let firsts = segment::list(folder.path()).unwrap();
    let before = firsts[firsts.len() - 2];
    let path = segment::path(folder.path(), before);
    let length = fs::metadata(&path).unwrap().len();
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(length - 60)
        .unwrap();
    let log = open(folder.path(), options());
    assert!(log.next_offset() < 40 && log.next_offset() >= before);
    assert_eq!(read(folder.path(), From::First), (0, log.next_offset()));
    log.tail().remove();
}

#[test]
fn damage_inside_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    append(&mut log, 3).unwrap();
    let at = log.bytes();
    append(&mut log, 3).unwrap();
    let path = segment::path(folder.path(), 0);
    OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(b"x", at + 50)
        .unwrap();
    let mut follower = Follower::open(folder.path(), From::First, false).unwrap();
    assert_eq!(follower.next_batch().unwrap().unwrap().head.count, 3);
    let error = follower.next_batch().unwrap_err().to_string();
    assert!(
        error.contains(&format!("byte {at}: the frame's checksum is wrong")),
        "{error}"
    );
    log.tail().remove();
}

#[test]
fn retention_stops_where_a_consumer_stands() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 1024,
        retain_bytes: Some(3000),
        consumers: vec!["archive".to_owned()],
        ..options()
    };
    let mut log = open(folder.path(), options);
    while log.next_offset() < 200 {
        append(&mut log, 5).unwrap();
    }
    log.sync().unwrap();
    assert_eq!(log.retain().unwrap(), 0);
    consumers::commit(folder.path(), "archive", 42).unwrap();
    assert!(log.retain().unwrap() > 0);
    assert!(log.first_offset() <= 42 && log.first_offset() > 0);
    assert_eq!(read(folder.path(), From::First), (log.first_offset(), 200));
    assert!(matches!(
        Follower::open(folder.path(), From::Offset(0), false),
        Err(Error::Gone { asked: 0, .. })
    ));
    consumers::commit(folder.path(), "archive", 200).unwrap();
    log.retain().unwrap();
    assert!(log.bytes() <= 3000);
    assert_eq!(read(folder.path(), From::First), (log.first_offset(), 200));
    log.tail().remove();
}

#[test]
fn retention_by_age_takes_what_is_older() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 1024,
        retain_age: Some(Duration::from_secs(3600)),
        ..options()
    };
    let mut log = open(folder.path(), options);
    while log.next_offset() < 100 {
        append(&mut log, 5).unwrap();
    }
    log.sync().unwrap();
    assert_eq!(log.retain().unwrap(), 0);
    let firsts = segment::list(folder.path()).unwrap();
    for first in &firsts[..2] {
        let file = OpenOptions::new()
            .write(true)
            .open(segment::path(folder.path(), *first))
            .unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(7200))
            .unwrap();
    }
    assert_eq!(log.retain().unwrap(), 2);
    assert_eq!(log.first_offset(), firsts[2]);
    log.tail().remove();
}

#[test]
fn there_is_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path(), options());
    assert!(matches!(
        Log::open(folder.path(), options(), |_| Ok(Vec::new()), || ()),
        Err(Error::Taken(_))
    ));
    log.tail().remove();
}

#[test]
fn without_a_tail_whole_frames_are_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    append(&mut log, 3).unwrap();
    log.tail().remove();
    assert_eq!(read(folder.path(), From::First), (0, 3));
}

#[test]
fn what_was_not_synced_is_not_called_safe() {
    let folder = tempfile::tempdir().unwrap();
    let hour = Durability::Interval(Duration::from_secs(3600));
    let options = Options {
        durability: hour,
        ..Options::default()
    };
    let mut log = open(folder.path(), options);
    // The first append is synced at once, by `sync` if not before; from then on there is an hour's time.
    append(&mut log, 3).unwrap();
    log.sync().unwrap();
    let ticket = append(&mut log, 2).unwrap();
    assert_eq!((log.tail().appended(), log.tail().durable()), (5, 3));
    let mut all = Follower::open(folder.path(), From::First, false).unwrap();
    let mut safe = Follower::open(folder.path(), From::First, true).unwrap();
    let count = |follower: &mut Follower| {
        let mut count = 0;
        while let Some(batch) = follower.next_batch().unwrap() {
            count += batch.head.count;
        }
        count
    };
    assert_eq!((count(&mut all), count(&mut safe)), (5, 3));
    assert!(log.durable().unwrap() < ticket);
    log.sync().unwrap();
    assert_eq!(log.durable().unwrap(), ticket);
    assert_eq!(count(&mut safe), 2);
    log.tail().remove();
}

#[test]
fn what_is_durable_follows_what_is_appended() {
    let folder = tempfile::tempdir().unwrap();
    for durability in [
        Durability::Each,
        Durability::Interval(Duration::from_millis(1)),
        Durability::None,
    ] {
        let mut log = open(
            folder.path(),
            Options {
                durability,
                ..Options::default()
            },
        );
        let mut follower = Follower::open(folder.path(), From::End, true).unwrap();
        let ticket = append(&mut log, 3).unwrap();
        log.sync().unwrap();
        assert!(log.durable().unwrap() >= ticket);
        assert_eq!(follower.next_batch().unwrap().unwrap().head.count, 3);
        log.tail().remove();
    }
}
