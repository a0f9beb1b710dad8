//! Rules to a fixpoint over triples that come and go.
//!
//! Adding is semi-naive: each new fact is joined once with what is there. Removing is DRed: all that had a reason in a
//! removed fact is taken out, what has another reason is put back, and what follows from that again.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use hashbrown::{HashMap, HashSet};

use super::facts::Facts;
use super::join::{Binding, join, pattern, release, unify};
use super::lists;
use super::rules::{Atom, OWL_RL, Rule, Slot, Words};
use super::terms::{Terms, Triple};

/// What became true and what ceased to be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Facts that were not there before.
    pub added: Vec<Triple>,
    /// Facts that are there no more.
    pub removed: Vec<Triple>,
}

/// Why a closure has no end in sight.
#[derive(Debug, PartialEq, Eq)]
pub enum Stopped {
    /// More facts than allowed.
    TooMany,
    /// Lists of axioms that keep making new lists.
    ListsWithoutEnd,
}

/// Rules by what can set them off, or by what they can conclude.
#[derive(Default)]
struct Index {
    /// By a predicate that is not rdf:type, or rdf:type with a class that varies.
    by_predicate: HashMap<u32, Vec<(usize, usize)>>,
    /// By the class of an rdf:type.
    by_class: HashMap<u32, Vec<(usize, usize)>>,
    /// Any triple will do.
    any: Vec<(usize, usize)>,
}

impl Index {
    fn add(&mut self, atom: &Atom, kind: u32, place: (usize, usize)) {
        match *atom {
            [_, Slot::Term(p), Slot::Term(class)] if p == kind => self.by_class.entry(class).or_default().push(place),
            [_, Slot::Term(p), _] => self.by_predicate.entry(p).or_default().push(place),
            _ => self.any.push(place),
        }
    }

    /// The places that a triple fits as far as predicate and class go, those of `any` left out.
    fn fitting(&self, [_, p, o]: Triple, kind: u32) -> impl Iterator<Item = (usize, usize)> {
        let by_class = if p == kind { self.by_class.get(&o) } else { None };
        let by_predicate = self.by_predicate.get(&p);
        by_class.into_iter().chain(by_predicate).flatten().copied()
    }
}

/// The engine: base triples, and all facts that follow from them.
pub struct Engine {
    terms: Terms,
    words: Words,
    base: HashSet<Triple>,
    facts: Facts,
    given: Vec<Rule>,
    rules: Vec<Rule>,
    forward: Index,
    backward: Index,
    /// Predicates of which the rules for any triple speak, such as rdfs:domain.
    schema: HashSet<u32>,
    /// For a predicate, the rules for any triple that can go on: most properties have no axioms.
    feasible: HashMap<u32, Vec<(usize, usize)>>,
    limit: usize,
}

impl Engine {
    /// An engine with OWL RL, or without, and rules of a user's, a line each; at most `limit` facts.
    pub fn new(owl: bool, own: &str, limit: usize) -> Result<Engine, super::rules::NotARule> {
        let mut terms = Terms::default();
        let words = Words::new(&mut terms);
        let mut given = if owl {
            Rule::parse_all(OWL_RL, &mut terms)?
        } else {
            Vec::new()
        };
        given.extend(Rule::parse_all(own, &mut terms)?);
        let mut engine = Engine {
            terms,
            words,
            base: HashSet::new(),
            facts: Facts::default(),
            given,
            rules: Vec::new(),
            forward: Index::default(),
            backward: Index::default(),
            schema: HashSet::new(),
            feasible: HashMap::new(),
            limit,
        };
        engine.set_rules(Vec::new());
        Ok(engine)
    }

    /// The terms and their numbers.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The terms, to number new ones.
    pub fn terms_mut(&mut self) -> &mut Terms {
        &mut self.terms
    }

    /// All facts.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The base triples.
    pub fn base(&self) -> impl Iterator<Item = &Triple> {
        self.base.iter()
    }

    /// Whether a triple is in the base.
    pub fn is_base(&self, triple: Triple) -> bool {
        self.base.contains(&triple)
    }

    /// Starts from base triples, and draws all conclusions.
    pub fn load(&mut self, base: Vec<Triple>) -> Result<(), Stopped> {
        self.base = base.into_iter().collect();
        self.facts = Facts::default();
        self.facts.fill(self.base.iter().copied().collect());
        let mut made = self.made_rules();
        // Conclusions may add to the lists that rules are made of.
        for _ in 0..10 {
            self.set_rules(made.clone());
            self.facts = Facts::default();
            self.facts.fill(self.base.iter().copied().collect());
            let mut queue: VecDeque<Triple> = self.facts.iter().copied().collect();
            for i in 0..self.rules.len() {
                if self.rules[i].body.is_empty() {
                    let head = pattern(&self.rules[i].head, &vec![None; self.rules[i].variables]);
                    self.conclude(head, &mut queue);
                }
            }
            // Axioms about properties first, so that what is known of a predicate changes seldom later.
            queue
                .make_contiguous()
                .sort_by_key(|[_, p, _]| !self.schema.contains(p));
            self.run(queue, &mut Vec::new())?;
            let again = self.made_rules();
            if again == made {
                return Ok(());
            }
            made = again;
        }
        Err(Stopped::ListsWithoutEnd)
    }

