//! The functions of single values (src/cepheid/language/functions.py). A null argument gives null, but
//! COALESCE, LEAST and GREATEST leave it out.

use std::borrow::Cow;

use crate::json::{Fault, fault};
use crate::value::{Val, compare};

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the language's
pub enum Function {
    Abs,
    Round,
    Floor,
    Ceil,
    Sqrt,
    Exp,
    Ln,
    Log10,
    Power,
    Least,
    Greatest,
    Coalesce,
    Length,
    Lower,
    Upper,
    Trim,
    Substring,
    Concat,
    Contains,
    StartsWith,
    EndsWith,
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    DayOfWeek,
}

use Function as F;

impl Function {
    /// The function of that name.
    pub fn named(name: &str) -> Result<Function, Fault> {
        Ok(match name {
            "ABS" => F::Abs,
            "ROUND" => F::Round,
            "FLOOR" => F::Floor,
            "CEIL" => F::Ceil,
            "SQRT" => F::Sqrt,
            "EXP" => F::Exp,
            "LN" => F::Ln,
            "LOG10" => F::Log10,
            "POWER" => F::Power,
            "LEAST" => F::Least,
            "GREATEST" => F::Greatest,
            "COALESCE" => F::Coalesce,
            "LENGTH" => F::Length,
            "LOWER" => F::Lower,
            "UPPER" => F::Upper,
            "TRIM" => F::Trim,
            "SUBSTRING" => F::Substring,
            "CONCAT" => F::Concat,
            "CONTAINS" => F::Contains,
            "STARTS_WITH" => F::StartsWith,
            "ENDS_WITH" => F::EndsWith,
            "YEAR" => F::Year,
            "MONTH" => F::Month,
            "DAY" => F::Day,
            "HOUR" => F::Hour,
            "MINUTE" => F::Minute,
            "SECOND" => F::Second,
            "DAY_OF_WEEK" => F::DayOfWeek,
            _ => return fault(format!("unknown function {name}")),
        })
    }

    /// Its value.
    pub fn call<'a>(self, arguments: Vec<Val<'a>>) -> Val<'a> {
        if self == F::Coalesce {
            return arguments.into_iter().find(|v| !v.is_null()).unwrap_or(Val::Null);
        }
        if matches!(self, F::Least | F::Greatest) {
            return extreme(self == F::Least, arguments);
        }
        if arguments.iter().any(Val::is_null) {
            return Val::Null;
        }
        match self {
            F::Abs => absolute(&arguments),
            F::Concat => concat(&arguments),
            F::Length | F::Lower | F::Upper | F::Trim => text(self, arguments),
            F::Substring => substring(arguments),
            F::Contains | F::StartsWith | F::EndsWith => search(self, &arguments),
            F::Year | F::Month | F::Day | F::Hour | F::Minute | F::Second | F::DayOfWeek => calendar(self, &arguments),
            _ => numeric(self, &arguments),
        }
    }
}

/// A float, unless it is infinite or not a number.
#[inline]
pub fn finite<'a>(x: f64) -> Val<'a> {
    if x.is_finite() { Val::Float(x) } else { Val::Null }
}

fn numeric<'a>(function: Function, arguments: &[Val<'_>]) -> Val<'a> {
    let Some(x) = arguments.first().and_then(Val::number) else {
        return Val::Null;
    };
    match function {
        F::Round => match arguments.get(1) {
            None => finite(round(x, 0)),
            Some(Val::Int(places)) => finite(round(x, *places)),
            Some(_) => Val::Null,
        },
        F::Floor => finite(x.floor() + 0.0),
        F::Ceil => finite(x.ceil() + 0.0),
        F::Sqrt => finite(x.sqrt()),
        F::Exp => finite(x.exp()),
        F::Ln => finite(x.ln()),
        F::Log10 => finite(x.log10()),
        F::Power => arguments
            .get(1)
            .and_then(Val::number)
            .map_or(Val::Null, |y| finite(x.powf(y))),
        _ => Val::Null,
    }
}

/// Rounds the shortest decimal of `x`, halves away from zero, as SQL engines do: ROUND(2.675, 2) is 2.68.
fn round(x: f64, places: i64) -> f64 {
    if places > 330 {
        return x;
    }
    if places < -310 {
        return 0.0;
    }
    // The shortest decimal, as digits and the place of the point.
    let text = format!("{:e}", x.abs());
    let Some((digits, exponent)) = text.split_once('e') else {
        return x;
    };
    let mut digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_digit).map(|d| d - b'0').collect();
    let mut point = exponent.parse::<i64>().unwrap_or(0) + 1;
    let kept = point + places;
    if kept < 0 {
        return 0.0_f64.copysign(x);
    }
    let kept = kept as usize;
    if kept >= digits.len() {
        return x;
    }
    let up = digits[kept] >= 5;
    digits.truncate(kept);
    if up {
        let mut place = kept;
        loop {
            if place == 0 {
                digits.insert(0, 1);
                point += 1;
                break;
            }
            place -= 1;
            if digits[place] < 9 {
                digits[place] += 1;
                break;
            }
            digits[place] = 0;
        }
    }
    let mut decimal: String = digits.iter().map(|d| char::from(d + b'0')).collect();
    let scale = point - digits.len() as i64;
    if decimal.is_empty() {
        decimal.push('0');
    }
    format!("{decimal}e{scale}").parse::<f64>().unwrap_or(x).copysign(x)
}

