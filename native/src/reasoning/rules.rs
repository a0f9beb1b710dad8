//! The rules of OWL 2 RL (W3C, OWL 2 Profiles, section 4.3), a line each, under the names they have there.
//!
//! Left out, because they say nothing about a plant and would double the store: `eq-ref`, `cls-thing`, `cls-nothing1`,
//! `prp-ap`, `scm-cls`, `scm-op`, `scm-dp` and the types of literals: that each thing is the same as itself, a thing,
//! and so on. Rules over lists are made by `lists.rs`. Rules that end in `false` are looked for in knowledge/clashes.py.

use super::terms::{Terms, Triple};

/// Rules whose bodies have a fixed number of triples.
pub const OWL_RL: &str = r#"
eq-sym     ?x owl:sameAs ?y -> ?y owl:sameAs ?x
eq-trans   ?x owl:sameAs ?y . ?y owl:sameAs ?z -> ?x owl:sameAs ?z
eq-rep-s   ?s owl:sameAs ?t . ?s ?p ?o -> ?t ?p ?o
eq-rep-p   ?p owl:sameAs ?q . ?s ?p ?o -> ?s ?q ?o
eq-rep-o   ?o owl:sameAs ?t . ?s ?p ?o -> ?s ?p ?t
prp-dom    ?p rdfs:domain ?c . ?x ?p ?y -> ?x rdf:type ?c
prp-rng    ?p rdfs:range ?c . ?x ?p ?y -> ?y rdf:type ?c
prp-fp     ?p rdf:type owl:FunctionalProperty . ?x ?p ?y . ?x ?p ?z -> ?y owl:sameAs ?z
prp-ifp    ?p rdf:type owl:InverseFunctionalProperty . ?x ?p ?z . ?y ?p ?z -> ?x owl:sameAs ?y
prp-symp   ?p rdf:type owl:SymmetricProperty . ?x ?p ?y -> ?y ?p ?x
prp-trp    ?p rdf:type owl:TransitiveProperty . ?x ?p ?y . ?y ?p ?z -> ?x ?p ?z
prp-spo1   ?p rdfs:subPropertyOf ?q . ?x ?p ?y -> ?x ?q ?y
prp-eqp1   ?p owl:equivalentProperty ?q . ?x ?p ?y -> ?x ?q ?y
prp-eqp2   ?p owl:equivalentProperty ?q . ?x ?q ?y -> ?x ?p ?y
prp-inv1   ?p owl:inverseOf ?q . ?x ?p ?y -> ?y ?q ?x
prp-inv2   ?p owl:inverseOf ?q . ?x ?q ?y -> ?y ?p ?x
cls-svf1   ?r owl:someValuesFrom ?c . ?r owl:onProperty ?p . ?x ?p ?y . ?y rdf:type ?c -> ?x rdf:type ?r
cls-svf2   ?r owl:someValuesFrom owl:Thing . ?r owl:onProperty ?p . ?x ?p ?y -> ?x rdf:type ?r
cls-avf    ?r owl:allValuesFrom ?c . ?r owl:onProperty ?p . ?x rdf:type ?r . ?x ?p ?y -> ?y rdf:type ?c
cls-hv1    ?r owl:hasValue ?v . ?r owl:onProperty ?p . ?x rdf:type ?r -> ?x ?p ?v
cls-hv2    ?r owl:hasValue ?v . ?r owl:onProperty ?p . ?x ?p ?v -> ?x rdf:type ?r
cls-maxc2  ?r owl:maxCardinality 1 . ?r owl:onProperty ?p . ?x rdf:type ?r . ?x ?p ?y . ?x ?p ?z -> ?y owl:sameAs ?z
cls-maxc2  ?r owl:maxCardinality "1"^^xsd:nonNegativeInteger . ?r owl:onProperty ?p . ?x rdf:type ?r . ?x ?p ?y . ?x ?p ?z -> ?y owl:sameAs ?z
cls-maxqc3 ?r owl:maxQualifiedCardinality 1 . ?r owl:onProperty ?p . ?r owl:onClass ?c . ?x rdf:type ?r . ?x ?p ?y . ?y rdf:type ?c . ?x ?p ?z . ?z rdf:type ?c -> ?y owl:sameAs ?z
cls-maxqc3 ?r owl:maxQualifiedCardinality "1"^^xsd:nonNegativeInteger . ?r owl:onProperty ?p . ?r owl:onClass ?c . ?x rdf:type ?r . ?x ?p ?y . ?y rdf:type ?c . ?x ?p ?z . ?z rdf:type ?c -> ?y owl:sameAs ?z
cls-maxqc4 ?r owl:maxQualifiedCardinality 1 . ?r owl:onProperty ?p . ?r owl:onClass owl:Thing . ?x rdf:type ?r . ?x ?p ?y . ?x ?p ?z -> ?y owl:sameAs ?z
cls-maxqc4 ?r owl:maxQualifiedCardinality "1"^^xsd:nonNegativeInteger . ?r owl:onProperty ?p . ?r owl:onClass owl:Thing . ?x rdf:type ?r . ?x ?p ?y . ?x ?p ?z -> ?y owl:sameAs ?z
cax-sco    ?c rdfs:subClassOf ?d . ?x rdf:type ?c -> ?x rdf:type ?d
cax-eqc1   ?c owl:equivalentClass ?d . ?x rdf:type ?c -> ?x rdf:type ?d
cax-eqc2   ?c owl:equivalentClass ?d . ?x rdf:type ?d -> ?x rdf:type ?c
scm-sco    ?c rdfs:subClassOf ?d . ?d rdfs:subClassOf ?e -> ?c rdfs:subClassOf ?e
scm-eqc1   ?c owl:equivalentClass ?d -> ?c rdfs:subClassOf ?d
scm-eqc1   ?c owl:equivalentClass ?d -> ?d rdfs:subClassOf ?c
scm-eqc2   ?c rdfs:subClassOf ?d . ?d rdfs:subClassOf ?c -> ?c owl:equivalentClass ?d
scm-spo    ?p rdfs:subPropertyOf ?q . ?q rdfs:subPropertyOf ?r -> ?p rdfs:subPropertyOf ?r
scm-eqp1   ?p owl:equivalentProperty ?q -> ?p rdfs:subPropertyOf ?q
scm-eqp1   ?p owl:equivalentProperty ?q -> ?q rdfs:subPropertyOf ?p
scm-eqp2   ?p rdfs:subPropertyOf ?q . ?q rdfs:subPropertyOf ?p -> ?p owl:equivalentProperty ?q
scm-dom1   ?p rdfs:domain ?c . ?c rdfs:subClassOf ?d -> ?p rdfs:domain ?d
scm-dom2   ?p rdfs:domain ?c . ?q rdfs:subPropertyOf ?p -> ?q rdfs:domain ?c
scm-rng1   ?p rdfs:range ?c . ?c rdfs:subClassOf ?d -> ?p rdfs:range ?d
scm-rng2   ?p rdfs:range ?c . ?q rdfs:subPropertyOf ?p -> ?q rdfs:range ?c
scm-hv     ?c owl:hasValue ?v . ?c owl:onProperty ?p . ?d owl:hasValue ?v . ?d owl:onProperty ?q . ?p rdfs:subPropertyOf ?q -> ?c rdfs:subClassOf ?d
scm-svf1   ?c owl:someValuesFrom ?y . ?c owl:onProperty ?p . ?d owl:someValuesFrom ?z . ?d owl:onProperty ?p . ?y rdfs:subClassOf ?z -> ?c rdfs:subClassOf ?d
scm-svf2   ?c owl:someValuesFrom ?y . ?c owl:onProperty ?p . ?d owl:someValuesFrom ?y . ?d owl:onProperty ?q . ?p rdfs:subPropertyOf ?q -> ?c rdfs:subClassOf ?d
scm-avf1   ?c owl:allValuesFrom ?y . ?c owl:onProperty ?p . ?d owl:allValuesFrom ?z . ?d owl:onProperty ?p . ?y rdfs:subClassOf ?z -> ?c rdfs:subClassOf ?d
scm-avf2   ?c owl:allValuesFrom ?y . ?c owl:onProperty ?p . ?d owl:allValuesFrom ?y . ?d owl:onProperty ?q . ?p rdfs:subPropertyOf ?q -> ?d rdfs:subClassOf ?c
"#;

