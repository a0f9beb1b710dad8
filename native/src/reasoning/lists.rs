//! Rules of the axioms that are lists: intersections, unions, enumerations, property chains and keys.

use std::ops::ControlFlow;

use super::facts::Facts;
use super::rules::{Atom, Rule, Slot, Words};
use super::terms::{Terms, Triple};

/// A longer list is not an axiom that anybody wrote.
const LONGEST: usize = 200;

/// The rules that the lists among the facts make, in an order that depends on the facts only.
pub fn rules(facts: &Facts, terms: &Terms, words: &Words) -> Vec<Rule> {
    let source = Source { facts, terms, words };
    let mut rules = Vec::new();
    for word in [words.intersection, words.union, words.one_of, words.chain, words.key] {
        let mut axioms: Vec<Triple> = Vec::new();
        let _ = facts.visit([None, Some(word), None], &mut |triple| {
            axioms.push(triple);
            ControlFlow::Continue(())
        });
        for [subject, _, list] in axioms {
            if let Some(members) = source.members(list) {
                source.add(&mut rules, word, subject, &members);
            }
        }
    }
    rules.sort();
    rules.dedup();
    rules
}

struct Source<'a> {
    facts: &'a Facts,
    terms: &'a Terms,
    words: &'a Words,
}

impl Source<'_> {
    fn add(&self, rules: &mut Vec<Rule>, word: u32, subject: u32, members: &[u32]) {
        let words = self.words;
        let is_a = |x: u8, class: u32| [Slot::Variable(x), Slot::Term(words.kind), Slot::Term(class)];
        let under = |c: u32, d: u32| [Slot::Term(c), Slot::Term(words.subclass), Slot::Term(d)];
        if word == words.intersection {
            // Every thing is an owl:Thing, though no triple says so.
            let needed: Vec<Atom> = members
                .iter()
                .filter(|&&c| c != words.thing)
                .map(|&c| is_a(0, c))
                .collect();
            if !needed.is_empty() {
                rules.push(Rule::new("cls-int1", needed, is_a(0, subject)));
            }
            for &member in members {
                rules.push(Rule::new("cls-int2", vec![is_a(0, subject)], is_a(0, member)));
                rules.push(Rule::new("scm-int", Vec::new(), under(subject, member)));
            }
        } else if word == words.union {
            for &member in members {
                rules.push(Rule::new("cls-uni", vec![is_a(0, member)], is_a(0, subject)));
                rules.push(Rule::new("scm-uni", Vec::new(), under(member, subject)));
            }
        } else if word == words.one_of {
            for &member in members {
                let head = [Slot::Term(member), Slot::Term(words.kind), Slot::Term(subject)];
                rules.push(Rule::new("cls-oo", Vec::new(), head));
            }
        } else if word == words.chain {
            let body: Vec<Atom> = (0u8..).zip(members).map(|(i, &p)| self.step(p, i, i + 1)).collect();
            let last = Slot::Variable(u8::try_from(members.len()).unwrap_or(u8::MAX));
            rules.push(Rule::new(
                "prp-spo2",
                body,
                [Slot::Variable(0), Slot::Term(subject), last],
            ));
        } else {
            let mut body = vec![is_a(0, subject), is_a(1, subject)];
            for (i, &property) in (2u8..).zip(members) {
                body.push(self.step(property, 0, i));
                body.push(self.step(property, 1, i));
            }
            let head = [Slot::Variable(0), Slot::Term(words.same), Slot::Variable(1)];
            rules.push(Rule::new("prp-key", body, head));
        }
    }

    /// `?x p ?y`, or `?y q ?x` where p is written as the inverse of q.
    fn step(&self, property: u32, x: u8, y: u8) -> Atom {
        let mut inverse = None;
        let _ = self
            .facts
            .visit([Some(property), Some(self.words.inverse), None], &mut |[_, _, q]| {
                inverse = Some(q);
                ControlFlow::Break(())
            });
        match inverse {
            // A named property that has an inverse gets its triples by prp-inv.
            Some(q) if !self.terms.is_iri(property) => [Slot::Variable(y), Slot::Term(q), Slot::Variable(x)],
            _ => [Slot::Variable(x), Slot::Term(property), Slot::Variable(y)],
        }
    }

    /// The members of a list; None if it is broken, endless or too long.
    fn members(&self, list: u32) -> Option<Vec<u32>> {
        let mut members = Vec::new();
        let mut rest = list;
        while rest != self.words.nil {
            members.push(self.only(rest, self.words.first)?);
            rest = self.only(rest, self.words.rest)?;
            if members.len() > LONGEST {
                return None;
            }
        }
        (!members.is_empty()).then_some(members)
    }

    fn only(&self, subject: u32, predicate: u32) -> Option<u32> {
        let mut found = None;
        let _ = self
            .facts
            .visit([Some(subject), Some(predicate), None], &mut |[_, _, o]| {
                found = Some(o);
                ControlFlow::Break(())
            });
        found
    }
}
