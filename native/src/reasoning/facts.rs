//! Triples of numbers, in three orders, so that any pattern is a range of one of them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use hashbrown::HashMap;

use super::terms::Triple;

/// A pattern: terms that are given, and others.
pub type Pattern = [Option<u32>; 3];

/// A set of triples.
#[derive(Default)]
pub struct Facts {
    spo: BTreeSet<Triple>,
    pos: BTreeSet<Triple>,
    osp: BTreeSet<Triple>,
    by_predicate: HashMap<u32, usize>,
}

impl Facts {
    /// Adds a triple; whether it is new.
    pub fn insert(&mut self, [s, p, o]: Triple) -> bool {
        let is_new = self.spo.insert([s, p, o]);
        if is_new {
            self.pos.insert([p, o, s]);
            self.osp.insert([o, s, p]);
            *self.by_predicate.entry(p).or_default() += 1;
        }
        is_new
    }

    /// Adds many at once, which is faster than one by one where there are none yet.
    pub fn fill(&mut self, triples: Vec<Triple>) {
        if !self.spo.is_empty() {
            for triple in triples {
                self.insert(triple);
            }
            return;
        }
        let mut rows = triples;
        rows.sort_unstable();
        rows.dedup();
        for row in &rows {
            *self.by_predicate.entry(row[1]).or_default() += 1;
        }
        self.pos = rows.iter().map(|&[s, p, o]| [p, o, s]).collect();
        self.osp = rows.iter().map(|&[s, p, o]| [o, s, p]).collect();
        self.spo = rows.into_iter().collect();
    }

    /// Removes a triple; whether it was there.
    pub fn remove(&mut self, [s, p, o]: Triple) -> bool {
        let was_there = self.spo.remove(&[s, p, o]);
        if was_there {
            self.pos.remove(&[p, o, s]);
            self.osp.remove(&[o, s, p]);
            if let Some(count) = self.by_predicate.get_mut(&p) {
                *count -= 1;
            }
        }
        was_there
    }

    /// Whether a triple is there.
    pub fn contains(&self, triple: Triple) -> bool {
        self.spo.contains(&triple)
    }

    /// How many triples there are.
    pub fn len(&self) -> usize {
        self.spo.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spo.is_empty()
    }

    /// All triples, by subject.
    pub fn iter(&self) -> impl Iterator<Item = &Triple> {
        self.spo.iter()
    }

    /// How many triples have this predicate.
    pub fn with_predicate(&self, predicate: u32) -> usize {
        self.by_predicate.get(&predicate).copied().unwrap_or(0)
    }

    /// Whether a triple of the pattern is there.
    pub fn any(&self, pattern: Pattern) -> bool {
        self.visit(pattern, &mut |_| ControlFlow::Break(())).is_break()
    }

    /// Calls `f` with each triple of the pattern until it says Break.
    pub fn visit(&self, pattern: Pattern, f: &mut impl FnMut(Triple) -> ControlFlow<()>) -> ControlFlow<()> {
        match pattern {
            [Some(s), Some(p), Some(o)] => {
                if self.spo.contains(&[s, p, o]) {
                    f([s, p, o])?;
                }
            }
            [Some(s), p, None] => {
                for &triple in self.spo.range(between(s, p)) {
                    f(triple)?;
                }
            }
            [None, Some(p), o] => {
                for &[p, o, s] in self.pos.range(between(p, o)) {
                    f([s, p, o])?;
                }
            }
            [s, None, Some(o)] => {
                for &[o, s, p] in self.osp.range(between(o, s)) {
                    f([s, p, o])?;
                }
            }
            [None, None, None] => {
                for &triple in &self.spo {
                    f(triple)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The range of rows that begin with these terms.
fn between(first: u32, second: Option<u32>) -> std::ops::RangeInclusive<Triple> {
    match second {
        Some(second) => [first, second, 0]..=[first, second, u32::MAX],
        None => [first, 0, 0]..=[first, u32::MAX, u32::MAX],
    }
}