const NAMESPACES: [(&str, &str); 3] = [
    ("rdf:", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"),
    ("rdfs:", "http://www.w3.org/2000/01/rdf-schema#"),
    ("owl:", "http://www.w3.org/2002/07/owl#"),
];

/// What stands at a place of an atom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// A variable of the rule, by number.
    Variable(u8),
    /// A term.
    Term(u32),
}

/// A triple with variables.
pub type Atom = [Slot; 3];

/// If all of the body holds, so does the head.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The rule's name in the specification, or in a user's file.
    pub name: String,
    /// What must hold.
    pub body: Vec<Atom>,
    /// What then holds.
    pub head: Atom,
    /// How many variables there are.
    pub variables: usize,
}

/// A line that is no rule.
#[derive(Debug, PartialEq, Eq)]
pub struct NotARule(pub String);

impl Rule {
    /// A rule from atoms; its variables are numbered from 0 without gaps.
    pub fn new(name: &str, body: Vec<Atom>, head: Atom) -> Rule {
        let slots = body.iter().flatten().chain(&head);
        let variables = slots
            .filter_map(|slot| match slot {
                Slot::Variable(number) => Some(*number as usize + 1),
                Slot::Term(_) => None,
            })
            .max()
            .unwrap_or(0);
        let name = name.to_owned();
        Rule {
            name,
            body,
            head,
            variables,
        }
    }

