//! The order of matches as bytes: for those who sort what several matchers found, and only know bytes.

use crate::event::{Id, Name};
use crate::found::Match;
use crate::value::Value;

/// Bytes that compare as `Match::order` does (rule O2).
pub fn order_bytes(found: &Match) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    put_int(&mut bytes, found.time);
    for bound in &found.events {
        bound.events().iter().for_each(|event| put_event(&mut bytes, event));
        bytes.push(0); // before any further event
    }
    if let Some(row) = &found.row {
        row.group.iter().for_each(|key| put_value(&mut bytes, &key.0));
        put_int(&mut bytes, row.start);
    }
    found.bindings.iter().for_each(|key| put_value(&mut bytes, &key.0));
    bytes
}

fn put_int(bytes: &mut Vec<u8>, value: i64) {
    bytes.extend(((value as u64) ^ (1 << 63)).to_be_bytes());
}

fn put_float(bytes: &mut Vec<u8>, value: f64) {
    let bits = (value + 0.0).to_bits();
    let turned = if bits >> 63 == 1 { !bits } else { bits | (1 << 63) };
    bytes.extend(turned.to_be_bytes());
}

/// Ends with two zeros, which a text with zeros of its own has nowhere inside.
fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(1);
        }
    }
    bytes.extend([0, 0]);
}

fn put_event(bytes: &mut Vec<u8>, event: &Name) {
    bytes.push(1);
    put_int(bytes, event.time);
    bytes.extend(event.stream.to_be_bytes());
    match &event.id {
        Id::Int(id) => put_int(bytes, *id),
        Id::Str(id) => put_text(bytes, id.as_bytes()),
    }
}

/// Values of different kinds are in the order of `Val::rank`.
fn put_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(0),
        Value::Bool(x) => bytes.extend([1, u8::from(*x)]),
        Value::Int(x) => {
            bytes.push(2);
            put_int(bytes, *x);
        }
        Value::Float(x) => {
            bytes.push(3);
            put_float(bytes, *x);
        }
        Value::Str(x) => {
            bytes.push(4);
            put_text(bytes, x.as_bytes());
        }
        Value::Bytes(x) => {
            bytes.push(5);
            put_text(bytes, x);
        }
        Value::Floats(x) => {
            bytes.push(6);
            for item in x.iter() {
                bytes.push(1);
                put_float(bytes, *item);
            }
            bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found::{Bound, Row};
    use crate::value::Key;
    use std::sync::Arc;

    fn event(time: i64, stream: u16, id: Id) -> Name {
        Name { time, stream, id }
    }

    fn found(time: i64, events: Vec<Bound>, row: Option<Vec<Value>>, bindings: Vec<Value>) -> Match {
        Match {
            time,
            events,
            select: Vec::new(),
            row: row.map(|group| Row {
                group: group.into_iter().map(Key).collect(),
                start: -time,
                end: time,
            }),
            key: None,
            head: 0,
            bindings: bindings.into_iter().map(Key).collect(),
        }
    }

    fn values() -> Vec<Value> {
        let mut values = vec![Value::Null, Value::Bool(false), Value::Bool(true)];
        values.extend([i64::MIN, -1, 0, 1, i64::MAX].map(Value::Int));
        values.extend([f64::MIN, -1.5, -5e-324, -0.0, 0.0, 5e-324, 2.5, f64::MAX].map(Value::Float));
        values.extend(["", "a", "a\0", "a\0\0", "a\0b", "a\u{1}", "b", "é"].map(|text| Value::Str(text.into())));
        values.extend([&b""[..], b"\0", b"\0\x01", b"\xff"].map(|x| Value::Bytes(Arc::new(x.into()))));
        values.extend([&[][..], &[-1.0], &[-1.0, 2.0], &[3.0]].map(|x| Value::Floats(Arc::new(x.into()))));
        values
    }

    #[test]
    fn bytes_compare_as_matches_do() {
        let mut matches = Vec::new();
        let ids = ["\0", "a", "a\0b"].map(|id| Id::Str(id.into()));
        let mut bounds = vec![Bound::Unbound, Bound::Many(Vec::new())];
        for id in ids.into_iter().chain([-7, 300].map(Id::Int)) {
            let stream = u16::from(matches!(id, Id::Int(_)));
            for time in [-5, 9] {
                bounds.push(Bound::One(event(time, stream, id.clone())));
                bounds.push(Bound::Many(vec![
                    event(-9, stream, id.clone()),
                    event(time, stream, id.clone()),
                ]));
            }
        }
        for one in &bounds {
            for two in &bounds {
                matches.push(found(3, vec![one.clone(), two.clone()], None, Vec::new()));
            }
        }
        for value in values() {
            for time in [i64::MIN, -1, 3, i64::MAX] {
                matches.push(found(
                    time,
                    vec![bounds[3].clone(), Bound::Unbound],
                    None,
                    vec![value.clone()],
                ));
            }
        }
        for one in &matches {
            for two in &matches {
                if one.bindings.len() == two.bindings.len() || one.time != two.time {
                    assert_eq!(
                        order_bytes(one).cmp(&order_bytes(two)),
                        one.order(two),
                        "{one:?} {two:?}"
                    );
                }
            }
        }
        let rows: Vec<Match> = values()
            .into_iter()
            .flat_map(|value| [-1, 3].map(|time| found(time, Vec::new(), Some(vec![value.clone()]), Vec::new())))
            .collect();
        for one in &rows {
            for two in &rows {
                assert_eq!(
                    order_bytes(one).cmp(&order_bytes(two)),
                    one.order(two),
                    "{one:?} {two:?}"
                );
            }
        }
    }
}
