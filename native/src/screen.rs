//! JOINs that compare floats, judged in advance: a search goes through many events with the same others bound, so what
//! is read of those is read once, and what does not fit is passed over before it is judged in full.
//!
//! ```text
//! JOIN (?b.flow - ?a.flow > 50), ?b bound:  (known - value) > 50 for each event that is tried for ?a
//! ```

use crate::event::{Events, Handle};
use crate::expr::{Attribute, Expr, Operator, Sign, Slot};
use crate::plan::Plan;
use crate::value::{Val, Value};

/// So many of a variable's JOINs are judged in advance.
const MOST: usize = 2;

/// A side of a comparison: a number, or the sum or difference of two.
#[derive(Clone, Debug)]
struct Side {
    one: Term,
    other: Option<(bool, Term)>,
}

#[derive(Clone, Debug)]
enum Term {
    Constant(f64),
    /// Of the variable that is tried: a slot, and whether integers are floats there.
    Own(usize, bool),
    /// Of another.
    Other(Attribute),
}

/// A JOIN of a variable that may be judged in advance, once the others that it names are bound.
#[derive(Clone, Debug)]
pub struct Screened {
    sign: Sign,
    sides: (Side, Side),
    /// The other variables, a bit each.
    others: u64,
}

impl Screened {
    /// A condition seen from a variable that ranges over one stream; None if it is not made of floats.
    pub fn of(condition: &Expr, variable: usize, stream: usize) -> Option<Screened> {
        let Expr::Compare(sign, sides) = condition else {
            return None;
        };
        let sides = (side(&sides.0, variable, stream)?, side(&sides.1, variable, stream)?);
        let others = condition.variables() & !(1 << variable);
        Some(Screened {
            sign: *sign,
            sides,
            others,
        })
    }
}

fn side(expression: &Expr, variable: usize, stream: usize) -> Option<Side> {
    match expression {
        Expr::Arithmetic(operator @ (Operator::Add | Operator::Subtract), parts) => {
            let (one, other) = (term(&parts.0, variable, stream)?, term(&parts.1, variable, stream)?);
            let constant = |term: &Term| matches!(term, Term::Constant(_));
            // Two integers would be added as such.
            (!constant(&one) || !constant(&other)).then_some(Side {
                one,
                other: Some((*operator == Operator::Subtract, other)),
            })
        }
        other => term(other, variable, stream).map(|one| Side { one, other: None }),
    }
}

fn term(expression: &Expr, variable: usize, stream: usize) -> Option<Term> {
    match expression {
        Expr::Constant(Value::Float(x)) => Some(Term::Constant(*x)),
        Expr::Constant(Value::Int(x)) => Some(Term::Constant(*x as f64)),
        Expr::Attribute(attribute) if attribute.variable != variable => Some(Term::Other(attribute.clone())),
        Expr::Attribute(attribute) => match attribute.slots.get(stream) {
            Some(Slot::At(slot)) => Some(Term::Own(*slot, attribute.float)),
            _ => None,
        },
        _ => None,
    }
}

/// What a variable's JOINs come to with what is bound now.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    tests: [Option<Test>; MOST],
}

#[derive(Clone, Copy, Debug)]
struct Test {
    sign: Sign,
    sides: (Sum, Sum),
}

#[derive(Clone, Copy, Debug)]
struct Sum {
    one: Part,
    other: Option<(bool, Part)>,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Known(f64),
    Slot(usize, bool),
}

impl Screen {
    /// For a variable, with these events bound, whose variables are the bits of a mask.
    #[inline]
    pub fn new(plan: &Plan, events: &Events, variable: usize, bound: &[Option<Handle>], mask: u64) -> Screen {
        let mut tests = [None; MOST];
        let own = plan.variables[variable].screened.iter();
        let ready = own.filter(|screened| screened.others & !mask == 0);
        for (test, screened) in tests.iter_mut().zip(ready) {
            *test = screened.with(events, bound);
        }
        Screen { tests }
    }

    /// Whether an event may fit: if not, a JOIN is false or unknown.
    #[inline]
    pub fn passes(&self, events: &Events, event: Handle) -> bool {
        if self.tests[0].is_none() {
            return true;
        }
        let values = events.values(event);
        self.tests.iter().flatten().all(|test| test.may_hold(values))
    }
}

impl Screened {
    fn with(&self, events: &Events, bound: &[Option<Handle>]) -> Option<Test> {
        Some(Test {
            sign: self.sign,
            sides: (self.sides.0.with(events, bound)?, self.sides.1.with(events, bound)?),
        })
    }
}

impl Side {
    fn with(&self, events: &Events, bound: &[Option<Handle>]) -> Option<Sum> {
        Some(Sum {
            one: self.one.with(events, bound)?,
            other: match &self.other {
                Some((minus, term)) => Some((*minus, term.with(events, bound)?)),
                None => None,
            },
        })
    }
}

impl Term {
    /// None if what is bound is no float: an integer is another's to judge.
    fn with(&self, events: &Events, bound: &[Option<Handle>]) -> Option<Part> {
        match self {
            Term::Constant(x) => Some(Part::Known(*x)),
            Term::Own(slot, float) => Some(Part::Slot(*slot, *float)),
            Term::Other(attribute) => {
                let event = (*bound.get(attribute.variable)?)?;
                match attribute.seen(events.row(event)) {
                    Val::Float(x) => Some(Part::Known(x)),
                    _ => None,
                }
            }
        }
    }
}

impl Test {
    #[inline]
    fn may_hold(&self, values: &[Value]) -> bool {
        match (self.sides.0.value(values), self.sides.1.value(values)) {
            (Ok(one), Ok(other)) => one.partial_cmp(&other).is_some_and(|order| self.sign.holds(order)),
            (one, other) => one.is_err_and(|judge| judge) || other.is_err_and(|judge| judge),
        }
    }
}

impl Sum {
    /// Its value; an error if there is none (false), or if it is not for floats to say (true).
    #[inline]
    fn value(&self, values: &[Value]) -> Result<f64, bool> {
        let one = self.one.value(values)?;
        let Some((minus, other)) = &self.other else {
            return Ok(one);
        };
        let other = other.value(values)?;
        let sum = if *minus { one - other } else { one + other };
        // What is too great is null.
        if sum.is_finite() { Ok(sum) } else { Err(false) }
    }
}

impl Part {
    #[inline]
    fn value(&self, values: &[Value]) -> Result<f64, bool> {
        match self {
            Part::Known(x) => Ok(*x),
            Part::Slot(slot, float) => match values.get(*slot) {
                Some(Value::Float(x)) => Ok(*x),
                Some(Value::Int(x)) if *float => Ok(*x as f64),
                Some(Value::Null) | None => Err(false),
                Some(_) => Err(true),
            },
        }
    }
}