    /// Starts from base triples and conclusions that were drawn before.
    pub fn restore(&mut self, base: Vec<Triple>, facts: Vec<Triple>) {
        self.base = base.into_iter().collect();
        self.facts = Facts::default();
        self.facts.fill(facts);
        let made = self.made_rules();
        self.set_rules(made);
    }

    /// Removes and adds base triples, with what follows. None, and nothing is changed, where a triple is part of a list
    /// that rules are made of: then everything has to be loaded anew.
    pub fn apply(&mut self, added: &[Triple], removed: &[Triple]) -> Result<Option<Delta>, Stopped> {
        let removed: Vec<Triple> = removed.iter().filter(|t| self.base.contains(*t)).copied().collect();
        if added.iter().chain(&removed).any(|&t| self.words.makes_rules(t)) {
            return Ok(None);
        }
        for triple in &removed {
            self.base.remove(triple);
        }
        self.base.extend(added.iter().copied());
        // What is removed and added at once stays.
        let removed: Vec<Triple> = removed.into_iter().filter(|t| !self.base.contains(t)).collect();
        let gone = self.overdelete(&removed);
        for &triple in &gone {
            self.drop_fact(triple);
        }
        let mut queue = VecDeque::new();
        for &triple in &gone {
            if self.base.contains(&triple) || self.has_reason(triple) {
                self.keep(triple, &mut queue);
            }
        }
        for &triple in added {
            self.keep(triple, &mut queue);
        }
        let mut come: Vec<Triple> = queue.iter().copied().collect();
        self.run(queue, &mut come)?;
        let gone: HashSet<Triple> = gone.into_iter().collect();
        let delta = Delta {
            added: come.into_iter().filter(|t| !gone.contains(t)).collect(),
            removed: gone.iter().filter(|t| !self.facts.contains(**t)).copied().collect(),
        };
        if delta
            .added
            .iter()
            .chain(&delta.removed)
            .any(|&t| self.words.makes_rules(t))
        {
            return self.reload(delta).map(Some);
        }
        Ok(Some(delta))
    }

    /// A conclusion touched a list that rules are made of, which is rare: everything is concluded anew.
    fn reload(&mut self, delta: Delta) -> Result<Delta, Stopped> {
        let mut before: HashSet<Triple> = self.facts.iter().copied().collect();
        before.extend(delta.removed);
        for triple in delta.added {
            before.remove(&triple);
        }
        self.load(self.base.iter().copied().collect())?;
        Ok(Delta {
            added: self.facts.iter().filter(|t| !before.contains(*t)).copied().collect(),
            removed: before.into_iter().filter(|t| !self.facts.contains(*t)).collect(),
        })
    }

    fn made_rules(&self) -> Vec<Rule> {
        if self.given.is_empty() {
            Vec::new()
        } else {
            lists::rules(&self.facts, &self.terms, &self.words)
        }
    }

    fn set_rules(&mut self, made: Vec<Rule>) {
        self.rules = self.given.iter().cloned().chain(made).collect();
        (self.forward, self.backward) = (Index::default(), Index::default());
        self.schema.clear();
        self.feasible.clear();
        for (number, rule) in self.rules.iter().enumerate() {
            self.backward.add(&rule.head, self.words.kind, (number, 0));
            for (place, atom) in rule.body.iter().enumerate() {
                self.forward.add(atom, self.words.kind, (number, place));
            }
            if rule.body.iter().any(|atom| matches!(atom[1], Slot::Variable(_))) {
                self.schema.extend(rule.body.iter().filter_map(|atom| match atom {
                    [_, Slot::Term(p), _] if *p != self.words.kind => Some(*p),
                    _ => None,
                }));
            }
        }
    }

    /// Adds a conclusion, and to the queue if it is new, and says so. Without a value for each place it is none.
    fn conclude(&mut self, head: [Option<u32>; 3], queue: &mut VecDeque<Triple>) -> bool {
        let [Some(s), Some(p), Some(o)] = head else {
            return false;
        };
        self.is_worth_saying([s, p, o]) && self.keep([s, p, o], queue)
    }

    /// Literals are no subjects, and that a thing is the same as itself goes without saying.
    fn is_worth_saying(&self, [s, p, o]: Triple) -> bool {
        !(s == o && self.words.reflexive.contains(&p)) && self.terms.is_node(s) && self.terms.is_iri(p)
    }

