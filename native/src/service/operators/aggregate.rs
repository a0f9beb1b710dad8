//! AGGREGATE: a number over the last n events. Nulls are skipped (rule E6); sums are exact, with one rounding at the end.

use std::collections::VecDeque;

use serde_json::json;

use crate::exact::{ExactSum, sum};
use crate::json::{Fault, Json, Reading, fault};
use crate::service::operators::{Inputs, Output, Process, Trouble};
use crate::value::Val;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Count,
    Sum,
    Avg,
    Min,
    Max,
    Stddev,
}

/// A reading: an integer stays one.
#[derive(Clone, Copy, Debug)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Int(x) => x as f64,
            Number::Float(x) => x,
        }
    }

    fn is_less(self, other: Number) -> bool {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a < b,
            _ => self.float() < other.float(),
        }
    }

    fn view(self) -> Val<'static> {
        match self {
            Number::Int(x) => Val::Int(x),
            Number::Float(x) => Val::Float(x),
        }
    }
}

/// Aggregates.
pub struct Aggregate {
    payload: usize,
    function: Function,
    last: usize,
    /// The last readings, with their numbers.
    window: VecDeque<Option<Number>>,
    came: u64,
    values: u64,
    ints: i128,
    floats: ExactSum,
    has_floats: u64,
    /// Readings that no later one is before, in the order asked for, with their numbers.
    extremes: VecDeque<(u64, Number)>,
}

impl Aggregate {
    /// The function of that name over the last so many events.
    pub fn new(payload: usize, function: &str, last: usize) -> Result<Aggregate, Fault> {
        let function = match function {
            "count" => Function::Count,
            "sum" => Function::Sum,
            "avg" => Function::Avg,
            "min" => Function::Min,
            "max" => Function::Max,
            "stddev" => Function::Stddev,
            other => return fault(format!("unknown aggregate '{other}'")),
        };
        Ok(Aggregate {
            payload,
            function,
            last: last.max(1),
            window: VecDeque::new(),
            came: 0,
            values: 0,
            ints: 0,
            floats: ExactSum::default(),
            has_floats: 0,
            extremes: VecDeque::new(),
        })
    }

    fn add(&mut self, value: Option<Number>) {
        if self.window.len() == self.last {
            match self.window.pop_front().flatten() {
                Some(Number::Int(x)) => {
                    self.ints -= i128::from(x);
                    self.values -= 1;
                }
                Some(Number::Float(x)) => {
                    self.floats.remove(x);
                    self.values -= 1;
                    self.has_floats -= 1;
                }
                None => {}
            }
        }
        self.came += 1;
        let oldest = self.came.saturating_sub(self.last as u64);
        while self.extremes.front().is_some_and(|(number, _)| *number <= oldest) {
            self.extremes.pop_front();
        }
        self.window.push_back(value);
        let Some(value) = value else { return };
        self.values += 1;
        match value {
            Number::Int(x) => self.ints += i128::from(x),
            Number::Float(x) => {
                self.floats.add(x);
                self.has_floats += 1;
            }
        }
        if let Function::Min | Function::Max = self.function {
            let smallest = self.function == Function::Min;
            let beaten = |held: Number| {
                if smallest {
                    value.is_less(held)
                } else {
                    held.is_less(value)
                }
            };
            while self.extremes.back().is_some_and(|(_, held)| beaten(*held)) {
                self.extremes.pop_back();
            }
            self.extremes.push_back((self.came, value));
        }
    }

    fn total(&self) -> Option<f64> {
        // A stream's attribute has one type, so one of the two sums is nothing.
        if self.has_floats > 0 {
            self.floats.value()
        } else {
            Some(self.ints as f64)
        }
    }

