//! What PATHs say of several events together: that there are values of the variables that they share (rules P2 and P3).
//!
//! What can be shared is known of each event beforehand, as one text: the terms that it has together, in order. Whether
//! events go together is a join of these. Where each event has one value at most, an equality says the same, by which
//! events are found quicker; and where every combination of single events is tried, a copy of an event for each value
//! does. This is for what remains (src/cepheid/plan/semantic.py).

use crate::expr::{Attribute, Named, Sign, sign};
use crate::json::{self, Fault, Json, Reading, fault};
use crate::known::read_value;
use crate::plan_parts::read_attribute;
use crate::value::{Val, Value, compare};

/// Between the solutions of one event, and between the terms of a solution (src/cepheid/knowledge/tables.py).
const BETWEEN_SOLUTIONS: char = '\u{1e}';
const BETWEEN_TERMS: char = '\u{1f}';

/// When it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Whenever an event is tried.
    Always,
    /// When single events are chosen, by all that is known of them.
    Chosen,
    /// Of what was chosen, by the values that the match has of variables that are used outside: then it is known what
    /// steps of many events and NOT are judged with.
    Settled,
}

/// Events that have to share values of variables.
#[derive(Clone, Debug)]
pub struct Relation {
    /// When it is judged.
    pub when: When,
    /// Who has them.
    pub members: Vec<Member>,
    /// The members, a bit each.
    pub variables: u64,
    /// Conditions between values.
    compared: Vec<(Sign, Side, Side)>,
    /// How many variables there are.
    shared: usize,
}

/// A side of a condition.
#[derive(Clone, Debug)]
pub enum Side {
    /// The value of one of the relation's variables.
    Place(usize),
    /// An attribute.
    Attribute(Attribute),
}

/// What one event can share.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its values.
    pub attribute: Attribute,
    /// Which of the relation's variables these are.
    places: Vec<usize>,
}

impl Relation {
    /// Whether there are values that fit all of these events, of those members whose events these are.
    pub fn holds<'e>(&self, value_of: impl Fn(&Attribute) -> Option<Val<'e>>) -> bool {
        let bound = self.members.iter().filter_map(|member| {
            let value = value_of(&member.attribute)?;
            Some((member, value))
        });
        let bound: Vec<(&Member, Val)> = bound.collect();
        if bound.len() < 2 && self.compared.is_empty() {
            return true;
        }
        let texts = bound.iter().map(|(member, value)| match value {
            Val::Str(text) => Some((*member, text.as_ref())),
            _ => None,
        });
        let Some(texts) = texts.collect::<Option<Vec<_>>>() else {
            return false;
        };
        match texts.as_slice() {
            [(one, own), (other, others)] if one.places == other.places && self.compared.is_empty() => {
                meet(own, others)
            }
            _ => {
                let holds = |terms: &[Option<&str>]| self.compared.iter().all(|one| holds(one, terms, &value_of));
                fit(&texts, &mut vec![None; self.shared], &holds)
            }
        }
    }

    /// The attributes that it reads.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let sides = self.compared.iter().flat_map(|(_, one, other)| [one, other]);
        let compared = sides.filter_map(|side| match side {
            Side::Place(_) => None,
            Side::Attribute(attribute) => Some(attribute),
        });
        self.members.iter().map(|member| &member.attribute).chain(compared)
    }
}

/// Whether a condition is true, or there is no value yet on one of its sides.
fn holds<'e>(
    (sign, one, other): &(Sign, Side, Side),
    terms: &[Option<&str>],
    value_of: &impl Fn(&Attribute) -> Option<Val<'e>>,
) -> bool {
    let side = |side: &Side| match side {
        Side::Place(place) => terms[*place].map(|text| {
            let read = json::parse(text).and_then(|json| read_value(&json));
            read.unwrap_or(Value::Null)
        }),
        Side::Attribute(attribute) => value_of(attribute).map(Val::into_value),
    };
    match (side(one), side(other)) {
        (Some(one), Some(other)) => compare(&one.view(), &other.view()).is_some_and(|order| sign.holds(order)),
        _ => true,
    }
}

/// Whether two lists in order have something in common.
fn meet(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let (mut one, mut other) = (one.split(BETWEEN_SOLUTIONS), other.split(BETWEEN_SOLUTIONS));
    let (mut own, mut others) = (one.next(), other.next());
    while let (Some(a), Some(b)) = (own, others) {
        match a.cmp(b) {
            std::cmp::Ordering::Less => own = one.next(),
            std::cmp::Ordering::Greater => others = other.next(),
            std::cmp::Ordering::Equal => return true,
        }
    }
    false
}