    fn keep(&mut self, triple: Triple, queue: &mut VecDeque<Triple>) -> bool {
        let is_new = self.facts.insert(triple);
        if is_new {
            self.note_schema(triple);
            queue.push_back(triple);
        }
        is_new
    }

    fn drop_fact(&mut self, triple: Triple) {
        self.facts.remove(triple);
        self.note_schema(triple);
    }

    /// What was found about predicates holds no more when an axiom comes or goes.
    fn note_schema(&mut self, [_, p, o]: Triple) {
        let is_axiom = self.schema.contains(&p) || (p == self.words.kind && self.forward.by_class.contains_key(&o));
        if is_axiom && !self.feasible.is_empty() {
            self.feasible.clear();
        }
    }

    /// Draws conclusions from the facts of the queue and from theirs; `come` gets every new one.
    fn run(&mut self, mut queue: VecDeque<Triple>, come: &mut Vec<Triple>) -> Result<(), Stopped> {
        let mut heads: Vec<[Option<u32>; 3]> = Vec::new();
        while let Some(triple) = queue.pop_front() {
            heads.clear();
            self.fire(triple, &mut |head| heads.push(head));
            for &head in &heads {
                if self.conclude(head, &mut queue) {
                    come.extend(queue.back());
                }
            }
            if self.facts.len() > self.limit {
                return Err(Stopped::TooMany);
            }
        }
        Ok(())
    }

    /// Every conclusion that has this fact among its reasons.
    fn fire(&mut self, triple: Triple, conclude: &mut impl FnMut([Option<u32>; 3])) {
        if !self.feasible.contains_key(&triple[1]) {
            let places = self.forward.any.clone();
            let found = places
                .into_iter()
                .filter(|&place| self.can_go_on(place, triple[1]))
                .collect();
            self.feasible.insert(triple[1], found);
        }
        let any = self.feasible[&triple[1]].iter().copied();
        for (number, place) in self.forward.fitting(triple, self.words.kind).chain(any) {
            let rule = &self.rules[number];
            let mut binding: Binding = vec![None; rule.variables];
            if !unify(&rule.body[place], triple, &mut binding, &mut Vec::new()) {
                continue;
            }
            let mut others: Vec<Atom> = rule.body.clone();
            others.swap_remove(place);
            let _ = join(&self.facts, &mut others, &mut binding, &mut |binding| {
                conclude(pattern(&rule.head, binding));
                ControlFlow::Continue(())
            });
        }
    }

    /// Whether the other atoms of a rule have facts at all, once the predicate of the atom at `place` is known.
    fn can_go_on(&self, (number, place): (usize, usize), predicate: u32) -> bool {
        let rule = &self.rules[number];
        let Slot::Variable(variable) = rule.body[place][1] else {
            return true;
        };
        let mut binding: Binding = vec![None; rule.variables];
        binding[variable as usize] = Some(predicate);
        // Almost every thing has a type: to look for one would only have to be looked for again.
        let tells = |atom: &Atom| match *atom {
            [_, Slot::Term(p), Slot::Variable(_)] => p != self.words.kind,
            [_, Slot::Term(_), Slot::Term(_)] => true,
            _ => false,
        };
        let others = rule
            .body
            .iter()
            .enumerate()
            .filter(|(other, atom)| *other != place && tells(atom));
        others
            .into_iter()
            .all(|(_, atom)| self.facts.any(pattern(atom, &binding)))
    }

    /// The facts that have a removed one among their reasons, directly or not; base triples stay.
    fn overdelete(&mut self, removed: &[Triple]) -> Vec<Triple> {
        let mut gone: Vec<Triple> = removed.iter().filter(|t| self.facts.contains(**t)).copied().collect();
        let mut seen: HashSet<Triple> = gone.iter().copied().collect();
        let mut next = 0;
        while next < gone.len() {
            let mut heads = Vec::new();
            self.fire(gone[next], &mut |head| heads.push(head));
            for head in heads {
                let [Some(s), Some(p), Some(o)] = head else { continue };
                let triple = [s, p, o];
                if self.facts.contains(triple) && !self.base.contains(&triple) && seen.insert(triple) {
                    gone.push(triple);
                }
            }
            next += 1;
        }
        gone
    }

    /// Whether a rule concludes the triple from the facts as they are.
    fn has_reason(&self, triple: Triple) -> bool {
        if !self.is_worth_saying(triple) {
            return false;
        }
        let any = self.backward.any.iter().copied();
        self.backward
            .fitting(triple, self.words.kind)
            .chain(any)
            .any(|(number, _)| {
                let rule = &self.rules[number];
                let mut binding: Binding = vec![None; rule.variables];
                let mut bound = Vec::new();
                let fits = unify(&rule.head, triple, &mut binding, &mut bound);
                let found = fits
                    && join(&self.facts, &mut rule.body.clone(), &mut binding, &mut |_| {
                        ControlFlow::Break(())
                    })
                    .is_break();
                release(&mut binding, &bound);
                found
            })
    }
}