    fn value(&self) -> Val<'static> {
        let float = |x: Option<f64>| x.filter(|x| x.is_finite()).map_or(Val::Null, Val::Float);
        match self.function {
            Function::Count => Val::Int(self.values as i64),
            _ if self.values == 0 => Val::Null,
            Function::Sum if self.has_floats > 0 => float(self.floats.value()),
            Function::Sum => i64::try_from(self.ints).map_or(Val::Null, Val::Int),
            Function::Avg => float(self.total().map(|total| total / self.values as f64)),
            Function::Min | Function::Max => self.extremes.front().map_or(Val::Null, |(_, value)| value.view()),
            Function::Stddev if self.values < 2 => Val::Null,
            Function::Stddev => {
                let deviation = self.total().and_then(|total| {
                    let mean = total / self.values as f64;
                    let squares = self.window.iter().flatten().map(|x| (x.float() - mean).powi(2));
                    squares.clone().all(f64::is_finite).then(|| sum(squares)).flatten()
                });
                float(deviation.map(|squares| (squares / (self.values - 1) as f64).sqrt()))
            }
        }
    }
}

impl Process for Aggregate {
    fn run(&mut self, inputs: &Inputs<'_>, out: &mut dyn Output) -> Result<(), Trouble> {
        let value = inputs.get(0).map_or(Val::Null, |record| record.get(self.payload));
        self.add(match value {
            Val::Int(x) => Some(Number::Int(x)),
            Val::Float(x) => Some(Number::Float(x)),
            _ => None,
        });
        let value = self.value();
        out.emit(&mut |draft| draft.set(0, &value))
    }

    /// The readings of the window: all else follows from them.
    fn save(&self) -> Json {
        let readings = self.window.iter().map(|reading| match reading {
            None => Json::Null,
            Some(Number::Int(x)) => json!(x),
            Some(Number::Float(x)) => json!(x),
        });
        Json::Array(readings.collect())
    }

    fn restore(&mut self, saved: &Json) -> Result<(), Fault> {
        for reading in saved.list()? {
            let number = |x: &Json| match x.as_i64() {
                Some(x) => Ok(Number::Int(x)),
                None => Ok(Number::Float(x.float()?)),
            };
            self.add(reading.optional(number)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(function: &str, last: usize, values: &[Option<Number>]) -> String {
        let mut aggregate = Aggregate::new(0, function, last).unwrap();
        values.iter().for_each(|value| aggregate.add(*value));
        format!("{:?}", aggregate.value())
    }

    #[test]
    fn the_last_n_events_count_and_nulls_do_not() {
        let ints = [Some(5), None, Some(1), Some(9), Some(2)].map(|x| x.map(Number::Int));
        for (function, last, expected) in [
            ("count", 3, "Int(3)"),
            ("count", 4, "Int(3)"),
            ("sum", 5, "Int(17)"),
            ("sum", 2, "Int(11)"),
            ("avg", 2, "Float(5.5)"),
            ("min", 5, "Int(1)"),
            ("min", 2, "Int(2)"),
            ("max", 5, "Int(9)"),
            ("max", 1, "Int(2)"),
            ("stddev", 3, "Float(4.358898943540674)"),
            ("stddev", 1, "Null"),
        ] {
            assert_eq!(over(function, last, &ints), expected, "{function} {last}");
        }
        assert_eq!(over("sum", 1, &[None]), "Null");
        assert_eq!(over("count", 1, &[None]), "Int(0)");
        assert_eq!(
            over("sum", 2, &[Some(Number::Int(i64::MAX)), Some(Number::Int(1))]),
            "Null"
        );
    }

    #[test]
    fn extremes_are_those_of_the_window() {
        let mut seed = 1_u64;
        let values: Vec<i64> = (0..500)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                (seed >> 40) as i64 % 50
            })
            .collect();
        let (mut least, mut most) = (
            Aggregate::new(0, "min", 7).unwrap(),
            Aggregate::new(0, "max", 7).unwrap(),
        );
        for (i, value) in values.iter().enumerate() {
            least.add(Some(Number::Int(*value)));
            most.add(Some(Number::Int(*value)));
            let window = &values[i.saturating_sub(6)..=i];
            assert_eq!(
                format!("{:?}", least.value()),
                format!("Int({})", window.iter().min().unwrap())
            );
            assert_eq!(
                format!("{:?}", most.value()),
                format!("Int({})", window.iter().max().unwrap())
            );
        }
    }

    #[test]
    fn what_leaves_the_window_leaves_no_trace() {
        let values: Vec<_> = [1e300, 1.0, 0.1, 0.2].map(|x| Some(Number::Float(x))).into();
        assert_eq!(over("sum", 2, &values), format!("Float({:?})", 0.1_f64 + 0.2));
    }
}
