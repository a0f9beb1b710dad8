//! The queues of an EventProcessor: InputQ, PendingQ and MovingQ (paper, section 4.1). Each has a bound and never blocks.

use std::collections::VecDeque;

use crate::service::atomics::{AtomicU32, Ordering};
use crate::service::numbers::Numbers;
use crate::service::store::Token;

/// Supplier events that were not taken yet, first come first taken; for any suppliers, who never wait, and one worker at a time,
/// which has its level's lock.
///
/// A stream either queues its events, or keeps one, which a newer one replaces in its place (rule G5). The rings of the
/// streams bound how many can wait, so with room for all of them it is never full.
#[derive(Debug)]
pub struct InputQ {
    /// Tokens, and the numbers of streams that keep one event; a token is never below 65,536.
    order: Numbers,
    kept: Box<[AtomicU32]>,
}

/// What became of an event that was pushed.
#[derive(Debug, PartialEq, Eq)]
pub enum Pushed {
    /// It waits.
    Waits,
    /// It waits in the place of this one.
    Replaced(Token),
    /// There was no room for it.
    Refused(Token),
}

impl InputQ {
    /// Whether it has room for so many events of streams with numbers below `streams`.
    pub fn has_room(&self, room: usize, streams: usize) -> bool {
        self.order.room() >= room && self.kept.len() >= streams
    }

