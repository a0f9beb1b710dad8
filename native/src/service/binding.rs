//! What is bound to an operator, when it may run, and with what: rules G1 to G4, without threads or clocks.
//!
//! An operator with all inputs bound is ready, and the set waits for its turn; so that a burst is not lost, several may
//! wait. Beyond `depth` of them the oldest is replaced. Consistency is judged when the turn comes.

use crate::service::books::Fate;
use crate::service::store::{Head, RELATIVE, STALE, Token};
use crate::service::topology::Relative;

/// An event that an operator holds, with what has to be known to judge it.
#[derive(Debug)]
pub struct Bound {
    /// The right to read it.
    pub token: Token,
    /// What is known of it.
    pub head: Head,
}

/// What judging an operator's inputs found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Inputs that were stale.
    pub stale: u64,
    /// Relative sets that did not hold.
    pub relative: u64,
}

/// Is told the edge and the fate of each event that the operator lets go of.
pub trait Ends {
    /// An event ended here.
    fn end(&mut self, edge: usize, bound: Bound, fate: Fate);
}

impl<F: FnMut(usize, Bound, Fate)> Ends for F {
    fn end(&mut self, edge: usize, bound: Bound, fate: Fate) {
        self(edge, bound, fate);
    }
}

/// What an operator has to know to judge its inputs.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How many edges it has.
    pub edges: usize,
    /// Whether each event fires it by itself.
    pub fire_any: bool,
    /// Whether inconsistent inputs are let go of.
    pub sheds: bool,
    /// How many sets may wait.
    pub depth: usize,
    /// Its relative sets.
    pub relative: Box<[Relative]>,
}

/// The inputs of one operator.
#[derive(Debug)]
pub struct Binding {
    rules: Rules,
    bound: Box<[Option<Bound>]>,
    /// Complete sets that wait, `edges` entries each, as a ring of sets.
    ready: Box<[Option<Bound>]>,
    first: usize,
    count: usize,
}

fn none(count: usize) -> Box<[Option<Bound>]> {
    (0..count).map(|_| None).collect()
}

impl Binding {
    /// With nothing bound.
    pub fn new(rules: Rules) -> Binding {
        Binding {
            bound: none(rules.edges),
            ready: none(rules.edges * rules.depth),
            first: 0,
            count: 0,
            rules,
        }
    }

    /// How many times it could run.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.count
    }

    /// How many events are bound and wait for others.
    pub fn bound(&self) -> usize {
        self.bound.iter().flatten().count()
    }

    /// What is bound and waits for others, by edge.
    pub fn held(&self) -> impl Iterator<Item = (usize, &Bound)> {
        let bound = self.bound.iter().enumerate();
        bound.filter_map(|(edge, bound)| Some((edge, bound.as_ref()?)))
    }

    /// Binds again what `held` gave elsewhere, where nothing is bound yet.
    pub fn hold(&mut self, edge: usize, event: Bound) {
        self.bound[edge] = Some(event);
    }

    /// Lets go of what is bound and waits for others, which will not come: the operator is removed.
    pub fn unbind(&mut self, ends: &mut impl Ends) {
        for edge in 0..self.rules.edges {
            if let Some(bound) = self.bound[edge].take() {
                ends.end(edge, bound, Fate::Shed);
            }
        }
    }

    /// An event has come over an edge.
    pub fn bind(&mut self, edge: usize, event: Bound, ends: &mut impl Ends) {
        if self.rules.fire_any {
            let set = self.next_set(ends);
            self.ready[set + edge] = Some(event);
            return;
        }
        if let Some(older) = self.bound[edge].replace(event) {
            ends.end(edge, older, Fate::Replaced);
        }
        self.complete(ends);
    }

    /// Whether all inputs are bound is judged here, and nowhere else.
    fn complete(&mut self, ends: &mut impl Ends) {
        if self.bound.iter().all(Option::is_some) {
            let set = self.next_set(ends);
            for edge in 0..self.rules.edges {
                self.ready[set + edge] = self.bound[edge].take();
            }
        }
    }

    /// Where the next set that waits goes; where there is no room the oldest one is replaced.
    fn next_set(&mut self, ends: &mut impl Ends) -> usize {
        let (edges, depth) = (self.rules.edges, self.rules.depth);
        if self.count == depth {
            let oldest = self.first * edges;
            for edge in 0..edges {
                if let Some(older) = self.ready[oldest + edge].take() {
                    ends.end(edge, older, Fate::Replaced);
                }
            }
            self.first = (self.first + 1) % depth;
            self.count -= 1;
        }
        self.count += 1;
        (self.first + self.count - 1) % depth * edges
    }

    /// The operator's turn has come: its inputs move into `inputs` (one place an edge), and their labels come back; or it
    /// does not run, because something was let go of or nothing waited.
    pub fn invoke(
        &mut self,
        now: i64,
        inputs: &mut [Option<Bound>],
        found: &mut Found,
        ends: &mut impl Ends,
    ) -> Option<u8> {
        if self.count == 0 {
            return None;
        }
        let set = self.first * self.rules.edges;
        let mut marks = 0;
        for (input, waiting) in inputs.iter_mut().zip(&mut self.ready[set..set + self.rules.edges]) {
            *input = waiting.take();
            if let Some(bound) = input {
                marks |= bound.head.marks;
                found.stale += u64::from(now >= bound.head.end);
            }
        }
        self.first = (self.first + 1) % self.rules.depth;
        self.count -= 1;
        if found.stale > 0 {
            if self.rules.sheds {
                self.let_go(inputs, Fate::Expired, |_, head| now >= head.end, ends);
                return None;
            }
            marks |= STALE;
        }
        for set in 0..self.rules.relative.len() {
            let Some(earliest) = broken(&self.rules.relative[set], inputs) else {
                continue;
            };
            found.relative += 1;
            if self.rules.sheds {
                self.let_go(inputs, Fate::Shed, |edge, _| edge == earliest, ends);
                return None;
            }
            marks |= RELATIVE;
        }
        Some(marks)
    }

    /// Some inputs end; the others stay bound, unless newer ones have come in their place.
    fn let_go(
        &mut self,
        inputs: &mut [Option<Bound>],
        fate: Fate,
        goes: impl Fn(usize, &Head) -> bool,
        ends: &mut impl Ends,
    ) {
        for (edge, input) in inputs.iter_mut().enumerate() {
            let Some(bound) = input.take() else { continue };
            if goes(edge, &bound.head) {
                ends.end(edge, bound, fate);
            } else if self.count > 0 || self.bound[edge].is_some() {
                ends.end(edge, bound, Fate::Replaced);
            } else {
                self.bound[edge] = Some(bound);
            }
        }
        self.complete(ends);
    }
}

