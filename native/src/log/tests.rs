//! Tests of the log as a whole: what is written comes back, through crashes, cuts, rolls and retention.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::follower::From;
use super::*;
use crate::record::{Encoder, IdRef, Kind, Schema};

const STATE: &[u8] = br#"{"streams":[{"name":"s","attributes":[["x","int"]]}]}"#;

pub(super) fn options() -> Options {
    Options {
        durability: Durability::Each,
        ..Options::default()
    }
}

pub(super) fn open(folder: &Path, options: Options) -> Log {
    Log::open(folder, options, |_| Ok(STATE.to_vec()), || ()).unwrap()
}

/// Appends records of which the ids are the offsets.
pub(super) fn append(log: &mut Log, count: u32) -> Result<u64, Error> {
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
pub(super) fn read(folder: &Path, from: From) -> (u64, u64) {
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
    drop(log);
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
    fs::remove_file(Tail::path(folder.path()).unwrap()).unwrap();
}

#[test]
fn the_first_record_is_found_while_retention_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 1024,
        retain_bytes: Some(3000),
        ..options()
    };
    let mut log = open(folder.path(), options);
    std::thread::scope(|scope| {
        let path = folder.path();
        let reader = scope.spawn(
            move || {
                while Follower::open(path, From::First, false).unwrap().offset() < 5000 {}
            },
        );
        while !reader.is_finished() {
            append(&mut log, 5).unwrap();
            log.sync().unwrap();
            log.retain().unwrap();
        }
    });
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
fn retention_keeps_what_lanes_would_read_again_for_a_week_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 1024,
        retain_bytes: Some(3000),
        ..options()
    };
    let mut log = open(folder.path(), options);
    while log.next_offset() < 200 {
        append(&mut log, 5).unwrap();
    }
    log.sync().unwrap();
    let lane = |name: &str| folder.path().join(format!("queries-{name}.restart"));
    fs::write(lane("high"), "offset 60\nkeep 60\nstream 7 air\nquery ab\n").unwrap();
    fs::write(lane("low"), "offset 5\nquery cd\n").unwrap(); // time does not bound what it holds
    fs::write(lane("gone"), "offset 0\nkeep 0\nquery ef\n").unwrap();
    assert_eq!(log.retain().unwrap(), 0);
    let age = |path: PathBuf, by: Duration| {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::now() - by).unwrap();
    };
    age(lane("gone"), consumers::PATIENCE);
    assert!(log.retain().unwrap() > 0);
    assert!(log.first_offset() <= 60 && log.first_offset() > 50);
    // What was closed long ago goes all the same.
    age(segment::path(folder.path(), log.first_offset()), consumers::PATIENCE);
    assert_eq!(log.retain().unwrap(), 1);
    assert!(log.first_offset() > 60 && log.bytes() > 3000);
    fs::remove_file(lane("high")).unwrap();
    assert!(log.retain().unwrap() > 0);
    assert!(log.bytes() <= 3000);
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
    log.sync().unwrap();
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

/// The copies in memory of a log's segments.
fn copies(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found: Vec<_> = tail::copies(&Tail::path(folder).unwrap()).collect();
    found.sort();
    found
}

#[test]
fn what_a_writer_that_was_killed_left_in_memory_comes_to_disk() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        durability: Durability::Interval(Duration::from_secs(3600)),
        ..options()
    };
    let mut log = open(folder.path(), options.clone());
    append(&mut log, 3).unwrap();
    log.sync().unwrap();
    let path = segment::path(folder.path(), 0);
    let on_disk = fs::read(&path).unwrap();
    append(&mut log, 4).unwrap();
    let [copy] = &copies(folder.path())[..] else { panic!() };
    let mut in_memory = fs::read(copy).unwrap();
    in_memory.truncate(log.bytes() as usize);
    assert_eq!(read(folder.path(), From::First), (0, 7));
    // What would be there if it had been killed here; and in the middle of a write.
    drop(log);
    assert!(!copy.exists());
    for torn in [0, 20] {
        in_memory.extend(vec![7; torn]);
        fs::write(&path, &on_disk).unwrap();
        fs::write(copy, &in_memory).unwrap();
        let mut follower = Follower::open(folder.path(), From::Offset(5), false).unwrap();
        let mut log = open(folder.path(), options.clone());
        assert_eq!(log.next_offset(), 7);
        log.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), in_memory[..in_memory.len() - torn]);
        append(&mut log, 2).unwrap();
        assert_eq!(follower.next_batch().unwrap().unwrap().next_offset(), 7);
        assert_eq!(follower.next_batch().unwrap().unwrap().next_offset(), 9);
    }
    fs::remove_file(Tail::path(folder.path()).unwrap()).unwrap();
}