/// Whether each member has a solution that agrees with what the variables are bound to, and with those of the others, so
/// that all that is said of them holds.
fn fit<'t>(
    members: &[(&Member, &'t str)],
    bound: &mut Vec<Option<&'t str>>,
    holds: &impl Fn(&[Option<&str>]) -> bool,
) -> bool {
    let Some(((member, text), rest)) = members.split_first() else {
        return holds(bound);
    };
    text.split(BETWEEN_SOLUTIONS).any(|solution| {
        let before = bound.clone();
        let mut terms = member.places.iter().zip(solution.split(BETWEEN_TERMS));
        let agrees = terms.all(|(&place, term)| *bound[place].get_or_insert(term) == term);
        let fits = agrees && fit(rest, bound, holds);
        *bound = before;
        fits
    })
}

/// Reads a relation.
pub(crate) fn read_relation(json: &Json, named: Named<'_>) -> Result<Relation, Fault> {
    let when = match json.member("when")?.text()? {
        "always" => When::Always,
        "chosen" => When::Chosen,
        "settled" => When::Settled,
        other => return fault(format!("a relation is never judged {other}")),
    };
    let members = json.member("members")?.each(|item| {
        Ok(Member {
            attribute: read_attribute(item.at(0)?, named)?,
            places: item.at(1)?.each(Json::index)?,
        })
    })?;
    let shared = members.iter().flat_map(|member: &Member| &member.places).max();
    let shared = shared.map_or(0, |most| most + 1);
    let side = |item: &Json| match item.at(0)?.text()? {
        "place" => match item.at(1)?.index()? {
            place if place < shared => Ok(Side::Place(place)),
            _ => fault("a relation compares what it does not have"),
        },
        _ => read_attribute(item, named).map(Side::Attribute),
    };
    let compared = json
        .member("compared")?
        .each(|item| Ok((sign(item.at(0)?.text()?)?, side(item.at(1)?)?, side(item.at(2)?)?)))?;
    let mut relation = Relation {
        when,
        shared,
        compared,
        variables: 0,
        members,
    };
    relation.variables = relation
        .attributes()
        .fold(0, |mask, attribute| mask | 1 << attribute.variable);
    Ok(relation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation(places: &[&[usize]]) -> Relation {
        let member = |(variable, places): (usize, &&[usize])| Member {
            attribute: Attribute {
                variable,
                slots: Box::new([]),
                float: false,
            },
            places: places.to_vec(),
        };
        Relation {
            when: When::Always,
            members: places.iter().enumerate().map(member).collect(),
            variables: (1 << places.len()) - 1,
            compared: Vec::new(),
            shared: 3,
        }
    }

    fn all_fit(relation: &Relation, texts: &[Option<&'static str>]) -> bool {
        relation.holds(|attribute| texts[attribute.variable].map(|text| Val::Str(text.into())))
    }

    #[test]
    fn two_events_share_a_value() {
        let relation = relation(&[&[0], &[0]]);
        assert!(all_fit(&relation, &[Some("a\u{1e}c"), Some("b\u{1e}c\u{1e}d")]));
        assert!(!all_fit(&relation, &[Some("a\u{1e}c"), Some("b\u{1e}d")]));
        assert!(all_fit(&relation, &[Some("a"), None]), "of one event nothing is said");
    }

    #[test]
    fn three_events_share_one_value_and_not_one_each_two() {
        let relation = relation(&[&[0], &[0], &[0]]);
        assert!(!all_fit(
            &relation,
            &[Some("a\u{1e}b"), Some("b\u{1e}c"), Some("a\u{1e}c")]
        ));
        assert!(all_fit(&relation, &[Some("a\u{1e}b"), Some("b\u{1e}c"), Some("b")]));
    }

    #[test]
    fn values_go_together_in_a_solution() {
        // ?x and ?y of one event, each shared with another one.
        let relation = relation(&[&[0, 1], &[0], &[1]]);
        let pairs = Some("a\u{1f}c\u{1e}b\u{1f}d");
        assert!(all_fit(&relation, &[pairs, Some("a"), Some("c")]));
        assert!(!all_fit(&relation, &[pairs, Some("a"), Some("d")]));
        assert!(all_fit(&relation, &[pairs, Some("a"), None]));
    }

    #[test]
    fn some_values_compare() {
        let mut relation = relation(&[&[0], &[1]]);
        relation.compared = vec![(Sign::Less, Side::Place(0), Side::Place(1))];
        assert!(all_fit(&relation, &[Some("2\u{1e}9"), Some("1\u{1e}3.5")]));
        assert!(!all_fit(&relation, &[Some("4\u{1e}9"), Some("1\u{1e}3.5")]));
        assert!(!all_fit(&relation, &[Some("null"), Some("1")]));
        assert!(all_fit(&relation, &[Some("4"), None]));
    }
}