    /// With room for so many events of streams with numbers below `streams`.
    pub fn new(room: usize, streams: usize) -> InputQ {
        InputQ {
            order: Numbers::new(room.max(1)),
            kept: (0..streams).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Puts an event behind the others, or in the place of an older one of its stream.
    #[inline]
    pub fn push(&self, token: Token, replaces: bool) -> Pushed {
        if !replaces {
            let raw = token.into_raw();
            if self.order.push(raw) {
                return Pushed::Waits;
            }
            // SAFETY: this is the number that `into_raw` has just given, and the queue did not take.
            return Pushed::Refused(unsafe { Token::from_raw(raw) });
        }
        let stream = token.ring();
        // Whoever makes it a cell with an event queues the stream, once; whoever finds one there has replaced it.
        match self.kept[stream].swap(token.into_raw(), Ordering::AcqRel) {
            // There is room for each stream once.
            0 => {
                self.order.push(stream as u32);
                Pushed::Waits
            }
            // SAFETY: the number was made of a token, and the swap took it out of the cell, so that nobody else can.
            older => Pushed::Replaced(unsafe { Token::from_raw(older) }),
        }
    }

    /// The next event.
    ///
    /// # Safety
    /// The caller has the lock of the level whose queue this is, or the queue to itself.
    #[inline]
    pub unsafe fn pop(&self) -> Option<Token> {
        // SAFETY: that lock is the one that whoever pops has.
        let found = unsafe { self.order.pop() }?;
        let raw = match self.kept.get(found as usize) {
            Some(kept) => kept.swap(0, Ordering::AcqRel),
            None => found,
        };
        // SAFETY: the number was made of a token, and was taken out of the queue or the cell by this call only. A stream is
        // queued when its cell is filled and its cell is emptied only here, so that it is not 0.
        (raw != 0).then(|| unsafe { Token::from_raw(raw) })
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

/// Operators of one level that are ready, first come first run; each is in it at most once.
#[derive(Debug)]
pub struct PendingQ<O> {
    operators: VecDeque<O>,
}

impl<O> PendingQ<O> {
    /// For so many operators.
    pub fn new(operators: usize) -> PendingQ<O> {
        PendingQ {
            operators: VecDeque::with_capacity(operators),
        }
    }

    /// An operator is ready.
    #[inline]
    pub fn push(&mut self, operator: O) {
        self.operators.push_back(operator);
    }

    /// The operator whose turn it is.
    #[inline]
    pub fn pop(&mut self) -> Option<O> {
        self.operators.pop_front()
    }

    /// Takes an operator out, wherever it stands.
    pub fn take(&mut self, is_it: impl Fn(&O) -> bool) -> Option<O> {
        let place = self.operators.iter().position(is_it)?;
        self.operators.remove(place)
    }

    /// Goes on in the room of an empty one, if that has more; what is left of this is the caller's to drop.
    pub fn move_to(&mut self, mut roomy: PendingQ<O>) -> PendingQ<O> {
        if roomy.operators.capacity() > self.operators.capacity() {
            roomy.operators.append(&mut self.operators);
            std::mem::swap(self, &mut roomy);
        }
        roomy
    }

    /// How many are ready.
    #[inline]
    pub fn len(&self) -> usize {
        self.operators.len()
    }

    /// Whether none is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }
}

/// An edge to an operator of a lower level, with the events on it.
#[derive(Debug)]
pub struct Edge<R> {
    reader: R,
    events: VecDeque<Token>,
    /// The number of the level that it goes to.
    level: usize,
}

impl<R> Edge<R> {
    /// To a reader of a level, with room for so many events.
    pub fn new(reader: R, level: usize, room: usize) -> Edge<R> {
        Edge {
            reader,
            events: VecDeque::with_capacity(room + 1),
            level,
        }
    }
}

/// Events on their way to operators of lower levels, ordered by the level they go to, then by insertion.
///
/// An edge has room for as many events as may wait at its operator; then its oldest is replaced. So one busy edge takes
/// no room from the others.
#[derive(Debug)]
pub struct MovingQ<R> {
    /// By number; None is one that is free.
    edges: Vec<Option<Edge<R>>>,
    /// By the numbers of the levels, the edges in the order of insertion.
    order: Vec<VecDeque<u32>>,
    /// The levels' numbers, the highest first.
    levels: Vec<usize>,
    waiting: usize,
}

impl<R> Default for MovingQ<R> {
    fn default() -> Self {
        MovingQ {
            edges: Vec::new(),
            order: Vec::new(),
            levels: Vec::new(),
            waiting: 0,
        }
    }
}

impl<R: Clone> MovingQ<R> {
    /// An empty one with room for edges with numbers below `edges`, and `rooms` events to the levels by number; `levels` are
    /// the numbers of those, the highest first.
    pub fn new(edges: usize, rooms: &[usize], levels: Vec<usize>) -> MovingQ<R> {
        MovingQ {
            edges: Vec::with_capacity(edges),
            order: rooms.iter().map(|room| VecDeque::with_capacity(*room)).collect(),
            levels,
            waiting: 0,
        }
    }

    /// Goes on in the room of an empty one, by its order of levels; what is left of this is the caller's to drop.
    pub fn move_to(&mut self, mut roomy: MovingQ<R>) -> MovingQ<R> {
        roomy.edges.append(&mut self.edges);
        for (edges, roomy) in self.order.iter_mut().zip(&mut roomy.order) {
            roomy.append(edges);
        }
        roomy.waiting = self.waiting;
        std::mem::replace(self, roomy)
    }

    /// Sets the edge of a number, which none has.
    pub fn set_edge(&mut self, number: usize, edge: Edge<R>) {
        if self.edges.len() <= number {
            self.edges.resize_with(number + 1, || None);
        }
        self.edges[number] = Some(edge);
    }

    /// Ends an edge; the events that were on it, the oldest first.
    pub fn end_edge(&mut self, number: usize) -> VecDeque<Token> {
        let Some(edge) = self.edges.get_mut(number).and_then(Option::take) else {
            return VecDeque::new();
        };
        if !edge.events.is_empty() {
            self.order[edge.level].retain(|other| *other as usize != number);
            self.waiting -= edge.events.len();
        }
        edge.events
    }

    /// Whether nothing is on an edge.
    pub fn is_idle(&self, number: usize) -> bool {
        let edge = self.edges.get(number).and_then(Option::as_ref);
        edge.is_none_or(|edge| edge.events.is_empty())
    }

    /// An event is to go over an edge; the one that it replaces.
    #[inline]
    pub fn push(&mut self, edge: usize, room: usize, token: Token) -> Option<Token> {
        let Some(Some(found)) = self.edges.get_mut(edge) else {
            return Some(token);
        };
        found.events.push_back(token);
        if found.events.len() > room {
            return found.events.pop_front();
        }
        self.order[found.level].push_back(edge as u32);
        self.waiting += 1;
        None
    }

    /// The event whose turn it is, and where it goes.
    #[inline]
    pub fn pop(&mut self) -> Option<(R, Token)> {
        let order = &mut self.order;
        let edge = self.levels.iter().find_map(|level| order[*level].pop_front())?;
        self.waiting -= 1;
        let found = self.edges[edge as usize].as_mut()?;
        Some((found.reader.clone(), found.events.pop_front()?))
    }

    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether none does.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::service::books::Fate;
    use crate::service::store::{Head, Store};
    use crate::service::sync::PiMutex;

    fn event(store: &Store, ring: usize, begin: i64) -> Token {
        let head = Head {
            begin,
            end: 0,
            pushed: 0,
            marks: 0,
        };
        store.claim(ring).unwrap().publish(head)
    }

    fn begin(store: &Store, token: Token) -> i64 {
        let begin = store.read(&token).head.begin;
        store.release(token, Fate::Used);
        begin
    }

    #[test]
    fn the_input_queue_keeps_order_and_the_newest() {
        let store = Store::new([(8, 8), (8, 8)]);
        let queue = InputQ::new(4, 2);
        assert_eq!(queue.push(event(&store, 0, 1), true), Pushed::Waits);
        assert_eq!(queue.push(event(&store, 1, 2), false), Pushed::Waits);
        let Pushed::Replaced(older) = queue.push(event(&store, 0, 3), true) else {
            panic!("nothing was replaced")
        };
        assert_eq!(begin(&store, older), 1);
        for begin in [4, 5] {
            assert_eq!(queue.push(event(&store, 1, begin), false), Pushed::Waits);
        }
        let Pushed::Refused(refused) = queue.push(event(&store, 1, 6), false) else {
            panic!("there was room")
        };
        assert_eq!(begin(&store, refused), 6);
        // SAFETY: nobody else has the queue.
        let taken: Vec<i64> = std::iter::from_fn(|| unsafe { queue.pop() })
            .map(|token| begin(&store, token))
            .collect();
        assert_eq!(taken, [3, 2, 4, 5]);
        assert!(queue.is_empty());
    }

    /// Suppliers and workers at once on one stream that replaces: every event is taken once or replaced once.
    #[test]
    fn a_replaced_event_is_never_taken() {
        let store = Store::new([(64, 64)]);
        let queue = InputQ::new(1, 1);
        let (each, suppliers) = (20_000_i64, 2);
        let (ended, level) = (AtomicU32::new(0), PiMutex::new(()));
        let total = (each * suppliers) as u32;
        std::thread::scope(|scope| {
            for supplier in 0..suppliers {
                let (store, queue, ended) = (&store, &queue, &ended);
                scope.spawn(move || {
                    for turn in 0..each {
                        let pushed = queue.push(event(store, 0, supplier * each + turn), true);
                        if let Pushed::Replaced(older) | Pushed::Refused(older) = pushed {
                            store.release(older, Fate::Replaced);
                            ended.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            for _ in 0..2 {
                let (store, queue, ended, level) = (&store, &queue, &ended, &level);
                scope.spawn(move || {
                    while ended.load(Ordering::Relaxed) < total {
                        let locked = level.lock();
                        // SAFETY: under the lock.
                        let next = unsafe { queue.pop() };
                        drop(locked);
                        match next {
                            Some(token) => {
                                store.release(token, Fate::Used);
                                ended.fetch_add(1, Ordering::Relaxed);
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                });
            }
        });
        let book = store.book(0);
        assert_eq!((book.created, book.held()), (u64::from(total), 0));
        assert_eq!(
            book.fates[Fate::Used as usize] + book.fates[Fate::Replaced as usize],
            book.created
        );
    }

    #[test]
    fn the_moving_queue_is_ordered_by_level_then_insertion_and_replaces_by_edge() {
        let store = Store::new([(8, 8)]);
        let edges = [(0, 2, 2), (1, 1, 1), (2, 2, 2)];
        let mut queue = MovingQ::new(3, &[0, 1, 4], vec![0, 1, 2]);
        for (reader, level, room) in edges {
            queue.set_edge(reader, Edge::new(reader, level, room));
        }
        for (edge, begin) in [(0, 1), (2, 2), (1, 3), (0, 4)] {
            assert!(queue.push(edge, edges[edge].2, event(&store, 0, begin)).is_none());
        }
        let older = queue.push(1, 1, event(&store, 0, 5)).unwrap();
        assert_eq!(begin(&store, older), 3);
        assert_eq!(queue.len(), 4);
        let moved: Vec<(usize, i64)> = std::iter::from_fn(|| queue.pop())
            .map(|(reader, token)| (reader, begin(&store, token)))
            .collect();
        assert_eq!(moved, [(1, 5), (0, 1), (2, 2), (0, 4)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn edges_come_and_go_and_nothing_on_the_others_is_lost() {
        let store = Store::new([(8, 8)]);
        let mut queue = MovingQ::new(1, &[4], vec![0]);
        queue.set_edge(0, Edge::new("a", 0, 4));
        assert!(queue.push(0, 4, event(&store, 0, 1)).is_none());
        drop(queue.move_to(MovingQ::new(2, &[4, 4], vec![1, 0])));
        queue.set_edge(1, Edge::new("b", 1, 4));
        assert!(queue.push(1, 4, event(&store, 0, 2)).is_none());
        assert!(queue.push(0, 4, event(&store, 0, 3)).is_none());
        assert!(!queue.is_idle(1));
        // The new level is above the old one.
        let (reader, token) = queue.pop().unwrap();
        assert_eq!((reader, begin(&store, token)), ("b", 2));
        assert!(queue.is_idle(1) && queue.end_edge(1).is_empty());
        let left: Vec<i64> = queue
            .end_edge(0)
            .into_iter()
            .map(|token| begin(&store, token))
            .collect();
        assert_eq!(left, [1, 3]);
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::service::store::{Head, Store};
    use loom::sync::Arc;
    use loom::thread;

    /// A stream that replaces, two suppliers and a worker: each event is taken once or replaced once.
    #[test]
    fn loom_a_replaced_event_is_never_taken() {
        loom::model(|| {
            let shared = Arc::new((InputQ::new(1, 1), Store::new([(2, 2)])));
            // Slots are made when they are first met, by a OnceLock, which loom does not follow: so meet them before.
            drop(shared.1.claim(0));
            let pushers: Vec<_> = (0..2)
                .map(|begin| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let head = Head {
                            begin,
                            end: 0,
                            pushed: 0,
                            marks: 0,
                        };
                        let token = shared.1.claim(0).unwrap().publish(head);
                        match shared.0.push(token, true) {
                            Pushed::Waits => 0,
                            Pushed::Replaced(older) | Pushed::Refused(older) => {
                                shared.1.forget(older);
                                1
                            }
                        }
                    })
                })
                .collect();
            let mut taken = 0;
            // SAFETY: only this thread pops.
            let pop = || unsafe { shared.0.pop() };
            if let Some(token) = pop() {
                shared.1.forget(token);
                taken += 1;
            }
            let replaced: i32 = pushers.into_iter().map(|pusher| pusher.join().unwrap()).sum();
            while let Some(token) = pop() {
                shared.1.forget(token);
                taken += 1;
            }
            assert_eq!(taken + replaced, 2);
            assert_eq!(shared.1.book(0).held(), 0);
        });
    }
}
