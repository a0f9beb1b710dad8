//! Aggregates over the events of one variable (rule E6): nulls are skipped, sums have no rounding but the last.
//!
//! `aggregate` goes through all events. `Running` follows a window that moves, at a cost that does not depend on its
//! size (but STDDEV's, whose mean changes with every event), and gives exactly the same values.

use std::collections::VecDeque;

use crate::event::{Events, Handle, Held};
use crate::exact::{self, ExactSum};
use crate::expr::{Alone, Expr};
use crate::plan::{Aggregate, AggregateFunction};
use crate::value::{Val, Value, compare};

/// The value of an aggregate over these events, which are in E2's order.
pub fn aggregate<'a>(aggregate: &Aggregate, events: impl Iterator<Item = Held<'a>> + Clone) -> Value {
    use AggregateFunction as A;
    let Some(argument) = &aggregate.argument else {
        return Value::Int(events.count() as i64);
    };
    match aggregate.function {
        A::First => one(argument, events.into_iter().next()),
        A::Last => one(argument, events.last()),
        A::Count => Value::Int(present(argument, events).len() as i64),
        A::Min | A::Max => extreme(aggregate.function == A::Min, present(argument, events)),
        A::Sum => sum(&present(argument, events)),
        A::Avg => average(&present(argument, events)).map_or(Value::Null, float),
        A::Stddev => deviation(&numbers(&present(argument, events))).map_or(Value::Null, float),
    }
}

/// The value of an expression over one variable, for one event of it.
fn of_event(argument: &Expr, event: Held<'_>) -> Value {
    match argument {
        Expr::Attribute(attribute) => attribute.kept(event),
        _ => argument.value(&Alone(&event)).into_value(),
    }
}

fn one(argument: &Expr, event: Option<Held<'_>>) -> Value {
    event.map_or(Value::Null, |event| of_event(argument, event))
}

fn present<'a>(argument: &Expr, events: impl Iterator<Item = Held<'a>>) -> Vec<Value> {
    events
        .map(|event| of_event(argument, event))
        .filter(|value| !value.is_null())
        .collect()
}

fn numbers(values: &[Value]) -> Vec<f64> {
    values.iter().filter_map(|value| value.view().number()).collect()
}

fn float(x: f64) -> Value {
    if x.is_finite() { Value::Float(x) } else { Value::Null }
}

/// The sum, if all are integers.
fn integers(values: &[Value]) -> Option<i128> {
    values.iter().try_fold(0i128, |total, value| match value {
        Value::Int(x) => Some(total + i128::from(*x)),
        _ => None,
    })
}

fn average(values: &[Value]) -> Option<f64> {
    match integers(values) {
        Some(_) if values.is_empty() => None,
        Some(total) => Some(total as f64 / values.len() as f64),
        None => mean(&numbers(values)),
    }
}

fn sum(values: &[Value]) -> Value {
    if values.is_empty() {
        return Value::Null;
    }
    match integers(values) {
        Some(total) => i64::try_from(total).map_or(Value::Null, Value::Int),
        None => exact::sum(numbers(values)).map_or(Value::Null, Value::Float),
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    exact::sum(values.iter().copied()).map(|sum| sum / values.len() as f64)
}

fn deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values)?;
    let squares: Vec<f64> = values.iter().map(|x| (x - mean) * (x - mean)).collect();
    if squares.iter().any(|x| !x.is_finite()) {
        return None;
    }
    exact::sum(squares).map(|sum| (sum / (values.len() - 1) as f64).sqrt())
}

fn extreme(least: bool, values: Vec<Value>) -> Value {
    let better = |one: &Val<'_>, other: &Val<'_>| {
        let order = compare(one, other);
        order.is_some_and(|order| if least { order.is_lt() } else { order.is_gt() })
    };
    let floats = values.iter().any(|value| matches!(value, Value::Float(_)));
    let alike = |value: Value| if floats { value.into_float() } else { value };
    values
        .into_iter()
        .map(alike)
        .reduce(|best, value| {
            if better(&value.view(), &best.view()) {
                value
            } else {
                best
            }
        })
        .unwrap_or(Value::Null)
}

