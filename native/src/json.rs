//! A reader of JSON, for the plans that src/cepheid/plan/compile.py writes.
//!
//! Own, because a plan is small and ours: a crate for it would cost more to build than the rest of the core.

use std::fmt;

/// Deeper nesting is refused, so that neither this reader nor the evaluator runs out of stack.
const MAX_DEPTH: usize = 1000;

/// A JSON value. Numbers keep their text until someone says which kind is wanted.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as written.
    Number(String),
    /// Text.
    Text(String),
    /// `[...]`
    List(Vec<Json>),
    /// `{...}`, in order.
    Object(Vec<(String, Json)>),
}

/// What is wrong with a text or with a plan in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// A fault with this message.
pub fn fault<T>(message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault(message.into()))
}

impl Json {
    /// Reads a whole text.
    pub fn parse(text: &str) -> Result<Json, Fault> {
        let mut reader = Reader {
            text,
            bytes: text.as_bytes(),
            at: 0,
        };
        let value = reader.value(0)?;
        reader.space();
        if reader.at < reader.bytes.len() {
            return reader.wrong("the end");
        }
        Ok(value)
    }

    /// The member of that name.
    pub fn get(&self, name: &str) -> Result<&Json, Fault> {
        match self {
            Json::Object(members) => match members.iter().find(|(key, _)| key == name) {
                Some((_, value)) => Ok(value),
                None => fault(format!("the plan has no '{name}'")),
            },
            _ => fault(format!("no object around '{name}'")),
        }
    }

    /// The items of a list.
    pub fn list(&self) -> Result<&[Json], Fault> {
        match self {
            Json::List(items) => Ok(items),
            other => fault(format!("expected a list, found {other:?}")),
        }
    }

    /// The item at a place in a list.
    pub fn at(&self, place: usize) -> Result<&Json, Fault> {
        match self.list()?.get(place) {
            Some(item) => Ok(item),
            None => fault(format!("a list is too short for place {place}")),
        }
    }

    /// The text.
    pub fn text(&self) -> Result<&str, Fault> {
        match self {
            Json::Text(text) => Ok(text),
            other => fault(format!("expected text, found {other:?}")),
        }
    }

    /// The truth value.
    pub fn bool(&self) -> Result<bool, Fault> {
        match self {
            Json::Bool(value) => Ok(*value),
            other => fault(format!("expected true or false, found {other:?}")),
        }
    }

    /// The integer.
    pub fn int(&self) -> Result<i64, Fault> {
        match self {
            Json::Number(text) => text
                .parse()
                .or_else(|_| fault(format!("expected an int64, found {text}"))),
            other => fault(format!("expected a number, found {other:?}")),
        }
    }

    /// The integer as a place or a count.
    pub fn index(&self) -> Result<usize, Fault> {
        usize::try_from(self.int()?).or_else(|_| fault("expected a count, found a negative number"))
    }

    /// The float.
    pub fn float(&self) -> Result<f64, Fault> {
        match self {
            Json::Number(text) => text
                .parse()
                .or_else(|_| fault(format!("expected a float, found {text}"))),
            other => fault(format!("expected a number, found {other:?}")),
        }
    }

    /// None for null, else what `read` makes of it.
    pub fn optional<T>(&self, read: impl FnOnce(&Json) -> Result<T, Fault>) -> Result<Option<T>, Fault> {
        match self {
            Json::Null => Ok(None),
            value => read(value).map(Some),
        }
    }

    /// What `read` makes of each item of a list.
    pub fn each<T>(&self, read: impl FnMut(&Json) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        self.list()?.iter().map(read).collect()
    }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn wrong<T>(&self, expected: &str) -> Result<T, Fault> {
        fault(format!("JSON: expected {expected} at byte {}", self.at))
    }

    fn space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn next_is(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, Fault> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        self.wrong(word)
    }

