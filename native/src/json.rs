//! Reading the plans that src/cepheid/plan/compile.py writes: serde_json's values, and faults that say what is missing.

use std::fmt;

use serde::Deserialize;

pub use serde_json::Value as Json;

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// A fault as a result.
pub fn fault<T>(message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault(message.into()))
}

/// Reads a whole text. The language bounds how deep a plan is, so serde_json's own limit, which is lower, is off.
pub fn parse(text: &str) -> Result<Json, Fault> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let value = Json::deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    value.or_else(|error| fault(format!("the plan is not JSON: {error}")))
}

/// What a plan says at a place, or a fault.
pub trait Reading: Sized {
    /// The member of that name.
    fn member(&self, name: &str) -> Result<&Self, Fault>;
    /// The items of a list.
    fn list(&self) -> Result<&[Self], Fault>;
    /// The item at a place in a list.
    fn at(&self, place: usize) -> Result<&Self, Fault>;
    /// The text.
    fn text(&self) -> Result<&str, Fault>;
    /// The truth value.
    fn bool(&self) -> Result<bool, Fault>;
    /// The integer.
    fn int(&self) -> Result<i64, Fault>;
    /// The integer as a place or a count.
    fn index(&self) -> Result<usize, Fault>;
    /// The float.
    fn float(&self) -> Result<f64, Fault>;
    /// None for null, else what `read` makes of it.
    fn optional<T>(&self, read: impl FnOnce(&Self) -> Result<T, Fault>) -> Result<Option<T>, Fault>;
    /// What `read` makes of each item of a list.
    fn each<T>(&self, read: impl FnMut(&Self) -> Result<T, Fault>) -> Result<Vec<T>, Fault>;
}

impl Reading for Json {
    fn member(&self, name: &str) -> Result<&Json, Fault> {
        self.get(name)
            .map_or_else(|| fault(format!("the plan has no '{name}'")), Ok)
    }

    fn list(&self) -> Result<&[Json], Fault> {
        self.as_array().map_or_else(
            || fault(format!("expected a list, found {self}")),
            |items| Ok(items.as_slice()),
        )
    }

    fn at(&self, place: usize) -> Result<&Json, Fault> {
        self.list()?
            .get(place)
            .map_or_else(|| fault(format!("a list is too short for place {place}")), Ok)
    }

    fn text(&self) -> Result<&str, Fault> {
        self.as_str()
            .map_or_else(|| fault(format!("expected text, found {self}")), Ok)
    }

    fn bool(&self) -> Result<bool, Fault> {
        self.as_bool()
            .map_or_else(|| fault(format!("expected true or false, found {self}")), Ok)
    }

    fn int(&self) -> Result<i64, Fault> {
        self.as_i64()
            .map_or_else(|| fault(format!("expected an int64, found {self}")), Ok)
    }

    fn index(&self) -> Result<usize, Fault> {
        usize::try_from(self.int()?).or_else(|_| fault("expected a count, found a negative number"))
    }

    fn float(&self) -> Result<f64, Fault> {
        self.as_f64()
            .map_or_else(|| fault(format!("expected a float, found {self}")), Ok)
    }

    fn optional<T>(&self, read: impl FnOnce(&Json) -> Result<T, Fault>) -> Result<Option<T>, Fault> {
        if self.is_null() { Ok(None) } else { read(self).map(Some) }
    }

    fn each<T>(&self, read: impl FnMut(&Json) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        self.list()?.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_missing() {
        let json = parse(r#"{"a": [1, 2.5, null, "x", true]}"#).unwrap();
        let list = json.member("a").unwrap();
        assert_eq!(list.at(0).unwrap().int(), Ok(1));
        assert_eq!(list.at(1).unwrap().float(), Ok(2.5));
        assert_eq!(list.at(2).unwrap().optional(Json::index), Ok(None));
        assert_eq!(list.at(3).unwrap().text(), Ok("x"));
        assert_eq!(list.at(4).unwrap().bool(), Ok(true));
        assert_eq!(json.member("b").unwrap_err().0, "the plan has no 'b'");
        assert_eq!(list.at(9).unwrap_err().0, "a list is too short for place 9");
        assert_eq!(
            list.at(3).unwrap().int().unwrap_err().0,
            "expected an int64, found \"x\""
        );
    }

    #[test]
    fn floats_are_exact_and_depth_is_no_fault() {
        assert_eq!(parse("0.1000000000000000055511151231257827").unwrap().float(), Ok(0.1));
        let deep = format!("{}{}", "[".repeat(600), "]".repeat(600));
        assert!(parse(&deep).is_ok());
        assert!(parse("{").unwrap_err().0.starts_with("the plan is not JSON"));
        assert!(parse("1 2").is_err());
    }
}
