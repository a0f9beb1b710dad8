//! The flight recorder: the last moments of every thread's scheduling, to be looked at as a trace in Perfetto or Chrome.
//!
//! Each thread writes into blocks of its own, mostly a word of 32 bits a moment: what; which; and how long after the moment before.
//! When the last block is full it goes on with the first, if what is in the second is old enough to go, and with one more if
//! not. So a thread that does little has little memory, and one at its limit some seconds all the same. Memory that was never
//! written is not there, and a block is a page.
//!
//! Who reads while a thread writes may lose the oldest block, never wait.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt::Write as _;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use memmap2::{Advice, MmapMut};

use crate::json::Json;

/// Words of a block: a page.
const BLOCK: usize = 1024;
/// Blocks that a thread has at most.
const BLOCKS: usize = 512;
/// So far back a thread keeps what it did, in nanoseconds, as far as the blocks go.
const SPAN: u64 = 10_000_000_000;

/// A block begins with its number, from 1 on (0: it is just being begun), and the time of its first moment, lower half first.
const HEAD: usize = 3;
/// The words of a moment at most, and one that ends the block.
const MOST: usize = 4;

/// Nanoseconds of a tick.
const TICK: u64 = 16;
/// A word has 4 bits for what, 12 for which, 16 for how long after the one before. What has no room there follows, in words of
/// 28 bits: more of the time, then more of which.
const WHICH: u64 = 12;
const TIME: u64 = 16;
const MORE: u64 = 28;
const MORE_TIME: u32 = 14;
const MORE_WHICH: u32 = 15;

/// What a thread did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Began to run an operator; a lane, to take a batch of the log.
    Begin = 1,
    /// That is done.
    End,
    /// Took a supplier event.
    Take,
    /// Moved an event to an operator of another level.
    Move,
    /// An operator was invoked and let go of its inputs.
    Shed,
    /// Found nothing to do.
    Sleep,
    /// Was woken.
    Wake,
    /// Waited, so as not to take all time from threads that are not real-time.
    Pause,
}

impl What {
    fn named(number: u32) -> Option<What> {
        let all = [
            What::Begin,
            What::End,
            What::Take,
            What::Move,
            What::Shed,
            What::Sleep,
            What::Wake,
            What::Pause,
        ];
        all.into_iter().find(|what| *what as u32 == number)
    }
}

/// Words of 0, from the kernel: an allocator may hand out used memory, which it has to write first.
#[derive(Debug)]
struct Words {
    first: NonNull<AtomicU32>,
    _map: MmapMut,
}

// SAFETY: the memory is the map's, which goes with it, and is reached as atomics only.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    const COUNT: usize = BLOCKS * BLOCK;

    fn new() -> Words {
        let layout = Layout::new::<[AtomicU32; Words::COUNT]>();
        let mut map = MmapMut::map_anon(layout.size()).unwrap_or_else(|_| handle_alloc_error(layout));
        // One page at a time: a large one would be there as a whole.
        let _ = map.advise(Advice::NoHugePage);
        let first = NonNull::from(&mut map[0]).cast();
        Words { first, _map: map }
    }
}

impl Deref for Words {
    type Target = [AtomicU32];

    #[inline]
    fn deref(&self) -> &[AtomicU32] {
        // SAFETY: so many words are there, aligned as pages are, and 0 is one.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), Words::COUNT) }
    }
}

/// A moment: when, in nanoseconds, what, and which.
type Moment = (u64, What, usize);

/// The blocks of one thread.
#[derive(Debug)]
pub struct Track {
    name: String,
    words: Words,
    /// Only the track's own thread uses these: the next word, how many blocks it has, the number of the last one, and
    /// when the last moment was, in ticks.
    next: AtomicUsize,
    used: AtomicUsize,
    number: AtomicU32,
    last: AtomicU64,
}

impl Track {
    /// Of a thread of that name.
    pub fn new(name: String) -> Track {
        Track {
            name,
            words: Words::new(),
            next: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            number: AtomicU32::new(0),
            last: AtomicU64::new(0),
        }
    }