/// An aggregate over a window to which events are added at its end, and from which they are taken at its start.
#[derive(Debug)]
pub struct Running {
    /// Values that are not null, and how many of them are floats.
    present: usize,
    floats: usize,
    sum: ExactSum,
    integers: i128,
    /// MIN and MAX: the values that no later one beats, with the number of their event.
    best: VecDeque<(u64, Value)>,
    added: u64,
    removed: u64,
}

impl Running {
    /// Over no event yet.
    pub fn new() -> Self {
        Running {
            present: 0,
            floats: 0,
            sum: ExactSum::default(),
            integers: 0,
            best: VecDeque::new(),
            added: 0,
            removed: 0,
        }
    }

    /// An event at the end.
    pub fn add(&mut self, aggregate: &Aggregate, event: Held<'_>) {
        self.added += 1;
        let Some(value) = counted(aggregate, event) else {
            return;
        };
        self.present += 1;
        self.floats += usize::from(matches!(value, Value::Float(_)));
        match aggregate.function {
            AggregateFunction::Sum | AggregateFunction::Avg => self.change(&value, true),
            AggregateFunction::Min => self.beat(value, true),
            AggregateFunction::Max => self.beat(value, false),
            _ => {}
        }
    }

    /// The event at the start goes.
    pub fn remove(&mut self, aggregate: &Aggregate, event: Held<'_>) {
        self.removed += 1;
        let Some(value) = counted(aggregate, event) else {
            return;
        };
        self.present -= 1;
        self.floats -= usize::from(matches!(value, Value::Float(_)));
        match aggregate.function {
            AggregateFunction::Sum | AggregateFunction::Avg => self.change(&value, false),
            _ => {
                if self.best.front().is_some_and(|(number, _)| *number <= self.removed) {
                    self.best.pop_front();
                }
            }
        }
    }

    fn change(&mut self, value: &Value, add: bool) {
        if let Value::Int(x) = value {
            self.integers += if add { i128::from(*x) } else { -i128::from(*x) };
        }
        if let Some(x) = value.view().number() {
            if add {
                self.sum.add(x);
            } else {
                self.sum.remove(x);
            }
        }
    }

    fn beat(&mut self, value: Value, least: bool) {
        let beaten = |other: &Value| {
            let order = compare(&value.view(), &other.view());
            order.is_some_and(|order| if least { order.is_lt() } else { order.is_gt() })
        };
        while self.best.back().is_some_and(|(_, other)| beaten(other)) {
            self.best.pop_back();
        }
        self.best.push_back((self.added, value));
    }

    /// The value over the events of this window, which are those that were added and not taken.
    pub fn value(&self, over: &Aggregate, events: &Events, window: &VecDeque<Handle>) -> Value {
        use AggregateFunction as A;
        let Some(argument) = &over.argument else {
            return Value::Int(window.len() as i64);
        };
        match over.function {
            A::Count => Value::Int(self.present as i64),
            A::First => one(argument, window.front().map(|event| events.row(*event))),
            A::Last => one(argument, window.back().map(|event| events.row(*event))),
            A::Sum if self.present == 0 => Value::Null,
            A::Sum if self.floats == 0 => i64::try_from(self.integers).map_or(Value::Null, Value::Int),
            A::Sum => self.sum.value().map_or(Value::Null, Value::Float),
            A::Avg if self.present == 0 => Value::Null,
            A::Avg if self.floats == 0 => float(self.integers as f64 / self.present as f64),
            A::Avg => self
                .sum
                .value()
                .map_or(Value::Null, |sum| float(sum / self.present as f64)),
            A::Min | A::Max => {
                let best = self.best.front().map_or(Value::Null, |(_, value)| value.clone());
                if self.floats > 0 { best.into_float() } else { best }
            }
            A::Stddev => aggregate(over, window.iter().map(|event| events.row(*event))),
        }
    }
}

impl Default for Running {
    fn default() -> Self {
        Running::new()
    }
}

/// The value that an event adds to what is kept of an aggregate; None if there is nothing to keep.
fn counted(aggregate: &Aggregate, event: Held<'_>) -> Option<Value> {
    use AggregateFunction as A;
    let argument = aggregate.argument.as_ref()?;
    if matches!(aggregate.function, A::First | A::Last | A::Stddev) {
        return None;
    }
    Some(of_event(argument, event)).filter(|value| !value.is_null())
}
