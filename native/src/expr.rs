//! Compiled expressions and their value: three-valued logic, nulls, and what gives null (rule E6).

use std::cmp::Ordering;
use std::sync::Arc;

use crate::event::{Events, Handle, Held, Row};
use crate::functions::{Function, finite};
use crate::json::{Fault, Json, Reading, fault};
use crate::value::{Val, Value, compare};
use crate::zone::{Zone, Zones};

/// Where an attribute is in an event of one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The stream has no such attribute: null.
    Missing,
    /// `?e.id`
    Id,
    /// `?e.time`
    Time,
    /// A place in the event's values.
    At(usize),
}

/// An attribute of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The variable's number.
    pub variable: usize,
    /// Where it is, by stream.
    pub slots: Box<[Slot]>,
    /// Whether integers are read as floats, because another stream of the variable has floats there.
    pub float: bool,
}

impl Attribute {
    /// Reads it.
    #[inline]
    pub fn of<'a>(&self, row: &'a impl Row) -> Val<'a> {
        let value = match self.slots.get(usize::from(row.stream())) {
            Some(Slot::At(place)) => row.value(*place),
            Some(Slot::Id) => row.id(),
            Some(Slot::Time) => Val::Int(row.time()),
            Some(Slot::Missing) | None => Val::Null,
        };
        match value {
            Val::Int(x) if self.float => Val::Float(x as f64),
            other => other,
        }
    }

    /// Reads it of an event that is kept.
    #[inline]
    pub fn seen<'e>(&self, event: Held<'e>) -> Val<'e> {
        let value = match self.slots.get(usize::from(event.name.stream)) {
            Some(Slot::At(place)) => event.values.get(*place).map_or(Val::Null, Value::view),
            Some(Slot::Id) => event.name.id.view(),
            Some(Slot::Time) => Val::Int(event.name.time),
            Some(Slot::Missing) | None => Val::Null,
        };
        match value {
            Val::Int(x) if self.float => Val::Float(x as f64),
            other => other,
        }
    }

    /// Where it is kept as it is read, if it is.
    #[inline]
    pub fn place<'e>(&self, event: Held<'e>) -> Option<&'e Value> {
        match self.slots.get(usize::from(event.name.stream)) {
            Some(Slot::At(place)) if !self.float => event.values.get(*place),
            _ => None,
        }
    }

    /// Reads it to keep it: shared text is not copied.
    pub fn kept(&self, event: Held<'_>) -> Value {
        let value = match self.slots.get(usize::from(event.name.stream)) {
            Some(Slot::At(place)) => event.values.get(*place).cloned().unwrap_or(Value::Null),
            _ => self.seen(event).into_value(),
        };
        if self.float { value.into_float() } else { value }
    }
}

/// A sign that compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Sign {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Sign {
    /// The sign with its sides exchanged, for those that order.
    pub fn turned(self) -> Option<Sign> {
        match self {
            Sign::Less => Some(Sign::Greater),
            Sign::LessEqual => Some(Sign::GreaterEqual),
            Sign::Greater => Some(Sign::Less),
            Sign::GreaterEqual => Some(Sign::LessEqual),
            Sign::Equal | Sign::Unequal => None,
        }
    }

    /// Whether it is true of two values that compare so.
    #[inline]
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Sign::Equal => order.is_eq(),
            Sign::Unequal => order.is_ne(),
            Sign::Less => order.is_lt(),
            Sign::LessEqual => order.is_le(),
            Sign::Greater => order.is_gt(),
            Sign::GreaterEqual => order.is_ge(),
        }
    }
}

/// A sign that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// An expression.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the shapes of src/cepheid/language/syntax.py
pub enum Expr {
    Constant(Value),
    Attribute(Attribute),
    Compare(Sign, Box<(Expr, Expr)>),
    Arithmetic(Operator, Box<(Expr, Expr)>),
    Negative(Box<Expr>),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    In(Box<Expr>, Vec<Expr>, bool),
    Between(Box<(Expr, Expr, Expr)>, bool),
    IsNull(Box<Expr>, bool),
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    Call(Function, Vec<Expr>),
    /// What the clocks of a zone show at an instant.
    Local(Arc<Zone>, Box<Expr>),
    Aggregate(usize),
}

/// What the names in an expression stand for: how many streams there are, and the zones.
#[derive(Clone, Copy)]
pub struct Named<'z> {
    /// Attributes have a slot for each of them.
    pub streams: usize,
    /// Those of the plan.
    pub zones: &'z Zones,
}