/// The edge of the earliest input of a relative set that does not hold; the first of several.
fn broken(relative: &Relative, inputs: &[Option<Bound>]) -> Option<usize> {
    let begins = relative.edges.iter();
    let mut begins = begins.filter_map(|edge| inputs[*edge].as_ref().map(|bound| (bound.head.begin, *edge)));
    let first = begins.next()?;
    let (mut least, mut greatest) = (first, first.0);
    for (begin, edge) in begins {
        greatest = greatest.max(begin);
        if begin < least.0 {
            least = (begin, edge);
        }
    }
    (i128::from(greatest) - i128::from(least.0) > i128::from(relative.within)).then_some(least.1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::service::store::Store;

    /// A binding with two edges that must have begun at most 5 apart, which sheds; and what it lets go of.
    struct Case {
        store: Store,
        binding: Binding,
        ended: Vec<(usize, i64, Fate)>,
    }

    impl Case {
        fn new(depth: usize) -> Case {
            Case {
                store: Store::new([(1, 64)]),
                binding: Binding::new(Rules {
                    edges: 2,
                    fire_any: false,
                    sheds: true,
                    depth,
                    relative: [Relative {
                        edges: [0, 1].into(),
                        within: 5,
                    }]
                    .into(),
                }),
                ended: Vec::new(),
            }
        }

        fn bind(&mut self, edge: usize, begin: i64, end: i64) {
            let head = Head {
                begin,
                end,
                pushed: 0,
                marks: 0,
            };
            let token = self.store.claim(0).unwrap().publish(head);
            let ended = &mut self.ended;
            self.binding
                .bind(edge, Bound { token, head }, &mut |edge, bound: Bound, fate| {
                    ended.push((edge, bound.head.begin, fate));
                });
        }

        /// The beginnings of what the operator runs with.
        fn invoke(&mut self, now: i64) -> Option<Vec<i64>> {
            let mut inputs = [None, None];
            let ended = &mut self.ended;
            let marks = self.binding.invoke(
                now,
                &mut inputs,
                &mut Found::default(),
                &mut |edge, bound: Bound, fate| {
                    ended.push((edge, bound.head.begin, fate));
                },
            );
            marks.map(|_| inputs.iter().flatten().map(|bound| bound.head.begin).collect())
        }

        fn ended(&mut self) -> Vec<(usize, i64, Fate)> {
            std::mem::take(&mut self.ended)
        }
    }

    #[test]
    fn sets_wait_for_their_turn_and_the_oldest_goes() {
        let mut case = Case::new(2);
        for begin in 1..=3 {
            case.bind(0, begin, 100);
            case.bind(1, begin, 100);
        }
        assert_eq!(case.ended(), [(0, 1, Fate::Replaced), (1, 1, Fate::Replaced)]);
        assert_eq!(case.invoke(10), Some(vec![2, 2]));
        assert_eq!(case.invoke(10), Some(vec![3, 3]));
        assert_eq!((case.invoke(10), case.binding.waiting()), (None, 0));
        assert_eq!(case.ended(), []);
    }

    #[test]
    fn what_stays_bound_gives_way_to_a_newer_set_that_waits() {
        let mut case = Case::new(2);
        case.bind(0, 1, 5);
        case.bind(1, 2, 100);
        case.bind(0, 8, 100);
        case.bind(1, 9, 100);
        assert_eq!(case.invoke(10), None);
        assert_eq!(case.ended(), [(0, 1, Fate::Expired), (1, 2, Fate::Replaced)]);
        assert_eq!(case.invoke(10), Some(vec![8, 9]));
    }

    #[test]
    fn what_stays_bound_is_ready_again_with_what_has_come_meanwhile() {
        let mut case = Case::new(2);
        case.bind(0, 1, 100);
        case.bind(1, 9, 100);
        case.bind(0, 8, 100);
        // 1 and 9 are too far apart: the earliest goes, and 9 meets 8.
        assert_eq!(case.invoke(10), None);
        assert_eq!(case.ended(), [(0, 1, Fate::Shed)]);
        assert_eq!(case.invoke(10), Some(vec![8, 9]));
    }
}