#[test]
fn a_log_goes_on_in_files_when_there_is_no_memory_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    let mut follower = Follower::open(folder.path(), From::First, false).unwrap();
    append(&mut log, 3).unwrap();
    assert_eq!(follower.next_batch().unwrap().unwrap().next_offset(), 3);
    log.leave_memory().unwrap();
    assert_eq!(copies(folder.path()), [] as [std::path::PathBuf; 0]);
    append(&mut log, 4).unwrap();
    assert_eq!(follower.next_batch().unwrap().unwrap().next_offset(), 7);
    drop(log);
    let log = open(folder.path(), options());
    assert_eq!(log.next_offset(), 7);
    log.tail().remove();
}

#[test]
fn what_another_log_left_in_memory_is_not_taken() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut log = open(other.path(), options());
    append(&mut log, 3).unwrap();
    let [copy] = &copies(other.path())[..] else { panic!() };
    // As if that folder had had the place of this one.
    let left = Tail::path(folder.path()).unwrap().into_os_string();
    let mut left = left.into_string().unwrap();
    left.push_str(&copy.to_str().unwrap()[Tail::path(other.path()).unwrap().as_os_str().len()..]);
    fs::copy(copy, &left).unwrap();
    log.tail().remove();
    let log = open(folder.path(), options());
    assert_eq!(log.next_offset(), 0);
    assert!(!Path::new(&left).exists());
    log.tail().remove();
}

#[test]
fn copies_go_when_the_disk_has_what_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let small = Options {
        segment_bytes: 4096,
        durability: Durability::None,
        ..options()
    };
    let mut log = open(folder.path(), small);
    while log.next_offset() < 1000 {
        append(&mut log, 5).unwrap();
    }
    log.sync().unwrap();
    assert_eq!(copies(folder.path()).len(), 1);
    assert_eq!(read(folder.path(), From::First), (0, 1000));
    log.tail().remove();
    drop(log);
    assert_eq!(copies(folder.path()).len(), 0);
    assert_eq!(read(folder.path(), From::First), (0, 1000));
}

#[test]
fn a_copy_that_has_less_than_the_disk_is_not_taken() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    append(&mut log, 3).unwrap();
    log.sync().unwrap();
    let [copy] = &copies(folder.path())[..] else { panic!() };
    drop(log);
    let whole = fs::read(segment::path(folder.path(), 0)).unwrap();
    // What a kill leaves in the middle of taking the segment over is found by nobody.
    fs::write(copy.with_extension("new"), &whole[..whole.len() / 2]).unwrap();
    assert_eq!(read(folder.path(), From::First), (0, 3));
    let mut log = open(folder.path(), options());
    assert_eq!(log.next_offset(), 3);
    append(&mut log, 2).unwrap();
    drop(log);
    for kept in [0, whole.len() / 2] {
        fs::write(copy, &whole[..kept]).unwrap();
        let log = open(folder.path(), options());
        assert_eq!(log.next_offset(), 5);
        drop(log);
        assert_eq!(copies(folder.path()).len(), 0);
    }
    assert_eq!(read(folder.path(), From::First), (0, 5));
    fs::remove_file(Tail::path(folder.path()).unwrap()).unwrap();
}