/// What the names of an expression stand for now.
pub trait Scope {
    /// An attribute's value; null if its variable is not bound.
    fn attribute<'a>(&'a self, attribute: &Attribute) -> Val<'a>;
    /// The value of the plan's aggregate of that number.
    fn aggregate(&self, number: usize) -> Val<'_>;
}

/// An event for each bound variable, and the aggregates' values.
#[derive(Clone, Copy)]
pub struct Bindings<'e> {
    /// The events.
    pub events: &'e Events,
    /// By variable.
    pub bound: &'e [Option<Handle>],
    /// One that is tried for a variable.
    pub tried: Option<(usize, Handle)>,
    /// By the plan's number of the aggregate.
    pub aggregates: &'e [Value],
}

impl<'e> Bindings<'e> {
    /// The event of a variable.
    #[inline]
    pub fn event(&self, variable: usize) -> Option<Held<'e>> {
        let handle = match self.tried {
            Some((tried, handle)) if tried == variable => handle,
            _ => (*self.bound.get(variable)?)?,
        };
        Some(self.events.row(handle))
    }
}

impl Scope for Bindings<'_> {
    #[inline]
    fn attribute<'a>(&'a self, attribute: &Attribute) -> Val<'a> {
        match self.event(attribute.variable) {
            Some(event) => attribute.seen(event),
            None => Val::Null,
        }
    }

    fn aggregate(&self, number: usize) -> Val<'_> {
        self.aggregates.get(number).map_or(Val::Null, Value::view)
    }
}

/// One row for whichever variable is named: what a FILTER sees, before there is an event.
pub struct Alone<'r, R>(pub &'r R);

impl<R: Row> Scope for Alone<'_, R> {
    #[inline]
    fn attribute<'a>(&'a self, attribute: &Attribute) -> Val<'a> {
        attribute.of(self.0)
    }

    fn aggregate(&self, _: usize) -> Val<'_> {
        Val::Null
    }
}

impl Expr {
    /// Reads an expression.
    pub fn read(json: &Json, named: Named<'_>) -> Result<Expr, Fault> {
        let inner = |place: usize| Expr::read(json.at(place)?, named);
        let boxed = |place: usize| inner(place).map(Box::new);
        let pair = |one: usize, other: usize| Ok(Box::new((inner(one)?, inner(other)?)));
        let list = |place: usize| json.at(place)?.each(|item| Expr::read(item, named));
        Ok(match json.at(0)?.text()? {
            "null" => Expr::Constant(Value::Null),
            "bool" => Expr::Constant(Value::Bool(json.at(1)?.bool()?)),
            "int" => Expr::Constant(Value::Int(json.at(1)?.int()?)),
            "float" => Expr::Constant(Value::Float(json.at(1)?.float()?)),
            "text" => Expr::Constant(Value::Str(json.at(1)?.text()?.into())),
            "attribute" => Expr::Attribute(read_attribute(json, named.streams)?),
            "compare" => Expr::Compare(sign(json.at(1)?.text()?)?, pair(2, 3)?),
            "arithmetic" => Expr::Arithmetic(operator(json.at(1)?.text()?)?, pair(2, 3)?),
            "negative" => Expr::Negative(boxed(1)?),
            "not" => Expr::Not(boxed(1)?),
            "and" => Expr::And(list(1)?),
            "or" => Expr::Or(list(1)?),
            "in" => Expr::In(boxed(1)?, list(2)?, json.at(3)?.bool()?),
            "between" => Expr::Between(Box::new((inner(1)?, inner(2)?, inner(3)?)), json.at(4)?.bool()?),
            "is null" => Expr::IsNull(boxed(1)?, json.at(2)?.bool()?),
            "case" => {
                let branch = |item: &Json| Ok((Expr::read(item.at(0)?, named)?, Expr::read(item.at(1)?, named)?));
                let otherwise = json.at(2)?.optional(|item| Expr::read(item, named).map(Box::new))?;
                Expr::Case(json.at(1)?.each(branch)?, otherwise)
            }
            "call" => Expr::Call(Function::named(json.at(1)?.text()?)?, list(2)?),
            "local" => match named.zones.get(json.at(1)?.text()?) {
                Some(zone) => Expr::Local(Arc::clone(zone), boxed(2)?),
                None => return fault(format!("the plan has no zone {}", json.at(1)?)),
            },
            "aggregate" => Expr::Aggregate(json.at(1)?.index()?),
            other => return fault(format!("unknown expression '{other}'")),
        })
    }

