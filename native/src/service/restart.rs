//! Where a lane begins again after a restart: late enough to be quick, early enough to find the same.
//!
//! What queries hold follows from the log. So a lane goes back to a point behind which every event is out of reach of all
//! of them: their windows have passed it, or nothing was held there. Where time does not bound what a query holds
//! (sessions, AFTER MATCH, a limit) only the latter counts, and before there is such a point the whole log does. What somebody has
//! not acknowledged is found again too: no point is begun at that is behind what was in reach then.
//!
//! Where nothing else keeps what a log has forgotten, the log is asked to keep what is needed from that point on. What time
//! does not bound it is not asked for, because that may be everything: only what is in reach of the windows that there are.
//!
//! The point is a small file beside the log, as old as the point is:
//!
//! ```text
//! offset 4711
//! keep 4711                         what the log is asked to keep (log/consumers.rs)
//! stream 1336381200000000 air       the greatest time seen there, by stream
//! query 9f0c...                     the plans that it is good for
//! ```

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::bounds::FOREVER;
use crate::digest::hex;
use crate::log::consumers::KEEP;
use crate::plan::{After, Kind, Plan};

/// So many points are remembered; then every other one is forgotten, which makes a restart a little longer.
const MARKS: usize = 64;

/// How far back from the watermark events matter to a query; None: time does not say.
pub fn reach(plan: &Plan, has_limit: bool) -> Option<i64> {
    if has_limit || plan.after != After::Keep {
        return None;
    }
    window(plan)
}

/// How far back events matter to a query's windows, whatever else it holds; None: time does not say.
fn window(plan: &Plan) -> Option<i64> {
    match plan.moving {
        Some((Kind::Sliding | Kind::Batch, size)) => Some(size),
        Some(_) => None,
        None if plan.horizon >= FOREVER => None,
        // An open first step looks back from events that are kept themselves.
        None => Some(plan.horizon.max(0).saturating_mul(2)),
    }
}

/// A place in the log, and how far the streams had come there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The next record's offset.
    pub offset: u64,
    /// The greatest time seen, by stream; nothing of those that had no event.
    pub streams: Vec<(String, i64)>,
}

impl Point {
    fn greatest(&self) -> i64 {
        self.streams.iter().map(|(_, time)| *time).max().unwrap_or(i64::MIN)
    }
}

/// A point that a lane has passed, with this watermark.
#[derive(Debug)]
struct Passed {
    point: Point,
    watermark: i64,
    holds_nothing: bool,
}

/// The points that a lane has passed.
#[derive(Debug)]
pub struct Marks {
    reach: Option<i64>,
    /// How far back the log is asked to keep what there is; None: it is asked for nothing.
    keeps: Option<i64>,
    checks: Vec<String>,
    path: PathBuf,
    points: VecDeque<Passed>,
    /// What is to be in the file, and what is.
    point: Option<Point>,
    keep: Option<u64>,
    written: String,
}

impl Marks {
    /// For these plans, each with whether it has a limit, in a folder and under a name; what the log forgets may be in an archive.
    pub fn new<'p>(
        plans: impl Iterator<Item = (&'p Plan, bool)> + Clone,
        folder: &Path,
        name: &str,
        is_archived: bool,
    ) -> Marks {
        let mut reaches = plans.clone().map(|(plan, has_limit)| reach(plan, has_limit));
        let windows = plans.clone().filter_map(|(plan, _)| window(plan));
        Marks {
            reach: reaches.try_fold(0, |most: i64, one| Some(most.max(one?))),
            keeps: windows.max().filter(|_| !is_archived),
            checks: plans.map(|(plan, _)| hex(&plan.check)).collect(),
            path: folder.join(format!("{name}.restart")),
            points: VecDeque::new(),
            point: None,
            keep: None,
            written: String::new(),
        }
    }

    /// The lane begins at a point. What it needs from there on the log is asked for at once.
    pub fn begin(&mut self, point: Point) -> io::Result<()> {
        if self.keeps.is_none() {
            return Ok(());
        }
        self.keep = Some(point.offset);
        self.point = Some(point);
        self.write()
    }