    /// Notes a moment; only the track's own thread does.
    #[inline]
    pub fn note(&self, nanoseconds: u64, what: What, which: usize) {
        let ticks = (nanoseconds / TICK).max(self.last.load(Ordering::Relaxed));
        let which = which as u64;
        let mut at = self.next.load(Ordering::Relaxed);
        if at.is_multiple_of(BLOCK) || at % BLOCK > BLOCK - MOST {
            at = self.begin_block(at, ticks);
        }
        let since = ticks - self.last.load(Ordering::Relaxed);
        let mut end = at + 1;
        for (kind, more) in [(MORE_TIME, since >> TIME), (MORE_WHICH, which >> WHICH)] {
            if more > 0 {
                let more = more.min((1 << MORE) - 1) as u32;
                self.words[end].store(more << 4 | kind, Ordering::Relaxed);
                end += 1;
            }
        }
        self.words[end].store(0, Ordering::Relaxed);
        let time = (since & ((1 << TIME) - 1)) as u32;
        let low = (which & ((1 << WHICH) - 1)) as u32;
        let word = (time << 16) | (low << 4) | what as u32;
        // Last, so that who reads it finds what belongs to it, and the end behind that.
        self.words[at].store(word, Ordering::Release);
        self.last.store(ticks, Ordering::Relaxed);
        self.next.store(end, Ordering::Relaxed);
    }