    /// Whether it is true; unknown is not.
    #[inline]
    pub fn holds(&self, scope: &impl Scope) -> bool {
        self.truth(scope) == Some(true)
    }

    /// Its truth value; None is unknown. What most conditions are made of is judged without a value in between.
    #[inline]
    fn truth(&self, scope: &impl Scope) -> Option<bool> {
        match self {
            Expr::Compare(sign, sides) => {
                let order = match sides.as_ref() {
                    (Expr::Attribute(one), Expr::Constant(other)) => compare(&scope.attribute(one), &other.view()),
                    (Expr::Attribute(one), Expr::Attribute(other)) => {
                        compare(&scope.attribute(one), &scope.attribute(other))
                    }
                    (one, other) => compare(&one.value(scope), &other.value(scope)),
                };
                order.map(|order| sign.holds(order))
            }
            Expr::Not(inner) => inner.truth(scope).map(|x| !x),
            Expr::And(parts) => all(parts, scope, true),
            Expr::Or(parts) => all(parts, scope, false).map(|x| !x),
            other => other.value(scope).truth(),
        }
    }

    /// Its value.
    pub fn value<'a>(&'a self, scope: &'a impl Scope) -> Val<'a> {
        match self {
            Expr::Constant(value) => value.view(),
            Expr::Attribute(attribute) => scope.attribute(attribute),
            Expr::Compare(..) | Expr::Not(_) | Expr::And(_) | Expr::Or(_) => truth(self.truth(scope)),
            Expr::Arithmetic(operator, sides) => arithmetic(*operator, &sides.0.value(scope), &sides.1.value(scope)),
            Expr::Negative(inner) => match inner.value(scope) {
                Val::Int(x) => x.checked_neg().map_or(Val::Null, Val::Int),
                Val::Float(x) => Val::Float(-x),
                _ => Val::Null,
            },
            Expr::In(inner, items, negated) => truth(among(&inner.value(scope), items, scope).map(|x| x != *negated)),
            Expr::Between(parts, negated) => {
                let (value, low, high) = (parts.0.value(scope), parts.1.value(scope), parts.2.value(scope));
                let above = compare(&value, &low).map(Ordering::is_ge);
                let below = compare(&value, &high).map(Ordering::is_le);
                truth(and(above, below).map(|x| x != *negated))
            }
            Expr::IsNull(inner, negated) => Val::Bool(inner.value(scope).is_null() != *negated),
            Expr::Case(branches, otherwise) => {
                let chosen = branches.iter().find(|(when, _)| when.holds(scope));
                let result = chosen.map(|(_, then)| then).or(otherwise.as_deref());
                result.map_or(Val::Null, |result| result.value(scope))
            }
            Expr::Call(function, arguments) => function.call(arguments.iter().map(|a| a.value(scope)).collect()),
            Expr::Local(zone, inner) => match inner.value(scope) {
                Val::Int(time) => zone.local(time).map_or(Val::Null, Val::Int),
                _ => Val::Null,
            },
            Expr::Aggregate(number) => scope.aggregate(*number),
        }
    }