    /// A rule from its line: `name body . body -> head`, terms as `?x`, `owl:Thing`, `1`, or as in N-Triples.
    pub fn parse(line: &str, terms: &mut Terms) -> Result<Rule, NotARule> {
        let fault = || NotARule(line.to_owned());
        let (name, rest) = line.trim().split_once(char::is_whitespace).ok_or_else(fault)?;
        let mut names: Vec<String> = Vec::new();
        let mut body: Vec<Atom> = Vec::new();
        let mut head = None;
        let mut slots: Vec<Slot> = Vec::new();
        let mut in_head = false;
        for word in words(rest) {
            match word {
                "." | "->" => {
                    body.push(slots.as_slice().try_into().map_err(|_| fault())?);
                    slots.clear();
                    in_head = word == "->";
                }
                _ => slots.push(slot(word, &mut names, terms).ok_or_else(fault)?),
            }
        }
        if in_head {
            head = Some(slots.as_slice().try_into().map_err(|_| fault())?);
        }
        Ok(Rule::new(name, body, head.ok_or_else(fault)?))
    }

    /// The rules of a text, a line each.
    pub fn parse_all(text: &str, terms: &mut Terms) -> Result<Vec<Rule>, NotARule> {
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| Rule::parse(line, terms))
            .collect()
    }
}

/// Words between spaces; a literal in quotes is one word.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = if rest.starts_with('"') {
            let close = closing_quote(rest);
            rest[close..].find(' ').map_or(rest.len(), |i| close + i)
        } else {
            rest.find(char::is_whitespace).unwrap_or(rest.len())
        };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

fn closing_quote(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i,
            _ => {}
        }
    }
    text.len()
}

fn slot(word: &str, names: &mut Vec<String>, terms: &mut Terms) -> Option<Slot> {
    if let Some(name) = word.strip_prefix('?') {
        let number = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        return u8::try_from(number).ok().map(Slot::Variable);
    }
    if word == "1" {
        return Some(Slot::Term(
            terms.number("\"1\"^^<http://www.w3.org/2001/XMLSchema#nonNegativeInteger>"),
        ));
    }
    if word.starts_with(['<', '"', '_']) {
        return Some(Slot::Term(terms.number(word)));
    }
    let (prefix, namespace) = NAMESPACES.iter().find(|(prefix, _)| word.starts_with(prefix))?;
    let local = &word[prefix.len()..];
    Some(Slot::Term(terms.number(&format!("<{namespace}{local}>"))))
}

/// The words of the vocabularies that the engine itself knows.
pub struct Words {
    /// rdf:type
    pub kind: u32,
    /// rdf:first
    pub first: u32,
    /// rdf:rest
    pub rest: u32,
    /// rdf:nil
    pub nil: u32,
    /// owl:Thing
    pub thing: u32,
    /// owl:inverseOf
    pub inverse: u32,
    /// rdfs:subClassOf
    pub subclass: u32,
    /// owl:sameAs
    pub same: u32,
    /// owl:intersectionOf
    pub intersection: u32,
    /// owl:unionOf
    pub union: u32,
    /// owl:oneOf
    pub one_of: u32,
    /// owl:propertyChainAxiom
    pub chain: u32,
    /// owl:hasKey
    pub key: u32,
    /// Properties of which a thing's being so to itself says nothing: owl:sameAs, rdfs:subClassOf and so on.
    pub reflexive: [u32; 5],
}

impl Words {
    /// The numbers of these words.
    pub fn new(terms: &mut Terms) -> Words {
        let mut number = |word: &str| match slot(word, &mut Vec::new(), terms) {
            Some(Slot::Term(term)) => term,
            _ => unreachable!("the words are terms"),
        };
        Words {
            kind: number("rdf:type"),
            first: number("rdf:first"),
            rest: number("rdf:rest"),
            nil: number("rdf:nil"),
            thing: number("owl:Thing"),
            inverse: number("owl:inverseOf"),
            subclass: number("rdfs:subClassOf"),
            same: number("owl:sameAs"),
            intersection: number("owl:intersectionOf"),
            union: number("owl:unionOf"),
            one_of: number("owl:oneOf"),
            chain: number("owl:propertyChainAxiom"),
            key: number("owl:hasKey"),
            reflexive: [
                number("owl:sameAs"),
                number("rdfs:subClassOf"),
                number("owl:equivalentClass"),
                number("rdfs:subPropertyOf"),
                number("owl:equivalentProperty"),
            ],
        }
    }

    /// Whether a triple is part of a list, or says what a list is for: rules are made of those.
    pub fn makes_rules(&self, [_, p, _]: Triple) -> bool {
        [
            self.first,
            self.rest,
            self.intersection,
            self.union,
            self.one_of,
            self.chain,
            self.key,
        ]
        .contains(&p)
    }
}