    /// Goes on in another block; where its first moment is to be.
    #[cold]
    fn begin_block(&self, at: usize, ticks: u64) -> usize {
        let used = self.used.load(Ordering::Relaxed);
        let mut block = at.div_ceil(BLOCK);
        if block == used {
            let is_kept = || ticks.saturating_sub(self.begun(1)) < SPAN / TICK;
            if used < 2 || (used < BLOCKS && is_kept()) {
                self.used.store(used + 1, Ordering::Relaxed);
            } else {
                block = 0;
            }
        }
        let words = &self.words[block * BLOCK..];
        let number = self.number.load(Ordering::Relaxed).wrapping_add(1).max(1);
        words[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        words[1].store(ticks as u32, Ordering::Relaxed);
        words[2].store((ticks >> 32) as u32, Ordering::Relaxed);
        words[HEAD].store(0, Ordering::Relaxed);
        words[0].store(number, Ordering::Release);
        self.number.store(number, Ordering::Relaxed);
        self.last.store(ticks, Ordering::Relaxed);
        block * BLOCK + HEAD
    }

    /// When the first moment of a block was, in ticks.
    fn begun(&self, block: usize) -> u64 {
        let word = |place: usize| u64::from(self.words[block * BLOCK + place].load(Ordering::Relaxed));
        word(2) << 32 | word(1)
    }

    /// What is in a block, with its number; None: nothing, or it is being overwritten.
    fn read(&self, block: usize) -> Option<(u32, Vec<Moment>)> {
        let words = &self.words[block * BLOCK..][..BLOCK];
        let number = words[0].load(Ordering::Acquire);
        let mut found: Vec<(u64, u32, u64)> = Vec::with_capacity(BLOCK);
        let mut ticks = self.begun(block);
        for word in &words[HEAD..] {
            let word = word.load(Ordering::Acquire);
            let more = u64::from(word >> 4);
            match (word & 0xf, found.last_mut()) {
                (0, _) => break,
                (MORE_TIME, Some((time, ..))) => {
                    ticks = ticks.wrapping_add(more << TIME);
                    *time = ticks;
                }
                (MORE_WHICH, Some((.., which))) => *which |= more << WHICH,
                (what, _) => {
                    ticks = ticks.wrapping_add(u64::from(word >> 16));
                    found.push((ticks, what, more & ((1 << WHICH) - 1)));
                }
            }
        }
        fence(Ordering::Acquire);
        let is_whole = number != 0 && words[0].load(Ordering::Relaxed) == number;
        let moments = found.into_iter().filter_map(|(ticks, what, which)| {
            let what = What::named(what)?;
            Some((ticks * TICK, what, which as usize))
        });
        is_whole.then(|| (number, moments.collect()))
    }

    /// What it did last, the oldest first.
    fn moments(&self) -> impl Iterator<Item = Moment> {
        let used = self.used.load(Ordering::Relaxed);
        let mut blocks: Vec<(u32, Vec<Moment>)> = (0..used).filter_map(|block| self.read(block)).collect();
        blocks.sort_unstable_by_key(|(number, _)| *number);
        blocks.into_iter().flat_map(|(_, moments)| moments)
    }
}

/// The tracks as a trace in the format of Chrome's tracer, which Perfetto opens.
///
/// With each, the names of what it has to do with, by number.
pub fn trace<'t>(tracks: impl Iterator<Item = (&'t Track, &'t [&'t str])>) -> String {
    // Written as text, of one line: as a tree it would be ten times as large.
    let mut text = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    let quoted = |name: &str| Json::from(name).to_string();
    for (number, (track, names)) in tracks.enumerate() {
        let thread = number + 1;
        let separator = if number == 0 { "" } else { "," };
        let name = quoted(&track.name);
        let _ = write!(
            text,
            r#"{separator}{{"ph":"M","name":"thread_name","pid":1,"tid":{thread},"args":{{"name":{name}}}}},{{"ph":"M","name":"thread_sort_index","pid":1,"tid":{thread},"args":{{"sort_index":{thread}}}}}"#
        );
        let mut is_open = false;
        for (time, what, which) in track.moments() {
            let name = names.get(which).copied().unwrap_or("?");
            let (phase, name) = match what {
                What::Begin => ("B", quoted(name)),
                // Its beginning may have been overwritten.
                What::End if !is_open => continue,
                What::End => ("E", quoted(name)),
                What::Take => ("i", quoted(&format!("take {name}"))),
                What::Move => ("i", quoted(&format!("move to {name}"))),
                What::Shed => ("i", quoted(&format!("shed at {name}"))),
                What::Sleep => ("i", quoted("sleep")),
                What::Wake => ("i", quoted("wake")),
                What::Pause => ("i", quoted("pause")),
            };
            match what {
                What::Begin => is_open = true,
                What::End => is_open = false,
                _ => {}
            }
            let scope = if phase == "i" { r#","s":"t""# } else { "" };
            let (whole, rest) = (time / 1_000, time % 1_000);
            let _ = write!(
                text,
                ",{{\"ph\":\"{phase}\",\"name\":{name},\"pid\":1,\"tid\":{thread},\"ts\":{whole}.{rest:03}{scope}}}"
            );
        }
    }
    text.push_str("]}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(track: &Track) -> Vec<u64> {
        track.moments().map(|(time, ..)| time).collect()
    }

    #[test]
    fn a_trace_has_the_last_moments_in_order() {
        let track = Track::new("\"the\" worker".to_owned());
        assert!(times(&track).is_empty());
        for turn in 0..20_000 {
            let what = if turn % 2 == 0 { What::Begin } else { What::End };
            track.note(turn * 16_000, what, 0);
        }
        let text = trace([(&track, &["fused"][..])].into_iter());
        let json: Json = serde_json::from_str(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let times: Vec<f64> = events.iter().filter_map(|e| e["ts"].as_f64()).collect();
        assert!(times.is_sorted());
        assert_eq!(*times.last().unwrap(), 19_999.0 * 16.0);
        assert_eq!(times.len(), 20_000);
        assert_eq!(events[0]["args"]["name"], "\"the\" worker");
        assert_eq!(events.last().unwrap()["name"], "fused");
    }

    #[test]
    fn what_is_far_apart_and_great_numbers_come_back_as_they_were() {
        let track = Track::new("worker".to_owned());
        let mut noted = Vec::new();
        let mut time = 1 << 50;
        for turn in 0..20_000_u64 {
            time += [16, 160, 48_000, 5_000_000_000, 3_600_000_000_000][turn as usize % 5];
            let which = [0, 4095, 4096, 1_000_000][turn as usize % 4];
            noted.push((time, What::Take, which));
            track.note(time, What::Take, which);
        }
        let found: Vec<Moment> = track.moments().collect();
        assert!(
            found.len() > 500 && noted.ends_with(&found),
            "{} of {}",
            found.len(),
            noted.len()
        );
    }

    /// However long it runs, a thread that does little has little memory; one that does much has the last seconds.
    #[test]
    fn blocks_are_as_many_as_what_is_kept_takes() {
        let track = Track::new("worker".to_owned());
        let run = |from: u64, seconds: u64, rate: u64| {
            for turn in 0..seconds * rate {
                track.note(from + turn * 1_000_000_000 / rate, What::Take, 1);
            }
            (track.used.load(Ordering::Relaxed), times(&track))
        };
        let (calm, kept) = run(0, 600, 500);
        assert!(calm < 16, "{calm}");
        assert!(kept[0] < 590_000_000_000);
        let (busy, kept) = run(600_000_000_000, 12, 150_000);
        assert_eq!(busy, BLOCKS);
        assert!(kept[0] < 609_000_000_000 && kept.is_sorted() && kept.last() > Some(&611_999_000_000));
    }

    #[test]
    fn who_reads_while_it_is_written_sees_nothing_torn() {
        let track = Track::new("worker".to_owned());
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 1..2_000_000_u64 {
                    track.note(turn * 7_000_000, What::Take, (turn % 5_000) as usize);
                }
                is_done.store(true, Ordering::SeqCst);
            });
            let mut looks = 0;
            while !is_done.load(Ordering::SeqCst) || looks == 0 {
                let found: Vec<Moment> = track.moments().collect();
                assert!(found.is_sorted_by_key(|(time, ..)| *time));
                for (time, what, which) in found {
                    assert!(
                        what == What::Take && which as u64 == time.div_ceil(7_000_000) % 5_000,
                        "{time} {which}"
                    );
                }
                looks += 1;
            }
        });
    }
}