    fn value(&mut self, depth: usize) -> Result<Json, Fault> {
        if depth > MAX_DEPTH {
            return fault("JSON: nested too deep");
        }
        self.space();
        match self.bytes.get(self.at) {
            Some(b'n') => self.word("null", Json::Null),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'[') => self.items(depth),
            Some(b'{') => self.members(depth),
            Some(b'-' | b'0'..=b'9') => Ok(self.number()),
            _ => self.wrong("a value"),
        }
    }

    fn number(&mut self) -> Json {
        let start = self.at;
        while matches!(
            self.bytes.get(self.at),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        Json::Number(self.text[start..self.at].to_owned())
    }

    fn items(&mut self, depth: usize) -> Result<Json, Fault> {
        self.at += 1;
        let mut items = Vec::new();
        if self.next_is(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.next_is(b']') {
                return Ok(Json::List(items));
            }
            if !self.next_is(b',') {
                return self.wrong("',' or ']'");
            }
        }
    }

    fn members(&mut self, depth: usize) -> Result<Json, Fault> {
        self.at += 1;
        let mut members = Vec::new();
        if self.next_is(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return self.wrong("a name");
            }
            let name = self.string()?;
            if !self.next_is(b':') {
                return self.wrong("':'");
            }
            members.push((name, self.value(depth + 1)?));
            if self.next_is(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.next_is(b',') {
                return self.wrong("',' or '}'");
            }
        }
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut found = String::new();
        loop {
            let start = self.at;
            while !matches!(self.bytes.get(self.at), None | Some(b'"' | b'\\')) {
                self.at += 1;
            }
            found.push_str(&self.text[start..self.at]);
            match self.bytes.get(self.at) {
                None => return self.wrong("'\"'"),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(found);
                }
                Some(_) => {
                    let escaped = self.escape()?;
                    found.push(escaped);
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let letter = self.bytes.get(self.at + 1).copied();
        self.at += 2;
        match letter {
            Some(c @ (b'"' | b'\\' | b'/')) => Ok(char::from(c)),
            Some(b'b') => Ok('\u{8}'),
            Some(b'f') => Ok('\u{c}'),
            Some(b'n') => Ok('\n'),
            Some(b'r') => Ok('\r'),
            Some(b't') => Ok('\t'),
            Some(b'u') => {
                let high = self.hex()?;
                if !(0xd800..0xdc00).contains(&high) {
                    return char::from_u32(high).map_or_else(|| self.wrong("a character"), Ok);
                }
                if self.bytes.get(self.at..self.at + 2) != Some(b"\\u".as_slice()) {
                    return self.wrong("the other half of a character");
                }
                self.at += 2;
                let low = self.hex()?;
                let code = 0x10000 + ((high - 0xd800) << 10) + low.wrapping_sub(0xdc00);
                char::from_u32(code).map_or_else(|| self.wrong("a character"), Ok)
            }
            _ => self.wrong("an escape"),
        }
    }

    fn hex(&mut self) -> Result<u32, Fault> {
        let digits = self.text.get(self.at..self.at + 4);
        match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => self.wrong("four hex digits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value() {
        let json = Json::parse(r#" {"a": [1, -2.5e+3, "x\n\u00e9\ud83d\ude00"], "b": null, "c": true} "#).unwrap();
        assert_eq!(json.get("a").unwrap().at(0).unwrap().int(), Ok(1));
        assert_eq!(json.get("a").unwrap().at(1).unwrap().float(), Ok(-2500.0));
        assert_eq!(json.get("a").unwrap().at(2).unwrap().text(), Ok("x\né😀"));
        assert_eq!(json.get("b").unwrap(), &Json::Null);
        assert_eq!(json.get("c").unwrap().bool(), Ok(true));
        assert!(json.get("d").is_err());
    }

    #[test]
    fn faults_are_errors() {
        for text in [
            "",
            "[",
            "{\"a\"",
            "[1,]",
            "\"\\x\"",
            "\"\\ud83d\"",
            "nul",
            "1 2",
            "\"abc",
            "{\"a\":1,}",
        ] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
    }
}
