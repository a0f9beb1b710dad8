//! The flight recorder: the last moments of every thread's scheduling, to be looked at as a trace in Perfetto or Chrome.
//!
//! Each thread writes into a ring of its own, a word a moment. Who reads while a thread writes may lose the oldest
//! moments, never wait.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, json};

use crate::json::Json;

/// Moments that are kept, a thread.
pub const MOMENTS: usize = 16_384;

/// Nanoseconds of a tick. The ticks of a moment have 44 bits, which is more than a day.
const TICK: u64 = 8;
/// Where in its word they begin.
const TIME: u32 = 20;
/// The greatest number that is noted.
const WHICH: u64 = 0xffff;

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
    fn named(number: u64) -> Option<What> {
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
        all.into_iter().find(|what| *what as u64 == number)
    }
}

/// Words of 0 that take no memory before they are written: a thread that does little has a long ring at no cost.
fn zeroed(count: usize) -> Box<[AtomicU64]> {
    let words: Box<[u64]> = vec![0; count].into();
    // SAFETY: AtomicU64 has the size, alignment and values of u64, and nobody else has the box.
    unsafe { Box::from_raw(Box::into_raw(words) as *mut [AtomicU64]) }
}

/// The ring of one thread.
#[derive(Debug)]
pub struct Track {
    name: String,
    /// A word a moment: when, in ticks of which the upper bits are left out; what; and which, where it has so small a number.
    words: Box<[AtomicU64]>,
    next: AtomicU64,
    /// When the last moment was, in nanoseconds.
    last: AtomicU64,
}

impl Track {
    /// Of a thread of that name.
    pub fn new(name: String) -> Track {
        Track {
            name,
            words: zeroed(MOMENTS),
            next: AtomicU64::new(0),
            last: AtomicU64::new(0),
        }
    }

    /// Notes a moment; only the track's own thread does.
    #[inline]
    pub fn note(&self, nanoseconds: u64, what: What, which: usize) {
        let next = self.next.load(Ordering::Relaxed);
        let word = (nanoseconds / TICK) << TIME | (which as u64).min(WHICH) << 4 | what as u64;
        self.words[next as usize % MOMENTS].store(word, Ordering::Relaxed);
        self.last.store(nanoseconds, Ordering::Relaxed);
        self.next.store(next + 1, Ordering::Release);
    }

    fn moments(&self) -> Vec<(u64, What, usize)> {
        let next = self.next.load(Ordering::Acquire);
        // The oldest may be being written just now.
        let first = next.saturating_sub(MOMENTS as u64 - 16);
        let last = self.last.load(Ordering::Relaxed) / TICK;
        let read = |place: u64| {
            let moment = self.words[place as usize % MOMENTS].load(Ordering::Relaxed);
            let what = What::named(moment & 0xf)?;
            // How long before the last moment; one that came since then is as old as can be, and left out with the torn.
            let before = last.wrapping_sub(moment >> TIME) & (u64::MAX >> TIME);
            Some((last.saturating_sub(before) * TICK, what, (moment >> 4 & WHICH) as usize))
        };
        let found: Vec<_> = (first..next).filter_map(read).collect();
        // What was overwritten meanwhile is newer than what follows it.
        let torn = found
            .windows(2)
            .rposition(|pair| pair[0].0 > pair[1].0)
            .map_or(0, |place| place + 1);
        found[torn..].to_vec()
    }
}

/// The tracks as a trace in the format of Chrome's tracer, which Perfetto opens.
///
/// With each, the names of what it has to do with, by number.
pub fn trace<'t>(tracks: impl Iterator<Item = (&'t Track, &'t [&'t str])>) -> String {
    let mut events = Vec::new();
    for (number, (track, names)) in tracks.enumerate() {
        let thread = number + 1;
        events.push(json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": track.name}}));
        events.push(
            json!({"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": thread, "args": {"sort_index": thread}}),
        );
        let mut is_open = false;
        for (time, what, which) in track.moments() {
            let name = || names.get(which).copied().unwrap_or("?");
            let (phase, name) = match what {
                What::Begin => ("B", name().to_owned()),
                // Its beginning may have been overwritten.
                What::End if !is_open => continue,
                What::End => ("E", name().to_owned()),
                What::Take => ("i", format!("take {}", name())),
                What::Move => ("i", format!("move to {}", name())),
                What::Shed => ("i", format!("shed at {}", name())),
                What::Sleep => ("i", "sleep".to_owned()),
                What::Wake => ("i", "wake".to_owned()),
                What::Pause => ("i", "pause".to_owned()),
            };
            match what {
                What::Begin => is_open = true,
                What::End => is_open = false,
                _ => {}
            }
            let mut event = Map::new();
            event.insert("ph".into(), phase.into());
            event.insert("name".into(), name.into());
            event.insert("pid".into(), 1.into());
            event.insert("tid".into(), thread.into());
            event.insert("ts".into(), (time as f64 / 1e3).into());
            if phase == "i" {
                event.insert("s".into(), "t".into());
            }
            events.push(Json::Object(event));
        }
    }
    json!({"traceEvents": events, "displayTimeUnit": "ns"}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_the_last_moments_in_order() {
        let track = Track::new("worker".to_owned());
        for turn in 0..3 * MOMENTS as u64 {
            let what = if turn % 2 == 0 { What::Begin } else { What::End };
            track.note(turn * 1_000, what, 0);
        }
        let text = trace([(&track, &["fused"][..])].into_iter());
        let json: Json = serde_json::from_str(&text).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let times: Vec<f64> = events.iter().filter_map(|e| e["ts"].as_f64()).collect();
        assert!(times.len() > MOMENTS - 20 && times.is_sorted());
        assert_eq!(*times.last().unwrap(), (3 * MOMENTS - 1) as f64);
        assert_eq!(events.last().unwrap()["name"], "fused");
    }
}