    /// The point to begin at, if one was kept that is good for all plans.
    pub fn read(&self) -> Option<Point> {
        let text = fs::read_to_string(&self.path).ok()?;
        let mut point = Point::default();
        let mut known = Vec::new();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ')?;
            match word {
                "offset" => point.offset = rest.parse().ok()?,
                KEEP => {}
                "stream" => {
                    let (time, name) = rest.split_once(' ')?;
                    point.streams.push((name.to_owned(), time.parse().ok()?));
                }
                "query" => known.push(rest),
                _ => return None,
            }
        }
        let is_good = self.checks.iter().all(|check| known.contains(&check.as_str()));
        is_good.then_some(point)
    }

    /// The lane is at a point, with this watermark; the latest one that can be begun at is kept. What was found behind the offset `held`
    /// is to be found again.
    pub fn pass(&mut self, point: Point, watermark: i64, holds_nothing: bool, held: u64) -> io::Result<()> {
        if holds_nothing && point.offset <= held {
            self.points.clear();
            self.keep = self.keeps.map(|_| point.offset);
            self.point = Some(point);
            return self.write();
        }
        if self.points.len() >= MARKS {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        if holds_nothing || self.reach.is_some() || self.keeps.is_some() {
            self.points.push_back(Passed {
                point,
                watermark,
                holds_nothing,
            });
        }
        let behind = self.points.partition_point(|passed| passed.point.offset <= held);
        let there = behind.checked_sub(1).map(|last| self.points[last].watermark);
        let latest = |reach: Option<i64>| {
            let needed = there.zip(reach).map(|(there, reach)| there.saturating_sub(reach));
            let is_out_of_reach = |passed: &Passed| needed.is_some_and(|needed| passed.point.greatest() < needed);
            let is_good = |passed: &Passed| passed.holds_nothing || is_out_of_reach(passed);
            self.points.range(..behind).rposition(is_good)
        };
        let begin = latest(self.reach);
        // Where nothing was held, nothing older is needed either: this is never before that.
        let keep = self.keeps.and_then(|_| latest(self.keeps)).max(begin);
        if let Some(at) = begin {
            self.point = Some(self.points[at].point.clone());
        }
        if let Some(at) = keep {
            self.keep = self.keeps.map(|_| self.points[at].point.offset);
            self.points.drain(..=at);
        }
        self.write()
    }

    /// Writes the point, if it is another than the one that is there.
    fn write(&mut self) -> io::Result<()> {
        let Some(point) = &self.point else {
            return Ok(());
        };
        let mut text = format!("offset {}\n", point.offset);
        if let Some(keep) = self.keep {
            let _ = writeln!(text, "{KEEP} {keep}");
        }
        for (name, time) in &point.streams {
            let _ = writeln!(text, "stream {time} {name}");
        }
        for check in &self.checks {
            let _ = writeln!(text, "query {check}");
        }
        if text == self.written {
            return Ok(());
        }
        // Beside it and moved over, so that a crash leaves the old point or the new one.
        let beside = self.path.with_extension("restart.new");
        fs::write(&beside, &text)?;
        fs::rename(&beside, &self.path)?;
        self.written = text;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::consumers::needed_by_lanes;

    fn at(offset: u64, time: i64) -> Point {
        Point {
            offset,
            streams: vec![("air flow".to_owned(), time)],
        }
    }

    fn marks(folder: &Path, reach: Option<i64>) -> Marks {
        Marks {
            reach,
            keeps: None,
            checks: vec!["ab".to_owned()],
            path: folder.join("queries-0.restart"),
            points: VecDeque::new(),
            point: None,
            keep: None,
            written: String::new(),
        }
    }

    fn needed(folder: &Path) -> u64 {
        needed_by_lanes(folder, u64::MAX).unwrap()
    }

    #[test]
    fn the_latest_point_out_of_reach_is_begun_at() {
        let folder = tempfile::tempdir().unwrap();
        let mut marks = marks(folder.path(), Some(100));
        for number in 0..1000 {
            marks
                .pass(at(number, 10 * number as i64), 10 * number as i64, false, u64::MAX)
                .unwrap();
            assert!(marks.points.len() <= MARKS);
        }
        let found = marks.read().unwrap();
        assert!(found.streams[0].1 < 9_990 - 100 && found.offset > 950, "{found:?}");
    }

    #[test]
    fn where_time_says_nothing_only_an_empty_state_does() {
        let folder = tempfile::tempdir().unwrap();
        let mut marks = marks(folder.path(), None);
        marks.pass(at(1, 10), 10, false, u64::MAX).unwrap();
        assert_eq!(marks.read(), None);
        marks.pass(at(2, 20), 20, true, u64::MAX).unwrap();
        marks.pass(at(3, 9_000), 9_000, false, u64::MAX).unwrap();
        assert_eq!(marks.read(), Some(at(2, 20)));
    }

    #[test]
    fn what_is_not_acknowledged_stays_in_reach() {
        let folder = tempfile::tempdir().unwrap();
        let mut marks = marks(folder.path(), Some(100));
        for number in 0..50 {
            let time = 10 * number as i64;
            marks.pass(at(number, time), time, number == 45, 30).unwrap();
        }
        assert_eq!(
            marks.read(),
            Some(at(19, 190)),
            "at 300, where it is held, 190 was just out of reach"
        );
        marks.pass(at(50, 500), 500, false, 46).unwrap();
        assert_eq!(marks.read(), Some(at(45, 450)), "nothing was held there");
    }

    #[test]
    fn the_log_is_asked_for_what_windows_reach_and_for_nothing_that_has_no_bound() {
        let folder = tempfile::tempdir().unwrap();
        for (reach, keeps) in [(Some(100), Some(100)), (None, Some(100)), (None, None)] {
            let mut marks = marks(folder.path(), reach);
            marks.keeps = keeps;
            marks.begin(at(7, 70)).unwrap();
            for number in 8..1000 {
                let time = 10 * number as i64;
                marks.pass(at(number, time), time, false, u64::MAX).unwrap();
                assert!(marks.points.len() <= MARKS);
                // At most what is out of reach now, and soon that.
                assert!(keeps.is_none() || needed(folder.path()) <= number.saturating_sub(10).max(7));
            }
            assert_eq!(
                marks.read().map(|point| point.offset > 900),
                keeps.map(|_| reach.is_some())
            );
            assert_eq!(needed(folder.path()) > 900, keeps.is_some() || reach.is_none());
            marks.pass(at(1000, 10_000), 10_000, true, u64::MAX).unwrap();
            assert_eq!(needed(folder.path()), keeps.map_or(u64::MAX, |_| 1000));
            assert_eq!(marks.read(), Some(at(1000, 10_000)));
            fs::remove_file(&marks.path).unwrap();
        }
    }

    #[test]
    fn another_query_begins_with_the_whole_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut marks = marks(folder.path(), Some(0));
        marks.pass(at(2, 20), 20, true, u64::MAX).unwrap();
        marks.checks.push("cd".to_owned());
        assert_eq!(marks.read(), None);
    }
}