#[test]
fn segments_that_a_killed_writer_left_in_memory_all_come_to_disk() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        durability: Durability::Interval(Duration::from_secs(3600)),
        segment_bytes: 1024,
        ..options()
    };
    let mut log = open(folder.path(), options.clone());
    let mut most = 0;
    while log.next_offset() < 200 {
        append(&mut log, 5).unwrap();
        most = most.max(copies(folder.path()).len());
    }
    // Each segment is safe, its end included, before the one after the next begins.
    assert_eq!(most, 2);
    let left: Vec<_> = copies(folder.path())
        .into_iter()
        .map(|copy| (fs::read(&copy).unwrap(), copy))
        .collect();
    drop(log);
    // As if it had been killed there; and an earlier segment, which the disk has, had a copy too.
    let firsts = segment::list(folder.path()).unwrap();
    let earlier = firsts[firsts.len() - 4];
    for (content, copy) in &left {
        fs::write(copy, content).unwrap();
    }
    let name = left[0].1.to_str().unwrap();
    let stray = format!("{}{earlier:020}", &name[..name.len() - 20]);
    fs::copy(segment::path(folder.path(), earlier), stray).unwrap();
    let mut log = open(folder.path(), options.clone());
    assert_eq!(log.next_offset(), 200);
    log.sync().unwrap();
    drop(log);
    assert_eq!(copies(folder.path()).len(), 0);
    assert_eq!(read(folder.path(), From::First), (0, 200));
    fs::remove_file(Tail::path(folder.path()).unwrap()).unwrap();
}

#[test]
fn a_reader_may_look_behind_the_end_of_a_log_that_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    log.leave_memory().unwrap();
    let mut follower = Follower::open(folder.path(), From::First, false).unwrap();
    // Until the last frame ends with a page.
    while !log.bytes().is_multiple_of(4096) {
        append(&mut log, 1).unwrap();
        while follower.next_batch().unwrap().is_some() {}
    }
    let end = log.next_offset();
    drop(log);
    let mut log = open(folder.path(), options());
    append(&mut log, 3).unwrap();
    assert_eq!(follower.next_batch().unwrap().unwrap().next_offset(), end + 3);
    log.tail().remove();
}

#[test]
fn a_segment_that_is_old_is_closed_by_what_comes() {
    let folder = tempfile::tempdir().unwrap();
    let age = Duration::from_millis(50);
    let mut log = open(
        folder.path(),
        Options {
            retain_age: Some(age),
            ..options()
        },
    );
    append(&mut log, 3).unwrap();
    assert!(!log.needs_segment(0));
    std::thread::sleep(2 * age);
    assert!(log.needs_segment(0));
    append(&mut log, 3).unwrap();
    log.sync().unwrap();
    std::thread::sleep(2 * age);
    assert_eq!((log.retain().unwrap(), log.first_offset()), (1, 3));
    log.tail().remove();
}

#[test]
fn streams_are_those_of_the_last_frame_of_state() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(folder.path(), options());
    let one = br#"{"streams":[{"name":"s","attributes":[["x","int"]]}],"known":[7]}"#;
    let two = br#"{"streams":[{"name":"s","attributes":[["x","int"]]},{"name":"t","attributes":[]}],"known":[7,8]}"#;
    let mut follower = Follower::open(folder.path(), From::First, false).unwrap();
    // What is known of streams changes nothing; that one comes, goes and comes again does.
    for (state, names, generation) in [
        (STATE, "s", 1),
        (one, "s", 1),
        (two, "s t", 2),
        (two, "s t", 2),
        (one, "s", 3),
        (two, "s t", 4),
    ] {
        log.stage_state(state);
        append(&mut log, 1).unwrap();
        assert!(follower.advance().unwrap());
        let found: Vec<&str> = follower.streams().iter().map(|stream| stream.name.as_str()).collect();
        assert_eq!((found.join(" ").as_str(), follower.generation()), (names, generation));
    }
    log.tail().remove();
}