fn absolute<'a>(arguments: &[Val<'_>]) -> Val<'a> {
    match arguments.first() {
        Some(Val::Int(x)) => x.checked_abs().map_or(Val::Null, Val::Int),
        Some(Val::Float(x)) => Val::Float(x.abs()),
        _ => Val::Null,
    }
}

/// The least or greatest of those that are not null; ints among floats become floats.
fn extreme(least: bool, arguments: Vec<Val<'_>>) -> Val<'_> {
    let mut found = Val::Null;
    let floats = arguments.iter().any(|value| matches!(value, Val::Float(_)));
    for value in arguments.into_iter().filter(|value| !value.is_null()) {
        let value = match value {
            Val::Int(x) if floats => Val::Float(x as f64),
            other => other,
        };
        let better = match compare(&value, &found) {
            Some(order) => {
                if least {
                    order.is_lt()
                } else {
                    order.is_gt()
                }
            }
            None => found.is_null(),
        };
        if better {
            found = value;
        }
    }
    found
}

fn concat<'a>(arguments: &[Val<'_>]) -> Val<'a> {
    let mut joined = String::new();
    for argument in arguments {
        match argument {
            Val::Str(text) => joined.push_str(text),
            _ => return Val::Null,
        }
    }
    Val::Str(Cow::Owned(joined))
}

fn text(function: Function, mut arguments: Vec<Val<'_>>) -> Val<'_> {
    let Some(Val::Str(text)) = arguments.pop() else {
        return Val::Null;
    };
    match function {
        F::Length => Val::Int(text.chars().count() as i64),
        F::Lower => Val::Str(Cow::Owned(text.to_lowercase())),
        F::Upper => Val::Str(Cow::Owned(text.to_uppercase())),
        _ => match text {
            Cow::Borrowed(text) => Val::Str(Cow::Borrowed(text.trim())),
            Cow::Owned(text) => Val::Str(Cow::Owned(text.trim().to_owned())),
        },
    }
}

/// The first character is number 1; what lies outside of the text is left out.
fn substring(arguments: Vec<Val<'_>>) -> Val<'_> {
    let mut arguments = arguments.into_iter();
    let (Some(Val::Str(text)), Some(Val::Int(start)), length) = (arguments.next(), arguments.next(), arguments.next())
    else {
        return Val::Null;
    };
    let end = match length {
        None => i64::MAX,
        Some(Val::Int(length)) if length >= 0 => start.saturating_add(length),
        Some(_) => return Val::Null,
    };
    let skipped = start.saturating_sub(1).max(0);
    let taken = end.saturating_sub(1).saturating_sub(skipped).max(0);
    let found = text.chars().skip(skipped as usize).take(taken as usize).collect();
    Val::Str(Cow::Owned(found))
}

fn search<'a>(function: Function, arguments: &[Val<'_>]) -> Val<'a> {
    let [Val::Str(text), Val::Str(part)] = arguments else {
        return Val::Null;
    };
    Val::Bool(match function {
        F::Contains => text.contains(part.as_ref()),
        F::StartsWith => text.starts_with(part.as_ref()),
        _ => text.ends_with(part.as_ref()),
    })
}

pub(crate) const SECOND: i64 = 1_000_000;
pub(crate) const DAY: i64 = 86_400 * SECOND;

fn calendar<'a>(function: Function, arguments: &[Val<'_>]) -> Val<'a> {
    let Some(Val::Int(time)) = arguments.first() else {
        return Val::Null;
    };
    let days = time.div_euclid(DAY);
    let seconds = time.rem_euclid(DAY) / SECOND;
    let (year, month, day) = date(days);
    Val::Int(match function {
        F::Year => year,
        F::Month => month,
        F::Day => day,
        F::Hour => seconds / 3600,
        F::Minute => seconds / 60 % 60,
        F::Second => seconds % 60,
        // ISO 8601: Monday is 1. The epoch was a Thursday.
        _ => (days + 3).rem_euclid(7) + 1,
    })
}

/// Year, month and day of a number of days since the epoch, in the Gregorian calendar.
fn date(days: i64) -> (i64, i64, i64) {
    // Years are counted from March, so that the leap day is the last; 146097 days are 400 years.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The first day of the year that a day is in, both since the epoch; and whether that year has a 29 February.
pub(crate) fn new_year(days: i64) -> (i64, bool) {
    let (year, ..) = date(days);
    let before = year - 1;
    let first = before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162;
    (first, year % 4 == 0 && (year % 100 != 0 || year % 400 == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_decimal_and_away_from_zero() {
        for (x, places, expected) in [
            (2.675, 2, 2.68),
            (0.5, 0, 1.0),
            (-0.5, 0, -1.0),
            (1.5, 0, 2.0),
            (9.99, 1, 10.0),
            (0.04, 1, 0.0),
            (0.05, 1, 0.1),
            (1234.0, -2, 1200.0),
            (1250.0, -2, 1300.0),
            (51.0, -2, 100.0),
            (49.0, -2, 0.0),
            (5.0, -2, 0.0),
            (1e22, 2, 1e22),
            (1.0, 400, 1.0),
            (1.0, -400, 0.0),
        ] {
            assert_eq!(round(x, places), expected, "{x} {places}");
        }
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(-1), (1969, 12, 31));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(new_year(11_016), (10_957, true));
        assert_eq!(new_year(-1), (-365, false));
        assert_eq!(date(-719_528), (0, 1, 1));
    }
}
