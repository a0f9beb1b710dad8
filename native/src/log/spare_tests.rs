//! Tests of segments that are written over: of a log in memory, and only where nobody reads them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::follower::From;
use super::tests::{append, open, options, read};
use super::*;

/// A log in memory with short segments, of which few are kept.
fn in_memory() -> (tempfile::TempDir, Options) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = Options {
        durability: Durability::None,
        segment_bytes: 1024,
        retain_bytes: Some(3000),
        ..options()
    };
    (folder, options)
}

/// Appends until so many segments have begun; the numbers of the files that they are in.
fn roll(log: &mut Log, folder: &Path, segments: usize) -> Vec<u64> {
    let last = || *segment::list(folder).unwrap().last().unwrap();
    let mut written = Vec::new();
    while written.len() < segments {
        let before = last();
        while last() == before {
            append(log, 5).unwrap();
        }
        written.push(fs::metadata(segment::path(folder, last())).unwrap().ino());
    }
    written
}

fn spares(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "spare"))
        .count()
}

#[test]
fn in_memory_a_segment_that_nobody_reads_is_written_over() {
    let (folder, options) = in_memory();
    let folder = folder.path();
    let mut log = open(folder, options);
    let mut follower = Follower::open(folder, From::First, false).unwrap();
    let mut expected = 0;
    let mut files = Vec::new();
    for _ in 0..10 {
        files.extend(roll(&mut log, folder, 4));
        while let Some(batch) = follower.next_batch().unwrap() {
            assert!(
                batch
                    .records()
                    .map(|(offset, _)| offset)
                    .eq(expected..batch.next_offset())
            );
            expected = batch.next_offset();
        }
        log.retain().unwrap();
        assert_eq!(read(folder, From::First), (log.first_offset(), log.next_offset()));
        assert!(log.bytes() <= 3000);
        assert!(spares(folder) <= 4);
    }
    assert_eq!(expected, log.next_offset());
    assert!(log.first_offset() > 0);
    files.sort_unstable();
    files.dedup();
    assert!(files.len() <= 8, "{} files for 40 segments", files.len());
    // Where fewer segments are begun, fewer files wait for one.
    log.retain().unwrap();
    assert_eq!(spares(folder), 0);
    roll(&mut log, folder, 4);
    log.retain().unwrap();
    assert!(spares(folder) > 0);
    drop(log);
    assert_eq!(spares(folder), 0);
}

#[test]
fn in_memory_a_segment_that_is_read_is_not_written_over() {
    let (folder, options) = in_memory();
    let folder = folder.path();
    let mut log = open(folder, options);
    append(&mut log, 5).unwrap();
    let mut slow = Follower::open(folder, From::First, false).unwrap();
    assert_eq!(slow.next_batch().unwrap().unwrap().next_offset(), 5);
    let held = fs::metadata(segment::path(folder, 0)).unwrap().ino();
    for _ in 0..5 {
        assert!(!roll(&mut log, folder, 4).contains(&held));
        log.retain().unwrap();
    }
    assert!(log.first_offset() > 20);
    // What it stood in is as it was, to its end; only what came next has gone.
    let mut next = 5;
    let gone = loop {
        match slow.next_batch() {
            Ok(Some(batch)) => next = batch.next_offset(),
            Ok(None) => panic!("there is more"),
            Err(error) => break error,
        }
    };
    assert!(matches!(gone, Error::Gone { .. }), "{gone:?}");
    assert!(next >= 10);
}

#[test]
fn what_stood_in_a_file_that_is_written_over_is_not_taken_for_the_log() {
    let (folder, options) = in_memory();
    let folder = folder.path();
    let mut log = open(folder, options.clone());
    for _ in 0..3 {
        roll(&mut log, folder, 4);
        log.retain().unwrap();
    }
    roll(&mut log, folder, 1);
    let (first, next) = (log.first_offset(), log.next_offset());
    let path = segment::path(folder, *segment::list(folder).unwrap().last().unwrap());
    let written = fs::read(&path).unwrap();
    let end = segment::scan(folder, *segment::list(folder).unwrap().last().unwrap(), |_| ()).unwrap();
    assert!(
        written[end.end as usize..].iter().any(|byte| *byte != 0),
        "nothing stood there before"
    );
    // As if it had been killed: what it does at its end is undone.
    drop(log);
    fs::write(&path, &written).unwrap();
    fs::write(folder.join("00000000000000000000.spare"), "left").unwrap();
    let mut log = open(folder, options.clone());
    assert_eq!((log.first_offset(), log.next_offset()), (first, next));
    assert_eq!(spares(folder), 0);
    append(&mut log, 5).unwrap();
    assert_eq!(read(folder, From::First), (first, next + 5));
    // And where it had only been made the next segment's: what it has is of an earlier one.
    while !log.needs_segment(1024) {
        append(&mut log, 1).unwrap();
    }
    roll(&mut log, folder, 1);
    let (first, next) = (log.first_offset(), log.next_offset());
    let last = *segment::list(folder).unwrap().last().unwrap();
    drop(log);
    fs::write(segment::path(folder, last), &written).unwrap();
    let log = open(folder, options);
    assert_eq!((log.first_offset(), log.next_offset()), (first, last));
    assert!(last < next);
}