    /// The parts of an AND, or else itself: it is true if all of them are.
    pub fn conjuncts(&self) -> &[Expr] {
        match self {
            Expr::And(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// The variables it reads outside of aggregates, a bit each.
    pub fn variables(&self) -> u64 {
        let mut mask = 0;
        self.visit(&mut |attribute| mask |= 1 << attribute.variable);
        mask
    }

    /// Changes every part of it in place, itself last.
    pub fn rewrite(&mut self, change: &mut dyn FnMut(&mut Expr)) {
        match self {
            Expr::Constant(_) | Expr::Aggregate(_) | Expr::Attribute(_) => {}
            Expr::Compare(_, sides) | Expr::Arithmetic(_, sides) => {
                sides.0.rewrite(change);
                sides.1.rewrite(change);
            }
            Expr::Negative(inner) | Expr::Not(inner) | Expr::IsNull(inner, _) | Expr::Local(_, inner) => {
                inner.rewrite(change);
            }
            Expr::And(parts) | Expr::Or(parts) | Expr::Call(_, parts) => {
                parts.iter_mut().for_each(|part| part.rewrite(change));
            }
            Expr::In(inner, items, _) => {
                inner.rewrite(change);
                items.iter_mut().for_each(|item| item.rewrite(change));
            }
            Expr::Between(parts, _) => {
                parts.0.rewrite(change);
                parts.1.rewrite(change);
                parts.2.rewrite(change);
            }
            Expr::Case(branches, otherwise) => {
                for (when, then) in branches {
                    when.rewrite(change);
                    then.rewrite(change);
                }
                otherwise.iter_mut().for_each(|otherwise| otherwise.rewrite(change));
            }
        }
        change(self);
    }

    /// Shows all attributes outside of aggregates.
    pub fn visit(&self, show: &mut dyn FnMut(&Attribute)) {
        match self {
            Expr::Constant(_) | Expr::Aggregate(_) => {}
            Expr::Attribute(attribute) => show(attribute),
            Expr::Compare(_, sides) | Expr::Arithmetic(_, sides) => {
                sides.0.visit(show);
                sides.1.visit(show);
            }
            Expr::Negative(inner) | Expr::Not(inner) | Expr::IsNull(inner, _) | Expr::Local(_, inner) => {
                inner.visit(show)
            }
            Expr::And(parts) | Expr::Or(parts) | Expr::Call(_, parts) => parts.iter().for_each(|part| part.visit(show)),
            Expr::In(inner, items, _) => {
                inner.visit(show);
                items.iter().for_each(|item| item.visit(show));
            }
            Expr::Between(parts, _) => {
                parts.0.visit(show);
                parts.1.visit(show);
                parts.2.visit(show);
            }
            Expr::Case(branches, otherwise) => {
                for (when, then) in branches {
                    when.visit(show);
                    then.visit(show);
                }
                if let Some(otherwise) = otherwise {
                    otherwise.visit(show);
                }
            }
        }
    }
}

fn read_attribute(json: &Json, streams: usize) -> Result<Attribute, Fault> {
    let mut slots = vec![Slot::Missing; streams];
    for place in json.at(2)?.list()? {
        let slot = match place.at(1)?.int()? {
            -1 => Slot::Id,
            -2 => Slot::Time,
            other => Slot::At(usize::try_from(other).or_else(|_| fault("a slot is negative"))?),
        };
        match slots.get_mut(place.at(0)?.index()?) {
            Some(target) => *target = slot,
            None => return fault("an attribute of an unknown stream"),
        }
    }
    let variable = json.at(1)?.index()?;
    if variable >= 64 {
        return fault("a query has at most 64 variables");
    }
    Ok(Attribute {
        variable,
        slots: slots.into(),
        float: json.at(3)?.bool()?,
    })
}

pub(crate) fn sign(text: &str) -> Result<Sign, Fault> {
    Ok(match text {
        "=" => Sign::Equal,
        "!=" => Sign::Unequal,
        "<" => Sign::Less,
        "<=" => Sign::LessEqual,
        ">" => Sign::Greater,
        ">=" => Sign::GreaterEqual,
        _ => return fault(format!("unknown sign '{text}'")),
    })
}

fn operator(text: &str) -> Result<Operator, Fault> {
    Ok(match text {
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Remainder,
        _ => return fault(format!("unknown operator '{text}'")),
    })
}

fn truth<'a>(value: Option<bool>) -> Val<'a> {
    value.map_or(Val::Null, Val::Bool)
}

fn and(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

/// Whether all parts have this truth value: false as soon as one has the other, else unknown if one is.
fn all(parts: &[Expr], scope: &impl Scope, wanted: bool) -> Option<bool> {
    let mut result = Some(true);
    for part in parts {
        match part.truth(scope) {
            Some(found) if found != wanted => return Some(false),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

fn among(value: &Val<'_>, items: &[Expr], scope: &impl Scope) -> Option<bool> {
    let mut result = Some(false);
    for item in items {
        match compare(value, &item.value(scope)) {
            Some(Ordering::Equal) => return Some(true),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

fn arithmetic<'a>(operator: Operator, one: &Val<'_>, other: &Val<'_>) -> Val<'a> {
    if let (Val::Int(a), Val::Int(b)) = (one, other) {
        let result = match operator {
            Operator::Add => a.checked_add(*b),
            Operator::Subtract => a.checked_sub(*b),
            Operator::Multiply => a.checked_mul(*b),
            Operator::Remainder if *b == -1 => Some(0),
            Operator::Remainder => a.checked_rem(*b),
            Operator::Divide if *b == 0 => None,
            Operator::Divide => return finite(*a as f64 / *b as f64),
        };
        return result.map_or(Val::Null, Val::Int);
    }
    let (Some(a), Some(b)) = (one.number(), other.number()) else {
        return Val::Null;
    };
    finite(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::Remainder => a % b,
    })
}
