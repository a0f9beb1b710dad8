//! Times as records write them: ISO 8601 text, by the rules of src/cepheid/model/time.py.

use crate::record::{MAX_INSTANT, MIN_INSTANT};

/// Why a text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not written as one, or there is no such day or hour.
    NotATime,
    /// It is outside the years 1 to 9999.
    OutOfRange,
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take(&mut self, wanted: &[u8]) -> Option<u8> {
        let first = *self.0.first()?;
        wanted.contains(&first).then(|| {
            self.0 = &self.0[1..];
            first
        })
    }

    fn digits(&mut self, least: usize, most: usize) -> Option<&[u8]> {
        let count = self
            .0
            .iter()
            .take(most)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (digits, rest) = self.0.split_at(count);
        self.0 = rest;
        (count >= least).then_some(digits)
    }

    fn two(&mut self) -> Option<i64> {
        self.digits(2, 2).map(number)
    }
}

fn number(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
}

struct Parts {
    sign: Option<u8>,
    year_digits: usize,
    year: i64,
    month: i64,
    day: i64,
    clock: [i64; 4],
    /// Hours and minutes east of Greenwich, and the sign.
    zone: Option<(i64, i64, i64)>,
}

fn parts(text: &[u8]) -> Option<Parts> {
    let mut cursor = Cursor(text);
    let sign = cursor.take(b"+-");
    let digits = cursor.digits(4, 9)?;
    let (year, year_digits) = (number(digits), digits.len());
    cursor.take(b"-")?;
    let month = cursor.two()?;
    cursor.take(b"-")?;
    let day = cursor.two()?;
    let mut parts = Parts {
        sign,
        year_digits,
        year,
        month,
        day,
        clock: [0; 4],
        zone: None,
    };
    if cursor.0.is_empty() {
        return Some(parts);
    }
    cursor.take(b"T ")?;
    parts.clock[0] = cursor.two()?;
    cursor.take(b":")?;
    parts.clock[1] = cursor.two()?;
    if cursor.take(b":").is_some() {
        parts.clock[2] = cursor.two()?;
        if cursor.take(b".,").is_some() {
            let digits = cursor.digits(1, 18)?;
            // Digits beyond the microsecond are cut.
            parts.clock[3] = (0..6).fold(0, |sum, at| {
                sum * 10 + digits.get(at).map_or(0, |d| i64::from(d - b'0'))
            });
        }
    }
    while cursor.take(b" \t\n\r\x0b\x0c").is_some() {}
    if let Some(sign) = cursor.take(b"Zz+-")
        && matches!(sign, b'+' | b'-')
    {
        let hours = cursor.two()?;
        let colon = cursor.take(b":").is_some();
        let minutes = if colon || !cursor.0.is_empty() {
            cursor.two()?
        } else {
            0
        };
        parts.zone = Some((hours, minutes, if sign == b'-' { -1 } else { 1 }));
    }
    cursor.0.is_empty().then_some(parts)
}

/// Days since 1970 of a day of the Gregorian calendar; None if there is none.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // Counted from 1 March of year 0, so that the leap day is a year's last.
    let (years, months) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let before = years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
    Some(before + (153 * months + 2) / 5 + day - 1 - 719_468)
}

/// What Python's `str.strip` takes off.
fn is_blank(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

/// Microseconds since 1970 UTC; text without a zone is UTC.
pub fn parse(text: &str) -> Result<i64, Fault> {
    let parts = parts(text.trim_matches(is_blank).as_bytes()).ok_or(Fault::NotATime)?;
    if parts.year == 0 || parts.year > 9999 || parts.sign == Some(b'-') {
        return Err(Fault::OutOfRange);
    }
    if parts.year_digits != 4 || parts.sign.is_some() {
        return Err(Fault::NotATime);
    }
    let days = days(parts.year, parts.month, parts.day).ok_or(Fault::NotATime)?;
    let [hour, minute, second, micros] = parts.clock;
    if hour > 23 || minute > 59 || second > 59 {
        return Err(Fault::NotATime);
    }
    let zone = match parts.zone {
        Some((hours, minutes, _)) if hours > 18 || minutes > 59 => return Err(Fault::NotATime),
        Some((hours, minutes, sign)) => sign * (hours * 60 + minutes),
        None => 0,
    };
    let instant = (((days * 24 + hour) * 60 + minute - zone) * 60 + second) * 1_000_000 + micros;
    check(instant)
}

/// The instant itself, if it lies in the years 1 to 9999.
pub fn check(instant: i64) -> Result<i64, Fault> {
    if (MIN_INSTANT..=MAX_INSTANT).contains(&instant) {
        Ok(instant)
    } else {
        Err(Fault::OutOfRange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants() {
        assert_eq!(parse("1970-01-01"), Ok(0));
        assert_eq!(parse(" 2012-05-07T09:00:00Z "), Ok(1_336_381_200_000_000));
        assert_eq!(parse("2012-05-07 11:00:00.1234567 +0200"), Ok(1_336_381_200_123_456));
        assert_eq!(parse("0001-01-01T00:00:00"), Ok(MIN_INSTANT));
        assert_eq!(parse("9999-12-31T23:59:59.999999Z"), Ok(MAX_INSTANT));
        assert_eq!(parse("0001-01-01T00:00+01"), Err(Fault::OutOfRange));
        assert_eq!(parse("0000-01-01"), Err(Fault::OutOfRange));
        assert_eq!(parse("-2012-01-01"), Err(Fault::OutOfRange));
        assert_eq!(parse("2013-02-29"), Err(Fault::NotATime));
        assert_eq!(parse("2012-05-07T24:00"), Err(Fault::NotATime));
        assert_eq!(parse("2012-05-07T09:00+19:00"), Err(Fault::NotATime));
        assert_eq!(parse("now"), Err(Fault::NotATime));
    }
}
